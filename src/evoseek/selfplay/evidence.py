"""The passages behind a proposal: those that its proposer was given, found and used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from evoseek.reward.answer import normalise
from evoseek.reward.format import stands_in
from evoseek.types import Passage, Trajectory

_TAG = re.compile(r"<[^<>]*>")


def retrieved_passages(proposal: Trajectory) -> tuple[Passage, ...]:
    """All passages that the proposer's searches found, each once, in the order of finding."""
    found: dict[str, Passage] = {}
    for result in proposal.tool_results:
        for passage in result.passages:
            found.setdefault(passage.id, passage)
    return tuple(found.values())


def seen_passages(proposal: Trajectory) -> tuple[Passage, ...]:
    """The source passage, if the task shows one, and all that the proposer found, each once."""
    passages = (*_source(proposal), *retrieved_passages(proposal))
    return tuple({passage.id: passage for passage in passages}.values())


def supporting_passages(proposal: Trajectory) -> tuple[Passage, ...]:
    """What the question seems to rest on, each passage once: the source passage, if the task shows one, and of every
    search the passages whose titles the proposer wrote later on, or else the best one. Where the task gave the answer,
    passages about the answer itself do not count: they are where the way back began."""
    given = [normalise(answer) for answer in proposal.question.golden_answers]
    supporting = {passage.id: passage for passage in _source(proposal)}
    for found, later in _searches(proposal):
        passages = [passage for passage in found if normalise(passage.title) not in given]
        used = [passage for passage in passages if stands_in(passage.title, later)]
        for passage in used or passages[:1]:
            supporting.setdefault(passage.id, passage)
    return tuple(supporting.values())


def _source(proposal: Trajectory) -> Iterator[Passage]:
    task = proposal.question.task
    if task is not None and task.passage is not None and task.shown:
        yield task.passage


def _searches(proposal: Trajectory) -> Iterator[tuple[tuple[Passage, ...], str]]:
    """The passages of each call, and all text written after it, without tags. Calls of one turn are made together."""
    results = iter(proposal.tool_results)
    for turn, action in enumerate(proposal.actions, start=1):
        later = _TAG.sub(" ", "\n".join(action.text for action in proposal.actions[turn:]))
        for result in islice(results, len(action.tool_calls)):
            yield result.passages, later
