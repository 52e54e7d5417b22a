"""The classes that verifiers loads: tasks from questions, a harness that holds evoseek's conversation, and the reward.

Taskset.load      a question -> a task, with its golden answers
Harness.launch    the rollout: evoseek's turns, with verifiers' own endpoint as the chat model
Task.evoseek      the reward of the finished trajectory
a failure         an error of verifiers, which leaves the rollout without a reward
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownParameterType=false
# verifiers is not installed where evoseek is checked.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import verifiers.v1 as vf
from pydantic import ConfigDict, Field, TypeAdapter, model_validator

from evoseek.chat.endpoint import EndpointChat
from evoseek.errors import EmptyReplyError, EvoseekError
from evoseek.rollout.roller import score
from evoseek.types import Invalid, Message, Question, StopReason, Trajectory
from evoseek_verifiers.environment import Arguments, Opened, open_environment

KEY = "evoseek"
"""Where a trace's `info` holds the trajectory."""

_DAY_S = 86_400.0
_TRAJECTORY = TypeAdapter(Trajectory)
_BUDGETS = {  # limits of verifiers that a rollout comes to by its own doing
    "max_turns": StopReason.MAX_TURNS,
    "max_input_tokens": StopReason.MAX_TOKENS,
    "max_output_tokens": StopReason.MAX_TOKENS,
    "max_total_tokens": StopReason.MAX_TOKENS,
}
_FAILED = {StopReason.TOOL_FAILED: vf.ToolsetError}  # every other failure is a HarnessError


class EvoseekData(vf.TaskData):
    """A question: `id` and `prompt` are its id and text."""

    golden_answers: tuple[str, ...]
    metadata: dict[str, Any] = Field(default_factory=dict)
    arguments: Arguments

    @property
    def question(self) -> Question:
        """The question as evoseek has it."""
        return Question(str(self.id), self.prompt_text, self.golden_answers, self.metadata)


class EvoseekTask(vf.Task[EvoseekData]):
    """A question with the reward of its answer."""

    @vf.reward
    async def evoseek(self, trace: vf.Trace) -> dict[str, float]:
        """The reward by its name. Raises TaskError where there is none: a failure is not worth 0."""
        if KEY not in trace.info:
            raise vf.TaskError("The rollout has not come to its end in evoseek's harness, so nothing is scored.")
        opened = open_environment(self.data.arguments)
        outcome = await score(_TRAJECTORY.validate_python(trace.info[KEY]), opened.reward)
        if isinstance(outcome, Invalid):
            raise vf.TaskError(f"The rollout has no reward ({outcome.reason}): {outcome.detail}")
        return {opened.metric: outcome.reward}

    @vf.metric
    async def searches(self, trace: vf.Trace) -> float:
        """Number of tool calls that were answered."""
        return float(len(trace.info[KEY]["tool_results"])) if KEY in trace.info else 0.0


class EvoseekTasksetConfig(Arguments, vf.TasksetConfig):
    """The arguments, beside what every taskset has: `--env.taskset.questions` and so on."""

    model_config = ConfigDict(extra="forbid")

    @property
    def arguments(self) -> Arguments:
        """The arguments alone."""
        return Arguments.model_validate(self.model_dump(include=set(Arguments.model_fields)))

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Arguments that cannot be used are refused as verifiers refuses its own, before anything runs. Those that are
        all defaults are opened with the tasks."""
        if self.model_fields_set & Arguments.model_fields.keys():
            try:
                open_environment(self.arguments)
            except EvoseekError as error:
                raise ValueError(str(error)) from error
        return self


class EvoseekTaskset(vf.Taskset[EvoseekTask, EvoseekTasksetConfig]):
    """The questions, in the order of their file."""

    def load(self) -> Iterator[EvoseekTask]:
        """One task a question. Raises EvoseekError."""
        arguments = self.config.arguments
        for question in open_environment(arguments).questions:
            data = EvoseekData(
                id=question.id,
                prompt=question.text,
                golden_answers=question.golden_answers,
                metadata=dict(question.metadata),
                arguments=arguments,
            )
            yield EvoseekTask(data, self.config.task)


class EvoseekHarness(vf.Harness[vf.HarnessConfig]):
    """Holds evoseek's conversation in this process: every turn is a request to the endpoint of verifiers, which decides
    on the model and its sampling and records what is said. Tools run here too, in any runtime."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """One rollout. Raises ToolsetError or HarnessError for one that failed."""
        if not isinstance(data, EvoseekData):
            raise vf.HarnessError(f"evoseek's harness takes tasks of evoseek's taskset, but got {type(data).__name__}.")
        opened = open_environment(data.arguments)
        model = opened.model(_chat(opened, ctx.model, endpoint, secret))
        if data.system_prompt is not None:
            model = model.after([Message("system", data.system_prompt)])
        trajectory = _budgeted(await model.one(data.question, trace.id), trace.stop_condition)
        trace.info[KEY] = _TRAJECTORY.dump_python(trajectory, mode="json")
        if trajectory.stop_reason.is_failure:
            raised = _FAILED.get(trajectory.stop_reason, vf.HarnessError)
            raise raised(f"The rollout failed ({trajectory.stop_reason}): {trajectory.failure}")
        return vf.ProgramResult(0, "", "")


class EvoseekEnvConfig(vf.SingleAgentEnvConfig):
    """The agent runs on this machine unless told otherwise: its tools run in this process anyhow."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class EvoseekEnv(vf.SingleAgentEnv, vf.Env[EvoseekEnvConfig]):
    """One agent answers one question."""


class PolicyChat(EndpointChat):
    """A policy at verifiers' endpoint. An empty reply is the policy's own doing: it is scored, as a reply without an
    answer."""

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        key: str,
        form: Mapping[str, object] | None = None,
        stop: Sequence[str] = (),
    ) -> str:
        """The reply's text, which may be empty. Raises as EndpointChat for any other failure."""
        try:
            return await super().chat(messages, key=key, form=form, stop=stop)
        except EmptyReplyError:
            return ""


def _chat(opened: Opened, model: str, endpoint: str, secret: str) -> PolicyChat:
    """The endpoint of verifiers as a chat model. The time limits of a turn are verifiers' own."""
    answerer = opened.settings.answerer
    return PolicyChat(
        endpoint,
        model,
        api_key=secret,
        max_tokens=answerer.max_tokens,
        temperature=answerer.temperature,
        timeout_s=_DAY_S,
        concurrency=1,
        seed=opened.settings.run.seed,
        omit=("temperature", "seed", "stop"),
    )


def _budgeted(trajectory: Trajectory, stopped: str | None) -> Trajectory:
    """A rollout that verifiers refused another turn is no failure if a limit of turns or tokens was the cause: it ends
    there, without an answer."""
    if stopped not in _BUDGETS or trajectory.stop_reason is not StopReason.SAMPLER_FAILED:
        return trajectory
    return replace(trajectory, stop_reason=_BUDGETS[stopped], failure=None)
