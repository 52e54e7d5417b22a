"""DeepResearcher's reward (arXiv 2504.03160, section 3.4): -1 if the format is broken, else word-level F1.

The format is correct if the rollout ended with an answer of at least one word, in the only <answer> of its last turn,
every turn could be parsed, and in every turn each tag is closed before another one is opened. A call that cannot be
parsed is worth -1, even if the rollout continues after it (rollout.max_malformed), and so is reaching a limit. F1 is
`set_f1`: answers are compared as sets of words, in lower case and without punctuation. Unlike SQuAD's F1 it keeps
articles.
"""

from __future__ import annotations

import re

from evoseek.reward.answer import set_f1, word_set
from evoseek.types import Outcome, Scored, Trajectory

BROKEN = -1.0
"""The reward of a broken format: the lowest possible score."""

_TAG = re.compile(r"<(/?)(think|search|browse|information|tool_call|tool_response|answer)>")


class WebFormatReward:
    """A RewardFn; its parts are `format`, 1 if the format is correct, and `set_f1`, 0 if it is not."""

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
    tags = [(bool(tag[1]), str(tag[2])) for tag in _TAG.finditer(text)]
    if tags[:1] == [(True, "think")]:
        tags = tags[1:]
    pairs = zip(tags[::2], tags[1::2], strict=False)
    return len(tags) % 2 == 0 and all(pair == ((False, pair[0][1]), (True, pair[0][1])) for pair in pairs)
