"""Tasks for proposers, from the passages or the answers of a corpus."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from evoseek.corpus.answers import load_answers, mine_answers
from evoseek.env.environments import answer_task, passage_task
from evoseek.errors import ConfigError
from evoseek.protocols import PassageStore
from evoseek.rollout.agent import Agent
from evoseek.selfplay.leads import Lead, follow_back
from evoseek.selfplay.proposals import TaskSource
from evoseek.selfplay.settings import GameSettings
from evoseek.types import Passage, Question

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


def answer_tasks(settings: GameSettings, corpus: PassageStore, path: str) -> TaskSource[Lead]:
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

    def make(id: str, lead: Lead, searches: int) -> Question:
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
