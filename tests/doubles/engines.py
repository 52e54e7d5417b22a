"""Servers of engines in front of any sampler, on the loopback: test doubles for what is spoken over HTTP.

They reply as the engines document it, and fail on demand. The sampler behind one may be a script, or a real policy that
takes the weights that it is told to load.
"""

from __future__ import annotations

import asyncio
import json
import math
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import h11
from tests.doubles.faults import Fault
from tests.doubles.loopback import Connection, Loopback, Request

from evoseek.errors import EvoseekError
from evoseek.models.load import load_policy
from evoseek.protocols import Sampler
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.types import Completion, SampleRequest, StopConditions
from evoseek.world.server import Response

T = TypeVar("T")

_MAX_BODY = 4 * 2**20
_LOGITS = (2.0, 1.0, 0.5, 0.0, -1.0)  # the top of any distribution, where it is asked for


class Failure(StrEnum):
    """What a reply to a turn can be instead of the right one."""

    ERROR = "error"  # status 500
    HANG = "hang"  # nothing, until the client leaves
    DROP = "drop"  # the connection is reset
    STALL = "stall"  # the first token, then nothing until the client leaves
    CUT = "cut"  # the first tokens, then the end of the connection
    FEWER_LOGPROBS = "fewer logprobs"  # one less than ids
    STRANGE_ID = "strange id"  # beyond any vocabulary
    NO_LOGPROB = "no logprob"  # null where a logprob belongs
    OLD_WEIGHTS = "old weights"  # the sample is said to come from other weights
    ECHO = "echo"  # the ids begin with those of the prompt
    TOO_LONG = "too long"  # the ids again and again, without the last one
    OTHER_PROMPT = "other prompt"  # the prompt's ids lack the first one
    ABORTED = "aborted"  # an unknown finish reason
    NO_JSON = "no json"  # a text


@dataclass(frozen=True, slots=True)
class Turn:
    """A reply before it is put in an engine's form; `model` is what was sampled from, and `interval` the number of
    tokens of an event after the first one, which has one."""

    prompt_ids: list[int]
    token_ids: list[int]
    logprobs: list[float | None]
    finish_reason: str
    model: str
    interval: int = 1

    @property
    def events(self) -> list[tuple[int, int]]:
        """Where the tokens of each event begin and end."""
        ends = [*range(1, len(self.token_ids), self.interval), len(self.token_ids)]
        return list(zip([0, *ends], ends, strict=False))


class ScriptedServer(Loopback):
    """A server in front of a sampler. What it speaks is a class derived from it. `tempers` says whether reported
    logprobs depend on the temperature.

    open_weights: makes the sampler for weights in a directory; without it they are only recorded. `model` is what it
    serves, for sequences of `max_length` tokens, and `version` the engine's. A token after the first takes `token_s`
    seconds; before the first comes what the sampler takes, which is the server's queue. `failures` are what
    the next turns meet, the first one first; `always`, if set, is what every further turn meets. `received` has path
    and body of every request, `turns` the bodies of those for turns, `counts` how many there were by path, `cancelled`
    how many turns the client left. `loaded` are the directories in the order in which they were to be loaded.
    """

    newest: ClassVar[str]
    token_s: float = 0.0

    def __init__(
        self,
        sampler: Sampler,
        *,
        open_weights: Callable[[Path], Sampler] | None = None,
        model: str = "policy",
        version: str = "",
        max_length: int = 4096,
    ) -> None:
        super().__init__(max_body=_MAX_BODY)
        self.sampler, self._open = sampler, open_weights
        self.model, self.version, self.max_length = model, version or self.newest, max_length
        self.adapters: dict[str, Sampler] = {}
        self.failures = deque[Failure]()
        self.always: Failure | None = None
        self.received: list[tuple[str, Any]] = []
        self.turns: list[dict[str, Any]] = []
        self.counts, self.cancelled, self.loaded = Counter[str](), 0, list[Path]()
        self.tempers = True
        self._numbers = count()

    @classmethod
    def of_policy(cls, policy: str) -> Self:
        """In front of a policy, named as in `load_policy`, which takes the weights that it is told to load."""

        def opened(source: object) -> TorchSampler:
            return TorchSampler(load_policy(str(source)), slots=16)

        return cls(opened(policy), open_weights=opened)

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncGenerator[str]:
        """Serve within the block, and give the address."""
        async with self.listening(port) as url:
            yield url

    def refused(self, error: h11.RemoteProtocolError) -> None:
        """Count it."""
        self.counts["bad request"] += 1

    async def answer(self, connection: Connection, request: Request) -> bool:
        """Reply as the engine does, or fail."""
        path = request.target.partition("?")[0]
        body: dict[str, Any] = json.loads(request.body) if request.body else {}
        self.counts[path] += 1
        self.received.append((path, body))
        if not self.is_turn(path, body):
            await connection.send(await self.reply(path, body))
            return True
        self.turns.append(body)
        failure = self.failures.popleft() if self.failures else self.always
        match failure:
            case Failure.ERROR:
                await connection.send(Response.of_json({"error": {"message": "The engine is dead."}}, 500))
            case Failure.NO_JSON:
                await connection.send(Response(200, b"Bad gateway", "text/plain"))
            case Failure.HANG:
                await connection.left()
                self.cancelled += 1
                return False
            case Failure.DROP:
                await connection.send_badly(Response(200), Fault.RESET, 0.0)
                return False
            case _:
                return await self._turn(connection, body, failure)
        return True

    async def _turn(self, connection: Connection, body: Mapping[str, Any], failure: Failure | None) -> bool:
        turn = await self._unless_left(connection, self._sampled(body))
        if turn is None:
            self.cancelled += 1
            return False
        if isinstance(turn, Response):
            await connection.send(turn)
            return True
        events = self._events(_spoilt(turn, failure), failure)
        sending = connection.stream(events, "text/event-stream", whole=failure is not Failure.CUT)
        is_left = await self._unless_left(connection, _true_after(sending)) is None
        self.cancelled += is_left
        return not is_left and failure is not Failure.CUT

    async def _events(self, turn: Turn, failure: Failure | None) -> AsyncGenerator[bytes]:
        """The events of a reply, each after its time."""
        for start, end in turn.events:
            await asyncio.sleep(self.token_s * (end - start) if start else 0.0)
            yield f"data: {json.dumps(self.said(turn, start, end))}\n\n".encode()
            if failure is Failure.CUT and start:
                return
            if failure is Failure.STALL:
                await asyncio.Event().wait()
        yield b"data: [DONE]\n\n"

    async def _unless_left(self, connection: Connection, work: Awaitable[T]) -> T | None:
        """The result of the work, or None if the client leaves before."""
        task, left = asyncio.ensure_future(work), asyncio.ensure_future(connection.left())
        try:
            await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for waiting in (task, left):
                waiting.cancel()
            await asyncio.gather(task, left, return_exceptions=True)

    async def _sampled(self, body: Mapping[str, Any]) -> Turn | Response:
        asked = self.asked(body, f"turn-{next(self._numbers)}")
        model = self.model_of(body)
        sampler = self.adapters.get(model, self.sampler)
        try:
            done: Completion = await sampler.sample(asked)
        except EvoseekError as error:
            return Response.of_json({"error": {"message": str(error)}}, 500)
        finally:
            sampler.release(asked.trajectory_id)
        ids, interval = list(done.token_ids), self.interval_of(body)
        return Turn(list(asked.token_ids), ids, list(done.logprobs), done.finish_reason, model, interval)

    def load(self, directory: Path, adapter: str = "") -> None:
        """Take weights from a directory, as those of an adapter or as the model's."""
        self.loaded.append(directory)
        opened = self._open(directory) if self._open else self.sampler
        if adapter:
            self.adapters[adapter] = opened
        else:
            self.sampler = opened

    def top(self, temperature: float) -> list[float]:
        """Logprobs of the most likely tokens, as they are reported at a temperature."""
        scaled = [logit / (temperature if self.tempers else 1.0) for logit in _LOGITS]
        total = math.log(sum(map(math.exp, scaled)))
        return [logit - total for logit in scaled]

    def listed(self) -> Response:
        """The reply to /v1/models."""
        own = {"id": self.model, "parent": None, "max_model_len": self.max_length}
        adapters = [{"id": name, "parent": self.model, "max_model_len": None} for name in self.adapters]
        return Response.of_json({"object": "list", "data": [own, *adapters]})

    @abstractmethod
    def is_turn(self, path: str, body: Any) -> bool:
        """Whether a request asks for a turn of a trajectory."""

    @abstractmethod
    async def reply(self, path: str, body: Any) -> Response:
        """The reply to any other request."""

    @abstractmethod
    def model_of(self, body: Mapping[str, Any]) -> str:
        """The model or adapter that a turn is asked of."""

    @abstractmethod
    def asked(self, body: Mapping[str, Any], trajectory_id: str) -> SampleRequest:
        """What a request asks of the sampler."""

    @abstractmethod
    def interval_of(self, body: Mapping[str, Any]) -> int:
        """The number of tokens that each event is to have."""

    @abstractmethod
    def said(self, turn: Turn, start: int, end: int) -> dict[str, Any]:
        """The event with these tokens of a turn, in the engine's form."""


class ScriptedVLLM(ScriptedServer):
    """Replies as `vllm serve` with adapters, processed logprobs and the endpoints for development."""

    newest = "0.33.0"

    def is_turn(self, path: str, body: Any) -> bool:
        """A completion of ids, of a model that there is."""
        is_completion = path == "/v1/completions" and "return_token_ids" in body
        return is_completion and self.model_of(body) in (self.model, *self.adapters)

    def model_of(self, body: Mapping[str, Any]) -> str:
        """Named in every request."""
        return str(body["model"])

    async def reply(self, path: str, body: Any) -> Response:
        """Everything but turns."""
        match path:
            case "/version":
                return Response.of_json({"version": self.version})
            case "/v1/models":
                return self.listed()
            case "/v1/completions" if "return_token_ids" not in body:
                return self._top(body)
            case "/v1/load_lora_adapter":
                return self._load_adapter(str(body["lora_name"]), Path(body["lora_path"]))
            case "/v1/unload_lora_adapter":
                known = self.adapters.pop(body["lora_name"], None) is not None
                return Response(200, b"Success") if known else _no_such(body["lora_name"])
            case "/collective_rpc":
                self.load(Path(body["kwargs"]["weights_path"]))
                return Response.of_json({"results": [None]})
            case "/get_world_size":
                return Response.of_json({"world_size": 4})
            case "/pause" | "/resume" | "/update_weight_version":
                return Response.of_json({"status": path[1:]})
            case "/v1/completions":
                return _no_such(body["model"])
            case _:
                return Response.of_json({"detail": "Not Found"}, 404)

    def asked(self, body: Mapping[str, Any], trajectory_id: str) -> SampleRequest:
        """A completion."""
        stop = StopConditions(tuple(body["stop"]), tuple(body["stop_token_ids"]))
        ids, most, temperature = tuple(body["prompt"]), int(body["max_tokens"]), float(body["temperature"])
        return SampleRequest(trajectory_id, 0, ids, most, temperature, stop, 0)

    def interval_of(self, body: Mapping[str, Any]) -> int:
        """Asked for beside the prompt."""
        return int(body["stream_interval"])

    def said(self, turn: Turn, start: int, end: int) -> dict[str, Any]:
        """A part of a completion."""
        choice = {
            "index": 0,
            "text": "",
            "logprobs": {"token_logprobs": turn.logprobs[start:end]},
            "finish_reason": turn.finish_reason if end == len(turn.token_ids) else None,
            "token_ids": turn.token_ids[start:end],
            "prompt_token_ids": None if start else turn.prompt_ids,
        }
        return {"object": "text_completion", "model": turn.model, "choices": [choice]}

    def _top(self, body: Mapping[str, Any]) -> Response:
        top = {f"token_id:{token}": logprob for token, logprob in enumerate(self.top(body["temperature"]))}
        return Response.of_json({"choices": [{"logprobs": {"top_logprobs": [top]}}]})

    def _load_adapter(self, name: str, path: Path) -> Response:
        if name in self.adapters:
            said = {"error": {"message": f"The lora adapter '{name}' has already been loaded.", "code": 400}}
            return Response.of_json(said, 400)
        if not path.is_dir():
            return _no_such(name)
        self.load(path, name)
        return Response(200, b"Success: LoRA adapter added successfully.", "text/plain")


def _no_such(name: str) -> Response:
    return Response.of_json({"error": {"message": f"The model `{name}` does not exist.", "code": 404}}, 404)


async def _true_after(work: Awaitable[None]) -> bool:
    await work
    return True


def _spoilt(turn: Turn, failure: Failure | None) -> Turn:
    """A turn with what is wrong with it."""
    prompt, ids, logprobs = turn.prompt_ids, turn.token_ids, turn.logprobs
    match failure:
        case Failure.FEWER_LOGPROBS:
            return replace(turn, logprobs=logprobs[:-1])
        case Failure.STRANGE_ID:
            return replace(turn, token_ids=[*ids[:-1], 10**9])
        case Failure.NO_LOGPROB:
            return replace(turn, logprobs=[*logprobs[:-1], None])
        case Failure.OLD_WEIGHTS:
            return replace(turn, model=f"{turn.model}-old")
        case Failure.ECHO:
            return replace(turn, token_ids=[*prompt, *ids], logprobs=[*([-0.5] * len(prompt)), *logprobs])
        case Failure.TOO_LONG:
            return replace(turn, token_ids=ids[:-1] * 1000, logprobs=logprobs[:-1] * 1000)
        case Failure.OTHER_PROMPT:
            return replace(turn, prompt_ids=prompt[1:])
        case Failure.ABORTED:
            return replace(turn, finish_reason="abort")
        case _:
            return turn
