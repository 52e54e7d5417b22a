"""The pull towards the policy that sees the path of a question's proposer, from settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from evoseek.env.teacher import TeacherEnv
from evoseek.protocols import PassageStore
from evoseek.rollout.agent import Agent
from evoseek.selfplay.question_log import QuestionLog
from evoseek.training.distillation import SelfDistillation
from evoseek.training.trainer import Trainer
from evoseek.types import TrainingSample


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
        env = TeacherEnv([corpus.get(passage) for passage in evidence], agent.prompts, renderer.format)
        ids = renderer.render_prompt(env.messages(question))
        written = len(sample.token_ids) - sample.loss_mask.index(True)
        return ids if len(ids) + written <= agent.limits.max_total_tokens else None

    return SelfDistillation(trainer.own_logprobs(), prompt, coefficient)
