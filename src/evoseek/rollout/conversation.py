"""A rollout in messages, with a chat model: the same turns as in `run.py`, but nothing to train on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

from evoseek.errors import CutReplyError, ToolError
from evoseek.policy.encoding import trusted
from evoseek.policy.tags import OBSERVATION, SEARCH, TagCall, read_action, stop_strings, tag_calls
from evoseek.protocols import Chat, Environment
from evoseek.rollout.calls import ToolCalls, ToolFailedError
from evoseek.rollout.limits import Limits
from evoseek.rollout.watch import Watch, unwatched
from evoseek.types import Action, Message, Question, StopReason, Trajectory


async def converse(
    question: Question,
    *,
    env: Environment,
    chat: Chat,
    limits: Limits,
    trajectory_id: str,
    watch: Watch = unwatched,
) -> Trajectory:
    """Let a model answer in the tag format. The trajectory has no segments, since its tokens are unknown.

    It ends as `run_trajectory` does, and a failed chat counts as a failed sampler. The limit in tokens is that of the
    chat: a reply that was cut at it ends the rollout, scored. All time is waiting, since the model's own time is
    unknown. Errors of the chat other than ToolError are raised.
    """
    actions: list[Action] = []
    calls, failure = ToolCalls(env, question, trajectory_id, limits, watch), None
    timer = asyncio.timeout(limits.waiting_s)
    try:
        async with timer:
            reason = await _take_turns(actions, question, calls, env, chat, limits, trajectory_id, watch)
    except ToolFailedError as error:
        reason, failure = StopReason.TOOL_FAILED, str(error)
    except ToolError as error:
        reason, failure = StopReason.SAMPLER_FAILED, str(error)
    except TimeoutError:
        if not timer.expired():
            raise
        reason, failure = StopReason.DEADLINE, f"The rollout waited for more than {limits.waiting_s} s."
    return Trajectory(
        id=trajectory_id,
        question=question,
        role=env.role,
        segments=(),
        actions=tuple(actions),
        tool_results=tuple(calls.results),
        stop_reason=reason,
        answer=actions[-1].answer if reason is StopReason.ANSWERED else None,
        failure=failure,
    )


async def _take_turns(
    actions: list[Action],
    question: Question,
    calls: ToolCalls,
    env: Environment,
    chat: Chat,
    limits: Limits,
    trajectory_id: str,
    watch: Watch,
) -> StopReason:
    """The loop: write, parse, call, observe."""
    tags = TagMessages(tag_calls([tool.schema for tool in env.tools.values()]))
    messages = env.messages(question)
    for turn in range(1, limits.max_turns + 1):
        try:
            reply = await chat.chat(messages, key=f"{trajectory_id}/turn-{turn - 1}")
        except CutReplyError:  # what is too long is the model's own doing, as in `run_trajectory`
            actions.append(Action("", problem="it was cut at its limit of tokens"))
            watch(actions[-1])
            return StopReason.MAX_TOKENS
        action = tags.parse(reply)
        actions.append(action)
        watch(action)
        if action.answer is not None:
            return StopReason.ANSWERED
        if action.tool_calls:
            if turn == limits.max_turns:
                return StopReason.MAX_TURNS
            texts = await calls.texts(actions)
            if texts is None:
                return StopReason.MAX_TOOL_CALLS
            observation = tags.observation(texts)
        else:
            told = calls.notice(action.problem or "") if turn < limits.max_turns else None
            if told is None:
                return StopReason.MALFORMED
            observation = Message("user", told)
        messages = [*messages, tags.said(action), observation]
    return StopReason.MAX_TURNS


# A reasoning model's block; if its template has opened it already, the reply contains only the end. It ends before
# another one is opened: otherwise a block that is never closed would extend into what the model invents after its call.
_THOUGHT = re.compile(r"\A\s*+(?:<think>)?+(?:(?!<think>).)*?</think>", re.DOTALL)


class TagMessages:
    """The counterpart of `TagRenderer` for messages, in which only the format's own tags are template text."""

    def __init__(self, calls: Mapping[str, TagCall] = SEARCH) -> None:
        self._calls = calls
        self._stop = re.compile("|".join(map(re.escape, stop_strings(calls))))
        self._tag = re.compile(rf"(</?(?:{'|'.join(map(re.escape, ('think', *calls, 'answer')))})>)")

    def parse(self, reply: str) -> Action:
        """The action after the block of thought, in which tags are only thought of. Its text is the reply as far as a
        rollout's completion would go: what follows the first call or answer is dropped."""
        thought = _THOUGHT.match(reply)
        start = thought.end() if thought else 0
        stop = self._stop.search(reply, start)
        end = stop.end() if stop else len(reply)
        action = read_action(reply[start:end], self._calls)
        return Action(reply[:end], action.tool_calls, action.answer, action.question, action.problem)

    def said(self, action: Action) -> Message:
        """The model's own turn. It may repeat the text of a page, so none of its control strings becomes a token."""
        pieces = self._tag.split(action.text)
        return Message("assistant", "".join(trusted(piece) if i % 2 else piece for i, piece in enumerate(pieces)))

    def observation(self, texts: Sequence[str]) -> Message:
        """The results of a turn's calls."""
        opening, closing = OBSERVATION
        return Message("user", trusted(opening.lstrip()) + "\n\n".join(texts) + trusted(closing.rstrip()))
