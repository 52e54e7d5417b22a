"""Supervised fine-tuning: a policy learns its format and its first skill from demonstrations.

    for step = 1 .. epochs x demonstrations / batch:
        draw a batch of demonstrations, each once an epoch
        one optimizer step on the cross-entropy of the tokens that the policy would write: prompts and passages are
        masked

A demonstration has the tokens of a rollout (`evoseek.training.demonstrations`), with what its queries find today. With
the policy's own right answers (`evoseek collect`) this is rejection sampling (RAFT, arXiv 2304.06767). A file may also
hold demonstrations of proposing: the two policies of Dr. Zero begin as the same model. Reinforcement learning cannot
reinforce what a policy never tries: a model that never writes the format needs some of these steps first. SFT fails if
the demonstrations teach a policy to answer what it has not read, or if it trains for so long that rollouts no longer
differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from pydantic import Field

from evoseek.assembly.settings import EvaluationSettings, RunSettings, TrainingSettings
from evoseek.config.sections import MANY, Count, Needs, Section
from evoseek.rollout.environments import PassageProposerEnv
from evoseek.training.question_order import Passes
from evoseek.training.rollout_metrics import StepReport
from evoseek.types import TrainingSample

if TYPE_CHECKING:
    from evoseek.training.plan import TrainingContext, TrainingPlan
    from evoseek.training.update import SampleTransform

_NO_REWARDS = "Demonstrations are learnt by the cross-entropy of their tokens, without rewards."


class DemonstrationSettings(Section):
    """The demonstrations."""

    path: str = Field(
        default="", description="File of demonstrations, a solver's or a proposer's: JSON lines with turns."
    )
    held_out: float = Field(
        default=0.05,
        ge=0,
        lt=1,
        description="Share of the questions whose demonstrations are held out for the loss (eval/loss).",
    )
    per_step: Count = Field(default=16, description="Number of demonstrations in a step.")
    epochs: Count = Field(
        default=1,
        description="Number of passes over the demonstrations, during which the learning rate falls to 0.",
    )


class SFTEvaluationSettings(EvaluationSettings):
    """Evaluation during training: the loss of held-out demonstrations, and rollouts on held-out questions."""

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Return the effects; the loss is also measured without questions."""
        return (Needs("index limit temperature", "path"),)


@dataclass(frozen=True, slots=True)
class SFT:
    """Supervised fine-tuning: a policy learns its format and its first skill from demonstrations.

    `training.loop.TrainingLoop` repeats `step`.
    `update` makes an optimizer step, `publish` hands the new weights to the sampler, and `score` puts the learner's
    logprobs into the samples.
    """

    samples: Sequence[TrainingSample]
    held_out: Sequence[TrainingSample]
    update: Callable[[Sequence[TrainingSample]], Mapping[str, float]]
    score: SampleTransform
    publish: Callable[[int], None]
    per_step: int
    seed: int
    passes: Passes = field(default_factory=Passes)

    class Settings(TrainingSettings):
        """Settings of supervised fine-tuning."""

        is_supervised = True
        run: RunSettings = RunSettings(system="sft", steps=MANY)  # the epochs end it
        demonstrations: DemonstrationSettings = DemonstrationSettings()
        evaluation: SFTEvaluationSettings = SFTEvaluationSettings()  # pyright: ignore[reportIncompatibleVariableOverride]

        @classmethod
        def effects(cls) -> tuple[Needs, ...]:
            return *super().effects(), Needs("loss.name credit.* algorithm.*", "", instead=_NO_REWARDS)

    @classmethod
    def build(cls, settings: Settings, context: TrainingContext) -> TrainingPlan:
        """Build the plan. The demonstrations are played with the search engine and the limits of rollouts."""
        from evoseek.training import demonstrations as shown  # imports torch, which the settings do not need

        own, seed, agent = settings.demonstrations, settings.run.seed, context.agent
        context.report_models()
        tools = context.tools(agent.prompts, context.engine)
        roles = shown.Roles(agent.solver(tools), agent.proposer(tools, PassageProposerEnv))
        played = shown.on_all_ranks(lambda: shown.demonstrations_of_file(Path(own.path), roles), context.ranks)
        played = shown.without(played, context.reviewed)
        context.warn_unknown_words((t.question.text for t in played.trajectories), what="the demonstrations")
        context.notify(shown.summary(played, own.path))
        trained, held_out = shown.hold_out(played.trajectories, own.held_out, seed)
        samples = shown.samples_of(trained)
        per_step = min(own.per_step, len(samples))
        steps = math.ceil(own.epochs * len(samples) / per_step)
        trainer = context.learn_supervised(total_steps=steps)
        system = cls(
            samples=samples,
            held_out=shown.samples_of(held_out),
            update=trainer.learner.update,
            score=trainer.own_logprobs(),
            publish=context.publish,
            per_step=per_step,
            seed=seed,
        )
        plan = context.plan(system, roles.solver)
        return replace(plan, steps=steps, measure=system.measure if held_out else None, state=system.passes)

    async def step(self, step: int) -> StepReport:
        started = perf_counter()
        names = [str(number) for number in range(len(self.samples))]
        batch = [
            self.samples[place] for place in self.passes.draw(names, seed=self.seed, step=step, size=self.per_step)
        ]
        self.passes.count(step, names)
        measured = {name: value for name, value in self.update(batch).items() if not name.startswith("sampling/")}
        self.publish(step)
        tokens = {
            "demonstrations/num": float(len(batch)),
            "demonstrations/tokens": float(sum(len(sample.token_ids) for sample in batch)),
            "demonstrations/learnt_tokens": float(sum(sum(sample.loss_mask) for sample in batch)),
            "demonstrations/epoch": step * self.per_step / len(self.samples),
        }
        return StepReport({**measured, **tokens}, {"learner/seconds": perf_counter() - started}, (), 0)

    async def measure(self, step: int) -> Mapping[str, float]:
        """Return the mean cross-entropy per token of the held-out demonstrations, and their number."""
        scored = self.score(self.held_out)
        tokens = sum(sum(sample.loss_mask) for sample in scored)
        loss = -sum(sum(sample.old_logprobs or ()) for sample in scored) / tokens
        return {"eval/loss": loss, "eval/loss_n": float(len(scored))}
