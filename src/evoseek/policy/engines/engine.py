"""One server of an engine as a sampler. What differs from engine to engine is in a class derived from EngineServer."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from evoseek.errors import ConfigError, SamplerError
from evoseek.http.limits import TransientError
from evoseek.http.server import redacted
from evoseek.policy.engines.launch import HOST, Command, Model
from evoseek.policy.engines.link import Link
from evoseek.policy.engines.turn import ROUNDING, Sampled, Turn
from evoseek.policy.settings import EngineSettings
from evoseek.policy.stops import PassTimes, StopRule, StopRules
from evoseek.types import Completion, SampleRequest

T = TypeVar("T")

INTERVAL = 16  # tokens of an event of a reply
TOP = 5  # logprobs that are compared at the temperatures WARM and COLD, to distinguish raw ones from tempered ones
WARM, COLD = 1.0, 0.5
_LOADED = ("already been loaded", "already exists")  # an adapter, in the words of vLLM and SGLang


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of a version in a directory that the servers can read: those of an adapter with this name, or all of
    them ("")."""

    version: int
    directory: Path
    adapter: str = ""

    @property
    def name(self) -> str:
        """Of these weights alone."""
        return self.directory.name


class EngineServer(ABC):
    """Samples with one server. `vocabulary` is the number of the policy's tokens, `prompt` any ids that the logprobs
    are checked with, and `max_length` the longest sequence.

    The server is checked before its first turn. One that failed may have been restarted with other weights: before its
    next turn it is checked and given the weights again.
    """

    engine: ClassVar[str]  # its name
    path: ClassVar[str]  # of requests for turns
    version_path: ClassVar[str]  # of the engine's version
    oldest: ClassVar[tuple[int, ...]]  # version that is supported
    reserved: ClassVar[int] = 0  # tokens of a context that no sequence can have
    raw_remedy: ClassVar[str]  # for logprobs that are not those of the distribution that was sampled from
    adapter_root: ClassVar[str]  # of the paths that load and unload an adapter
    adapter_retried: ClassVar[int]  # the status of a directory that is not seen yet
    adapter_remedy: ClassVar[str]
    program: ClassVar[tuple[str, ...]]  # that starts a server
    source_words: ClassVar[tuple[str, ...]]  # before the model, in its command line
    environment: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self, link: Link, rules: StopRules, *, vocabulary: int, prompt: Sequence[int], max_length: int
    ) -> None:
        self.link, self._rules, self._vocabulary = link, rules, vocabulary
        self.prompt, self._max_length = prompt, max_length
        self._weights: Weights | None = None  # that it should have
        self._loaded: Weights | None = None  # those that the server was last found to have
        self._model = ""  # as found by the check; "" if it has to be checked
        self._turns = 0  # in progress
        self._paces = PassTimes()
        self._ended: asyncio.Future[None] | None = None  # a turn, for a load that waits for it
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @classmethod
    def command(cls, settings: EngineSettings, model: Model, gpus: str, port: int) -> Command:
        """The command that starts a server of a model on these GPUs (numbers with commas; "": all that there are)."""
        words = [*(settings.program or cls.program), *cls.source_words, model.source]
        words += ["--served-model-name", "policy", "--host", HOST, "--port", str(port), "--dtype", model.dtype]
        words += [*cls.options(model, gpus.count(",") + 1), *settings.arguments]
        visible = {"CUDA_VISIBLE_DEVICES": gpus} if gpus else {}
        return Command(words, {**visible, **cls.environment})

    @classmethod
    @abstractmethod
    def options(cls, model: Model, gpus: int) -> list[str]:
        """The engine's own options of the command, for a server on so many GPUs."""

    @abstractmethod
    async def top_logprobs(self, model: str, temperature: float) -> list[float]:
        """The `TOP` highest logprobs after the prompt, as they are reported at a temperature. Raises SamplerError."""

    @abstractmethod
    async def load_all(self, weights: Weights) -> None:
        """Sample with all weights of a directory from now on. Raises SamplerError."""

    @classmethod
    @abstractmethod
    def body(cls, request: SampleRequest, rule: StopRule, model: str, weights: Weights | None) -> dict[str, Any]:
        """The body of the request for a turn, whose reply is a stream of events: one with the first token at once,
        which separates waiting from writing, then one for every `INTERVAL` tokens."""

    @classmethod
    @abstractmethod
    def read(cls, value: Any, model: str, weights: Weights | None, written: int) -> Sampled:
        """The tokens of an event, after so many earlier ones of the reply. Raises TransientError for a value of another
        shape."""

    @property
    def name(self) -> str:
        """Which server it is, for errors."""
        return f"the server {self.link.url}"

    @property
    def is_lost(self) -> bool:
        """Whether the server is not called now."""
        return self.link.is_lost

    def publish(self, weights: Weights) -> None:
        """Use these weights from the next turn on."""
        self._weights = weights

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one completion. Raises SamplerError, and ConfigError for a server that cannot be used."""
        model, weights = await self._prepared()
        version = weights.version if weights else 0  # newer ones may be published before the turn ends
        turn = Turn(request, self._rules, vocabulary=self._vocabulary, version=version, paces=self._paces)

        def body() -> object:
            return self.body(turn.rest(), turn.rule, model, weights)

        def read(value: Any) -> Completion | None:
            return turn.add(self.read(value, model, weights, turn.written))

        self._turns += 1
        try:
            return await self.link.stream(self.path, body, read)
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
        """The model and the weights that the server has, once it was checked and given the newest, unless that was done
        since it last failed. Weights that are published while it loads are left to the next turn."""
        async with self._alone():
            await self._turns_of_older_weights()
            try:
                model, weights = self._model or await self._checked(), self._weights
                if weights is not None and self._loaded != weights:
                    await (self._load_adapter(weights) if weights.adapter else self.load_all(weights))
                self._model, self._loaded = model, weights
                return model, weights
            except BaseException:
                self._forget()  # what was begun may be half done
                raise

    async def _turns_of_older_weights(self) -> None:
        """Wait until the turns in progress have ended, if the server is about to exchange all weights under them: it
        would abort them, or continue them with keys and values of the old ones. (An adapter stays while it is used.)"""
        new = self._weights
        while new is not None and new != self._loaded and not new.adapter and self._turns:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """One at a time, in whatever event loop."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = loop, asyncio.Lock()
        async with self._lock[1]:
            yield

    async def _load_adapter(self, weights: Weights) -> None:
        """Load an adapter, then unload the last one. A directory may not be seen at once on another machine."""
        path, body = f"{self.adapter_root}/load_lora_adapter", {"lora_name": weights.adapter}
        try:
            await self.link.send(path, body | {"lora_path": str(weights.directory)}, retried=self.adapter_retried)
        except SamplerError as error:
            if not any(words in str(error) for words in _LOADED):  # by a call whose reply was lost
                raise SamplerError(f"{error} {self.adapter_remedy}") from error
        if self._loaded is not None and self._loaded.adapter:
            with suppress(SamplerError):  # it only takes memory
                await self.link.send(f"{self.adapter_root}/unload_lora_adapter", {"lora_name": self._loaded.adapter})

    async def _checked(self) -> str:
        """The name of the model at the server. Raises ConfigError for a server that cannot be used, SamplerError."""
        version = await self.get(self.version_path, lambda value: str(value["version"]))
        if tuple(int(number) for number in re.findall(r"\d+", version)[: len(self.oldest)]) < self.oldest:
            oldest = ".".join(map(str, self.oldest))
            raise ConfigError(
                f"The server {self.link.url} runs {self.engine} {version}; {oldest} or later is needed. Install it "
                f"(pip install '{self.engine.lower()}>={oldest}')."
            )
        model, longest = await self._served()
        if longest is not None and longest - self.reserved < self._max_length:
            raise ConfigError(
                f"The server {self.link.url} takes sequences of up to {longest - self.reserved} tokens, but "
                f"rollout.max_total_tokens is {self._max_length}. Start it for longer ones, or lower the setting."
            )
        self._check_tempered(await self.top_logprobs(model, WARM), await self.top_logprobs(model, COLD))
        return model

    async def _served(self) -> tuple[str, int | None]:
        """The only model that the server serves, adapters left out, and the longest sequence that it takes."""
        models = await self.get(
            "/v1/models",
            lambda value: [
                (str(one["id"]), one.get("max_model_len")) for one in value["data"] if not one.get("parent")
            ],
        )
        if len(models) != 1:
            raise ConfigError(
                f"The server {self.link.url} was expected to serve exactly one model, but it serves "
                f"{', '.join(name for name, _ in models) or 'none'}. Start it with the policy's model alone."
            )
        return models[0]

    def _check_tempered(self, warm: Sequence[float], cold: Sequence[float]) -> None:
        """Raise ConfigError if logprobs reported at the temperature `COLD` are those of temperature `WARM`: the gaps
        between them grow by the ratio of the two, unless the temperature was left out."""
        gap, reported = warm[0] - warm[-1], cold[0] - cold[-1]
        expected = gap * WARM / COLD
        if abs(reported - expected) <= max(ROUNDING, 0.05 * expected):
            return
        what = "raw" if abs(reported - gap) <= max(ROUNDING, 0.05 * gap) else "neither raw nor tempered"
        raise ConfigError(
            f"The {self.engine} server {self.link.url} reports {what} logprobs: at temperature {COLD:g} the {TOP} "
            f"highest lie {reported:.4f} apart, but {expected:.4f} was expected from the {gap:.4f} at temperature "
            f"{WARM:g}. Training needs the logprobs of the distribution that was sampled from. {self.raw_remedy}"
        )

    async def get(self, path: str, read: Callable[[Any], T]) -> T:
        """What `read` makes of a reply. Raises SamplerError, also for a value of another shape."""
        return await self.link.get(path, self._checking(read))

    async def highest(self, body: object, read: Callable[[Any], Sequence[Any]]) -> list[float]:
        """The `TOP` highest of the logprobs that `read` finds in the reply to a request for a turn. Raises
        SamplerError."""

        def highest(value: Any) -> list[float]:
            logprobs = sorted(map(float, read(value)), reverse=True)
            if len(logprobs) < TOP:
                raise ValueError(f"{len(logprobs)} logprobs")
            return logprobs[:TOP]

        return await self.link.get(self.path, self._checking(highest), body)

    def _checking(self, read: Callable[[Any], T]) -> Callable[[Any], T]:
        """`read`, with TransientError for a value of another shape."""

        def checked(value: Any) -> T:
            try:
                return read(value)
            except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
                raise self.strange(value) from error

        return checked

    @classmethod
    def strange(cls, value: object) -> TransientError:
        """The error for a reply that is not as the engine documents it."""
        return TransientError(f"its reply is not as {cls.engine}'s: {redacted(value, '')}")
