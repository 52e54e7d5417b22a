"""Settings of samplers that are servers of an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import BeforeValidator, Field

from evoseek.policy.settings import SamplerSettings
from evoseek.settings import MANY, Count, Needs


class EngineSettings(SamplerSettings):
    """The servers of an engine, vLLM or SGLang."""

    urls: tuple[str, ...] = Field(
        default=(),
        description="Addresses of the servers, such as http://127.0.0.1:8000; a rollout stays with one of them. "
        "Default: the run starts servers on this machine, and ends them.",
    )
    api_key_env: str = Field(
        default="", description="Environment variable with the servers' API key. Default: no key is sent."
    )
    concurrency: Count = Field(default=64, description="Maximum number of turns that a server works on at once.")
    timeout_s: float = Field(
        default=300.0,
        gt=0,
        le=1e6,
        description="Seconds that a server may take from one token of a turn to the next, or to load new weights.",
    )
    probe_every: int = Field(
        default=1,
        ge=0,
        le=MANY,
        description="Number of steps between comparisons of every server's and the learner's logprobs on short samples "
        "(sampling/probe_difference), also before the first step; 0: never.",
    )
    program: tuple[str, ...] = Field(
        default=(),
        description="Command that starts a server, such as the path of vllm in an environment of its own. Default: "
        "that of the engine.",
    )
    gpus: tuple[Annotated[str, BeforeValidator(str), Field(pattern=r"^\d+(,\d+)*$")], ...] = Field(
        default=(),
        description='Numbers of the GPUs of each server that is started, such as 0, or "0,1" for one with tensor '
        "parallelism. Default: one server that sees all.",
    )
    arguments: tuple[str, ...] = Field(
        default=(), description="Further arguments of the command, such as --gpu-memory-utilization 0.5."
    )

    def problems(self) -> Iterator[str]:
        """Each server stands there once."""
        if len(set(self.urls)) < len(self.urls):
            yield "sampler.urls names a server twice. Give each address once."

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Settings of servers that the run starts."""
        return (*super().effects(), Needs("program gpus arguments", "urls", (False,)))
