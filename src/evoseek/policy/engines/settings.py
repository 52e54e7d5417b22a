"""Settings of samplers that are servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from evoseek.policy.settings import SamplerSettings
from evoseek.settings import MANY, Count, Needs


class ServerSettings(SamplerSettings):
    """The servers of an engine, and how they are called."""

    urls: tuple[str, ...] = Field(
        default=(),
        description="Addresses of the servers, such as http://127.0.0.1:8000; a rollout stays with one of them.",
    )
    model: str = Field(
        default="", description="Name by which the servers know the model. Default: the only one that they serve."
    )
    api_key_env: str = Field(
        default="", description="Environment variable with the servers' API key. Default: no key is sent."
    )
    concurrency: Count = Field(default=64, description="Number of turns that a server works on at once, at most.")
    timeout_s: float = Field(
        default=300.0,
        gt=0,
        le=1e6,
        description="Seconds that a server may take from one token of a turn to the next, or to load new weights.",
    )
    attempts: int = Field(
        default=3,
        ge=1,
        le=100,
        description="Number of times that a failing server is asked for the rest of a turn before the rollout becomes "
        "Invalid.",
    )
    probe_every: int = Field(
        default=1,
        ge=0,
        le=MANY,
        description="Number of steps between comparisons of every server's and the learner's logprobs on short samples "
        "(sampling/probe_difference), also before the first step; 0: never.",
    )
    weights: Literal["update", "served"] = Field(
        default="update",
        description="Whether the servers are given the policy's weights (update), or have them already and keep them "
        "(served), which is for evaluation.",
    )
    weights_directory: str = Field(
        default="",
        description="Directory for the weights that the servers read, on a file system that they share with the "
        "learner. Default: within the run's directory.",
    )

    launch: bool = Field(
        default=False, description="Whether the run starts the servers itself, on this machine, and ends them."
    )
    program: tuple[str, ...] = Field(
        default=(),
        description="Command that starts a server, such as the path of vllm in an environment of its own. Default: "
        "that of the engine.",
    )
    gpus: tuple[int, ...] = Field(
        default=(), description="Numbers of the GPUs that the servers share out. Default: one server that sees all."
    )
    tensor_parallel: int = Field(default=1, ge=1, le=1024, description="Number of GPUs of a server.")
    memory_share: float = Field(
        default=0.85, gt=0, le=1, description="Share of a GPU's memory that a server takes for weights and its cache."
    )
    arguments: tuple[str, ...] = Field(default=(), description="Further arguments of the command.")

    def problems(self) -> Iterator[str]:
        """There are servers, each once."""
        if bool(self.urls) == self.launch:
            what = "are given and sampler.launch is true" if self.launch else "is empty and sampler.launch is false"
            yield (
                f"sampler.name is {self.name}, but sampler.urls {what}. Set sampler.urls to the addresses of servers, "
                "or let the run start its own with sampler.launch."
            )
        if len(set(self.urls)) < len(self.urls):
            yield "sampler.urls names a server twice. Give each address once."
        if len(self.gpus) % self.tensor_parallel:
            yield (
                f"sampler.gpus names {len(self.gpus)} GPUs, which servers of {self.tensor_parallel} each "
                "(sampler.tensor_parallel) cannot share out. Give a multiple of that."
            )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Weights are written only to be handed over, and servers started only if asked for."""
        return (
            *super().effects(),
            Needs("weights_directory", "weights", ("update",)),
            Needs("program gpus tensor_parallel memory_share arguments", "launch"),
        )


class VLLMSettings(ServerSettings):
    """Settings of servers of vLLM."""

    transfer: Literal["files", "nccl"] = Field(
        default="files",
        description="How all weights reach the servers: as files, or from GPU to GPU by NCCL, for which the "
        "package vllm has to be installed beside evoseek. Not tried on GPUs.",
    )
    transfer_host: str = Field(
        default="127.0.0.1", description="Host of the learner, as the servers reach it for weights by NCCL."
    )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Weights have to be handed over, and directly."""
        return (
            *super().effects(),
            Needs("transfer", "weights", ("update",)),
            Needs("transfer_host", "transfer", ("nccl",)),
            Needs("weights_directory", "transfer", ("files",)),
        )
