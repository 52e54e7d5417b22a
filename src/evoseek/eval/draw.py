"""Samples of an evaluation: finished rollouts, each a line of samples.jsonl, and the drawing of missing ones."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pydantic import ConfigDict, with_config

from evoseek.agent.support import Check
from evoseek.errors import ConfigError, DataError
from evoseek.protocols import RewardFn
from evoseek.questions.questions import cited_share, evidence_of, question_row, recall
from evoseek.reward.functions import lowest_of
from evoseek.rollout.roller import REFILLS, score, searches
from evoseek.storage.files import json_digest
from evoseek.text.normalization import METRICS, answer_value, is_right_refusal
from evoseek.types import Invalid, Outcome, Question, Scored, Trajectory

AnswerFn = Callable[[Question, str], Awaitable[Trajectory]]
"""Answers a question; the text is the trajectory's id, from which random numbers derive. `Roller.one` is one."""

Certainty = Callable[[Trajectory], float | None]
"""Returns the model's certainty of a rollout's answer; None if unknown."""

Key = tuple[str, int]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Sample:
    """Attempt `number` at a question. `scores` has every metric; if the rollout is Invalid, only the reward's lowest
    value, and `invalid` names the reason and `detail` the circumstances.

    `content` is a digest of the question and its golden answers. `documents` are the ids of found passages, in order,
    each once; `recall` is the share of the question's evidence among them (None: unknown evidence). `written` and
    `read` are numbers of tokens (None: unknown). `seconds` is the time from the first turn to the end, waiting
    included; only it differs between two runs of the same work. `answerable` is False for a question marked so.
    `supported`: whether the found passages support the answer (None: not checked). `certainty` is from
    `agent.answer.certainty_of` (None: unknown). `is_long`: whether the answer consists of sentences. `cited` is the
    share of the cited passages that are the question's own, 0 without a citation (None: unknown).
    """

    question: str
    number: int
    content: str
    scores: Mapping[str, float]
    stop_reason: str
    answer: str | None = None
    output: str = ""
    queries: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    recall: float | None = None
    calls: int = 0
    searches: int = 0
    written: int | None = None
    read: int | None = None
    seconds: float = 0.0
    hops: int | None = None
    source: str | None = None
    invalid: str | None = None
    detail: str = ""
    answerable: bool = True
    supported: bool | None = None
    certainty: float | None = None
    is_long: bool = False
    cited: float | None = None

    @property
    def key(self) -> Key:
        return self.question, self.number


class Drawn(NamedTuple):
    """A sample with its rollout and outcome."""

    sample: Sample
    trajectory: Trajectory
    outcome: Outcome


def content_digest(question: Question) -> str:
    """Return a digest of text, golden answers and hidden documents, which distinguishes questions of one id."""
    row = question_row(question)
    return json_digest([row["question"], row["golden_answers"], *sorted(question.hidden)])[:16]


def identifier(question: str, number: int) -> str:
    """Return the id of the rollout of a sample."""
    return f"evaluation/{question}/{number}"


def with_metric(reward: RewardFn, metric: str, check: Check | None = None) -> RewardFn:
    """Return the reward, called `metric`, for an evaluation: an unanswerable question scores 1 for a refusal
    (`is_right_refusal`), and otherwise the reward's lowest value. With a check, the part `supported` is 1 if the found
    passages support the answer, else 0. `cited` is the share of cited passages that are the question's own, if
    known."""

    async def scored(trajectory: Trajectory) -> Outcome:
        if trajectory.question.is_answerable:
            outcome = await reward(trajectory)
        else:
            value = 1.0 if is_right_refusal(trajectory) else lowest_of(reward)
            outcome = Scored(value, {metric: value})
        if check is None or not isinstance(outcome, Scored):
            return outcome
        support = await check(trajectory)
        cited = [number for one in support.sentences if one.is_supported for number in one.numbers]
        share = cited_share(cited, trajectory.passages, trajectory.question)
        known = {} if share is None else {"cited": share}
        return Scored(outcome.reward, {**outcome.parts, "supported": float(support.is_given), **known})

    return scored


async def draw(
    question: Question,
    number: int,
    *,
    answer: AnswerFn,
    metric: str,
    reward: RewardFn,
    check: Check | None = None,
    certainty: Certainty = lambda _: None,
) -> Drawn:
    """Answer a question and score the answer by `reward`, called `metric`, and by every answer metric, as in
    `with_metric`.

    A failed rollout is repeated under the same id, so with the same random numbers: a sample must not depend on earlier
    failures. After three failures it is Invalid.
    """
    id, begun, failures = identifier(question.id, number), time.monotonic(), 0
    scored, lowest = with_metric(reward, metric, check), lowest_of(reward)
    while True:
        trajectory = await answer(question, id)
        outcome = await score(trajectory, scored)
        failures += isinstance(outcome, Invalid)
        if not isinstance(outcome, Invalid) or failures > REFILLS:
            break
    seconds, sure = round(time.monotonic() - begun, 3), None if isinstance(outcome, Invalid) else certainty(trajectory)
    sample = _sample(question, number, trajectory, outcome, metric, lowest)
    sample = replace(sample, seconds=seconds, certainty=sure)
    return Drawn(sample, trajectory, outcome)


def _sample(
    question: Question, number: int, trajectory: Trajectory, outcome: Outcome, metric: str, lowest: float
) -> Sample:
    scores = {metric: lowest}
    if not isinstance(outcome, Invalid):
        others = {name: answer_value(name, trajectory) for name in METRICS if name != metric}
        scores = {metric: outcome.reward} | others
    passages = trajectory.passages
    searched = searches([trajectory])
    queries = [one.call.arguments.get("query", one.call.arguments.get("queries")) for one in searched]
    written, hops, source = trajectory.num_action_tokens, question.metadata.get("hops"), question.metadata.get("source")
    supported = None if isinstance(outcome, Invalid) else outcome.parts.get("supported")
    return Sample(
        question=question.id,
        number=number,
        content=content_digest(question),
        scores=scores,
        stop_reason=str(trajectory.stop_reason),
        answer=trajectory.answer,
        output=trajectory.actions[-1].text if trajectory.actions else "",
        queries=tuple(str(one) for query in queries for one in (query if isinstance(query, list) else [query])),
        documents=tuple(dict.fromkeys(id for passage in passages for id in sorted(passage.documents))),
        recall=recall(evidence_of(question), passages),
        calls=len(trajectory.tool_results),
        searches=len(searched),
        written=written if trajectory.segments else None,
        read=len(trajectory.token_ids) - written if trajectory.segments else None,
        hops=hops if isinstance(hops, int) else None,
        source=None if source is None else str(source),
        invalid=str(outcome.reason) if isinstance(outcome, Invalid) else None,
        detail=outcome.detail if isinstance(outcome, Invalid) else "",
        answerable=question.is_answerable,
        is_long=question.is_answerable and question.is_long,
        cited=None if isinstance(outcome, Invalid) else outcome.parts.get("cited"),
        supported=False if isinstance(outcome, Invalid) else None if supported is None else supported == 1.0,
    )


def merged(samples: Iterable[Sample]) -> dict[Key, Sample]:
    """Return one sample a key, in order of the keys: the first valid one, or else the last failed one."""
    found: dict[Key, Sample] = {}
    for sample in samples:
        held = found.get(sample.key)
        if held is None or held.invalid is not None:
            found[sample.key] = sample
    return dict(sorted(found.items()))


AT_ONCE = 256  # maximum concurrent rollouts


def check_ids(questions: Sequence[Question]) -> None:
    """Raise DataError if two questions share an id: one would be counted twice."""
    (twice, times), *_ = Counter(question.id for question in questions).most_common(1) or [("", 0)]
    if times > 1:
        raise DataError(f"Two questions share an id ({twice!r}). Give every question its own id.")


def keys_of(questions: Sequence[Question], samples: int) -> list[Key]:
    """Return the key of every sample of an evaluation. Raises DataError as `check_ids`."""
    check_ids(questions)
    return [(question.id, number) for number in range(samples) for question in questions]


def check_temperature(samples: int, temperature: float) -> None:
    """Raise ConfigError for several samples that would all be the same."""
    if samples > 1 and temperature == 0:
        raise ConfigError(
            f"{samples} samples of each question are all the same at temperature 0. Give a temperature above 0, or one "
            "sample."
        )


async def draw_missing(
    questions: Sequence[Question],
    samples: int,
    done: Collection[Key],
    *,
    draw: Callable[[Question, int], Awaitable[Drawn]],
    keep: Callable[[Drawn], None],
) -> None:
    """Draw every missing sample once, up to `AT_ONCE` concurrently; `keep` gets each finished one.

    An error that is not a failure of a rollout ends everything; what was kept stays.
    """
    by_id, places = {question.id: question for question in questions}, asyncio.Semaphore(AT_ONCE)

    async def one(key: Key) -> None:
        async with places:
            keep(await draw(by_id[key[0]], key[1]))

    await asyncio.gather(*(one(key) for key in keys_of(questions, samples) if key not in done))
