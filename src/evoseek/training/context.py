"""What a run shares, made once and when it is first asked for: the policy, the engine, the reward, the trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transformers.utils import logging as transformers_logging

from evoseek.chat.settings import ChatSettings
from evoseek.env.chats import make_chat
from evoseek.env.context import ToolContext
from evoseek.env.prompts import PromptSet
from evoseek.env.simulated import simulated_engine
from evoseek.env.web import Web, open_web
from evoseek.errors import ConfigError
from evoseek.learner.checkpoint import Checkpoint
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.loss.base import LossFn, LossInputs
from evoseek.policy.policy import Policy
from evoseek.policy.vocabulary import vocabulary_notice
from evoseek.protocols import (
    Chat,
    MetricSink,
    PassageStore,
    QuestionEngine,
    RewardFn,
    SearchEngine,
    Tool,
)
from evoseek.registry import build
from evoseek.reward.functions import NamedReward
from evoseek.reward.judge import same_family
from evoseek.reward.overlong import OverlongReward
from evoseek.rollout.agent import Agent
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.roller import Roller
from evoseek.runs import RunDirectory
from evoseek.search.lexical import open_index
from evoseek.search.simulated import SimulatedEngine
from evoseek.training.loop import System
from evoseek.training.plan import TrainingPlan
from evoseek.training.rollouts import QuestionRollouts
from evoseek.training.settings import TrainingSettings
from evoseek.training.sources import read_questions
from evoseek.training.trainer import Trainer, load_trainable
from evoseek.training.update import Credit
from evoseek.types import Question, TrajectoryGroup

transformers_logging.disable_progress_bar()  # bars about a few files of weights; downloads keep theirs


@dataclass(frozen=True, slots=True)
class Objects:
    """Parts that a caller made, in the place of those that the settings name; None: the settings'.

    `tools` are added to the settings' own, and `trackers` too.
    """

    search: SearchEngine | QuestionEngine | None = None
    reward: Callable[..., Any] | None = None
    loss: LossFn[LossInputs] | None = None
    credit: Credit | None = None
    web: Web | None = None
    tools: Sequence[Tool] = ()
    trackers: Sequence[MetricSink] = ()


class Context:
    """What the parts of a run are built from. `closing` closes what was opened, in the end.

    `run` is the run's directory (None: nothing is written), `checkpoint` what it is resumed from. `notify` is told
    what a user should know.
    """

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
        self.settings, self.checkpoint, self.ranks, self.notify = settings, checkpoint, ranks, notify
        self.objects, self.closing = objects or Objects(), ExitStack()
        self._run = run
        self._shared: dict[str, Any] = {}

    @property
    def run(self) -> RunDirectory:
        """The run's directory. Raises ConfigError where there is none."""
        if self._run is None:
            raise ConfigError("Training needs a directory for the run: give one with --run-dir (in Python: directory).")
        return self._run

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        """What several parts have in common, made by the first that asks."""
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    @cached_property
    def agent(self) -> Agent:
        """The policy that is trained or asked: of the checkpoint, or the model of the settings."""
        return self.agent_of(load_trainable(self.settings, self.checkpoint, device=self.device))

    def agent_of(self, policy: Policy) -> Agent:
        """A policy that is loaded, as an agent."""
        web = getattr(self.settings, "web", None)
        return Agent.of(self.settings, policy, lockstep=web is not None and bool(web.record or web.replay))

    @property
    def device(self) -> str:
        """Where the policy is: in each of several processes a device of its own."""
        return str(self.ranks.device) if self.ranks.size > 1 else self.settings.policy.device

    @cached_property
    def engine(self) -> SearchEngine | QuestionEngine:
        """What the search tool searches."""
        return self.objects.search or build("search", self.settings.search, self)

    @cached_property
    def held_out_engine(self) -> SearchEngine | QuestionEngine:
        """What is searched for held-out questions: the same, unless evaluation.index is another index."""
        index = self.settings.evaluation.index
        if not index:
            return build("search", self.settings.search, self) if self.objects.search is None else self.objects.search
        return build("search", self.settings.search.model_copy(update={"index": index}), self)

    def simulated(self) -> SimulatedEngine:
        """The engine that the model of [simulator] plays, without noise."""
        settings: Any = self.settings
        return simulated_engine(settings)

    @cached_property
    def corpus(self) -> PassageStore:
        """The passages that questions are made from: those of the engine, or of the index that search.index names."""
        engine = self.engine
        return (
            engine
            if isinstance(engine, PassageStore)
            else open_index(self.settings.search.index, setting="search.index")
        )

    @cached_property
    def web(self) -> Web:
        """The web of the settings [web], [browse] and [reader], open until the end."""
        settings: Any = self.settings
        return self.objects.web or self.closing.enter_context(open_web(settings))

    def tools(self, prompts: PromptSet, engine: SearchEngine | QuestionEngine | None) -> list[Tool]:
        """The tools of the settings, with this engine for those that search, and the caller's own."""
        context = ToolContext(self.settings, prompts, engine, self.shared, lambda: self.web)
        return [*(build("tool", tool, context) for tool in self.settings.tools), *self.objects.tools]

    def solver(self, engine: SearchEngine | QuestionEngine | None, agent: Agent | None = None) -> Roller:
        """An agent (the run's own) as a solver that searches with this engine."""
        agent = agent or self.agent
        return agent.solver(self.tools(agent.prompts, engine))

    def chat(self, section: str) -> tuple[Chat, PromptSet]:
        """The model of a table such as [judge], and the prompts in which it is spoken to."""

        def make() -> tuple[Chat, PromptSet]:
            settings: ChatSettings = getattr(self.settings, section)
            seed, device = self.settings.run.seed, self.settings.policy.device
            return make_chat(settings, section=section, seed=seed, device=device)

        return self.shared(f"chat {section}", make)

    @cached_property
    def reward(self) -> RewardFn:
        """What an answer is worth."""
        settings = self.settings.reward
        given = self.objects.reward or build("reward", settings, self)
        own = self.objects.reward is not None or ":" in settings.name
        return NamedReward(given, self.metric) if own else given

    @property
    def metric(self) -> str:
        """Name of the reward, and of the part of an outcome that says how right the answer is."""
        return "reward" if self.objects.reward is not None else self.settings.reward.name

    @property
    def training_reward(self) -> RewardFn:
        """The reward that a solver learns by: DAPO's penalty for overlong rollouts on top, if it is set."""
        longest, cache = self.settings.reward.overlong_max, self.settings.reward.overlong_cache
        return self.reward if longest is None or cache is None else OverlongReward(self.reward, longest, cache)

    @cached_property
    def trainer(self) -> Trainer:
        """What trains the run's own policy."""
        return Trainer.load(
            self.settings,
            self.agent.policy,
            self.run,
            self.checkpoint,
            self.ranks,
            loss=self.objects.loss,
            credit=self.objects.credit,
        )

    def publish(self, step: int) -> None:
        """Let the sampler continue with the weights of a step."""
        self.trainer.sync()
        self.agent.sampler.update_weights(step)

    def rollouts(
        self,
        solver: Roller,
        group_size: int,
        *,
        reward: RewardFn | None = None,
        label: Callable[[TrajectoryGroup], TrajectoryGroup] | None = None,
    ) -> QuestionRollouts:
        """The rollouts of a step, recorded in the run's directory; by the training reward unless another is given."""
        trajectories = TrajectoryWriter(self.run.trajectories, self.agent.decode)
        return QuestionRollouts(solver, reward or self.training_reward, trajectories, group_size, self.ranks, label)

    def questions(self, path: str) -> list[Question]:
        """The training questions. The user is told if the policy cannot read them."""
        questions = read_questions(path, setting="questions.path")
        self.tell_unreadable((question.text for question in questions), what="the questions")
        return questions

    def tell_unreadable(self, texts: Iterable[str], *, what: str) -> None:
        """Tell the user about a tiny policy that does not know the words of these texts."""
        if notice := vocabulary_notice(self.agent.policy, texts, what=what):
            self.notify(notice)

    def tell_about_models(self) -> None:
        """Tell the user what the policy's chat template can do, and if the judge is a relative of the policy."""
        for notice in (self.agent.template_notice(), self._judge_notice()):
            if notice:
                self.notify(notice)

    def plan(self, system: System, solver: Roller, *, examined: Roller | None = None) -> TrainingPlan:
        """The plan of a system that trains the run's own policy. Held-out questions are answered with the held-out
        engine unless somebody else is to be examined."""

        def resumed(step: int) -> None:
            self.agent.sampler.update_weights(step)

        if examined is None and self.settings.evaluation.path and self.settings.examines_index:
            examined = self.solver(self.held_out_engine)
        return TrainingPlan(system, self.settings, self.trainer.parts, resumed, examined or solver)

    def check_prompt(self, solver: Roller, question: Question) -> None:
        """Raises ConfigError if a question's prompt leaves no room to answer."""
        length, longest = solver.prompt_length(question), solver.limits.max_total_tokens
        if length >= longest:
            raise ConfigError(
                f"The prompt of question {question.id} has {length} tokens, but rollout.max_total_tokens is {longest}: "
                "no room is left to answer. Raise rollout.max_total_tokens, or shorten the prompt or the question."
            )

    def _judge_notice(self) -> str | None:
        judge, policy = self.settings.judge.model, self.settings.policy.model
        if self.settings.reward.name != "judge" or not same_family(judge, policy):
            return None
        return (
            f"The judge {judge} is of the same family as the policy {policy}. A model may be a lenient judge of its "
            "own kind: take another one (judge.model), and see how it agrees with people (evoseek judge check)."
        )
