"""Settings of the policy: the model, its adapter, and the sampler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from evoseek.config.sections import MANY, Chosen, Count, Needs, PartSettings, Section, lookup

Dtype = Literal["float32", "bfloat16", "float16"]
# Default maximum of tokens prefilled in one pass: a small batch keeps a CPU busy, a GPU needs a large one.
CPU_PREFILL_TOKENS = 2048
GPU_PREFILL_TOKENS = 16384

ONE_POLICY = (
    "The run trains all weights of two policies, but its servers can hold only one. Train adapters (lora.rank "
    "above 0), which share a base on the same servers, or set sampler.name to torch."
)


class PolicySettings(Section):
    """The policy's model."""

    model: str = Field(
        default="tiny",
        description="Model: the name of a policy in the package (such as `tiny`), `smollm2-135m`, a directory (also of "
        "a run), a GGUF file, or a Hugging Face name.",
    )
    format: Literal["auto", "tags", "tools"] = Field(
        default="auto",
        description="Format of tool calls: tags, or the chat template's tools; auto uses tools if the "
        "template supports them.",
    )
    prompts: str = Field(
        default="auto",
        description="Prompt set: default, short (a few lines for small models), a directory of your own, or auto for "
        "the set that the model's config names.",
    )
    device: str = Field(default="cpu", description="Device of the model, as torch names it.")
    dtype: Dtype = Field(
        default="float32",
        description="Data type of the weights. Training all weights works in float32, or in bfloat16 with float32 "
        "masters. By default (auto), the package's policies use float32, and other models the type that suits the "
        "machine where the run begins.",
    )

    @model_validator(mode="before")
    @classmethod
    def _leave_out_auto(cls, given: Any) -> Any:
        """Drop `auto`: a value that is not given is chosen for the model, so nothing else needs to know `auto`."""
        if isinstance(given, dict) and given.get("dtype") == "auto":
            return {key: value for key, value in given.items() if key != "dtype"}
        return given


class LoraSettings(Section):
    """Training a low-rank adapter instead of all weights."""

    rank: int = Field(default=0, ge=0, le=4096, description="Rank of the adapter; 0 trains all weights.")
    alpha: float = Field(default=32.0, gt=0, le=1e6, description="Scale of the adapter: its output times alpha / rank.")

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        return (Needs("alpha", "rank"),)


class SamplerSettings(PartSettings):
    """How completions are sampled."""

    on_resume = "probe_every"
    name: str = Field(default="torch", description="Sampler: a built-in name, or package.module:Name.")
    probe_every: int = Field(
        default=0,
        ge=0,
        le=MANY,
        description="Number of steps between comparisons of the sampler's and the learner's logprobs on short "
        "samples (sampling/probe_difference), also before the first step; 0: never.",
    )

    def problems_with(self, settings: Section, processes: int) -> Iterator[str]:
        """Describe what this sampler cannot do in `processes` processes, each with the remedy."""
        yield from ()


class TorchSamplerSettings(SamplerSettings):
    """Settings of the embedded sampler."""

    slots: int = Field(
        default=160, ge=1, le=10_000, description="Number of rollouts whose keys and values are held concurrently."
    )


class EngineSettings(SamplerSettings):
    """The servers of vLLM."""

    on_resume = "probe_every urls api_key_env concurrency timeout_s program gpus arguments"
    urls: tuple[str, ...] = Field(
        default=(),
        description="Addresses of the servers, such as http://127.0.0.1:8000; a rollout stays with one of them. "
        "Default: the run starts servers on this machine, and ends them.",
    )
    api_key_env: str = Field(
        default="", description="Environment variable with the servers' API key. Default: no key is sent."
    )
    concurrency: Count = Field(default=64, description="Maximum number of concurrent turns at a server.")
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
        "vllm.",
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
        if len(set(self.urls)) < len(self.urls):
            yield "sampler.urls names a server twice. Give each address once."

    def problems_with(self, settings: Section, processes: int) -> Iterator[str]:
        """Describe problems: servers hold one policy, and each process needs its own server."""
        if lookup(settings, "policies") > 1 and not lookup(settings, "adapter_rank"):
            yield ONE_POLICY
        if processes > 1 and not self.urls:
            yield (
                f"sampler.urls is empty, and a run starts servers only for a single process, but {processes} train "
                "together. Start them yourself, as --dry-run with one process prints it, and give their addresses in "
                "sampler.urls."
            )
        if self.urls and len(self.urls) < processes:
            yield (
                f"sampler.urls names {len(self.urls)} servers, but {processes} processes train together, and each "
                "needs one of its own. Give more addresses, or train in fewer processes."
            )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        return (*super().effects(), Needs("program gpus arguments", "urls", (False,)))


SamplerPart = Annotated[SerializeAsAny[SamplerSettings], Chosen("sampler", SamplerSettings)]
