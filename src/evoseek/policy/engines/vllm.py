"""vLLM, over HTTP: `vllm serve MODEL --logprobs-mode processed_logprobs`, 0.30 or later.

    POST /v1/completions                 ids in, ids and logprobs out; stop strings stay in the ids
    POST /v1/load_lora_adapter           an adapter (VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora)
    POST /collective_rpc reload_weights  all weights, from a directory (VLLM_SERVER_DEV_MODE=1)

What is known to go wrong, and how it is met here: keys and values of older weights stay in the prefix cache (every
request has the policy's version as `cache_salt`); an adapter loaded again from the same path keeps old blocks (every
version has a name and a path of its own); `reload_weights` without a path reads the old weights, and leaves a tied head
as it was (weights are written untied, see `weight_files`); a model's own generation settings are defaults of requests
(each request names all of them); a seed for each request has ended the CPU's engine (none is sent).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evoseek.errors import ConfigError, SamplerError
from evoseek.policy.engines.engine import (
    INTERVAL,
    TOP,
    Engine,
    Publisher,
    Served,
    Weights,
    highest,
    listed,
    load_adapter,
    reader,
    strange,
)
from evoseek.policy.engines.launch import Command, Model, command_of
from evoseek.policy.engines.link import Link, RefusedError
from evoseek.policy.engines.nccl import OLDEST_WITH_NCCL, NCCLTransfer, SentWeights, check_nccl, check_nccl_policy
from evoseek.policy.engines.sampler import EngineSampler
from evoseek.policy.engines.settings import ServerSettings, VLLMSettings
from evoseek.policy.engines.turn import Sampled
from evoseek.policy.policy import SamplerContext
from evoseek.policy.stops import StopRule
from evoseek.types import SampleRequest

OLDEST = (0, 30)
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM allows
_COMPLETIONS = "/v1/completions"
_ADAPTERS = (
    "The server has to see that directory, and be started with --enable-lora, --max-lora-rank of at least lora.rank, "
    "and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1."
)
_UNFILTERED = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}


class VLLM:
    """Speaks to vLLM's servers (see engine.Engine)."""

    name, path = "vLLM", _COMPLETIONS
    remedy = "Start it with --logprobs-mode processed_logprobs."

    def __init__(self, transfer: NCCLTransfer | None = None) -> None:
        """`transfer` sends all weights; None: they are files."""
        self._transfer = transfer

    def command(self, settings: ServerSettings, model: Model, gpus: Sequence[int], port: int) -> Command:
        """`vllm serve`, with the endpoints for new weights."""
        own = [
            *("--max-model-len", str(model.max_length)),
            *("--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"),
            *("--tensor-parallel-size", str(settings.tensor_parallel)),
        ]
        if isinstance(settings, VLLMSettings) and settings.transfer == "nccl":
            own += ["--weight-transfer-config", '{"backend": "nccl"}']
        if gpus:
            own += ["--gpu-memory-utilization", str(settings.memory_share)]
        if model.rank:
            rank = next((size for size in _RANKS if size >= model.rank), model.rank)
            own += ["--enable-lora", "--max-loras", "2", "--max-lora-rank", str(rank)]
        development = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
        program = (*(settings.program or ("vllm",)), "serve", model.source)
        return command_of(program, own, settings, model, gpus, port, development)

    async def check(self, link: Link) -> list[Served]:
        """Of the version and the list of models. Adapters are not among them."""
        version = await link.get("/version", reader(self.name, lambda value: str(value["version"])))
        numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
        oldest, what = OLDEST, "token ids and logprobs as they were sampled"
        if self._transfer is not None:
            oldest, what = OLDEST_WITH_NCCL, "weights by NCCL (sampler.transfer)"
        if numbers < oldest:
            needed = ".".join(map(str, oldest))
            raise ConfigError(
                f"The server {link.url} runs vLLM {version}; {needed} or later is needed for {what}. Install a newer "
                f"one (pip install 'vllm>={needed}')."
            )
        return await link.get("/v1/models", reader(self.name, listed))

    async def top_logprobs(self, link: Link, model: str, prompt: Sequence[int], temperature: float) -> list[float]:
        """By a request for one token."""
        body = {
            "model": model,
            "prompt": list(prompt),
            "max_tokens": 1,
            "temperature": temperature,
            "logprobs": TOP,
            "return_tokens_as_token_ids": True,
            **_UNFILTERED,
        }
        return await link.post(_COMPLETIONS, body, reader(self.name, _top_logprobs))

    async def load(self, link: Link, model: str, weights: Weights, before: Weights | None) -> None:
        """An adapter by its name; all weights from their directory, or as they are sent, while no token is sampled."""
        if weights.adapter:
            await load_adapter(link, weights, before, root="/v1", remedy=_ADAPTERS, retried=(404,))
            return
        try:
            try:
                await link.tell("/pause?mode=keep")
                await self._exchange(link, weights)
                await link.tell("/update_weight_version", {"new_version": str(weights.version)})
            finally:
                await link.tell("/resume")
        except RefusedError as error:
            raise SamplerError(
                f"{error} Start it with VLLM_SERVER_DEV_MODE=1, so that it takes all weights."
            ) from error

    async def _exchange(self, link: Link, weights: Weights) -> None:
        if self._transfer is None:
            directory = {"weights_path": str(weights.directory)}
            await link.tell("/collective_rpc", {"method": "reload_weights", "kwargs": directory})
        else:
            gpus = await link.get("/get_world_size", reader(self.name, lambda value: int(value["world_size"])))
            await self._transfer.send(link.url, gpus, weights)

    def ask(self, request: SampleRequest, rule: StopRule, model: str, weights: Weights | None) -> dict[str, Any]:
        """A completion of ids. Where it ends is said in full: what the server would add is switched off."""
        return {
            "model": _name_of(model, weights),
            "prompt": list(request.token_ids),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "logprobs": 0,
            "return_token_ids": True,
            "stream": True,
            "stream_interval": INTERVAL,
            "stop": list(rule.strings),
            "stop_token_ids": sorted(rule.token_ids),
            "ignore_eos": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "cache_salt": str(weights.version if weights else 0),
            **_UNFILTERED,
        }

    def read(self, value: Any, model: str, weights: Weights | None, written: int) -> Sampled:
        """The only choice. The prompt comes with the first event."""
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
                prompt, name = more.get("prompt_token_ids"), _name_of(model, weights)
                return Sampled(ids, logprobs, reason, prompt_ids=prompt, version=version, asked_version=name)
            case _:
                raise strange(self.name, value)


class VLLMSampler(EngineSampler):
    """Samples with servers of vLLM."""

    Settings = VLLMSettings
    engine = VLLM()

    @classmethod
    def publishing(cls, settings: ServerSettings, context: SamplerContext) -> tuple[Engine, Publisher]:
        """As files, or by NCCL."""
        if not isinstance(settings, VLLMSettings) or settings.transfer == "files":
            return super().publishing(settings, context)
        policy, home = context.policy, context.home
        check_nccl(policy.adapter is not None, home.processes)
        check_nccl_policy(policy)
        transfer = NCCLTransfer(settings.transfer_host, settings.timeout_s, closing=home.closing)
        return VLLM(transfer), SentWeights(policy)

    @classmethod
    def planned(
        cls, settings: ServerSettings, directory: Path, max_length: int, dtype: str, rank: int, processes: int
    ) -> dict[str, Command]:
        """As of every engine; also raises ConfigError for weights that cannot go by NCCL."""
        if isinstance(settings, VLLMSettings) and settings.transfer == "nccl":
            check_nccl(rank > 0, processes)
        return super().planned(settings, directory, max_length, dtype, rank, processes)


def _name_of(model: str, weights: Weights | None) -> str:
    """The name of a model with these weights: that of an adapter, if they are one."""
    return weights.adapter if weights and weights.adapter else model


def _top_logprobs(value: Any) -> list[float]:
    """The highest logprobs of the first token."""
    return highest(list(value["choices"][0]["logprobs"]["top_logprobs"][0].values()))
