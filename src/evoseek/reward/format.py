"""Rewards of a rollout's format: Dr. Zero's of a proposal, DeepResearcher's of an answer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from evoseek.rollout.environments import task_of
from evoseek.text.normalization import normalise, set_f1, word_set
from evoseek.types import Outcome, Scored, ToolCall, Trajectory

_SHORT = 3  # characters
_FEW_WORDS, _MANY_WORDS = 5, 10
_TAG = re.compile(r"</?(?:think|search|tool_call|question|answer)>")


@dataclass(frozen=True, slots=True)
class FormatScore:
    """The gate and the three graded parts, each in [0, 1]."""

    gate: bool
    think: float
    tool: float
    answer: float

    @property
    def value(self) -> float:
        """f, in [0, 1]."""
        return math.fsum((1.0, self.think, self.tool, self.answer)) / 4 if self.gate else 0.0


def format_score(proposal: Trajectory) -> FormatScore:
    """Dr. Zero's format reward (arXiv 2601.07055): the quality of a proposal before it is answered. Its gate and the
    steps of each part are those of the published code. Appendix A of the paper names four requirements, each with a
    lower bound of 0, that add up to 0.5.

        f = (1 + think + tool + answer) / 4, or 0 if the gate fails.     The paper's r_f is f / 2, in [0, 0.5].

        gate      there are a question and an answer, and the question does not contain the answer
        think     share of the proposer's turns that open with reasoning
        tool      for n = 1 requested hops 1; for n > 1 min((1 + calls) / n, 1) if there was a call and all were valid,
                  else 0; if none is requested, 1 if all calls were valid, else 0 (ours)
        answer    0 if it is neither yes or no nor stands in the source passage (if that was shown) or in one that was
                  found by a proposal whose calls were all valid; else 1 for up to 5 words of its normal form, 1/2 for
                  up to 10, 0 beyond

    As published, more calls than the n - 1 asked for cost nothing. Raises ValueError if the task requests no number of
    hops.
    """
    question, answer = stated(proposal)
    return FormatScore(
        gate=bool(question and normalise(answer)) and not stands_in(answer, question),
        think=_think(proposal),
        tool=_tool(proposal),
        answer=_answer(proposal, answer),
    )


def stated(proposal: Trajectory) -> tuple[str, str]:
    """The question and the answer in a proposer's last turn; "" if it was not stated.

    In the tool-call format a turn without <answer> is read as the answer, whole: with a <question> in it it is none.
    """
    question = (proposal.actions[-1].question or "").strip() if proposal.actions else ""
    answer = (proposal.answer or "").strip()
    return question, "" if "<question>" in answer else answer


def is_valid_search(call: ToolCall) -> bool:
    """Whether a call is one of `search`, a proposer's only tool, with a query that is a text and not blank."""
    query = call.arguments.get("query")
    return call.name == "search" and isinstance(query, str) and bool(query.strip())


def stands_in(phrase: str, text: str) -> bool:
    """Whether a phrase occurs in a text, both in normal form, also within words ("Paris" in "Parisian").

    Up to three ASCII characters ("c", "7", "art") would occur in nearly every text: they count as whole words only. A
    phrase of which the normal form leaves nothing occurs nowhere.
    """
    wanted, given = normalise(phrase), normalise(text)
    if len(wanted) <= _SHORT and wanted.isascii():
        return bool(wanted) and f" {wanted} " in f" {given} "
    return wanted in given


def _think(proposal: Trajectory) -> float:
    turns = proposal.actions
    return sum(_opens_with_reasoning(turn.text) for turn in turns) / len(turns) if turns else 0.0


def _opens_with_reasoning(text: str) -> bool:
    """Whether reasoning that is not empty is closed, and no other tag comes before it. Where the chat template opens
    the reasoning, the model's own opening tag is missing."""
    reasoning, closing, _ = text.strip().partition("</think>")
    if not reasoning.startswith("<think>") and _TAG.search(reasoning):
        return False
    return bool(closing and reasoning.removeprefix("<think>").strip())


def _tool(proposal: Trajectory) -> float:
    """Every call of a proposal that ended with an answer was run, so its results tell all of them."""
    hops = task_of(proposal.question).requested
    if hops == 0:
        return float(_calls_are_valid(proposal))
    if hops == 1:
        return 1.0
    calls = len(proposal.tool_results)
    return min((1 + calls) / hops, 1.0) if calls and _calls_are_valid(proposal) else 0.0


def _calls_are_valid(proposal: Trajectory) -> bool:
    """Whether every call was a search. A turn that could not be read counts as a call that was not."""
    readable = all(action.problem is None for action in proposal.actions)
    return readable and all(is_valid_search(result.call) for result in proposal.tool_results)


def _answer(proposal: Trajectory, answer: str) -> float:
    wanted = normalise(answer)
    words = len(wanted.split())
    if not wanted or not (wanted in ("yes", "no") or any(wanted in normalise(text) for text in _texts(proposal))):
        return 0.0
    return 1.0 if words <= _FEW_WORDS else 0.5 if words <= _MANY_WORDS else 0.0


def _texts(proposal: Trajectory) -> Iterator[str]:
    """The source passage (the text of a passage task), if the proposer was shown it, and all that was found, unless a
    call was invalid."""
    if task_of(proposal.question).shown:
        yield proposal.question.text
    for result in proposal.tool_results if _calls_are_valid(proposal) else ():
        for passage in result.passages:
            yield passage.contents


BROKEN = -1.0
"""The reward of a broken format: the lowest possible score."""

_WEB_TAG = re.compile(r"<(/?)(think|search|browse|information|tool_call|tool_response|answer)>")


class WebFormatReward:
    """DeepResearcher's reward (arXiv 2504.03160, section 3.4), a RewardFn: -1 if the format is broken, else `set_f1`.
    Its parts are `format`, 1 if the format is correct, and `set_f1`, 0 if it is not.

    The format is correct if the rollout ended with an answer of at least one word, in the only <answer> of its last
    turn, every turn could be parsed, and in every turn each tag is closed before another one is opened. A call that
    cannot be parsed makes the reward -1, even if the rollout continues after it (rollout.max_malformed), and so does
    reaching a limit.
    """

    lowest = BROKEN

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Score one trajectory."""
        if not keeps_format(trajectory):
            return Scored(BROKEN, {"format": 0.0, "set_f1": 0.0})
        value = set_f1(trajectory.answer or "", trajectory.question.golden_answers)
        return Scored(value, {"format": 1.0, "set_f1": value})


def keeps_format(trajectory: Trajectory) -> bool:
    """Whether a trajectory answers, with all tags in their places."""
    turns = [action.text for action in trajectory.actions]
    answers = bool(turns and word_set(trajectory.answer or "")) and turns[-1].count("<answer>") == 1
    readable = all(action.problem is None for action in trajectory.actions)
    return answers and readable and all(map(_is_balanced, turns))


def _is_balanced(text: str) -> bool:
    """Whether tags open and close in turns. The first may be </think>: some chat templates open the reasoning."""
    tags = [(bool(tag[1]), str(tag[2])) for tag in _WEB_TAG.finditer(text)]
    if tags[:1] == [(True, "think")]:
        tags = tags[1:]
    pairs = zip(tags[::2], tags[1::2], strict=False)
    return len(tags) % 2 == 0 and all(pair == ((False, pair[0][1]), (True, pair[0][1])) for pair in pairs)
