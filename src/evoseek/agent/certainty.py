"""The certainty of an answer: the probability that a policy gives its own words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from evoseek.types import Trajectory

_MARKUP = r"\s*(?:<[^<>]*>\s*)*\Z"  # tags and control tokens, up to the end of the turn


def certainty_of(trajectory: Trajectory, decode: Callable[[Sequence[int]], str], *, temperature: float) -> float | None:
    """exp of the mean logprob of the answer's own tokens, without its tags: the geometric mean of the probabilities
    that the policy gives them at temperature 1, each after the ones before it. It is above 0 and at most 1.

    That it is often right where it is high has to be measured (`eval.risk`). `temperature` is that of the rollout,
    `decode` turns ids into text. A rollout has logprobs of temperature 1 if it was sampled at 1, or greedily
    (`Completion`); at any other temperature its logprobs are those of another distribution, and there is no certainty.
    Nor is there without an answer, or of a model that was called with messages, whose tokens are not known.
    """
    answer = trajectory.answer
    if not answer or temperature not in (0.0, 1.0):
        return None
    turns = [segment for segment in trajectory.segments if segment.kind == "action"]
    for action, turn in zip(reversed(trajectory.actions), reversed(turns), strict=False):
        if action.answer == answer:
            logprobs = [turn.logprobs[place] for place in _places(answer, turn.token_ids, decode)]
            return math.exp(fmean(logprobs)) if logprobs else None
    return None


def _places(answer: str, token_ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Iterator[int]:
    """The places of the tokens that hold a part of the answer, from its end to its beginning."""
    text, words = decode(token_ids), re.escape(answer)
    found = re.search(rf"<answer>\s*({words})\s*</answer>", text) or re.search(rf"({words}){_MARKUP}", text)
    if found is None:
        return
    start, end = found.span(1)
    after = len(text)
    for place in range(len(token_ids) - 1, -1, -1):
        before = len(decode(token_ids[:place]))
        if before < end and after > start:
            yield place
        if before <= start:
            return
        after = before
