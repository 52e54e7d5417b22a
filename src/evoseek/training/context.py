"""The objects that a run shares, each made once, when it is first needed: the policy, the engine, the reward, the
trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transformers.utils import logging as transformers_logging

from evoseek.chat.settings import EndpointSettings
from evoseek.env.base import ToolContext
from evoseek.env.chats import make_chat
from evoseek.env.prompts import PromptSet
from evoseek.env.simulator import simulated_engine
from evoseek.env.web import Web, open_web
from evoseek.errors import ConfigError
from evoseek.learner.checkpoint import Checkpoint
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.loss.base import LossFn, LossInputs
from evoseek.loss.likelihood import CrossEntropyLoss
from evoseek.policy.policy import Policy, SamplerHome
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
from evoseek.registry import build, check_part
from evoseek.reward.functions import NamedReward
from evoseek.reward.judge import same_family
from evoseek.reward.shaping import OverlongReward, UnansweredReward
from evoseek.rollout.agent import Agent
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.roller import Roller
from evoseek.runs import RunDirectory
from evoseek.search.lexical import open_index
from evoseek.search.simulated import SimulatedEngine
from evoseek.settings import lookup
from evoseek.training.ahead import Ahead
from evoseek.training.loop import System, nothing
from evoseek.training.plan import TrainingPlan
from evoseek.training.rollouts import QuestionRollouts
from evoseek.training.run_state import State
from evoseek.training.settings import TrainingSettings
from evoseek.training.sources import read_questions
from evoseek.training.trainer import Trainer, load_trainable, samples_apart
from evoseek.training.update import Credit
from evoseek.types import Question, TrajectoryGroup

_ENOUGH_ATTEMPTS = 3  # where 20 % of the calls fail, 0.8 % fail so often

transformers_logging.disable_progress_bar()  # progress bars for a few files of weights; downloads keep theirs


@dataclass(frozen=True, slots=True)
class Objects:
    """Parts made by the caller, which replace those that the settings name; None: as in the settings.

    `tools` are added to the settings' own, and `trackers` too.
    """

    search: SearchEngine | QuestionEngine | None = None
    reward: Callable[..., Any] | None = None
    loss: LossFn[LossInputs] | None = None
    credit: Credit | None = None
    web: Web | None = None
    tools: Sequence[Tool] = ()
    trackers: Sequence[MetricSink] = ()

    def check(self) -> None:
        """Raises ConfigError for an object that is no part of its kind."""
        for kind in ("search", "reward", "loss", "credit"):
            if (given := getattr(self, kind)) is not None:
                check_part(kind, f"the object {given!r}", given)
        for kind, own in (("tool", self.tools), ("tracker", self.trackers)):
            for given in own:
                check_part(kind, f"the object {given!r}", given)

    def names(self) -> dict[str, str]:
        """What was given, by what it is called in the code: a run is resumed with the same."""
        given = {kind: getattr(self, kind) for kind in ("search", "reward", "loss", "credit", "web")}
        given |= {f"tools.{number}": tool for number, tool in enumerate(self.tools)}
        return {key: _name_of(part) for key, part in given.items() if part is not None}


class Context:
    """The context that the parts of a run are built from. `closing` closes at the end everything that was opened.

    `run` is the run's directory (None: nothing is written), `checkpoint` the one that it resumes from. `notify`
    receives messages for the user.
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
        """An object that several parts share, made by the first part that needs it."""
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    @cached_property
    def agent(self) -> Agent:
        """The run's policy: from the checkpoint, or the model of the settings. With servers as samplers it is the one
        that several processes share."""
        shared = ALONE if samples_apart(self.settings, self.ranks) else self.ranks
        return self.agent_of(load_trainable(self.settings, self.checkpoint, device=self.device, ranks=shared))

    def agent_of(self, policy: Policy) -> Agent:
        """An agent from a loaded policy."""
        web = getattr(self.settings, "web", None)
        lockstep = web is not None and bool(web.record or web.replay)
        return Agent.of(self.settings, policy, lockstep=lockstep, home=self._sampler_home)

    @cached_property
    def _sampler_home(self) -> SamplerHome:
        ranks, directory = self.ranks, self._run.path / "sampler" if self._run else None

        def first_says(text: str) -> str:
            return str(ranks.gather(text)[0])

        return SamplerHome(directory, self.closing, ranks.size, ranks.rank, first_says)

    @property
    def device(self) -> str:
        """The policy's device: each of several processes has its own."""
        return str(self.ranks.device) if self.ranks.size > 1 else self.settings.policy.device

    @cached_property
    def engine(self) -> SearchEngine | QuestionEngine:
        """The engine of the search tool."""
        given = self.objects.search
        return build("search", self.settings.search, self) if given is None else given  # one may have a length of 0

    @cached_property
    def held_out_engine(self) -> SearchEngine | QuestionEngine:
        """The engine for held-out questions: the same, unless evaluation.index names another index."""
        index, given = self.settings.evaluation.index, self.objects.search
        if not index:
            return build("search", self.settings.search, self) if given is None else given
        if given is not None and self.settings.searches_engine:
            raise ConfigError(
                f"evaluation.index is {index}, but the search engine was given as an object, and nothing says how it "
                "reads another index. Leave evaluation.index out, or name the engine in the settings (search.name)."
            )
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
        given = self.objects.web
        return self.closing.enter_context(open_web(settings)) if given is None else given

    def tools(self, prompts: PromptSet, engine: SearchEngine | QuestionEngine | None) -> list[Tool]:
        """The tools of the settings, with this engine for those that search, and the caller's own."""
        context = ToolContext(self.settings, prompts, engine, self.shared, lambda: self.web)
        tools = [*(build("tool", tool, context) for tool in self.settings.tools), *self.objects.tools]
        names = [tool.name for tool in tools]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(
                f"Two tools have the name {twice!r}, and the policy could call only one of them. Leave one out of "
                "tools, or give it another name."
            )
        return tools

    def solver(self, engine: SearchEngine | QuestionEngine | None, agent: Agent | None = None) -> Roller:
        """An agent (the run's own) as a solver that searches with this engine."""
        agent = agent or self.agent
        return agent.solver(self.tools(agent.prompts, engine))

    def chat(self, section: str) -> tuple[Chat, PromptSet]:
        """The chat model of a table such as [judge], with its prompts."""

        def make() -> tuple[Chat, PromptSet]:
            settings: EndpointSettings = getattr(self.settings, section)
            return make_chat(settings, section=section, seed=self.settings.run.seed, policy=self.settings.policy)

        return self.shared(f"chat {section}", make)

    @cached_property
    def reward(self) -> RewardFn:
        """The reward function."""
        settings = self.settings.reward
        given = self.objects.reward
        reward = build("reward", settings, self) if given is None else given
        return NamedReward(reward, self.metric) if given is not None or ":" in settings.name else reward

    @property
    def metric(self) -> str:
        """Name of the reward, and of the part of an outcome that says how right the answer is."""
        return "reward" if self.objects.reward is not None else self.settings.reward.name

    @property
    def training_reward(self) -> RewardFn:
        """The solver's reward in training: with the penalties for rollouts without an answer and overlong ones."""
        settings, reward = self.settings.reward, self.reward
        if settings.unanswered_penalty:
            reward = UnansweredReward(reward, settings.unanswered_penalty)
        longest, cache = settings.overlong_max, settings.overlong_cache
        return reward if longest is None or cache is None else OverlongReward(reward, longest, cache)

    @cached_property
    def trainer(self) -> Trainer:
        """The trainer of the run's own policy."""
        return self._trainer(self.objects.loss)

    def learn_supervised(self, total_steps: int) -> Trainer:
        """The same for a policy that learns from demonstrations, by cross-entropy; the learning rate falls to 0."""
        given = self.objects.loss
        self.trainer = self._trainer(CrossEntropyLoss() if given is None else given, total_steps)
        return self.trainer

    def _trainer(self, loss: LossFn[LossInputs] | None, total_steps: int | None = None) -> Trainer:
        return Trainer.load(
            self.settings,
            self.agent.policy,
            self.run,
            self.checkpoint,
            self.ranks,
            loss=loss,
            credit=self.objects.credit,
            total_steps=total_steps,
        )

    def publish(self, step: int) -> None:
        """Hand the weights of a step to the sampler; a collective."""
        self.trainer.sync()
        self.agent.sampler.update_weights(step, self.trainer.whole_weights())

    @property
    def trajectories(self) -> TrajectoryWriter:
        """The record of the run's rollouts, which the first of several ranks writes."""
        return TrajectoryWriter(self.run.trajectories if self.ranks.is_first else None, self.agent.decode)

    def rollouts(
        self,
        solver: Roller,
        group_size: int,
        *,
        reward: RewardFn | None = None,
        label: Callable[[TrajectoryGroup], TrajectoryGroup] | None = None,
    ) -> QuestionRollouts:
        """The rollouts of a step, recorded in the run's directory; scored by the training reward unless another one is
        given."""
        given = reward or self.training_reward
        return QuestionRollouts(solver, given, self.trajectories, group_size, self.ranks, label)

    def questions(self, path: str) -> list[Question]:
        """The training questions. Warns if the policy cannot read them."""
        questions = read_questions(path, setting="questions.path")
        self.tell_unreadable((question.text for question in questions), what="the questions")
        return questions

    def tell_unreadable(self, texts: Iterable[str], *, what: str) -> None:
        """Warn about a tiny policy that does not know the words of these texts."""
        if notice := vocabulary_notice(self.agent.policy, texts, what=what):
            self.notify(notice)

    def tell_about_models(self) -> None:
        """Report the capabilities of the policy's chat template, and warn if the judge is of the policy's family, or if
        so few attempts are made at a failing call that failures bias what is learnt."""
        for notice in (self.agent.template_notice(), self._judge_notice(), self._attempts_notice()):
            if notice:
                self.notify(notice)

    def plan(
        self,
        system: System,
        solver: Roller,
        *,
        examined: Roller | None = None,
        state: State | None = None,
        ahead: Ahead[Any] | None = None,
    ) -> TrainingPlan:
        """The plan of a system that trains the run's own policy. Held-out questions are answered with the held-out
        engine unless another roller is given. `state` is what checkpoints keep of the system, `ahead` holds its
        rollouts of later steps."""
        if examined is None and self.settings.evaluation.path and self.settings.has_engine:
            examined = self.solver(self.held_out_engine)
        drop = ahead.drop if ahead is not None else nothing
        return TrainingPlan(
            system, self.settings, self.trainer.parts, self.publish, examined or solver, state=state, drop=drop
        )

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

    def _attempts_notice(self) -> str | None:
        names = ("search.attempts",) if self.settings.searches_engine else ("web.attempts", "browse.attempts")
        few = [name for name in names if (lookup(self.settings, name) or _ENOUGH_ATTEMPTS) < _ENOUGH_ATTEMPTS]
        if not few:
            return None
        return (
            f"{' and '.join(few)} below {_ENOUGH_ATTEMPTS}: a call that fails makes its rollout Invalid, and rollouts "
            "with many calls fail most often, so what is left to learn from is biased towards few searches. Set "
            f"{' and '.join(few)} to {_ENOUGH_ATTEMPTS} or more, unless nothing ever fails."
        )


def _name_of(part: object) -> str:
    """Module and name of a function, or of an object's class."""
    named = part if hasattr(part, "__qualname__") else type(part)
    return f"{named.__module__}.{getattr(named, '__qualname__', '')}"
