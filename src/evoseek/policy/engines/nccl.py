"""All weights from the learner's GPU to vLLM's servers by NCCL, through vLLM's own client (0.32): `sampler.transfer`.

It was not tried on GPUs: what is tested is the order of calls, against a scripted server. A server that was sent only
some of the weights cannot be used any more, so a failure ends the run, which the same command resumes with servers that
are started anew.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

import torch

from evoseek.errors import ConfigError
from evoseek.policy.engines.engine import Weights
from evoseek.policy.engines.launch import free_ports
from evoseek.policy.engines.weight_files import untied
from evoseek.policy.policy import Policy

_PACKAGE = "vllm.distributed.weight_transfer"
_CLOSING_S = 10.0
_REMEDY = "Set sampler.transfer to files."
OLDEST_WITH_NCCL = (0, 32)


class Channel(Protocol):
    """A connection to one server's GPUs."""

    def send_weights(self) -> None:
        """Send all tensors, as they are now, and wait until the server has them."""
        ...

    def shutdown(self) -> None:
        """End the connection."""
        ...


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the learner and a server meet: the server's address, the number of its GPUs, the learner's host and port,
    and the seconds that a call may take."""

    url: str
    gpus: int
    host: str
    port: int
    timeout_s: float


@dataclass(slots=True)
class Source:
    """What a channel sends: the same names, types and shapes each time."""

    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Names and tensors, in order."""
        return iter(self.tensors.items())


Connect = Callable[[Meeting, Source], Channel]


class SentWeights:
    """Hands a policy's weights over as tensors: copies on the policy's device, which training does not change. Each
    copy is there until all servers have a newer one."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def write(self, version: int, weights: Mapping[str, Any] | None = None) -> Weights:
        """The policy's weights as they are now, or these, as those of a version."""
        tensors = {name: value.detach().clone() for name, value in untied(self._policy, weights).items()}
        if self._policy.model.device.type == "cuda":
            torch.cuda.synchronize(self._policy.model.device)  # vLLM reads them on streams of its own
        return Weights(version, None, tensors=tensors)


class NCCLTransfer:
    """Sends tensors to servers that were started with --weight-transfer-config '{"backend": "nccl"}'. `host` is the
    learner's, as they reach it; `closing` ends the connections."""

    def __init__(
        self, host: str, timeout_s: float, *, connect: Connect | None = None, closing: ExitStack | None = None
    ) -> None:
        self._host, self._timeout_s = host, timeout_s
        self._connect = connect or connect_vllm
        self._channels: dict[str, tuple[Channel, Source]] = {}
        self._locks: dict[str, threading.Lock] = {}
        if closing is not None:
            closing.callback(self.close)

    async def send(self, url: str, gpus: int, weights: Weights) -> None:
        """To a server with so many GPUs that pauses. Raises ConfigError if that failed or took too long: the server may
        have some of the weights.

        A caller that is cancelled waits nevertheless: what was begun has to be finished before the server goes on.
        """
        sent = asyncio.wrap_future(_in_thread(self._lock(url), lambda: self._send(url, gpus, weights)))
        try:
            await asyncio.wait_for(asyncio.shield(sent), self._timeout_s)
        except asyncio.CancelledError:
            await asyncio.wait({sent}, timeout=self._timeout_s)
            raise
        except Exception as error:
            raise ConfigError(
                f"The weights of version {weights.version} could not be sent to {url} by NCCL: "
                f"{str(error) or type(error).__name__}. The server may have some of them: start it anew, with "
                '--weight-transfer-config \'{"backend": "nccl"}\', see that it reaches sampler.transfer_host, and '
                f"resume the run. {_REMEDY}"
            ) from error

    def close(self) -> None:
        """End all connections."""
        for url, (channel, _) in self._channels.items():
            with suppress(Exception):  # the server may be gone, or hang
                _in_thread(self._lock(url), channel.shutdown).result(_CLOSING_S)
        self._channels.clear()

    def _lock(self, url: str) -> threading.Lock:
        return self._locks.setdefault(url, threading.Lock())

    def _send(self, url: str, gpus: int, weights: Weights) -> None:
        tensors = weights.tensors or {}
        device = next(iter(tensors.values())).device
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            if url not in self._channels:
                source = Source(tensors)
                meeting = Meeting(url, gpus, self._host, free_ports(1)[0], self._timeout_s)
                self._channels[url] = self._connect(meeting, source), source
            channel, source = self._channels[url]
            source.tensors = tensors
            channel.send_weights()
            source.tensors = {}


def _in_thread(lock: threading.Lock, work: Callable[[], None]) -> Future[None]:
    """Work in a thread that does not keep the process from ending: a call that hangs in NCCL never returns."""
    done = Future[None]()

    def run() -> None:
        try:
            with lock:
                done.set_result(work())
        except BaseException as error:  # it is raised where it is waited for
            done.set_exception(error)

    done.set_running_or_notify_cancel()
    threading.Thread(target=run, daemon=True).start()
    return done


def check_nccl(is_adapter: bool, processes: int) -> None:
    """Raise ConfigError for a run whose weights cannot go by NCCL: those of an adapter, and of several processes."""
    wrong = ""
    if is_adapter:
        wrong = "an adapter is trained (lora.rank above 0), which is a small file"
    elif processes > 1:
        wrong = f"{processes} processes train together, of which none has all weights"
    if wrong:
        raise ConfigError(f"sampler.transfer is nccl, but {wrong}. {_REMEDY}")


def check_nccl_policy(policy: Policy) -> None:
    """Raise ConfigError for a policy whose weights cannot go by NCCL, and if the package is missing."""
    model = policy.model
    wrong = ""
    if model.device.type != "cuda":
        wrong = f"the learner's weights are on {model.device}, not on a GPU (policy.device)"
    elif any(weight.ndim > 2 for weight in model.parameters()):  # experts, fused
        wrong = f"{policy.name} has weights that are stored otherwise in its files than in memory"
    if wrong:
        raise ConfigError(f"sampler.transfer is nccl, but {wrong}. {_REMEDY}")
    _vllm("")


def connect_vllm(meeting: Meeting, source: Source) -> Channel:
    """A channel of vLLM's. Raises ConfigError if the package is missing or too old, and whatever vLLM raises."""
    transfer, nccl = _vllm(""), _vllm(".nccl_engine")

    class Own(transfer.WeightSource):
        """The source, as vLLM asks for it."""

        def metadata(self) -> list[Any]:
            return [transfer.ParamMeta(name, value.dtype, tuple(value.shape)) for name, value in source]

        def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
            return iter(source)

    info = nccl.NCCLTrainerInitInfo(
        master_address=meeting.host, master_port=meeting.port, world_size=meeting.gpus + 1, rank=0
    )
    client = transfer.HTTPVLLMWeightSyncClient(meeting.url, timeout=meeting.timeout_s)
    return transfer.WeightTransferTrainerFactory.trainer_init(info, client=client, source=Own())


def _vllm(module: str) -> Any:
    try:
        found = import_module(_PACKAGE + module)
    except ImportError as error:
        raise ConfigError(
            "sampler.transfer is nccl, which needs the package vllm (0.32 or later) beside evoseek, but it cannot be "
            f"imported ({error}). Install it in this environment, or set sampler.transfer to files."
        ) from error
    if not module and not hasattr(found, "WeightTransferTrainerFactory"):
        raise ConfigError(f"sampler.transfer is nccl, but the package vllm is older than 0.32. Update it. {_REMEDY}")
    return found
