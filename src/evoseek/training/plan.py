"""The plan that a system builds for the training loop, and the context to build it from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from evoseek.assembly.agent import Agent
from evoseek.assembly.context import Context, Objects
from evoseek.assembly.inputs import ReviewedQuestions, training_questions
from evoseek.assembly.settings import PUT_OFF, TrainingSettings
from evoseek.credit import needs_critic
from evoseek.errors import ConfigError
from evoseek.learner.checkpoint import CheckpointPart
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.loss.likelihood import CrossEntropyLoss, ReinforceLoss
from evoseek.models.policy import SamplerRun
from evoseek.protocols import GroupLabel, RewardFn
from evoseek.questions.questions import reference_answer
from evoseek.reward.shaping import ShapedReward
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.roller import Roller, askable
from evoseek.rollout.settings import GroupRolloutSettings
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.storage.checkpoints import Checkpoint
from evoseek.storage.runs import RunDirectory
from evoseek.training.loop import Evaluate, State, System, do_nothing
from evoseek.training.probe import Probed
from evoseek.training.rollouts import Ahead, QuestionRollouts
from evoseek.training.trainer import Objective, Trainer, load_trainable, samples_apart
from evoseek.types import Question


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A system with everything that the loop needs.

    `parts` are the parts of a checkpoint, `resumed` is called with the step at which training begins, and `eval_roller`
    answers held-out questions. A system with phases defines its number of `steps`, and after which steps an evaluation
    `is_due` (step 0: before training); otherwise the settings do. In a game (`is_game`) the reward may rise while the
    policy gets worse, so the held-out score is watched. `state` is the system's state in checkpoints besides the parts;
    `measure` gives its own held-out numbers at every evaluation. `drop` drops rollouts of later steps. `others` are
    further trained policies, to be probed.
    """

    system: System
    parts: Mapping[str, CheckpointPart]
    resumed: Callable[[int], None]
    eval_roller: Roller
    steps: int | None = None
    is_due: Callable[[int], bool] | None = None
    is_game: bool = False
    state: State | None = None
    measure: Evaluate | None = None
    drop: Callable[[], Awaitable[None]] = do_nothing
    others: Sequence[Probed] = ()


class TrainingContext(Context):
    """The context of training, in one of `ranks` processes. `run` is the run's directory (None: nothing is trained or
    written), `checkpoint` the one to resume from."""

    trains = True

    def __init__(
        self,
        settings: TrainingSettings,
        run: RunDirectory | None = None,
        *,
        checkpoint: Checkpoint | None = None,
        ranks: Ranks = ALONE,
        notify: Callable[[str], None] = lambda _: None,
        objects: Objects | None = None,
    ) -> None:
        super().__init__(settings, checkpoint=checkpoint, notify=notify, objects=objects)
        self.ranks, self._run = ranks, run
        self.asked: list[Question] | None = None  # the training questions, once read

    @property
    def run(self) -> RunDirectory:
        """The run's directory. Raises ConfigError without one."""
        if self._run is None:
            raise ConfigError("Training needs a directory for the run. Give one with --run-dir (in Python: directory).")
        return self._run

    @cached_property
    def agent(self) -> Agent:
        """The policy of the checkpoint, or the model of the settings. With servers as samplers, several processes share
        it."""
        shared = ALONE if samples_apart(self.settings, self.ranks) else self.ranks
        return self.agent_of(load_trainable(self.settings, self.checkpoint, device=self.device, ranks=shared))

    @cached_property
    def sampler_run(self) -> SamplerRun:
        """The samplers' files of all processes, and what closes the samplers at the end."""
        ranks, directory = self.ranks, self._run.path / "sampler" if self._run else None

        def broadcast(text: str) -> str:
            return str(ranks.gather(text)[0])

        return SamplerRun(directory, self.closing, ranks.size, ranks.rank, broadcast)

    @property
    def device(self) -> str:
        """The policy's device, one for each process."""
        return str(self.ranks.device) if self.ranks.size > 1 else self.settings.policy.device

    @property
    def training_reward(self) -> RewardFn:
        """The solver's reward in training: with the share for evidence, and the penalties for wrong, missing and
        overlong answers."""
        return ShapedReward(self.reward, self.settings.reward)

    @cached_property
    def reviewed(self) -> ReviewedQuestions:
        """The test set, which is not trained on."""
        return ReviewedQuestions.of(self.settings)

    def questions(self, solver: Roller | None = None) -> list[Question]:
        """Return the training questions that leave this solver room to write. Reports what was left out or added, and
        warns if the policy cannot read them."""
        questions, words = training_questions(self.settings, self._run, reward=self.metric)
        if words:
            self.notify(words)
        if solver is not None:
            questions, words = askable(questions, solver, setting="questions.path")
            if words:
                self.notify(words)
        self.asked = questions
        self.warn_unknown_words((question.text for question in questions), what="the questions")
        return questions

    @cached_property
    def trainer(self) -> Trainer:
        settings, loss, credit = self.settings, self.objects.loss, self.objects.credit
        if needs_critic(credit) and not settings.has_critic:
            raise ConfigError(
                f"The credit {type(credit).__name__} needs a critic, which {settings.run.system} does not "
                "train. Give another credit, or train search-r1."
            )
        if isinstance(loss, ReinforceLoss):
            for problem in settings.off_policy("the loss is ReinforceLoss", "the loss to another one"):
                raise ConfigError(problem)
        return self.trainer_of(self.agent, Objective.of(settings, loss, credit))

    def learn_supervised(self, total_steps: int) -> Trainer:
        """Return a trainer that learns from demonstrations, by cross-entropy; the learning rate falls to 0."""
        objective = Objective.of(self.settings, self.objects.loss or CrossEntropyLoss(), self.objects.credit)
        self.trainer = self.trainer_of(self.agent, objective, total_steps=total_steps)
        return self.trainer

    def trainer_of(
        self, agent: Agent, objective: Objective, *, part: str = "policy", total_steps: int | None = None
    ) -> Trainer:
        """Return the trainer of an agent's policy, with this name in checkpoints."""
        run, checkpoint, ranks = self.run, self.checkpoint, self.ranks
        return Trainer.load(self.settings, agent.policy, objective, run, checkpoint, ranks, part, total_steps)

    def publish(self, step: int) -> None:
        """Hand the weights of a step to the sampler; a collective."""
        self.trainer.publish(self.agent.sampler, step)

    @property
    def trajectories(self) -> TrajectoryWriter:
        """The record of the run's rollouts, written by the first rank."""
        return TrajectoryWriter(self.run.trajectories if self.ranks.is_first else None, self.agent.decode)

    def rollouts(
        self,
        solver: Roller,
        settings: GroupRolloutSettings,
        label: GroupLabel | None = None,
    ) -> QuestionRollouts:
        """Return a maker of rollouts that are recorded in the run's directory and scored by the training reward."""
        size, put_off = settings.group_size, settings.answers_put_off
        can_call = solver.renderer.put_off(()) or not settings.max_tool_calls  # else the reference takes its place
        if put_off and not (isinstance(solver.sampler, TorchSampler) and can_call):
            raise ConfigError(PUT_OFF.format(settings.put_off))
        solver = replace(solver, reference=reference_answer) if put_off else solver
        return QuestionRollouts(solver, self.training_reward, self.trajectories, size, self.ranks, label, put_off)

    def plan(
        self, system: System, solver: Roller, *, state: State | None = None, ahead: Ahead[Any] | None = None
    ) -> TrainingPlan:
        """Return the plan of a system that trains the run's own policy. Held-out questions use the held-out engine, if
        any. `state` is the system's state in checkpoints, `ahead` holds rollouts of later steps."""
        eval_roller = solver
        if self.settings.evaluation.path and self.searched_held_out is not None:
            eval_roller = self.solver(self.searched_held_out)
        drop = ahead.drop if ahead is not None else do_nothing
        return TrainingPlan(system, self.trainer.parts, self.publish, eval_roller, state=state, drop=drop)
