"""The model's observation after a turn: the results of its calls or a notice, within the limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from evoseek.errors import ConfigError, ToolError
from evoseek.protocols import Environment, NumberedTool, OpeningEnvironment, ReasonedTool, Tool
from evoseek.renderers.encoding import beginning, trusted
from evoseek.rollout.limits import Limits
from evoseek.types import Action, Question, ToolCall, ToolResult, Trajectory

Watch = Callable[[Action | ToolResult], None]
"""Called with every record of a rollout as soon as it exists: each turn's Action, and each ToolResult as it arrives
(concurrent calls: the quickest first). It must not change them, and must not raise."""


def unwatched(record: Action | ToolResult) -> None:
    """Do nothing, as a Watch."""


class ToolFailedError(Exception):
    """A tool failure; the text says which tool and how."""


class ToolCalls:
    """The calls of a rollout's turns. `results` survives every end of the rollout."""

    def __init__(
        self, env: Environment, question: Question, trajectory_id: str, limits: Limits, watch: Watch = unwatched
    ) -> None:
        self._env, self._watch, self._question, self._hidden = env, watch, question, question.hidden
        self._tools = {name: _bound(tool, question, trajectory_id) for name, tool in env.tools.items()}
        self._limits = limits
        self._may_call = True
        self._malformed = 0
        self.results: list[ToolResult] = []
        self.opening: tuple[ToolResult, ...] = ()

    async def open(self) -> None:
        """Make the environment's calls before the first turn. Raises ToolFailedError."""
        if isinstance(self._env, OpeningEnvironment):
            await self._make(self._env.opening(self._question), "")
            self.opening = tuple(replace(result, text="") for result in self.results)  # the prompt shows them
            self.results = []

    def resume(self, start: Trajectory) -> None:
        """Take over the results and the counts of another rollout's beginning."""
        self.opening, self.results = start.opening, list(start.tool_results)
        asked = [len(action.tool_calls) for action in start.actions]
        self._may_call, self._malformed = sum(asked) <= len(self.results), asked.count(0)

    @property
    def is_left(self) -> bool:
        return self._may_call and len(self.results) < self._limits.max_tool_calls

    async def texts(self, actions: Sequence[Action]) -> list[str] | None:
        """Return the results of the last turn's calls, in order; None if no call is left, which ends the rollout.

        Raises ToolFailedError.
        """
        calls = actions[-1].tool_calls
        if self._may_call and len(self.results) + len(calls) <= self._limits.max_tool_calls:
            return await self._make(calls, "\n".join(action.text for action in actions))
        told = self._final_answer()
        return None if told is None else [told] * len(calls)

    def notice(self, problem: str) -> str | None:
        """Return the notice, marked, after a turn with neither a call nor an answer; None if this ends the rollout."""
        self._malformed += 1
        if not self._may_call or not self._limits.max_malformed:
            return None
        if self._malformed <= self._limits.max_malformed:
            return self._env.malformed(problem)
        told = self._final_answer()
        return None if told is None else trusted(told)

    def _final_answer(self) -> str | None:
        """Return the final notice, given once; None if there is none."""
        told = self._limits.final_answer if self._may_call else None
        self._may_call = self._may_call and told is None
        return told

    async def _make(self, calls: Sequence[ToolCall], reasoning: str) -> list[str]:
        """Run calls concurrently. Results that arrived are always kept."""
        results = await asyncio.gather(*(self._watched(call, reasoning) for call in calls))
        came = [result for result in results if not isinstance(result, ToolFailedError)]
        if self.opening:  # answers cite passages by number, so numbers are unique
            came = [self._numbered(result, came[:place]) for place, result in enumerate(came)]
        self.results += came
        if len(came) < len(results):
            raise ToolFailedError("; ".join(str(result) for result in results if isinstance(result, ToolFailedError)))
        return [result.text for result in came]

    def _numbered(self, result: ToolResult, before: Sequence[ToolResult]) -> ToolResult:
        tool = self._tools.get(result.call.name)
        if not isinstance(tool, NumberedTool) or not result.passages:
            return result
        first = 1 + sum(len(one.passages) for one in (*self.opening, *self.results, *before))
        numbered = tool.numbered(result, first)
        return replace(numbered, text=beginning(numbered.text, self._limits.max_result_characters))

    async def _watched(self, call: ToolCall, reasoning: str) -> ToolResult | ToolFailedError:
        result = await _call(self._tools, call, reasoning, self._hidden)
        if isinstance(result, ToolResult):
            result = replace(result, text=beginning(result.text, self._limits.max_result_characters))
            self._watch(result)
        return result


async def _call(
    tools: Mapping[str, Tool], call: ToolCall, reasoning: str, hidden: Collection[str]
) -> ToolResult | ToolFailedError:
    """Return the result of a call, or its failure. A missing tool is the policy's mistake, so the result says so."""
    tool = tools.get(call.name)
    if tool is None:
        return ToolResult(call, f'There is no tool "{call.name}". The tools are: {", ".join(tools) or "none"}.')
    try:
        result: Any = await (tool.after(reasoning) if isinstance(tool, ReasonedTool) else tool)(call)
        if not isinstance(result, ToolResult):
            raise TypeError(f"it gave {result!r:.80}, expected a ToolResult")
        if shown := next((one.document_id for one in result.passages if one.document_id in hidden), None):
            raise ToolError(
                f"It showed the document {shown!r}, which is hidden from the question. Expected a tool that leaves out "
                "the documents of `question.hidden`, which its `for_question` is given."
            )
        return result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the rollout is cancelled, which is not a failure of the tool
            raise
        return _tool_failed(call, error)
    except Exception as error:  # its rollout ends Invalid, and the others continue
        return _tool_failed(call, error)


def _bound(tool: Tool, question: Question, trajectory_id: str) -> Tool:
    bound = tool.for_question(question, trajectory_id)
    if not callable(cast(object, bound)):  # its author may not check types
        raise ConfigError(
            f"The tool {tool.name} gave {bound!r:.80} for a rollout. Expected its `for_question` to return a tool, "
            "such as itself."
        )
    return bound


def _tool_failed(call: ToolCall, error: BaseException) -> ToolFailedError:
    return ToolFailedError(f"{call.name}: {type(error).__name__}: {error}")
