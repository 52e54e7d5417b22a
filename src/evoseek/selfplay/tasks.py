"""Tasks for proposers, from the passages or the answers of a corpus.

An answer is given with the number of successive searches that lead away from it:

    search for the answer -> a passage about something else that mentions it -> search for that passage's title -> ...

A proposer that has to make more searches than there are such steps could only invent something (Search Self-play leaves
open how answers and numbers of searches are matched).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from evoseek.corpus.answers import TitleFinder, load_answers, mine_answers
from evoseek.env.environments import answer_task, passage_task
from evoseek.errors import ConfigError
from evoseek.protocols import PassageStore
from evoseek.selfplay.proposals import TaskSource
from evoseek.selfplay.settings import GameSettings
from evoseek.training.agent import Agent
from evoseek.types import Passage, Question


@dataclass(frozen=True, slots=True)
class SearchChain:
    """An answer, and the number of successive searches that lead away from it."""

    answer: str
    searches: int


def follow_back(answer: str, find: Callable[[str], Sequence[Passage]], most: int) -> SearchChain:
    """Follow each time the first passage found that mentions what was searched for, as whole words, and is about
    something new, at most `most` times. `find` gives a query's best passages."""
    seen = [answer.casefold()]
    while len(seen) <= most:
        sought = seen[-1]
        mentions = TitleFinder([sought])
        titles = (passage.title.casefold() for passage in find(sought) if mentions(passage.text))
        new = next((title for title in titles if title not in seen), None)
        if new is None:
            break
        seen.append(new)
    return SearchChain(answer, len(seen) - 1)


POOL = 200_000  # maximum number of passages for proposals; of a larger corpus, a random sample
SOURCE_TOKENS = 256  # maximum number of tokens of a passage that a proposer is shown


def passage_tasks(
    settings: GameSettings,
    agent: Agent,
    pool: Sequence[Passage],
    *,
    purpose: str,
    copies: int,
    shown: bool,
) -> TaskSource[Passage]:
    """Tasks from passages, cut to the `SOURCE_TOKENS` that a proposer is shown. `purpose` keeps draws apart."""
    tokenizer = agent.policy.tokenizer

    def make(id: str, passage: Passage, hops: int) -> Question:
        ids = tokenizer.encode(passage.text, add_special_tokens=False)
        text = passage.text if len(ids) <= SOURCE_TOKENS else str(tokenizer.decode(ids[:SOURCE_TOKENS]))
        return passage_task(id, replace(passage, text=text), hops, shown=shown)

    return TaskSource(pool, make, settings.proposer.ratio, f"{settings.run.seed}/{purpose}", copies)


def answer_tasks(settings: GameSettings, corpus: PassageStore, path: str) -> TaskSource[SearchChain]:
    """Tasks from an answer set: a file, or answers mined from the corpus; only answers from which a search leads on."""
    ratio, seed = settings.proposer.ratio, settings.run.seed
    answers = load_answers(Path(path)) if path else mine_answers(corpus.passages())
    find = partial(corpus.find, k=settings.search.top_k)
    leads = [lead for answer in answers if (lead := follow_back(answer, find, len(ratio))).searches]
    if not leads:
        raise ConfigError(
            f"None of {len(answers)} answers (of {path or 'the corpus'}) can be worked back from: no search for "
            f"one in {settings.search.index} finds a passage about something else that mentions it. Give other "
            'answers, JSON lines such as {"answer": "Lisbon"}, with --set ssp.answers=FILE, or index more documents.'
        )

    far = [[lead for lead in leads if lead.searches >= searches] for searches in range(len(ratio) + 1)]

    def make(id: str, lead: SearchChain, searches: int) -> Question:
        """This answer, or, if it does not lead far enough, another one that does, if there is any."""
        if lead.searches < searches and far[searches]:
            lead = random.Random(f"{seed}/lead/{id}").choice(far[searches])
        return answer_task(id, lead.answer, min(searches, lead.searches))

    return TaskSource(leads, make, ratio, str(seed), settings.proposer.per_task)


def passage_pool(corpus: PassageStore, seed: int) -> list[Passage]:
    """The passages that proposals are made from."""
    return sample_passages(corpus.passages(), POOL, seed)


def sample_passages(passages: Iterable[Passage], most: int, seed: int) -> list[Passage]:
    """All of them in order, or if there are more than `most`, so many drawn at random in one reading."""
    rng, pool = random.Random(f"{seed}/pool"), list[Passage]()
    for number, passage in enumerate(passages):
        if len(pool) < most:
            pool.append(passage)
        elif (place := rng.randrange(number + 1)) < most:
            pool[place] = passage
    return pool
