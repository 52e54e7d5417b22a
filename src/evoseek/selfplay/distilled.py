"""The pull towards the policy that sees the path of a question's proposer, from settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from evoseek.env.prompts import PromptSet
from evoseek.protocols import PassageStore
from evoseek.rollout.agent import Agent
from evoseek.selfplay.question_log import QuestionLog
from evoseek.training.distillation import SelfDistillation
from evoseek.training.trainer import Trainer
from evoseek.types import Message, Passage, Question, TrainingSample


def self_distillation(
    coefficient: float, trainer: Trainer, agent: Agent, corpus: PassageStore, questions: QuestionLog
) -> SelfDistillation | None:
    """The self-distillation of the settings; None if it is switched off."""
    if coefficient == 0:
        return None
    renderer = agent.renderer(())

    def prompt(sample: TrainingSample) -> Sequence[int] | None:
        """The teacher's prompt. A group's key ends with its question's id."""
        question = questions.find(sample.group.rsplit("/", 1)[-1])
        evidence = cast("Sequence[str]", question.metadata["evidence"])
        passages = [corpus.get(passage) for passage in evidence]
        env = TeacherEnv(passages, agent.prompts, renderer.format, max_calls=agent.limits.calls)
        ids = renderer.render_prompt(env.messages(question))
        written = len(sample.token_ids) - sample.loss_mask.index(True)
        return ids if len(ids) + written <= agent.limits.max_total_tokens else None

    return SelfDistillation(trainer.own_logprobs(), prompt, coefficient)


class TeacherEnv:
    """Words the prompt of the policy that teaches itself; nothing is ever rolled out here."""

    def __init__(
        self,
        passages: Sequence[Passage],
        prompts: PromptSet,
        format: Literal["tags", "tools"],
        *,
        max_calls: int | None = None,
    ) -> None:
        self._template = prompts["teacher"]
        self._values = {"passages": tuple(passages), "format": format, "max_calls": max_calls}

    def messages(self, question: Question) -> list[Message]:
        """The prompt."""
        return [Message("user", self._template.marked(question=question.text, **self._values))]
