"""All weights from the learner's GPU to vLLM's servers by NCCL, through vLLM's own client (0.32): `sampler.transfer`.

It was not tried on GPUs: what is tested is the order of calls, against a scripted server. Whether the weights arrive is
seen by the probe after every update, as with files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

import torch

from evoseek.errors import ConfigError, SamplerError
from evoseek.policy.engines.engine import Weights, reader
from evoseek.policy.engines.launch import free_ports
from evoseek.policy.engines.link import Link
from evoseek.policy.engines.weight_files import untied
from evoseek.policy.policy import Policy, SamplerContext

_PACKAGE = "vllm.distributed.weight_transfer"

Tensors = Mapping[str, torch.Tensor]


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
    """Where the learner and a server meet: the server's address, the number of its GPUs, and the learner's host and
    port."""

    url: str
    gpus: int
    host: str
    port: int


@dataclass(slots=True)
class Source:
    """What a channel sends: the same names, types and shapes each time."""

    tensors: Tensors = field(default_factory=dict[str, torch.Tensor])

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
        return Weights(version, None, tensors=tensors)


class NCCLTransfer:
    """Sends tensors to servers that were started with --weight-transfer-config '{"backend": "nccl"}'. `host` is the
    learner's, as they reach it."""

    def __init__(self, host: str, timeout_s: float, connect: Connect | None = None) -> None:
        self._host, self._timeout_s = host, timeout_s
        self._connect = connect or connect_vllm
        self._channels: dict[str, tuple[Channel, Source]] = {}

    async def send(self, link: Link, weights: Weights) -> None:
        """To a server that pauses. A failure, which is a SamplerError, ends the connection: the server may have some of
        the weights, and gets all of them over a new one before its next turn."""
        gpus = await link.get("/get_world_size", reader("vLLM", lambda value: int(value["world_size"])))
        try:
            sending = asyncio.to_thread(self._send, link.url, gpus, weights.tensors or {})
            await asyncio.wait_for(sending, self._timeout_s)
        except Exception as error:
            self._end(link.url)
            raise SamplerError(
                f"The weights of version {weights.version} could not be sent to {link.url} by NCCL: "
                f"{str(error) or type(error).__name__}. See that the server was started with --weight-transfer-config "
                '\'{"backend": "nccl"}\' and reaches sampler.transfer_host, or set sampler.transfer to files.'
            ) from error

    def _send(self, url: str, gpus: int, tensors: Tensors) -> None:
        if url not in self._channels:
            source = Source(tensors)
            meeting = Meeting(url, gpus, self._host, free_ports(1)[0])
            self._channels[url] = self._connect(meeting, source), source
        channel, source = self._channels[url]
        source.tensors = tensors
        channel.send_weights()
        source.tensors = {}

    def _end(self, url: str) -> None:
        if url in self._channels:
            channel, _ = self._channels.pop(url)
            with suppress(Exception):  # it has failed already
                channel.shutdown()


def check_nccl(context: SamplerContext) -> None:
    """Raise ConfigError for a run whose weights cannot go by NCCL."""
    policy, home = context.policy, context.home
    wrong = ""
    if policy.adapter is not None:
        wrong = "an adapter is trained (lora.rank above 0), which is a small file"
    elif home.processes > 1:
        wrong = f"{home.processes} processes train together, of which none has all weights"
    elif policy.model.device.type != "cuda":
        wrong = f"the learner's weights are on {policy.model.device}, not on a GPU (policy.device)"
    if wrong:
        raise ConfigError(f"sampler.transfer is nccl, but {wrong}. Set sampler.transfer to files.")
    _vllm("")


def connect_vllm(meeting: Meeting, source: Source) -> Channel:
    """A channel of vLLM's. Raises ConfigError if the package is missing, and whatever vLLM raises."""
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
    client = transfer.HTTPVLLMWeightSyncClient(meeting.url)
    return transfer.WeightTransferTrainerFactory.trainer_init(info, client=client, source=Own())


def _vllm(module: str) -> Any:
    try:
        return import_module(_PACKAGE + module)
    except ImportError as error:
        raise ConfigError(
            "sampler.transfer is nccl, which needs the package vllm (0.32 or later) beside evoseek, but it cannot be "
            f"imported ({error}). Install it in this environment, or set sampler.transfer to files."
        ) from error
