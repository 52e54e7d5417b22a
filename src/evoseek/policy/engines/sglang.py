"""SGLang, over HTTP: `python -m sglang.launch_server --model-path MODEL`, 0.5.10 or later.

    POST /generate                  ids in, ids and logprobs out; stop strings stay in the ids
    POST /load_lora_adapter         an adapter (--enable-lora)
    POST /update_weights_from_disk  all weights, between /pause_generation and /continue_generation

What is known to go wrong, and how it is met here: `ignore_eos` switches stop tokens off as well (it stays off); a
sequence has two tokens less than the server's context at most, a prompt six less, and what is longer is cut without a
word (the context counts as `reserved` tokens shorter); the cache cannot be flushed while tokens are sampled (turns are
aborted before, and every request has the weights' name as `extra_key`); a server that was restarted answers with the
weights that it began with (all weights of a version have a name, which the reply's `weight_version` has to repeat); a
prompt's ids are not returned (their number is compared); logprobs may be those before the temperature (this is refused;
SGLANG_RETURN_ORIGINAL_LOGPROB); a model's own generation settings are defaults of requests (each names all of them).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evoseek.policy.engines.engine import INTERVAL, TOP, EngineServer, Weights
from evoseek.policy.engines.launch import Model
from evoseek.policy.engines.sampler import EngineSampler
from evoseek.policy.engines.turn import Sampled
from evoseek.policy.stops import StopRule
from evoseek.types import SampleRequest

_UNFILTERED = {
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
}


class SGLang(EngineServer):
    """A server of SGLang."""

    engine, path = "SGLang", "/generate"
    version_path, oldest = "/server_info", (0, 5, 10)
    reserved = 8
    raw_remedy = "Start it without SGLANG_RETURN_ORIGINAL_LOGPROB."
    adapter_root, adapter_retried = "", 400
    adapter_remedy = (
        "The server has to see that directory, and be started with --enable-lora, --lora-target-modules all and "
        "--max-lora-rank of at least lora.rank."
    )
    program, source_words = ("python", "-m", "sglang.launch_server"), ("--model-path",)

    @classmethod
    def options(cls, model: Model, gpus: int) -> list[str]:
        """Its own options."""
        words = ["--context-length", str(model.max_length + cls.reserved), "--tp-size", str(gpus)]
        if model.rank:
            words += ["--enable-lora", "--max-lora-rank", str(model.rank), "--lora-target-modules", "all"]
            words += ["--max-loras-per-batch", "2"]
        return words

    async def top_logprobs(self, model: str, temperature: float) -> list[float]:
        """By a request for one token."""
        body = {
            "input_ids": list(self.prompt),
            "sampling_params": {"max_new_tokens": 1, "temperature": temperature, **_UNFILTERED},
            "return_logprob": True,
            "top_logprobs_num": TOP,
        }
        return await self.highest(
            body, lambda value: [entry[0] for entry in value["meta_info"]["output_top_logprobs"][0]]
        )

    async def load_all(self, weights: Weights) -> None:
        """From their directory, while no token is sampled."""
        await self.link.send("/pause_generation", {"mode": "abort"})
        try:
            body = {"model_path": str(weights.directory), "weight_version": weights.name}
            await self.link.send("/update_weights_from_disk", {**body, "flush_cache": True})
        finally:
            await self.link.send("/continue_generation", {})

    @classmethod
    def body(cls, request: SampleRequest, rule: StopRule, model: str, weights: Weights | None) -> dict[str, Any]:
        """A completion of ids, of the model or the adapter."""
        adapter = {"lora_path": weights.adapter} if weights and weights.adapter else {}
        return {
            "input_ids": list(request.token_ids),
            "sampling_params": {
                "max_new_tokens": request.max_tokens,
                "temperature": request.temperature,
                "stop": list(rule.strings),
                "stop_token_ids": sorted(rule.token_ids),
                "ignore_eos": False,
                "no_stop_trim": True,
                "skip_special_tokens": False,
                "spaces_between_special_tokens": False,
                "stream_interval": INTERVAL,
                **_UNFILTERED,
            },
            "return_logprob": True,
            "stream": True,
            "extra_key": weights.name if weights else "0",
            **adapter,
        }

    @classmethod
    def read(cls, value: Any, model: str, weights: Weights | None, written: int) -> Sampled:
        """The ids with the logprobs beside them. An event repeats those of earlier ones, and may have more than it
        counts; from a server that was started to stream them incrementally it has the new ones alone."""
        match value:
            case {
                "output_ids": list(ids),
                "meta_info": {
                    "finish_reason": None | {"type": str()} as finished,
                    "prompt_tokens": int(length),
                    "completion_tokens": int(total),
                    "output_token_logprobs": list(pairs),
                    "weight_version": version,
                },
            }:
                repeats, new = len(ids) > total - written, slice(written, total)
                pairs = pairs[new] if repeats or len(pairs) > total - written else pairs
                ids = ids[new] if repeats else ids
                if not _are_of(pairs, ids):
                    raise cls.strange(value)
                own = weights is not None and not weights.adapter
                return Sampled(
                    ids,
                    [pair[0] for pair in pairs],
                    finished and finished["type"],
                    prompt_length=length,
                    version=str(version) if own else None,
                    expected_version=weights.name if own and weights else None,
                )
            case _:
                raise cls.strange(value)


class SGLangSampler(EngineSampler):
    """Samples with servers of SGLang."""

    server = SGLang


def _are_of(pairs: Sequence[Any], ids: Sequence[Any]) -> bool:
    """Whether logprobs, each followed by its token's id, are those of these ids, up to the shorter length."""
    if not all(isinstance(pair, list) and len(pair) > 1 for pair in pairs):
        return False
    return all(pair[1] == token for pair, token in zip(pairs, ids, strict=False))
