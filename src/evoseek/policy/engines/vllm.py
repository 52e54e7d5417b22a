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

from typing import Any, ClassVar

from evoseek.errors import SamplerError
from evoseek.policy.engines.engine import INTERVAL, TOP, EngineServer, Weights
from evoseek.policy.engines.launch import Model
from evoseek.policy.engines.link import RefusedError
from evoseek.policy.engines.sampler import EngineSampler
from evoseek.policy.engines.turn import Sampled
from evoseek.policy.stops import StopRule
from evoseek.types import SampleRequest

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM allows
_UNFILTERED = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}


class VLLM(EngineServer):
    """A server of vLLM."""

    engine, path = "vLLM", "/v1/completions"
    version_path, oldest = "/version", (0, 30)
    raw_remedy = "Start it with --logprobs-mode processed_logprobs."
    adapter_root, adapter_retried = "/v1", 404
    adapter_remedy = (
        "The server has to see that directory, and be started with --enable-lora, --max-lora-rank of at least "
        "lora.rank, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1."
    )
    program, source_words = ("vllm",), ("serve",)
    environment: ClassVar = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    }  # endpoints for new weights

    @classmethod
    def options(cls, model: Model, gpus: int) -> list[str]:
        """Its own options."""
        words = ["--max-model-len", str(model.max_length), "--logprobs-mode", "processed_logprobs"]
        words += ["--generation-config", "vllm", "--tensor-parallel-size", str(gpus)]
        if model.rank:
            rank = next((size for size in _RANKS if size >= model.rank), model.rank)
            words += ["--enable-lora", "--max-loras", "2", "--max-lora-rank", str(rank)]
        return words

    async def top_logprobs(self, model: str, temperature: float) -> list[float]:
        """By a request for one token."""
        body = {
            "model": model,
            "prompt": list(self.prompt),
            "max_tokens": 1,
            "temperature": temperature,
            "logprobs": TOP,
            "return_tokens_as_token_ids": True,
            **_UNFILTERED,
        }
        return await self.highest(body, lambda value: value["choices"][0]["logprobs"]["top_logprobs"][0].values())

    async def load_all(self, weights: Weights) -> None:
        """From their directory, while no token is sampled."""
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

    @classmethod
    def body(cls, request: SampleRequest, rule: StopRule, model: str, weights: Weights | None) -> dict[str, Any]:
        """A completion of ids. Where it ends is stated in full: what the server would add is switched off."""
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

    @classmethod
    def read(cls, value: Any, model: str, weights: Weights | None, written: int) -> Sampled:
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
                return Sampled(ids, logprobs, reason, prompt_ids=prompt, version=version, expected_version=name)
            case _:
                raise cls.strange(value)


class VLLMSampler(EngineSampler):
    """Samples with servers of vLLM."""

    server = VLLM


def _name_of(model: str, weights: Weights | None) -> str:
    """The name of a model with these weights: that of an adapter, if they are one."""
    return weights.adapter if weights and weights.adapter else model
