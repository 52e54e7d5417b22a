"""The objects that the parts of a run share, each made when it is first needed: the policy, the engine, the web, the
reward. `training.plan` adds what trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from transformers.utils import logging as transformers_logging

from evoseek.assembly.agent import Agent
from evoseek.assembly.settings import TrainingSettings
from evoseek.chat.chats import make_chat
from evoseek.chat.settings import EndpointSettings
from evoseek.config.registry import as_part, build, check_part, find
from evoseek.config.sections import with_setting
from evoseek.errors import ConfigError
from evoseek.models.load import load_policy
from evoseek.models.lora import add_adapter, load_adapter
from evoseek.models.policy import Policy, SamplerRun, vocabulary_notice
from evoseek.models.source import is_adapter
from evoseek.protocols import Chat, MetricSink, PassageStore, QuestionEngine, RewardFn, SearchEngine, Tool
from evoseek.reward.functions import NamedReward
from evoseek.reward.judge import same_family
from evoseek.rollout.prompts import PromptSet
from evoseek.rollout.roller import Roller
from evoseek.rollout.settings import ToolContext
from evoseek.search.lexical import open_index
from evoseek.storage.checkpoints import Checkpoint, from_lasting
from evoseek.storage.files import expanded
from evoseek.web.web import Web, open_web

if TYPE_CHECKING:
    from evoseek.credit import Credit
    from evoseek.loss.base import LossFn, LossInputs

transformers_logging.disable_progress_bar()  # for files of weights; downloads keep their bars

_ENOUGH_ATTEMPTS = 3  # if 20 % of the calls fail, 0.8 % fail that often


@dataclass(frozen=True, slots=True)
class Objects:
    """Parts made by the caller, which replace the parts that the settings name; None: as in the settings.

    `tools` are added to the settings' own, and `trackers` too.
    """

    search: SearchEngine | QuestionEngine | None = None
    reward: Callable[..., Any] | None = None
    loss: LossFn[LossInputs] | None = None
    credit: Credit | None = None
    web: Web | None = None
    tools: Sequence[Tool | Callable[..., Any]] = ()
    trackers: Sequence[MetricSink] = ()

    def check(self) -> None:
        """Raise ConfigError for an object that is no part of its kind."""
        for kind in ("search", "reward", "loss", "credit"):
            if (given := getattr(self, kind)) is not None:
                check_part(kind, f"the object {given!r}", given)
        for kind, own in (("tool", self.tools), ("tracker", self.trackers)):
            for given in own:
                check_part(kind, f"the object {given!r}", given)

    @property
    def are_given(self) -> bool:
        return bool(self.names() or self.trackers)

    def names(self) -> dict[str, str]:
        """Return the names in the code of what was given: a run must be resumed with the same."""
        given = {kind: getattr(self, kind) for kind in ("search", "reward", "loss", "credit", "web")}
        given |= {f"tools.{number}": tool for number, tool in enumerate(self.tools)}
        return {key: _name_of(part) for key, part in given.items() if part is not None}


class Context:
    """The context from which the parts that answer and score questions are built. It imports nothing that trains, and
    closes everything at the end of its `with` block.

    `checkpoint` has the policy that is used, `notify` receives messages for the user. Raises ConfigError for an object
    without a use.
    """

    trains = False

    def __init__(
        self,
        settings: TrainingSettings,
        *,
        checkpoint: Checkpoint | None = None,
        notify: Callable[[str], None] = lambda _: None,
        objects: Objects | None = None,
    ) -> None:
        self.settings, self.checkpoint, self.notify = settings, checkpoint, notify
        self.objects, self.closing = objects or Objects(), ExitStack()
        if self.objects.search is not None and not settings.has_engine:
            raise ConfigError(
                f"A search engine was given, but {settings.run.system} searches the web. Leave search out, or give web."
            )
        self._shared: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.closing.__exit__(*error)

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        """Return an object that several parts share, made by the first part that needs it."""
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    @cached_property
    def agent(self) -> Agent:
        """The policy of the checkpoint, or the model of the settings. `checkpoint` is then the loaded one. If nothing
        trains, a new adapter would only cost time, and is left out."""

        def load(checkpoint: Checkpoint | None) -> Policy:
            self.checkpoint = checkpoint
            is_new = checkpoint is None and not self.trains
            settings = with_setting(self.settings, "lora.rank", 0) if is_new else self.settings
            return load_run_policy(settings, checkpoint, device=settings.policy.device)

        return self.agent_of(from_lasting(self.checkpoint, load))

    def agent_of(self, policy: Policy) -> Agent:
        web = getattr(self.settings, "web", None)
        lockstep = web is not None and bool(web.record)
        return Agent.of(self.settings, policy, lockstep=lockstep, sampler_run=self.sampler_run)

    @cached_property
    def sampler_run(self) -> SamplerRun:
        return SamplerRun(closing=self.closing)

    @property
    def _given_engine(self) -> SearchEngine | QuestionEngine | None:
        """The caller's engine, unless it is a simulator: simulators see the golden answers, for training only."""
        given = self.objects.search
        return None if hasattr(given, "simulating") and not self.settings.searches_engine else given

    @cached_property
    def engine(self) -> SearchEngine | QuestionEngine:
        given = self._given_engine
        return build("search", self.settings.search, self) if given is None else given  # may have a length of 0

    @cached_property
    def held_out_engine(self) -> SearchEngine | QuestionEngine:
        """The engine for held-out questions: the training engine, unless evaluation.index names another index."""
        index = self.settings.evaluation.index
        if not index:
            return self.engine
        if self._given_engine is not None:
            raise ConfigError(
                f"evaluation.index is {index}, but the search engine was given as an object, which cannot open "
                "another index. Leave evaluation.index out, or name the engine in the settings (search.name)."
            )
        return build("search", self.settings.search.model_copy(update={"index": index}), self)

    @property
    def searched(self) -> SearchEngine | QuestionEngine | None:
        """The engine that is searched for a user's question; None on the web."""
        return self.engine if self.settings.has_engine and not self.settings.runs_agent else None

    @property
    def searched_held_out(self) -> SearchEngine | QuestionEngine | None:
        """The engine that is searched for held-out questions; None on the web."""
        return self.held_out_engine if self.settings.has_engine and not self.settings.runs_agent else None

    @cached_property
    def corpus(self) -> PassageStore:
        """The passages that questions are made from: the engine's, or those in the index search.index."""
        engine = self.engine
        return (
            engine
            if isinstance(engine, PassageStore)
            else open_index(self.settings.search.index, setting="search.index")
        )

    @cached_property
    def web(self) -> Web:
        given = self.objects.web
        if given is None and not hasattr(self.settings, "web"):
            raise ConfigError(
                f"The tools web_search and browse need the settings [web], which the system {self.settings.run.system} "
                "does not have. Leave them out of tools, or set run.system to deepresearcher."
            )
        return self.closing.enter_context(open_web(self.settings)) if given is None else given

    def tools(self, prompts: PromptSet, engine: SearchEngine | QuestionEngine | None) -> list[Tool]:
        """Return the tools of the settings, which search with this engine, and the caller's own."""
        context = ToolContext(self.settings, prompts, engine, self.shared, lambda: self.web)
        own = (as_part("tool", tool) for tool in self.objects.tools)
        tools = [*(build("tool", tool, context) for tool in self.settings.tools), *own]
        names = [tool.name for tool in tools]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(
                f"Two tools have the name {twice!r}, so the policy could call only one of them. Leave one out of "
                "tools, or rename it."
            )
        return tools

    def solver(self, engine: SearchEngine | QuestionEngine | None) -> Roller:
        return self.agent.solver(() if self.settings.runs_agent else self.tools(self.agent.prompts, engine))

    def chat(self, section: str) -> tuple[Chat, PromptSet]:
        """Return the chat model of a table such as [judge], with its prompts."""

        def make() -> tuple[Chat, PromptSet]:
            settings: EndpointSettings = getattr(self.settings, section)
            return make_chat(settings, section=section, seed=self.settings.run.seed, policy=self.settings.policy)

        return self.shared(f"chat {section}", make)

    @cached_property
    def reward(self) -> RewardFn:
        settings = self.settings.reward
        given = self.objects.reward
        reward = build("reward", settings, self) if given is None else given
        return NamedReward(reward, self.metric) if given is not None or ":" in settings.name else reward

    @property
    def metric(self) -> str:
        """Name of the reward, and of the outcome's part that scores the answer."""
        return "reward" if self.objects.reward is not None else self.settings.reward.name

    def warn_unknown_words(self, texts: Iterable[str], *, what: str) -> None:
        if notice := vocabulary_notice(self.agent.policy, texts, what=what):
            self.notify(notice)

    def report_models(self) -> None:
        for notice in (self.agent.template_notice(), self._judge_notice(), self._attempts_notice()):
            if notice:
                self.notify(notice)

    def _judge_notice(self) -> str | None:
        judge, policy = self.settings.judge.model, self.settings.policy.model
        if self.settings.reward.name != "judge" or not same_family(judge, policy):
            return None
        return (
            f"The judge {judge} is of the same family as the policy {policy}, and may judge it leniently. Set "
            "judge.model to another model, and measure how it agrees with people (evoseek eval --check-judge)."
        )

    def _attempts_notice(self) -> str | None:
        if self.settings.search.attempts >= _ENOUGH_ATTEMPTS:
            return None
        return (
            f"search.attempts below {_ENOUGH_ATTEMPTS}: a failing call makes its rollout Invalid, and rollouts with "
            "many calls fail most often, so the remaining ones are biased towards few searches. Set "
            f"search.attempts to {_ENOUGH_ATTEMPTS} or more, unless calls never fail."
        )


def _name_of(part: object) -> str:
    named = part if hasattr(part, "__qualname__") else type(part)
    return f"{named.__module__}.{getattr(named, '__qualname__', '')}"


def load_run_policy(
    settings: TrainingSettings,
    checkpoint: Checkpoint | None,
    *,
    device: str,
    part: str = "policy",
    beside: Policy | None = None,
) -> Policy:
    """Load a policy of a run: this part of a checkpoint, or the model of the settings, with a new adapter (named after
    the part) if they ask for one. If the policy `beside` it is an adapter too, both share one model. Raises PolicyError
    or ConfigError."""
    own, lora = settings.policy, settings.lora
    directory = checkpoint and checkpoint.part_directory(part)
    if load := loader_of(settings):
        return load(settings, directory, part)
    source, is_new = str(directory or own.model), directory is None and lora.rank > 0
    if beside is not None and beside.adapter is not None and (is_new or is_adapter(expanded(source))):
        policy = replace(beside, name=source)
        if not is_new:
            return load_adapter(policy, part, expanded(source))
    else:
        policy = load_policy(source, device=device, dtype=own.dtype, adapter=part)
        if is_new and policy.adapter is not None:
            raise ConfigError(
                f"lora.rank is {lora.rank}, which asks for a new adapter, but {own.model} is one already. Leave "
                "lora.rank at 0 to train it further, or merge it (evoseek export) and give the merged model."
            )
    return add_adapter(policy, part, rank=lora.rank, alpha=lora.alpha, seed=settings.run.seed) if is_new else policy


def loader_of(settings: TrainingSettings) -> Callable[[TrainingSettings, Path | None, str], Policy] | None:
    """Return `load_policy` of a learner that trains elsewhere: it loads a policy by name, from a checkpoint's directory
    or as the model of the settings. None for a learner that trains here."""
    if not settings.learner.is_remote:
        return None
    return getattr(find("learner", settings.learner.name), "load_policy", None)
