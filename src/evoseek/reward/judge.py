"""A judge: a language model that decides whether an answer is right.

It reads text by the policy that it rewards, so this text must not be able to give it instructions. The answer (and the
question, which a proposer may have written) is put on one line, in which nothing can close or open a tag or a turn,
whatever becomes of the prompt on its way to the model; and its reply is parsed strictly (`evoseek.reward.verdict`). A
prompt cannot do more: whether answers can persuade a judge has to be measured (`evoseek judge check`).
"""

from __future__ import annotations

import re
from typing import Protocol

from evoseek.env.prompts import PromptSet
from evoseek.errors import ToolError
from evoseek.policy.encoding import harmless, well_formed
from evoseek.protocols import Chat
from evoseek.reward.functions import RewardSettings
from evoseek.reward.verdict import parse_verdict, verdict_form
from evoseek.types import Invalid, Message, Outcome, Question, Scored, StopReason, Trajectory

FORM = verdict_form("correct")

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_NO_NAME = frozenset(
    (
        *("base", "instruct", "chat", "it", "thinking", "preview", "latest"),
        *("sft", "dpo", "rl", "rlhf", "ppo", "grpo", "distill", "hf", "mlx", "gguf", "awq", "gptq", "int", "fp", "bf"),
        *("nano", "mini", "small", "medium", "large", "big", "xl", "lite", "plus", "pro", "max", "turbo"),
    )
)


class Judging(Protocol):
    """The context that a judge is built from."""

    def chat(self, section: str) -> tuple[Chat, PromptSet]:
        """The model of a table of settings, and its prompts."""
        ...


class Judge:
    """A RewardFn: 1 if a model judges that the trajectory's answer is right, else 0; the part `judge` is the same.

    An answer that is missing or blank is wrong, and the model is not called. Otherwise it is called once. If it does
    not reply with exactly one verdict, the outcome is Invalid. Raises ConfigError if the prompt set has no judge.jinja.
    """

    @classmethod
    def build(cls, settings: RewardSettings, context: Judging) -> Judge:
        """The model of [judge]."""
        return cls(*context.chat("judge"))

    def __init__(self, chat: Chat, prompts: PromptSet) -> None:
        self._chat, self._template = chat, prompts["judge"]

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Score one trajectory."""
        try:
            correct = await self.verdict(trajectory.question, trajectory.answer or "", key=f"{trajectory.id}/judge")
        except ToolError as error:
            return Invalid(StopReason.REWARD_FAILED, str(error))
        return Scored(float(correct), {"judge": float(correct)})

    async def verdict(self, question: Question, answer: str, *, key: str) -> bool:
        """Whether an answer to a question is right. Raises ToolError."""
        if not (given := on_one_line(answer)):
            return False
        golden = [on_one_line(golden) for golden in question.golden_answers]
        content = self._template.marked(question=on_one_line(question.text), golden_answers=golden, answer=given)
        return parse_verdict(await self._chat.chat([Message("user", content)], key=key, form=FORM))


def same_family(a: str, b: str) -> bool:
    """Whether two models, named as a hub, an endpoint or a directory names them, seem to be relatives.

    Compared are the words of the names, without organisation, versions, sizes and kinds of training: one name's have to
    be among the other's. Qwen/Qwen2.5-3B and qwen2.5-7b-instruct are relatives, and so is DeepSeek-R1-Distill-Qwen-7B.
    """
    one, other = (name.strip().rstrip("/").rpartition("/")[2].lower() for name in (a, b))
    first, second = (frozenset(_WORD.findall(name)) - _NO_NAME for name in (one, other))
    if first and second:
        return first <= second or second <= first
    return bool(one) and one == other


def on_one_line(text: str) -> str:
    """Outside text as a line of a judge's prompt, in which it can end neither the line nor a tag."""
    return harmless(" ".join(_CONTROL.sub(" ", well_formed(text)).split()))
