"""The means of a baseline: a model in any environment, an engine, and the limits of rollouts.

A baseline is a class with `searches` (whether it needs an engine) and a coroutine of an `Attempt`, with which it
prompts and searches; the answer of the trajectory that it returns counts. `evoseek eval --baseline` takes it by name,
or as package.module:Name. Prompts are the templates baseline_*.jinja of a prompt set.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

from evoseek.assembly.agent import Agent
from evoseek.errors import ConfigError
from evoseek.protocols import Environment, QuestionEngine, Renderer, Sampler, SearchEngine, Tool
from evoseek.rollout.calls import ToolCalls, ToolFailedError
from evoseek.rollout.environments import PromptEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import PromptSet
from evoseek.rollout.roller import ChatRoller, Roller
from evoseek.rollout.tools import SearchTool
from evoseek.search.calling import retried
from evoseek.search.settings import SearchSettings
from evoseek.types import (
    Action,
    Completion,
    Passage,
    Question,
    SampleRequest,
    StopReason,
    ToolCall,
    Trajectory,
)


class Baseline(Protocol):
    """A way to answer a question."""

    searches: ClassVar[bool]

    async def __call__(self, attempt: Attempt) -> Trajectory:
        """Return the rollout of the attempt that ends with the answer or without one."""
        ...


RollerOf = Callable[[Environment, Limits], Roller | ChatRoller]
"""A model that can be rolled out in any environment."""


def rollers_of(agent: Agent, temperature: float) -> RollerOf:
    """Return a function that makes rollers of a policy. Between two turns a rollout holds no slot of the sampler:
    rollouts of Search-o1 wait for others, and would wait indefinitely if they held all slots."""
    renderers: dict[tuple[str, ...], Renderer] = {}
    sampler, seed = _Releasing(agent.sampler), agent.settings.run.seed

    def roller(env: Environment, limits: Limits) -> Roller:
        names = tuple(env.tools)
        if names not in renderers:
            renderers[names] = agent.renderer(list(env.tools.values()))
        return Roller(env, renderers[names], sampler, limits, temperature, seed)

    return roller


@dataclass(frozen=True, slots=True)
class _Releasing:
    """A sampler that drops a trajectory's state after every turn."""

    sampler: Sampler

    @property
    def policy_version(self) -> int:
        return self.sampler.policy_version

    async def sample(self, request: SampleRequest) -> Completion:
        try:
            return await self.sampler.sample(request)
        finally:
            self.sampler.release(request.trajectory_id)

    def release(self, trajectory_id: str) -> None:
        self.sampler.release(trajectory_id)

    def update_weights(self, version: int, weights: Mapping[str, Any] | None = None) -> None:
        self.sampler.update_weights(version, weights)


@dataclass(frozen=True, slots=True)
class BaselineAnswerer:
    """An answerer by a baseline, within the limits of rollouts. `format` is the model's format of calls; `engine` is
    None without searching."""

    baseline: Baseline
    roller: RollerOf
    format: Literal["tags", "tools"]
    prompts: PromptSet
    limits: Limits
    engine: SearchEngine | QuestionEngine | None
    searching: SearchSettings

    async def answer(self, question: Question, trajectory_id: str) -> Trajectory:
        """Make one attempt, which ends like a rollout; any failure in it makes it a failure."""
        attempt = Attempt(self, question, trajectory_id)
        try:
            last = await self.baseline(attempt)
            reason, answer, failure = last.stop_reason, last.answer, last.failure
        except FailedRolloutError as error:
            reason, answer, failure = error.reason, None, str(error)
        except ToolFailedError as error:
            reason, answer, failure = StopReason.TOOL_FAILED, None, str(error)
        return attempt.ended(reason, answer, failure)


class FailedRolloutError(Exception):
    """A rollout or a search of an attempt failed, which ends the attempt."""

    def __init__(self, reason: StopReason, failure: str | None) -> None:
        super().__init__(failure or "")
        self.reason = reason


@dataclass(slots=True)
class Attempt:
    """One attempt at a question, which records everything written, searched and found. It has a rollout's limits: an
    agent's number of searches (`calls`), and a rollout's tokens in each rollout of the model."""

    answerer: BaselineAnswerer
    question: Question
    id: str
    _parts: list[Trajectory] = field(default_factory=list[Trajectory])
    _begun: Counter[str] = field(default_factory=Counter[str])
    _retrievals: ToolCalls | None = None

    @property
    def calls(self) -> int:
        return self.answerer.limits.calls

    async def roll(
        self,
        template: str,
        values: Mapping[str, object] | None = None,
        *,
        tools: Sequence[Tool] = (),
        part: str = "",
        may_overflow: bool = False,
    ) -> Trajectory:
        """Prompt the model by a template with the question, the format and `values`, and roll it out with tools. `part`
        names a rollout of one turn, beside the one that answers. A failed rollout ends the attempt.

        A prompt without room for a reply is an error of the settings; but if it `may_overflow`, because it holds the
        model's own text, the rollout ran out of tokens.
        """
        answerer, identifier, limits = self.answerer, self.id, self.answerer.limits
        if part:
            identifier = f"{self.id}/{part}-{self._begun[part]}"
            self._begun[part] += 1
            limits = replace(limits, max_turns=1, max_malformed=0, final_answer=None)
        env = PromptEnv(tools, answerer.prompts, answerer.format, template, values or {})
        roller = answerer.roller(env, limits)
        if may_overflow and roller.prompt_length(self.question) >= limits.max_total_tokens:
            full = Action("", problem="its prompt leaves no room for a reply")
            return Trajectory(identifier, self.question, "solver", (), (full,), (), StopReason.MAX_TOKENS)
        rolled = await roller.one(self.question, identifier)
        self._parts.append(rolled)
        if rolled.stop_reason.is_failure:
            raise FailedRolloutError(rolled.stop_reason, rolled.failure)
        return rolled

    def search_tool(self, k: int | None = None) -> SearchTool:
        """Return the tool `search` for k passages (default: search.top_k). Raises ConfigError without an engine."""
        answerer, settings = self.answerer, self.answerer.searching
        if answerer.engine is None:
            raise ConfigError("This baseline searches, but there is no engine. Give an index with --index.")
        engine = retried(answerer.engine, attempts=settings.attempts, wait_s=settings.wait_s)
        return SearchTool(engine, k or settings.top_k, template=answerer.prompts["observation"])

    async def retrieve(self, query: str) -> tuple[Passage, ...] | None:
        """Return the passages for a query; None if no call is left. A failed search ends the attempt."""
        if self._retrievals is None:
            answerer = self.answerer
            env = PromptEnv([self.search_tool()], answerer.prompts, answerer.format, "observation", {})
            limits = replace(answerer.limits, max_tool_calls=self.calls, final_answer=None)
            self._retrievals = ToolCalls(env, self.question, self.id, limits)
        call = ToolCall("search", {"query": query})
        try:
            async with asyncio.timeout(self.answerer.limits.waiting_s):
                texts = await self._retrievals.texts([Action(query, (call,))])
        except TimeoutError as error:
            failure = f"A search took more than {self.answerer.limits.waiting_s} s."
            raise FailedRolloutError(StopReason.DEADLINE, failure) from error
        return None if texts is None else self._retrievals.results[-1].passages

    def ended(self, reason: StopReason, answer: str | None, failure: str | None) -> Trajectory:
        parts, retrieved = self._parts, self._retrievals.results if self._retrievals else []
        return Trajectory(
            id=self.id,
            question=self.question,
            role="solver",
            segments=tuple(segment for part in parts for segment in part.segments),
            actions=tuple(action for part in parts for action in part.actions),
            tool_results=(*retrieved, *(result for part in parts for result in part.tool_results)),
            stop_reason=reason,
            answer=answer if reason is StopReason.ANSWERED else None,
            failure=failure,
            policy_version=min((part.policy_version for part in parts), default=0),
        )
