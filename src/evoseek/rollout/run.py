"""The rollout loop: one coroutine that awaits the sampler and the tools until the policy answers or a limit is met.

Token ids go in and come out. What the sampler gave is kept as it is, and only ids are appended to it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from evoseek.errors import SamplerError
from evoseek.protocols import Environment, Renderer, Sampler
from evoseek.rollout.limits import Limits
from evoseek.types import (
    Action,
    Completion,
    Question,
    SampleRequest,
    Segment,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
)


class _ToolFailedError(Exception):
    """A tool failed; the text says which and how."""


@dataclass
class _Log:
    """What has happened so far. It outlives whatever ends the rollout, so nothing that was sampled is lost."""

    segments: list[Segment] = field(default_factory=list[Segment])
    actions: list[Action] = field(default_factory=list[Action])
    tool_results: list[ToolResult] = field(default_factory=list[ToolResult])
    token_ids: tuple[int, ...] = ()
    calls: int = 0
    policy_version: int = 0

    def append(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.token_ids += segment.token_ids


async def run_trajectory(
    question: Question,
    *,
    env: Environment,
    renderer: Renderer,
    sampler: Sampler,
    limits: Limits,
    trajectory_id: str,
    temperature: float,
    seed: int,
) -> Trajectory:
    """Roll out one trajectory. It ends with a StopReason whatever the policy, a tool or the sampler does.

    A failure (of a tool, of the sampler, the deadline) is a stop reason too, with what failed in `failure`, and never an answer.
    Errors in the prompt's rendering are the caller's: they are raised.
    """
    log, failure = _Log(), None
    log.append(Segment("prompt", renderer.render_prompt(env.messages(question))))

    def request(turn: int, max_tokens: int) -> SampleRequest:
        return SampleRequest(trajectory_id, turn, log.token_ids, max_tokens, temperature, renderer.stop, seed)

    try:
        async with asyncio.timeout(limits.deadline_s) as timer:
            reason = StopReason.MAX_TURNS
            for turn in range(limits.max_turns):
                room = min(limits.max_tokens_per_turn, limits.max_total_tokens - len(log.token_ids))
                if room <= 0:
                    reason = StopReason.MAX_TOKENS
                    break
                action = await _act(log, renderer, sampler, request(turn, room))
                ...
    except SamplerError:
        ...
    raise NotImplementedError
