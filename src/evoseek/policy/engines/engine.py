"""What differs from engine to engine: how a server is asked, what it replies, and how it takes weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from evoseek.errors import ConfigError, SamplerError
from evoseek.http.replies import redacted
from evoseek.http.retry import TransientError
from evoseek.policy.engines.launch import Command, Model
from evoseek.policy.engines.link import Link
from evoseek.policy.engines.settings import ServerSettings
from evoseek.policy.engines.turn import ROUNDING, Sampled
from evoseek.policy.stops import StopRule
from evoseek.types import SampleRequest

T = TypeVar("T")

_LOADED = ("already been loaded", "already exists")  # as vLLM and SGLang say it
INTERVAL = 16
TOP, WARM, COLD = 5, 1.0, 0.5  # what is asked for to tell raw logprobs from tempered ones


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of a version in a directory that the servers can read: those of an adapter with this name, or all of
    them (""). Without a directory, the tensors that are sent to the servers, by the names that they have in a file."""

    version: int
    directory: Path | None
    adapter: str = ""
    tensors: Mapping[str, torch.Tensor] | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Of these weights alone."""
        return self.directory.name if self.directory else f"weights-{self.version}"


@dataclass(frozen=True, slots=True)
class Served:
    """A model as a server lists it: its name, and the longest sequence it takes (None: it does not say)."""

    name: str
    max_length: int | None


class Publisher(Protocol):
    """What hands the weights of a policy over."""

    def write(self, version: int, weights: Mapping[str, Any] | None = None) -> Weights:
        """The policy's weights as they are now, or these, as those of a version. Raises SamplerError."""
        ...


class Engine(Protocol):
    """How one speaks to the servers of an engine."""

    @property
    def name(self) -> str:
        """The engine's name, for errors."""
        ...

    @property
    def path(self) -> str:
        """The path of requests for turns."""
        ...

    @property
    def remedy(self) -> str:
        """What to do if logprobs are not those of the distribution that was sampled from."""
        ...

    def command(self, settings: ServerSettings, model: Model, gpus: Sequence[int], port: int) -> Command:
        """The command that starts a server of a model on these GPUs."""
        ...

    async def check(self, link: Link) -> list[Served]:
        """The models that the server serves. Raises ConfigError for a version that is too old, SamplerError."""
        ...

    async def top_logprobs(self, link: Link, model: str, prompt: Sequence[int], temperature: float) -> list[float]:
        """The `TOP` highest logprobs after a prompt, as they are reported at a temperature. Raises SamplerError."""
        ...

    async def load(self, link: Link, model: str, weights: Weights, before: Weights | None) -> None:
        """Sample with these weights from now on, instead of those before. Raises SamplerError."""
        ...

    def ask(self, request: SampleRequest, rule: StopRule, model: str, weights: Weights | None) -> dict[str, Any]:
        """The body of the request for a turn, whose reply is a stream of events: one with the first token at once,
        since this is how waiting is told from writing, then one for every `INTERVAL` tokens."""
        ...

    def read(self, value: Any, model: str, weights: Weights | None, written: int) -> Sampled:
        """The tokens of an event, after so many earlier ones of the reply. Raises TransientError for a value of another
        shape."""
        ...


def check_tempered(engine: Engine, url: str, warm: Sequence[float], cold: Sequence[float]) -> None:
    """Raise ConfigError if logprobs reported at the temperature `COLD` are those of temperature `WARM`: the gaps
    between them grow by the ratio of the two, unless the temperature was left out."""
    gap, reported = warm[0] - warm[-1], cold[0] - cold[-1]
    expected = gap * WARM / COLD
    if abs(reported - expected) <= max(ROUNDING, 0.05 * expected):
        return
    what = "raw" if abs(reported - gap) <= max(ROUNDING, 0.05 * gap) else "neither raw nor tempered"
    raise ConfigError(
        f"The {engine.name} server {url} reports {what} logprobs: at temperature {COLD:g} the {TOP} highest lie "
        f"{reported:.4f} apart, but {expected:.4f} was expected from the {gap:.4f} at temperature {WARM:g}. Training "
        f"needs the logprobs of the distribution that was sampled from. {engine.remedy}"
    )


async def load_adapter(
    link: Link,
    weights: Weights,
    before: Weights | None,
    *,
    root: str,
    remedy: str,
    retried: Collection[int] = (),
) -> None:
    """Load an adapter by the endpoints below `root`; then drop the last one. A refusal with a status among `retried` is
    asked again, since a directory may not be seen at once on another machine. Raises SamplerError, with the remedy."""
    body = {"lora_name": weights.adapter, "lora_path": str(weights.directory)}
    try:
        await link.tell(f"{root}/load_lora_adapter", body, retried=retried)
    except SamplerError as error:
        if not any(said in str(error) for said in _LOADED):  # by a call whose reply was lost
            raise SamplerError(f"{error} {remedy}") from error
    if before is not None and before.adapter:
        with suppress(SamplerError):  # it only takes memory
            await link.tell(f"{root}/unload_lora_adapter", {"lora_name": before.adapter})


def listed(value: Any) -> list[Served]:
    """The models of a reply to /v1/models, without adapters."""
    models = [model for model in value["data"] if not model.get("parent")]
    return [Served(str(model["id"]), model.get("max_model_len")) for model in models]


def highest(logprobs: Sequence[Any]) -> list[float]:
    """The `TOP` highest of logprobs, of which there have to be as many."""
    if len(logprobs) < TOP:
        raise ValueError(f"{len(logprobs)} logprobs")
    return sorted(map(float, logprobs))[: -TOP - 1 : -1]


def reader(engine: str, read: Callable[[Any], T]) -> Callable[[Any], T]:
    """`read`, with TransientError for a value of another shape."""

    def checked(value: Any) -> T:
        try:
            return read(value)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise strange(engine, value) from error

    return checked


def strange(engine: str, value: object) -> TransientError:
    """The error for a reply that is not as the engine documents it."""
    return TransientError(f"its reply is not as {engine}'s: {redacted(value, '')}")
