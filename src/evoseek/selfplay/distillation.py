"""Privileged self-distillation: the policy with privileged information teaches the policy without (the idea of pi-Play,
arXiv 2604.14054).

The teacher is the same policy with a prompt that shows more: in self-play the passages on which the proposer built its
question. The student is pulled towards it on its own tokens by the reverse KL, token by token. Of

    KL(student, teacher) = E over tokens drawn from the student of [logprob - teacher's logprob]

the gradient is E[(logprob - teacher's logprob) x gradient of logprob], with the teacher held constant. This is the
policy gradient for the advantage

    A_t = coefficient x (teacher's logprob_t - logprob_t)

on a token that was drawn from the student. It is added to the advantage from the rollout's reward. A single token gives
an unbiased estimate, as long as the current policy drew it and nothing is clipped.

It fails if the teacher is no better: a policy that cannot use the passages in its prompt passes on its own noise; and a
teacher that answers from its prompt, without a search, teaches its student not to search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from evoseek.env.prompts import PromptSet
from evoseek.protocols import PassageStore
from evoseek.selfplay.question_log import QuestionLog
from evoseek.training.agent import Agent
from evoseek.training.trainer import Trainer
from evoseek.training.update import SampleTransform
from evoseek.types import Message, Passage, Question, TrainingSample


@dataclass(frozen=True, slots=True)
class SelfDistillation:
    """Advantages that pull samples of the current policy towards what it writes under a privileged prompt.

    `score` fills in `ref_logprobs` by the current policy's weights, before the batch's first optimizer step.
    `privileged_prompt` returns the token ids of the complete prompt that replaces a sample's own, or None if there is
    nothing more to show, or no room for it (the prompt plus the rest of the sample must fit the model): then there is
    no distillation. A token's difference of logprobs is cut to [-clip, clip], so that a token which the teacher would
    never write, or the student hardly ever, does not outweigh all others.
    """

    score: SampleTransform
    privileged_prompt: Callable[[TrainingSample], Sequence[int] | None]
    coefficient: float
    clip: float = 5.0

    def __call__(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """The advantages of each sample's tokens: [T], 0.0 off the mask and in samples without distillation."""
        prompts = [self.privileged_prompt(sample) for sample in samples]
        pairs = [(sample, prompt) for sample, prompt in zip(samples, prompts, strict=True) if prompt is not None]
        scored = iter(self.score([_under(prompt, sample) for sample, prompt in pairs]))
        return [
            [0.0] * len(sample.token_ids) if prompt is None else self._pull(sample, next(scored))
            for sample, prompt in zip(samples, prompts, strict=True)
        ]

    def _pull(self, sample: TrainingSample, teacher: TrainingSample) -> list[float]:
        first = sample.loss_mask.index(True)
        own = (sample.old_logprobs or ())[first:]
        told = (teacher.ref_logprobs or ())[-len(own) :]
        pulls = (max(-self.clip, min(self.clip, b - a)) for a, b in zip(own, told, strict=True))
        return [0.0] * first + [self.coefficient * pull for pull in pulls]  # off the mask both logprobs are 0.0


def _under(prompt: Sequence[int], sample: TrainingSample) -> TrainingSample:
    """The turns and observations of a sample after another prompt."""
    first = sample.loss_mask.index(True)
    before = (0.0,) * len(prompt)
    return replace(
        sample,
        token_ids=(*prompt, *sample.token_ids[first:]),
        loss_mask=(False,) * len(prompt) + sample.loss_mask[first:],
        rollout_logprobs=before + sample.rollout_logprobs[first:],
        advantages=before + sample.advantages[first:],
        old_logprobs=None,
        ref_logprobs=None,
        values=None,
        returns=None,
    )


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

    return SelfDistillation(trainer.own_logprobs("ref_logprobs"), prompt, coefficient)


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
