"""A rollout in messages, with a chat model: the same turns as in `run.py`, but nothing to train on."""

from __future__ import annotations

import asyncio

from evoseek.errors import ToolError
from evoseek.policy.tag_messages import TagMessages
from evoseek.policy.tags import tag_calls
from evoseek.protocols import Chat, Environment
from evoseek.rollout.calls import ToolCalls, ToolFailedError
from evoseek.rollout.limits import Limits
from evoseek.types import Action, Message, Question, StopReason, Trajectory


async def converse(
    question: Question, *, env: Environment, chat: Chat, limits: Limits, trajectory_id: str
) -> Trajectory:
    """Let a model answer in the tag format. The trajectory has no segments, since its tokens are unknown.

    It ends as `run_trajectory` does, and a failed chat counts as a failed sampler. Limits in tokens do not apply, and
    all time is waiting, since the model's own time is unknown. Errors of the chat other than ToolError are raised.
    """
    actions: list[Action] = []
    calls, failure = ToolCalls(env, question, trajectory_id, limits), None
    timer = asyncio.timeout(limits.waiting_s)
    try:
        async with timer:
            reason = await _take_turns(actions, question, calls, env, chat, limits, trajectory_id)
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
) -> StopReason:
    """The loop: write, parse, call, observe."""
    tags = TagMessages(tag_calls([tool.schema for tool in env.tools.values()]))
    messages = env.messages(question)
    for turn in range(1, limits.max_turns + 1):
        action = tags.parse(await chat.chat(messages, key=f"{trajectory_id}/turn-{turn - 1}"))
        actions.append(action)
        if action.answer is not None:
            return StopReason.ANSWERED
        if action.tool_calls:
            if turn == limits.max_turns:
                return StopReason.MAX_TURNS
            texts = await calls.texts(action.tool_calls)
            if texts is None:
                return StopReason.MAX_TOOL_CALLS
            reply = tags.observation(texts)
        else:
            told = calls.notice(action.problem or "") if turn < limits.max_turns else None
            if told is None:
                return StopReason.MALFORMED
            reply = Message("user", told)
        messages = [*messages, tags.said(action), reply]
    return StopReason.MAX_TURNS
