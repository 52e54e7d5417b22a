"""vLLM, over HTTP: `vllm serve MODEL --logprobs-mode processed_logprobs`, 0.30 or later.

    POST /v1/completions                 ids in, ids and logprobs out; stop strings stay in the ids
    POST /v1/load_lora_adapter           an adapter (VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora)
    POST /collective_rpc reload_weights  all weights, from a directory (VLLM_SERVER_DEV_MODE=1)

Known problems, each with the answer here. Keys and values of older weights stay in the prefix cache (every request has
the name of the weights' directory as `cache_salt`). An adapter loaded again from the same path keeps old blocks (every
version has its own name and path). `reload_weights` without a path reads the old weights, and does not update a tied
head (weights are written untied). A model's own generation settings are defaults of requests (each request names all of
them). A seed for each request has crashed the CPU engine (none is sent).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from evoseek.errors import ConfigError, SamplerError, ToolError
from evoseek.http.limits import CircuitBreaker, Retry, TransientError
from evoseek.http.server import Reply, Server, check_url, json_of, redacted
from evoseek.models.settings import EngineSettings
from evoseek.samplers.torch.stops import PassTimes, StopRule, StopRules
from evoseek.samplers.vllm.turn import ROUNDING, Sampled, Turn
from evoseek.types import Completion, SampleRequest

T = TypeVar("T")

_FAILURES, _PAUSE_S = 6, 30.0  # consecutive failed calls until a server is lost, seconds until it is tried again
_ATTEMPTS, _WAIT_S, _MAX_WAIT_S = 3, 0.5, 30.0  # of a call, and the seconds between them
_PATH = "/v1/completions"
_OLDEST = (0, 30)  # oldest supported version
_UNFILTERED = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
_INTERVAL = 16  # tokens of an event of a reply
_TOP = 5  # logprobs compared at the temperatures _WARM and _COLD, to distinguish raw ones from tempered ones
_WARM, _COLD = 1.0, 0.5


class RefusedError(SamplerError):
    """The server is up, but refused a request."""


class Link:
    """Calls one server. Transient failures and unreadable replies are retried. After too many consecutive failed calls
    the server is lost (`is_lost`). It is then called only for an occasional trial, when `clock` says that one is due.
    `wait_s` is the first wait before a retry. Raises ConfigError for a wrong url, or an api_key that no header can
    hold."""

    def __init__(
        self,
        url: str,
        settings: EngineSettings,
        *,
        api_key: str = "",
        attempts: int = _ATTEMPTS,
        wait_s: float = _WAIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_address(url)
        self.url = url.rstrip("/")
        self._api_key = api_key
        self._breaker = CircuitBreaker(_FAILURES, _PAUSE_S, clock)
        self._server = Server(
            setting="sampler.urls",
            api_key=api_key,
            timeout_s=settings.timeout_s,
            retry=Retry(attempts, wait_s, _MAX_WAIT_S),
            concurrency=settings.concurrency,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
        )

    @property
    def is_lost(self) -> bool:
        """Whether a call would be refused now, because the last ones failed."""
        return self._breaker.is_refusing

    async def get(self, path: str, read: Callable[[Any], T], body: object = None) -> T:
        """Send a GET, or with a body a POST, and return `read(JSON value)`. A value of another shape is retried. Raises
        SamplerError, which is a RefusedError for a status of 4xx."""

        def checked(reply: bytes) -> T:
            value = json_of(reply, secret=self._api_key)
            try:
                return read(value)
            except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
                raise _strange(value) from error

        return await self._call("GET" if body is None else "POST", path, body, checked)

    async def stream(self, path: str, body: Callable[[], object], read: Callable[[Any], T | None]) -> T:
        """Return the first result of `read` on an event's JSON value that is not None. After a failure, `body` is
        called again for the missing rest. A reply that breaks off after an event does not count as a failed attempt.
        Raises as `get`."""

        async def attempt(client: httpx2.AsyncClient) -> T:
            while True:
                with self._breaker.call():
                    done = await self._events(client, path, body(), read)
                if done is not None:
                    return done

        return await self._named(f"POST {path}", attempt)

    async def send(self, path: str, body: object = None, *, retried: int | None = None) -> None:
        """Send a POST whose reply is empty. The status `retried` is a transient failure. Raises as `get`."""
        await self._call("POST", path, body, lambda _: None, retried)

    async def _call(
        self, method: str, path: str, body: object, read: Callable[[bytes], T], retried: int | None = None
    ) -> T:
        request = {} if body is None else {"json": body}

        async def attempt(client: httpx2.AsyncClient) -> T:
            with self._breaker.call():
                reply = await self._server.send(client, method, f"{self.url}{path}", **request)
                if reply.status == retried:
                    raise TransientError(self._server.refusal(reply))
                if not reply.is_success:
                    raise _Refusal(self._server.refusal(reply))
                return read(reply.body)

        return await self._named(f"{method} {path}", attempt)

    async def _events(
        self, client: httpx2.AsyncClient, path: str, body: object, read: Callable[[Any], T | None]
    ) -> T | None:
        """Make one attempt of `stream`; None if the reply broke off after a readable event."""
        has_begun, wrong = False, None

        def each(data: str) -> T | None:
            nonlocal has_begun, wrong
            try:
                done = read(json_of(data.encode(), secret=self._api_key))
            except TransientError as error:
                wrong = error
                raise
            has_begun = True
            return done

        try:
            reply = await self._server.stream(client, "POST", f"{self.url}{path}", each, json=body)
        except TransientError:
            if has_begun and wrong is None:
                return None
            raise
        if isinstance(reply, Reply):
            raise _Refusal(self._server.refusal(reply))
        return reply

    async def _named(self, what: str, attempt: Callable[[httpx2.AsyncClient], Awaitable[T]]) -> T:
        """Make a call and return its result. Raises SamplerError, which names the server and the request."""
        try:
            return await self._server.call(attempt)
        except _Refusal as error:
            raise RefusedError(f"The server {self.url} refused {what}: {error}") from error
        except ToolError as error:
            raise SamplerError(f"The server {self.url} failed at {what}: {error}") from error


def check_address(url: str) -> None:
    """Raise ConfigError for an invalid server address."""
    check_url(url, setting="sampler.urls", example="http://127.0.0.1:8000")


class _Refusal(ToolError):
    """A status of 4xx that is not retried."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A version's weights in a directory that the servers can read: an adapter of this name, or ("") all weights."""

    version: int
    directory: Path
    adapter: str = ""


class VLLM:
    """Samples with one server. `vocabulary` is the number of the policy's tokens, `prompt` any ids for checking
    logprobs.

    The server is checked before its first turn, and again after a failure. It may have been restarted with other
    weights, so it then receives the weights again.
    """

    def __init__(
        self, link: Link, rules: StopRules, *, vocabulary: int, prompt: Sequence[int], max_length: int
    ) -> None:
        self.link, self._rules, self._vocabulary = link, rules, vocabulary
        self._prompt, self._max_length = prompt, max_length
        self._weights: Weights | None = None  # that it should have
        self._loaded: Weights | None = None  # that the last check found at the server
        self._model = ""  # as found by the check; "" if a check is due
        self._turns = 0  # in progress
        self._paces = PassTimes()
        self._ended: asyncio.Future[None] | None = None  # a turn, for a load that waits for it
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def name(self) -> str:
        """The server's name, for errors."""
        return f"the server {self.link.url}"

    @property
    def is_lost(self) -> bool:
        return self.link.is_lost

    def publish(self, weights: Weights) -> None:
        """Use these weights from the next turn on."""
        self._weights = weights

    async def sample(self, request: SampleRequest) -> Completion:
        model, weights = await self._prepared()
        version = weights.version if weights else 0  # newer ones may be published before the turn ends
        turn = Turn(request, self._rules, vocabulary=self._vocabulary, version=version, paces=self._paces)

        def body() -> object:
            return _turn_body(turn.rest(), turn.rule, model, weights)

        def read(value: Any) -> Completion | None:
            return turn.add(_read_event(value, _name_of(model, weights), turn.written))

        self._turns += 1
        try:
            return await self.link.stream(_PATH, body, read)
        except SamplerError:
            self._forget()
            raise
        finally:
            self._turns -= 1
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(None)

    def _forget(self) -> None:
        self._model, self._loaded = "", None

    async def _prepared(self) -> tuple[str, Weights | None]:
        """Check the server and load the newest weights, unless done since its last failure; return its model and its
        weights. Weights published while it loads are left to the next turn."""
        async with self._alone():
            await self._turns_of_older_weights()
            try:
                model, weights = self._model or await self._checked(), self._weights
                if weights is not None and self._loaded != weights:
                    await (self._load_adapter(weights) if weights.adapter else self._load_all(weights))
                self._model, self._loaded = model, weights
                return model, weights
            except BaseException:
                self._forget()  # the work may be half done
                raise

    async def _turns_of_older_weights(self) -> None:
        """Wait for the turns in progress if the server is about to exchange all weights: it would abort the turns, or
        continue them with keys and values of the old weights. (An adapter stays while it is used.)"""
        new = self._weights
        while new is not None and new != self._loaded and not new.adapter and self._turns:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """Let in one caller at a time, in any event loop."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = loop, asyncio.Lock()
        async with self._lock[1]:
            yield

    async def _load_all(self, weights: Weights) -> None:
        """Load all weights from a directory, while no token is sampled, for use from now on. Raises SamplerError."""
        directory = {"weights_path": str(weights.directory)}
        try:
            try:
                await self.link.send("/pause?mode=keep")
                await self.link.send("/collective_rpc", {"method": "reload_weights", "kwargs": directory})
                await self.link.send("/update_weight_version", {"new_version": str(weights.version)})
            finally:
                await self.link.send("/resume")
        except RefusedError as error:
            raise SamplerError(
                f"{error} Start it with VLLM_SERVER_DEV_MODE=1, so that it takes all weights."
            ) from error

    async def _load_adapter(self, weights: Weights) -> None:
        """Load an adapter, then unload the last one. Another machine may see a directory late."""
        body = {"lora_name": weights.adapter, "lora_path": str(weights.directory)}
        try:
            await self.link.send("/v1/load_lora_adapter", body, retried=404)
        except SamplerError as error:
            if "already been loaded" not in str(error):  # by a call whose reply was lost
                raise SamplerError(
                    f"{error} The server must see that directory, and be started with --enable-lora, --max-lora-rank "
                    "of at least lora.rank, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1."
                ) from error
        if self._loaded is not None and self._loaded.adapter:
            with suppress(SamplerError):  # it only takes memory
                await self.link.send("/v1/unload_lora_adapter", {"lora_name": self._loaded.adapter})

    async def _checked(self) -> str:
        """Check the server, and return its model's name. Raises ConfigError for an unusable server, SamplerError."""
        version = await self.link.get("/version", lambda value: str(value["version"]))
        if tuple(int(number) for number in re.findall(r"\d+", version)[: len(_OLDEST)]) < _OLDEST:
            oldest = ".".join(map(str, _OLDEST))
            raise ConfigError(
                f"The server {self.link.url} runs vLLM {version}; {oldest} or later is needed. Install it (pip install "
                f"'vllm>={oldest}')."
            )
        model, longest = await self._served()
        if longest is not None and longest < self._max_length:
            raise ConfigError(
                f"The server {self.link.url} takes sequences of up to {longest} tokens, but rollout.max_total_tokens "
                f"is {self._max_length}. Start it with a longer limit, or lower the setting."
            )
        self._check_tempered(await self._top_logprobs(model, _WARM), await self._top_logprobs(model, _COLD))
        return model

    async def _served(self) -> tuple[str, int | None]:
        """Return the only model that the server serves, not counting adapters, and its longest sequence."""
        models = await self.link.get(
            "/v1/models",
            lambda value: [
                (str(one["id"]), one.get("max_model_len")) for one in value["data"] if not one.get("parent")
            ],
        )
        if len(models) != 1:
            raise ConfigError(
                f"The server {self.link.url} was expected to serve exactly one model, but it serves "
                f"{', '.join(name for name, _ in models) or 'none'}. Start it with only the policy's model."
            )
        return models[0]

    def _check_tempered(self, warm: Sequence[float], cold: Sequence[float]) -> None:
        """Raise ConfigError unless the gaps between logprobs grow by the ratio of `_WARM` to `_COLD`."""
        gap, reported = warm[0] - warm[-1], cold[0] - cold[-1]
        expected = gap * _WARM / _COLD
        if abs(reported - expected) <= max(ROUNDING, 0.05 * expected):
            return
        what = "raw" if abs(reported - gap) <= max(ROUNDING, 0.05 * gap) else "neither raw nor tempered"
        raise ConfigError(
            f"The vLLM server {self.link.url} reports {what} logprobs: at temperature {_COLD:g} the {_TOP} "
            f"highest lie {reported:.4f} apart, but {expected:.4f} was expected from the {gap:.4f} at temperature "
            f"{_WARM:g}. Training needs the logprobs of the sampled distribution. Start it with "
            "--logprobs-mode processed_logprobs."
        )

    async def _top_logprobs(self, model: str, temperature: float) -> list[float]:
        """Ask for the `_TOP` highest logprobs after the prompt at a temperature. Raises SamplerError."""
        body = {
            "model": model,
            "prompt": list(self._prompt),
            "max_tokens": 1,
            "temperature": temperature,
            "logprobs": _TOP,
            "return_tokens_as_token_ids": True,
            **_UNFILTERED,
        }

        def highest(value: Any) -> list[float]:
            found = value["choices"][0]["logprobs"]["top_logprobs"][0].values()
            logprobs = sorted(map(float, found), reverse=True)
            if len(logprobs) < _TOP:
                raise ValueError(f"{len(logprobs)} logprobs")
            return logprobs[:_TOP]

        return await self.link.get(_PATH, highest, body)


def _turn_body(request: SampleRequest, rule: StopRule, model: str, weights: Weights | None) -> dict[str, Any]:
    """Return the body of the request for a turn, whose reply is a stream of events: one for the first token, sent
    immediately to separate waiting from writing, then one for every `_INTERVAL` tokens. All stops are stated
    explicitly, and the server's own are switched off."""
    return {
        "model": _name_of(model, weights),
        "prompt": list(request.token_ids),
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "logprobs": 0,
        "return_token_ids": True,
        "stream": True,
        "stream_interval": _INTERVAL,
        "stop": list(rule.strings),
        "stop_token_ids": sorted(rule.token_ids),
        "ignore_eos": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "cache_salt": weights.directory.name if weights else "0",
        **_UNFILTERED,
    }


def _read_event(value: Any, name: str, written: int) -> Sampled:
    """Read the tokens of an event from the model of that name; the first event of a reply also has the prompt. Raises
    TransientError for a value of another shape."""
    match value:
        case {
            "model": str(version),
            "choices": [
                {
                    "token_ids": list(ids),
                    "logprobs": {"token_logprobs": list(logprobs)},
                    "finish_reason": None | str() as reason,
                    **more,
                }
            ],
        } if written or isinstance(more.get("prompt_token_ids"), list):
            prompt = more.get("prompt_token_ids")
            return Sampled(ids, logprobs, reason, prompt_ids=prompt, version=version, expected_version=name)
        case _:
            raise _strange(value)


def _strange(value: object) -> TransientError:
    return TransientError(f"its reply is not as vLLM's: {redacted(value, '')}")


def _name_of(model: str, weights: Weights | None) -> str:
    return weights.adapter if weights and weights.adapter else model
