"""The turn loop of every rollout: an actor writes and the tools answer, until there is an answer or a limit is reached.

An actor is a policy, for which token ids go in and come out (the sampler's ids are kept unchanged, and only ids are
appended to them, unless the environment rewrites a full context), or a chat model, which is called with messages and
leaves nothing to train on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from evoseek.errors import ConfigError, CutReplyError, SamplerError, ToolError
from evoseek.protocols import Chat, Environment, OpeningEnvironment, Renderer, RewritingEnvironment, Sampler
from evoseek.renderers.tags import TagMessages, TagRenderer, answer_alone, tag_calls, whole_sentences
from evoseek.rollout.calls import ToolCalls, ToolFailedError, Watch, unwatched
from evoseek.rollout.limits import Clock, Limits
from evoseek.text.language import NOT_FOUND
from evoseek.types import (
    Action,
    Completion,
    ContextTurn,
    CountedText,
    Message,
    Passage,
    Question,
    SampleRequest,
    Segment,
    StopReason,
    ToolResult,
    Trajectory,
)

Reference = Callable[[Question, Sequence[Passage]], str]
"""Answers a question from the passages in its prompt, in place of the policy (`rollout.put_off`)."""


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
    puts_off: bool = False,
    reference: Reference | None = None,
    start: Trajectory | None = None,
    watch: Watch = unwatched,
) -> Trajectory:
    """Roll out one trajectory. Every rollout ends with a StopReason. `watch` gets its turns and results as they happen.
    If it `puts_off`, a search replaces its first answer, if a call is left, and the policy continues from the search's
    beginning; in an `OpeningEnvironment` without a call left, the answer of `reference` (None: a refusal) replaces the
    turn, if that fits into one.

    With `start`, the beginning of another rollout of the question (`Trajectory.before`), the policy continues from
    there; its tokens are the prompt, so that they are trained only with that rollout. Tools are bound again, and no
    call is repeated.

    A failure (of a tool or the sampler, or too long a wait) is also a stop reason, with its cause in `failure`. Errors
    in rendering the prompt and errors of the sampler other than SamplerError are raised; so is ConfigError for a prompt
    that leaves no room for a token: a policy that could not write must not be scored. The prompt of an
    `OpeningEnvironment` has the first passages that leave room for a whole turn.
    """
    clock = Clock(limits)

    def begin(found: Sequence[ToolResult]) -> tuple[_Actor, Sequence[ToolResult]]:
        if start is not None:
            prompt = start.branches[-1].token_ids
        else:
            prompt, found = _fitting_prompt(question, env, renderer, limits, found)
        request = SampleRequest(trajectory_id, 0, prompt, 1, temperature, renderer.stop, seed)
        passages = [passage for result in found for passage in result.passages]
        instead = (reference(question, passages) if reference else NOT_FOUND) if puts_off else None
        return _TokenActor(env, renderer, sampler, limits, clock, request, instead, start), found

    try:
        return await _roll_out(question, env, begin, limits, clock, trajectory_id, watch, start)
    finally:
        sampler.release(trajectory_id)


async def converse(
    question: Question, *, env: Environment, chat: Chat, limits: Limits, trajectory_id: str, watch: Watch = unwatched
) -> Trajectory:
    """Roll out a chat model in the tag format. The trajectory has no segments, since its tokens are unknown.

    It ends as `run_trajectory` does, and a failed chat counts as a failed sampler. The chat limits tokens: a reply that
    is cut before it closes its first call or answer ends the rollout, scored. All time is waiting, since the model's
    own time is unknown. Errors of the chat other than ToolError are raised.
    """
    tags = TagMessages(tag_calls([tool.schema for tool in env.tools.values()]))

    def begin(found: Sequence[ToolResult]) -> tuple[_Actor, Sequence[ToolResult]]:
        return _ChatActor(env, chat, tags, trajectory_id, _messages(question, env, found)), found

    return await _roll_out(question, env, begin, limits, Clock(limits), trajectory_id, watch)


def _messages(question: Question, env: Environment, found: Sequence[ToolResult]) -> list[Message]:
    return env.opened(question, found) if isinstance(env, OpeningEnvironment) else env.messages(question)


def _fitting_prompt(
    question: Question, env: Environment, renderer: Renderer, limits: Limits, found: Sequence[ToolResult]
) -> tuple[tuple[int, ...], Sequence[ToolResult]]:
    """Return the prompt's ids, and the found passages that leave room for a turn. Raises ConfigError for a prompt that
    leaves no room at all, and ToolFailedError if no found passage fits."""
    has_found = any(result.passages for result in found)
    prompt = renderer.render_prompt(_messages(question, env, found))
    while len(prompt) + limits.turn > limits.max_total_tokens and any(result.passages for result in found):
        last = max(place for place, result in enumerate(found) if result.passages)
        shorter = replace(found[last], passages=found[last].passages[:-1])
        found = [*found[:last], shorter, *found[last + 1 :]]
        prompt = renderer.render_prompt(_messages(question, env, found))
    if len(prompt) >= limits.max_total_tokens:
        raise ConfigError(
            f"The prompt of the question {question.id!r} has {len(prompt)} tokens, but a rollout may have only "
            f"{limits.max_total_tokens} (max_total_tokens), so the policy could not write anything. Raise "
            "max_total_tokens well above that, use a shorter prompt, or leave the question out."
        )
    if has_found and not any(result.passages for result in found):
        raise ToolFailedError(
            f"No found passage fits into the prompt, which has {len(prompt)} tokens without any; a rollout "
            f"may have {limits.max_total_tokens} (max_total_tokens), {limits.turn} of them for a turn. Raise "
            "max_total_tokens, ask a shorter question, or index shorter passages (evoseek index --max-words)."
        )
    return tuple(prompt), found


@dataclass(frozen=True, slots=True)
class _WrittenTurn:
    """A turn of an actor. `ending` ends the rollout with any action; `without_action` is the reason if the turn is the
    last and holds neither a call nor an answer."""

    action: Action
    ending: StopReason | None = None
    without_action: StopReason = StopReason.MALFORMED


class _Actor(Protocol):
    """The writer of one rollout's turns, which holds its context."""

    segments: list[Segment]
    policy_version: int  # of the first turn, the oldest
    chat_tokens: tuple[int, int] | None  # as an endpoint counted

    async def write(self, turn: int, *, may_call: bool) -> _WrittenTurn:
        """Write the next turn; the first is 0. `may_call`: its calls are run. Raises SamplerError."""
        ...

    def observe(self, texts: Sequence[str]) -> bool:
        """Append the results of the last turn's calls; False if nothing could be written after them."""
        ...

    def notice(self, text: str) -> bool:
        """Append a notice; False if nothing could be written after it."""
        ...


_Begin = Callable[[Sequence[ToolResult]], tuple[_Actor, Sequence[ToolResult]]]
"""Makes the actor of a rollout from what was found before its first turn; returns it and what its prompt holds."""


async def _roll_out(
    question: Question,
    env: Environment,
    begin: _Begin,
    limits: Limits,
    clock: Clock,
    trajectory_id: str,
    watch: Watch,
    start: Trajectory | None = None,
) -> Trajectory:
    """Return the trajectory. All turns are kept, however the rollout ends."""
    actions = list(start.actions) if start else []
    calls, failure, actor = ToolCalls(env, question, trajectory_id, limits, watch), None, None
    try:
        async with clock.waiting:
            if start is None:
                await calls.open()
            else:
                calls.resume(start)
            actor, shown = begin(calls.opening)
            calls.opening = tuple(shown)
            reason = await _take_turns(actor, actions, calls, limits, watch)
    except ToolFailedError as error:
        reason, failure = StopReason.TOOL_FAILED, str(error)
    except SamplerError as error:
        reason, failure = StopReason.SAMPLER_FAILED, str(error)
    except TimeoutError:
        if not clock.waiting.expired():
            raise
        reason, failure = StopReason.DEADLINE, f"The rollout waited for more than {limits.waiting_s} s."
    return Trajectory(
        id=trajectory_id,
        question=question,
        role=env.role,
        segments=tuple(actor.segments) if actor else (),
        actions=tuple(actions),
        tool_results=tuple(calls.results),
        stop_reason=reason,
        answer=actions[-1].answer if reason is StopReason.ANSWERED else None,
        failure=failure,
        policy_version=actor.policy_version if actor else 0,
        chat_tokens=actor.chat_tokens if actor else None,
        opening=calls.opening,
    )


async def _take_turns(
    actor: _Actor, actions: list[Action], calls: ToolCalls, limits: Limits, watch: Watch
) -> StopReason:
    for turn in range(len(actions), limits.max_turns):
        written = await actor.write(turn, may_call=calls.is_left and turn + 1 < limits.max_turns)
        action, is_last = written.action, turn + 1 == limits.max_turns
        actions.append(action)
        watch(action)
        if written.ending is not None:
            return written.ending
        if action.tool_calls:
            if is_last:
                break
            texts = await calls.texts(actions)
            if texts is None:
                return StopReason.MAX_TOOL_CALLS
            has_room = actor.observe(texts)
        elif action.answer is not None:
            return StopReason.ANSWERED
        else:
            notice = None if is_last else calls.notice(action.problem or "")
            if notice is None:
                return written.without_action
            has_room = actor.notice(notice)
        if not has_room:
            return StopReason.MAX_TOKENS
    return StopReason.MAX_TURNS


class _TokenActor:
    chat_tokens: tuple[int, int] | None = None

    def __init__(
        self,
        env: Environment,
        renderer: Renderer,
        sampler: Sampler,
        limits: Limits,
        clock: Clock,
        request: SampleRequest,
        instead: str | None,
        start: Trajectory | None,
    ) -> None:
        self._is_open, self._tools = isinstance(env, OpeningEnvironment), tuple(env.tools)
        self._env, self._renderer, self._sampler, self._limits, self._clock = env, renderer, sampler, limits, clock
        self._instead = instead
        self._request = request  # its token_ids are the whole context so far
        self._head, self._turns = tuple(request.token_ids), list[ContextTurn]()  # which make up the context
        if start is not None:
            self._head = start.branches[0].segments[0].token_ids
            self._turns = _turns_after(self._head, start)
        self._written: tuple[int, ...] = ()
        self.segments = [Segment("prompt", tuple(request.token_ids))]
        self.policy_version = 0

    async def write(self, turn: int, *, may_call: bool) -> _WrittenTurn:
        room = min(self._limits.max_tokens_per_turn, self._limits.max_total_tokens - len(self._request.token_ids))
        request = replace(self._request, turn=turn, max_tokens=room)
        begins = self._whole_turn(room) if not may_call else None
        completion = await self._clock.sample(self._sampler, replace(request, begins=begins or ()))
        action = self._read(completion)
        if self._instead is not None and may_call and action.answer is not None:
            self._instead, begins = None, self._renderer.put_off(completion.token_ids)
            left = self._limits.max_total_tokens - len(self._request.token_ids)
            has_room = left >= 2 * self._limits.max_tokens_per_turn and len(begins or ()) <= room // 2
            if begins is not None and has_room and not self._clock.is_over:
                completion = await self._clock.sample(self._sampler, replace(request, begins=begins))
                action = self._read(completion)
        if len(completion.logprobs) != len(completion.token_ids):
            raise SamplerError(
                f"The sampler gave {len(completion.token_ids)} token ids with {len(completion.logprobs)} logprobs. "
                "Expected one for each id."
            )
        if not self._written:
            self.policy_version = completion.policy_version
        newer = None if completion.policy_version == self.policy_version else completion.policy_version
        self._append(Segment("action", completion.token_ids, completion.logprobs, newer))
        self._written = completion.token_ids
        self._turns.append(ContextTurn(action, completion.token_ids))
        ending = StopReason.MAX_TIME if action.answer is None and self._clock.is_over else None
        is_cut = completion.finish_reason == "length"
        return _WrittenTurn(action, ending, StopReason.MAX_TOKENS if is_cut else StopReason.MALFORMED)

    def _whole_turn(self, room: int) -> tuple[int, ...] | None:
        """Return the turn that replaces the policy's if no call is left; None if there is none, or it does not fit."""
        text, self._instead = self._instead, None
        ids = self._renderer.render_text(text) if text is not None and self._is_open else None
        return ids if ids is not None and len(ids) <= room else None

    def _read(self, completion: Completion) -> Action:
        """Return the turn's action. If the documents were searched first, a turn without tags is read as an answer
        alone, without the token that ends it; a chat template's `parse` does this. A cut one keeps whole sentences."""
        ids = completion.token_ids
        action = self._renderer.parse(ids)
        if not self._is_open or action.problem is None:
            return action
        if completion.finish_reason == "length":
            return whole_sentences(action, self._tools)
        if completion.finish_reason != "stop" or not isinstance(self._renderer, TagRenderer):
            return action
        whole = self._renderer.parse(ids[:-1]) if ids and ids[-1] in self._renderer.stop.token_ids else action
        return replace(answer_alone(whole, self._tools), text=action.text)

    def observe(self, texts: Sequence[str]) -> bool:
        return self._observed(self._renderer.render_observation(texts, self._written))

    def notice(self, text: str) -> bool:
        return self._observed(self._renderer.render_notice(text, self._written))

    def _observed(self, token_ids: tuple[int, ...]) -> bool:
        self._turns[-1] = replace(self._turns[-1], shown=token_ids)
        length = len(self._request.token_ids) + len(token_ids)
        is_full = length + self._limits.turn > self._limits.max_total_tokens
        if is_full and isinstance(self._env, RewritingEnvironment):
            room = self._limits.max_total_tokens - self._limits.turn - len(self._head)
            kept = list(self._env.rewritten(self._turns, room))
            if kept != self._turns:
                return self._rewrite(kept)
        has_room = length < self._limits.max_total_tokens
        if has_room:
            self._append(Segment("observation", token_ids))
        return has_room

    def _rewrite(self, turns: list[ContextTurn]) -> bool:
        """Begin a branch with these turns after the prompt; False if nothing could be written after them."""
        context = (*self._head, *(token for turn in turns for token in turn.token_ids))
        has_room = len(context) < self._limits.max_total_tokens
        if has_room:
            self._turns, self._request = turns, replace(self._request, token_ids=context)
            self.segments.append(Segment("prompt", context))
        return has_room

    def _append(self, segment: Segment) -> None:
        self.segments.append(segment)
        self._request = replace(self._request, token_ids=(*self._request.token_ids, *segment.token_ids))


def _turns_after(head: tuple[int, ...], start: Trajectory) -> list[ContextTurn]:
    """Return the turns of a beginning after its first prompt. Those that a rewritten context holds are one turn."""
    prompt, *later = start.branches[-1].segments
    acted = sum(segment.kind == "action" for segment in later)
    actions = start.actions[len(start.actions) - acted :]
    held = prompt.token_ids[len(head) :]
    turns = [ContextTurn(start.actions[-acted - 1], held)] if held else []
    for segment in later:
        if segment.kind == "action":
            turns.append(ContextTurn(actions[len(turns) - bool(held)], segment.token_ids))
        else:
            turns[-1] = replace(turns[-1], shown=segment.token_ids)
    return turns


class _ChatActor:
    policy_version = 0

    def __init__(
        self, env: Environment, chat: Chat, tags: TagMessages, trajectory_id: str, messages: Sequence[Message]
    ) -> None:
        self._is_open, self._tools = isinstance(env, OpeningEnvironment), tuple(env.tools)
        self._chat, self._tags, self._id = chat, tags, trajectory_id
        self._messages = list(messages)
        self.segments: list[Segment] = []
        self.chat_tokens: tuple[int, int] | None = None

    async def write(self, turn: int, *, may_call: bool) -> _WrittenTurn:
        try:
            reply = await self._chat.chat([*self._messages], key=f"{self._id}/turn-{turn}", stop=self._tags.stop)
        except CutReplyError as error:  # of a model that kept writing after its call
            action = self._tags.parse(error.text)
            action = whole_sentences(action, self._tools) if self._is_open else action
            if action.problem is not None:  # too long a reply is the model's mistake, as it is a policy's
                return _WrittenTurn(Action("", problem="it was cut at its limit of tokens"), StopReason.MAX_TOKENS)
        except ToolError as error:
            raise SamplerError(str(error)) from error
        else:
            action = self._tags.parse(reply)
            action = answer_alone(action, self._tools) if self._is_open else action
            if isinstance(reply, CountedText):
                given, written = self.chat_tokens or (0, 0)
                self.chat_tokens = given + reply.tokens[0], written + reply.tokens[1]
        self._messages.append(self._tags.assistant_message(action))
        return _WrittenTurn(action)

    def observe(self, texts: Sequence[str]) -> bool:
        self._messages.append(self._tags.observation(texts))
        return True

    def notice(self, text: str) -> bool:
        self._messages.append(Message("user", text))
        return True
