"""A sampler and a chat that follow a script: public test doubles for environments, rewards and rollouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from transformers import PreTrainedTokenizerBase

from evoseek.errors import SamplerError, ToolError
from evoseek.types import Completion, Message, SampleRequest

Script = Callable[[SampleRequest], str | Sequence[int] | Completion]
"""The answer to a request: text, ids, or a whole completion. It may raise."""

ChatScript = Callable[[Sequence[Message], str], str]
"""The reply to messages and a key. It may raise."""


class ScriptedSampler:
    """Implements `Sampler` from a script: a function of the request, or the texts of each trajectory's turns by its id.

    Text is encoded as template text (a model can write control tokens). A completion longer than the request's
    `max_tokens` is cut and ends by `length`; one that takes more than its `max_seconds`, at `token_s` seconds a token,
    by `time` (no clock is used). All requests and completions are recorded in `requests` and `completions`, in order.

    >>> ScriptedSampler({"q1/0": ["<search> mayor </search>", "<answer> Meri </answer>"]}, tokenizer)  # doctest: +SKIP
    """

    def __init__(
        self,
        script: Script | Mapping[str, Sequence[str]],
        tokenizer: PreTrainedTokenizerBase,
        *,
        logprob: float = 0.0,
        policy_version: int = 0,
        token_s: float = 0.0,
    ) -> None:
        self._script = script if callable(script) else _by_trajectory(script)
        self._tokenizer = tokenizer
        self._logprob = logprob
        self._token_s = token_s
        self.policy_version = policy_version
        self.requests: list[SampleRequest] = []
        self.completions: list[Completion] = []
        self.released: list[str] = []

    async def sample(self, request: SampleRequest) -> Completion:
        """The script's completion."""
        self.requests.append(request)
        reply = self._script(request)
        completion = reply if isinstance(reply, Completion) else self._complete(reply, request)
        self.completions.append(completion)
        return completion

    def release(self, trajectory_id: str) -> None:
        """Remember that the trajectory has ended."""
        self.released.append(trajectory_id)

    def update_weights(self, version: int, weights: Mapping[str, object] | None = None) -> None:
        """Record the version only: the completions come from the script."""
        self.policy_version = version

    def _complete(self, reply: str | Sequence[int], request: SampleRequest) -> Completion:
        ids = self._tokenizer.encode(reply, add_special_tokens=False) if isinstance(reply, str) else reply
        in_time = (
            ceil(request.max_seconds / self._token_s) if self._token_s * len(ids) > request.max_seconds else len(ids)
        )
        kept = tuple(ids)[: min(request.max_tokens, in_time)]
        reason = "stop" if len(kept) == len(ids) else "time" if len(kept) == in_time else "length"
        seconds = self._token_s * len(kept)
        return Completion(kept, (self._logprob,) * len(kept), reason, self.policy_version, seconds)


def _by_trajectory(texts: Mapping[str, Sequence[str]]) -> Script:
    def script(request: SampleRequest) -> str:
        turns = texts.get(request.trajectory_id, ())
        if request.turn >= len(turns):
            raise SamplerError(f"The script has no turn {request.turn} of the trajectory {request.trajectory_id!r}.")
        return turns[request.turn]

    return script


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of a scripted chat."""

    messages: tuple[Message, ...]
    key: str
    form: Mapping[str, object] | None = None
    stop: tuple[str, ...] = ()


class ScriptedChat:
    """Implements `Chat` from a script: a function of messages and key, or by key one reply, or one for each call.

    All calls are recorded in `asked`, in order, also those that fail. Raises ToolError where a script by key has no
    reply.

    >>> ScriptedChat({"q1/0/search-0": "Document 1: Meri is the mayor."})  # doctest: +SKIP
    """

    is_local = True

    def __init__(self, script: ChatScript | Mapping[str, str | Sequence[str]], *, name: str = "scripted") -> None:
        self.name = name
        self._script = script if callable(script) else _by_key(script)
        self.asked: list[Asked] = []

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        key: str,
        form: Mapping[str, object] | None = None,
        stop: Sequence[str] = (),
    ) -> str:
        """The script's reply."""
        self.asked.append(Asked(tuple(messages), key, form, tuple(stop)))
        return self._script(messages, key)


def _by_key(replies: Mapping[str, str | Sequence[str]]) -> ChatScript:
    calls: Counter[str] = Counter()

    def script(messages: Sequence[Message], key: str) -> str:
        reply = replies.get(key, ())
        number, calls[key] = calls[key], calls[key] + 1
        if isinstance(reply, str):
            return reply
        if number >= len(reply):
            raise ToolError(f"The script has no reply to call {number} for the key {key!r}.")
        return reply[number]

    return script
