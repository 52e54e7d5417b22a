"""Attempts: an agent runs, its calls are sampled and recorded, and the trajectory says what became of it.

What the policy causes is scored: no answer, too many calls, or too many tokens, even if the agent then fails. What the
agent causes is Invalid: it crashes, ends without an answer before its first call, or works for too long by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from evoseek.errors import DataError, EvoseekError, PolicyError, SamplerError
from evoseek.protocols import Sampler
from evoseek.rollout.calls import Watch
from evoseek.rollout.gateway.calls import AgentCall, CallTree, Said
from evoseek.rollout.gateway.chat_requests import (
    AgentChoice,
    AgentReply,
    AgentRequest,
    arguments_of,
    completion_of,
    read_request,
)
from evoseek.rollout.limits import Clock, Limits
from evoseek.types import Completion, Message, Question, SampleRequest, StopReason, Trajectory

if TYPE_CHECKING:  # settings are read without loading what renders
    from evoseek.renderers.conversation import Conversation

WAIT_S = 600.0
"""Maximum seconds that an agent works by itself, between its calls, unless rollout.wait_s or deadline_s is set."""
_SHOWN = 500  # characters of an agent's error
_ANSWER = 20_000  # characters of an answer


class CallRefusedError(DataError):
    """A call that is refused: the program must not repeat it. `code` is OpenAI's."""

    def __init__(self, message: str, code: str = "refused") -> None:
        super().__init__(message)
        self.api_code = code


class AgentFailedError(EvoseekError):
    """An agent failed outside the policy."""


@dataclass(frozen=True, slots=True)
class Rolled:
    """How the calls of an attempt are sampled: as in `rollout.roller.Roller`."""

    sampler: Sampler
    limits: Limits
    temperature: float
    seed: int


class AgentAttempt:
    """One run of an agent. Its calls are sampled one after the other, by any of the tasks of its event loop."""

    def __init__(
        self, question: Question, id: str, rolled: Rolled, conversation: Callable[[str], Conversation], watch: Watch
    ) -> None:
        self.id, self.question, self.key = id, question, secrets.token_urlsafe(18)
        self.loop = asyncio.get_running_loop()
        self.clock = Clock(rolled.limits, counts_queue=False)
        self.tree = CallTree()
        self.limit: StopReason | None = None
        self.failure: str | None = None
        self.fault: Exception | None = None  # of the run, which ends it
        self.has_ended = False
        self._rolled, self._conversation, self._watch = rolled, conversation, watch
        self._turns, self._lock = 0, asyncio.Lock()
        self._asked: dict[bytes, asyncio.Task[tuple[AgentReply, list[AgentCall]]]] = {}

    async def reply(self, request: AgentRequest, *, retries: bool = False) -> tuple[AgentReply, list[AgentCall]]:
        """Return the reply and its calls, which count once they are `delivered`. A request that a client `retries` gets
        the reply of the first one. Raises CallRefusedError."""
        self._check_open()
        digest = hashlib.blake2b(repr(request).encode(errors="replace"), digest_size=16).digest()
        if not retries or digest not in self._asked:
            task = self._asked[digest] = asyncio.create_task(self._answer(request))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # its client may be gone
        return await asyncio.shield(self._asked[digest])

    def end(self) -> None:
        """Refuse further calls, end running ones, and free what the sampler holds."""
        self.has_ended = True
        self._rolled.sampler.release(self.id)

    def _check_open(self) -> None:
        if self.has_ended:
            raise CallRefusedError("This attempt has ended, so its calls are no longer answered.", "attempt_ended")

    async def _answer(self, request: AgentRequest) -> tuple[AgentReply, list[AgentCall]]:
        async with self._lock:
            self._check_open()
            said, tools = request.said, json.dumps(request.schemas, sort_keys=True)
            self._check_limits(said, tools, request.n or 1)
            try:
                conversation = self._conversation(tools)
                after, known = self.tree.find(said, tools)
                context = _context(conversation, after, [one.shown for one in said[known:]])
            except PolicyError as error:
                raise CallRefusedError(str(error)) from error
            except Exception as error:  # of a template, for schemas or calls of another form
                why = f"{type(error).__name__}: {error}"
                raise CallRefusedError(f"The conversation or its tools cannot be read ({why[:_SHOWN]}).") from error
            room = self._room(context, request)
            number, choices, calls = self._turns, list[AgentChoice](), list[AgentCall]()
            for _ in range(request.n or 1):
                done, ended = await self._sample(context, room, conversation.stop(request.stop_strings))
                call, choice = _read(conversation, request, done, context)
                call.ended_version, call.keys, call.tools, call.after = ended, tuple(s.key for s in said), tools, after
                self.tree.add(call, said)
                self._watch(call.action)
                choices.append(choice)
                calls.append(call)
            return AgentReply(number, context, tuple(choices)), calls

    def _check_limits(self, said: Sequence[Said], tools: str, choices: int) -> None:
        limits = self._rolled.limits
        if self._turns + choices > limits.max_turns:
            self.limit = StopReason.MAX_TURNS if self.tree.calls else None
            raise CallRefusedError(
                f"An attempt has at most {limits.max_turns} calls (rollout.max_turns).", "call_limit"
            )
        if self.clock.is_over:
            self.limit = StopReason.MAX_TIME
            raise CallRefusedError(f"The policy wrote for {limits.deadline_s} s (rollout.deadline_s).", "time_limit")
        texts = [text for one in said for text in (one.message.content, *map(arguments_of, one.message.tool_calls))]
        if sum(map(len, (tools, *texts))) > limits.max_result_characters:
            self._refuse_length("far too many")

    def _room(self, context: Sequence[int], request: AgentRequest) -> int:
        limits = self._rolled.limits
        room = min(request.most or limits.max_tokens_per_turn, limits.max_tokens_per_turn)
        left = limits.max_total_tokens - len(context)
        if left < 1:
            self._refuse_length(str(len(context)))
        if not context:
            raise CallRefusedError("The conversation is empty. Send a message with text.")
        return min(room, left)

    def _refuse_length(self, length: str) -> None:
        """Refuse a context. It is the policy's doing only if the policy has written something before."""
        most = self._rolled.limits.max_total_tokens
        text = f"The conversation has {length} tokens; with the reply it may have {most} (rollout.max_total_tokens)."
        if self.tree.calls:
            self.limit = StopReason.MAX_TOKENS
        raise CallRefusedError(text, "context_length_exceeded")

    async def _sample(self, context: tuple[int, ...], room: int, stop: Any) -> tuple[Completion, int]:
        own = self._rolled
        request = SampleRequest(self.id, self._turns, context, room, own.temperature, stop, own.seed)
        self._turns += 1
        try:
            done = await self.clock.sample(own.sampler, request)
            if len(done.logprobs) != len(done.token_ids):
                raise SamplerError(
                    f"The sampler gave {len(done.token_ids)} token ids with {len(done.logprobs)} logprobs. Expected "
                    "one for each id."
                )
        except Exception as error:
            self._check_open()
            if isinstance(error, SamplerError):
                self.failure = str(error)
            else:
                self.fault = error
            raise CallRefusedError(f"The sampler failed: {error}", "sampler_failed") from error
        return done, own.sampler.policy_version


def _context(conversation: Conversation, after: AgentCall | None, messages: Sequence[Message]) -> tuple[int, ...]:
    if after is None:
        return conversation.prompt(messages)
    return (*after.token_ids, *conversation.after(messages, after.completion.token_ids))


def _read(
    conversation: Conversation, request: AgentRequest, done: Completion, context: tuple[int, ...]
) -> tuple[AgentCall, AgentChoice]:
    """Return the call and the reply. Its text ends before a stop string, as in OpenAI's API; a program may put the
    string back."""
    written = conversation.read(done.token_ids)
    whole, forms = written.text, {written.text: None}
    found = [(place, string) for string in request.stop_strings if (place := whole.rfind(string)) >= 0]
    if found and done.finish_reason == "stop" and not request.include_stop_str_in_output:
        place, string = max(found)
        cut = whole[:place].strip()
        written, forms = replace(written, text=cut), dict.fromkeys((cut, whole, cut + string))
    tokens = [conversation.text([token]) for token in done.token_ids] if request.logprobs else ()
    thoughts = dict.fromkeys((written.thought, ""))
    replies = tuple(Said(Message("assistant", text, written.calls), t) for t in thoughts for text in forms)
    action = conversation.action(done.token_ids)
    return AgentCall(context, done, action, 0, (), "", replies), AgentChoice(written, done, tokens)


@dataclass(slots=True)
class Client:
    """An agent's access to the policy: an OpenAI-compatible address of its own with a key, which is opened when it is
    first asked for; or `chat`, without HTTP."""

    attempt: AgentAttempt
    open: Callable[[AgentAttempt], str]
    model: str = "policy"

    @property
    def base_url(self) -> str:
        return f"{self.open(self.attempt)}/{self.attempt.key}/v1"

    @property
    def api_key(self) -> str:
        return self.attempt.key

    async def chat(self, **body: Any) -> dict[str, Any]:
        """Return the reply to a request of chat completions, whole. Raises CallRefusedError."""
        request, attempt = read_request(body), self.attempt
        if asyncio.get_running_loop() is attempt.loop:
            reply, calls = await attempt.reply(request)
        else:  # of a function in a thread of its own
            asked = asyncio.run_coroutine_threadsafe(attempt.reply(request), attempt.loop)
            reply, calls = await asyncio.wrap_future(asked)
        for call in calls:
            call.delivered = True
        return completion_of(reply, request)


Agent = Callable[[str, Client], Awaitable[object]]
"""Answers a question with a client; None is no answer."""


@dataclass(slots=True)
class AgentRunner:
    """Runs an agent on questions, `concurrent` attempts together. `conversation` makes the renderer for tools, given as
    JSON; `trained` chooses the calls that are trained on."""

    agent: Agent
    conversation: Callable[[str], Conversation]
    open: Callable[[AgentAttempt], str]
    close: Callable[[AgentAttempt], None]
    concurrent: int
    trained: Literal["all", "last"] = "all"
    _room: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = field(default=None, init=False)

    async def attempt(self, question: Question, id: str, rolled: Rolled, watch: Watch) -> Trajectory:
        """Run the agent once. Every attempt ends with a StopReason; errors of the sampler other than SamplerError are
        raised."""
        loop = asyncio.get_running_loop()
        if self._room is None or self._room[0] is not loop:
            self._room = loop, asyncio.Semaphore(self.concurrent)
        limits = replace(rolled.limits, wait_s=rolled.limits.waiting_s or WAIT_S)
        async with self._room[1]:
            attempt = AgentAttempt(question, id, replace(rolled, limits=limits), self.conversation, watch)
            task = asyncio.create_task(_answer_of(self.agent(question.text, Client(attempt, self.open))))
            try:
                async with attempt.clock.waiting:
                    await asyncio.wait({task})
                reason, answer, failure = _ended(attempt, task.result())
            except TimeoutError:
                reason, answer = StopReason.DEADLINE, None
                failure = f"The agent worked for more than {limits.wait_s} s beside its calls (rollout.wait_s)."
            finally:
                task.cancel()
                attempt.end()
                self.close(attempt)
            if attempt.fault is not None:
                raise attempt.fault
        return self._trajectory(attempt, reason, answer, failure)

    def _trajectory(
        self, attempt: AgentAttempt, reason: StopReason, answer: str | None, failure: str | None
    ) -> Trajectory:
        calls = [call for call in attempt.tree.calls if call.delivered]
        version = calls[0].completion.policy_version if calls else 0
        segments, actions = attempt.tree.segments(version, only_last=self.trained == "last")
        return Trajectory(
            id=attempt.id,
            question=attempt.question,
            role="solver",
            segments=segments,
            actions=actions,
            tool_results=(),
            stop_reason=reason,
            answer=answer,
            failure=failure,
            policy_version=version,
        )


async def _answer_of(running: Awaitable[object]) -> str | AgentFailedError | None:
    """Return the answer of an agent, or its failure, for any exception."""
    try:
        answer = await running
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # also one that the agent itself raises
        text = str(error) if isinstance(error, AgentFailedError) else f"{type(error).__name__}: {error}"
        return AgentFailedError(f"The agent failed: {text[:_SHOWN]}")
    if answer is not None and not isinstance(answer, str):
        return AgentFailedError(f"The agent returned a {type(answer).__name__}. Expected the answer's text, or None.")
    return (answer and answer[:_ANSWER].strip()) or None


def _ended(attempt: AgentAttempt, answer: str | AgentFailedError | None) -> tuple[StopReason, str | None, str | None]:
    if attempt.failure is not None:
        return StopReason.SAMPLER_FAILED, None, attempt.failure
    if isinstance(answer, str):
        return StopReason.ANSWERED, answer, None
    if attempt.limit is not None:
        return attempt.limit, None, None
    if answer is not None:
        return StopReason.TOOL_FAILED, None, str(answer)
    if not attempt.tree.calls:
        return StopReason.TOOL_FAILED, None, "The agent ended without an answer, and without a call of the policy."
    return StopReason.MALFORMED, None, None
