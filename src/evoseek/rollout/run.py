"""The rollout loop: one coroutine that awaits the sampler and the tools until the policy answers or a limit is met.

Token ids go in and come out. The sampler's ids are kept unchanged, and only ids are appended to them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from evoseek.errors import ConfigError, SamplerError
from evoseek.protocols import Environment, Renderer, Sampler
from evoseek.rollout.calls import ToolCalls, ToolFailedError
from evoseek.rollout.clock import Clock
from evoseek.rollout.limits import Limits
from evoseek.rollout.watch import Watch, unwatched
from evoseek.types import (
    Action,
    Completion,
    Question,
    SampleRequest,
    Segment,
    StopReason,
    Trajectory,
)


@dataclass
class _Log:
    """The log of a rollout. It outlives whatever ends the rollout, so nothing that was sampled is lost."""

    watch: Watch
    segments: list[Segment] = field(default_factory=list[Segment])
    actions: list[Action] = field(default_factory=list[Action])
    token_ids: tuple[int, ...] = ()
    policy_version: int | None = None
    """That of the first completion, which is the oldest."""

    def append(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.token_ids += segment.token_ids

    def act(self, completion: Completion, action: Action) -> Action:
        if len(completion.logprobs) != len(completion.token_ids):
            raise SamplerError(
                f"The sampler gave {len(completion.token_ids)} token ids with {len(completion.logprobs)} logprobs; it "
                "has to give one for each id."
            )
        if self.policy_version is None:
            self.policy_version = completion.policy_version
        newer = None if completion.policy_version == self.policy_version else completion.policy_version
        self.append(Segment("action", completion.token_ids, completion.logprobs, newer))
        self.actions.append(action)
        self.watch(action)
        return action


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
    watch: Watch = unwatched,
) -> Trajectory:
    """Roll out one trajectory. It ends with a StopReason whatever the policy, a tool or the sampler does. `watch` is
    given its turns and results as they happen.

    A failure (of a tool or the sampler, or too long a wait) is a stop reason as well, with its cause in `failure`.
    Errors in rendering the prompt, and other errors of the sampler than SamplerError, are raised; so is ConfigError for
    a prompt that leaves no room for a single token: a policy that could not write is not to be scored.
    """
    log, calls, failure = _Log(watch), ToolCalls(env, question, trajectory_id, limits, watch), None
    log.append(Segment("prompt", renderer.render_prompt(env.messages(question))))
    if len(log.token_ids) >= limits.max_total_tokens:
        raise ConfigError(
            f"The prompt of the question {question.id!r} has {len(log.token_ids)} tokens, but a rollout may have "
            f"{limits.max_total_tokens} in all (max_total_tokens), so the policy could not write anything. Raise "
            "max_total_tokens well above that, use a shorter prompt, or leave the question out."
        )
    request = SampleRequest(trajectory_id, 0, log.token_ids, 1, temperature, renderer.stop, seed)
    clock = Clock(limits)
    try:
        async with clock.waiting:
            reason = await _take_turns(log, request, calls, renderer, sampler, limits, clock)
    except ToolFailedError as error:
        reason, failure = StopReason.TOOL_FAILED, str(error)
    except SamplerError as error:
        reason, failure = StopReason.SAMPLER_FAILED, str(error)
    except TimeoutError:
        if not clock.waiting.expired():
            raise
        reason, failure = StopReason.DEADLINE, f"The rollout waited for more than {limits.waiting_s} s."
    finally:
        sampler.release(trajectory_id)
    return Trajectory(
        id=trajectory_id,
        question=question,
        role=env.role,
        segments=tuple(log.segments),
        actions=tuple(log.actions),
        tool_results=tuple(calls.results),
        stop_reason=reason,
        answer=log.actions[-1].answer if reason is StopReason.ANSWERED else None,
        failure=failure,
        policy_version=log.policy_version or 0,
    )


async def _take_turns(
    log: _Log,
    request: SampleRequest,
    calls: ToolCalls,
    renderer: Renderer,
    sampler: Sampler,
    limits: Limits,
    clock: Clock,
) -> StopReason:
    """The loop: sample, parse, call, observe."""
    for turn in range(1, limits.max_turns + 1):
        room = min(limits.max_tokens_per_turn, limits.max_total_tokens - len(log.token_ids))
        asked = replace(request, turn=turn - 1, token_ids=log.token_ids, max_tokens=room)
        completion = await clock.sample(sampler, asked)
        action = log.act(completion, renderer.parse(completion.token_ids))
        if action.answer is None and clock.is_over:
            return StopReason.MAX_TIME
        if action.tool_calls:
            if turn == limits.max_turns:
                return StopReason.MAX_TURNS
            texts = await calls.texts(log.actions)
            if texts is None:
                return StopReason.MAX_TOOL_CALLS
            observation = renderer.render_observation(texts, completion.token_ids)
        else:
            told = calls.notice(action.problem or "") if action.answer is None and turn < limits.max_turns else None
            if told is None:
                return _ending(action, completion)
            observation = renderer.render_notice(told, completion.token_ids)
        if len(log.token_ids) + len(observation) >= limits.max_total_tokens:
            return StopReason.MAX_TOKENS  # not appended: nothing could be sampled after it
        log.append(Segment("observation", observation))
    return StopReason.MAX_TURNS


def _ending(action: Action, completion: Completion) -> StopReason:
    """Why a turn without a call is the last one."""
    if action.answer is not None:
        return StopReason.ANSWERED
    return StopReason.MAX_TOKENS if completion.finish_reason == "length" else StopReason.MALFORMED
