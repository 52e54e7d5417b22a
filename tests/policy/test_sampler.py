"""The sampler against plain forward passes of the same model, and what it promises to its callers."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from evoseek.errors import SamplerError
from evoseek.policy.load import Policy
from evoseek.policy.sampler import TorchSampler
from evoseek.protocols import Sampler
from evoseek.types import Completion, SampleRequest, StopConditions

VOCABULARY = 96
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}


def characters() -> PreTrainedTokenizerFast:
    """One token per printable ASCII character; id 0 is a space."""
    pieces = {chr(32 + number): number for number in range(95)} | {"<unk>": 95}
    tokenizer = Tokenizer(models.WordLevel(pieces, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def policy(kind: str = "qwen2", sharpness: float = 1.0) -> Policy:
    """A small random model; its logits are `sharpness` times further apart."""
    torch.manual_seed(7)
    model: PreTrainedModel = (
        Qwen2ForCausalLM(Qwen2Config(**SIZES)) if kind == "qwen2" else LlamaForCausalLM(LlamaConfig(**SIZES))
    )
    for name, weights in model.named_parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.25 * (sharpness if name.startswith("lm_head") else 1.0))
    return Policy(model.eval(), characters(), kind)


@dataclass
class Rollout:
    """What one scripted trajectory sent and got."""

    name: str
    prompt: list[int]
    turns: list[tuple[int, list[int]]]  # tokens to sample, then the observation's ids
    temperature: float = 1.0
    yields: int = 0  # passes of the event loop that its tool takes
    completions: list[Completion] = field(default_factory=list)
    contexts: list[list[int]] = field(default_factory=list)

    async def run(self, sampler: Sampler, stop: StopConditions = StopConditions()) -> None:
        ids = list(self.prompt)
        for turn, (count, observation) in enumerate(self.turns):
            request = SampleRequest(self.name, turn, tuple(ids), count, self.temperature, stop, seed=3)
            completion = await sampler.sample(request)
            self.contexts.append(list(ids))
            self.completions.append(completion)
            ids += [*completion.token_ids, *observation]
            for _ in range(self.yields):
                await asyncio.sleep(0)
        sampler.release(self.name)


def rollouts(count: int, *, seed: int = 0) -> list[Rollout]:
    """Trajectories of 1-4 turns with prompts, completions and observations of many lengths."""
    rng = random.Random(seed)

    def ids(low: int, high: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(rng.randint(low, high))]

    return [
        Rollout(
            f"t{number}",
            prompt=ids(1, 30),
            turns=[(rng.randint(1, 12), ids(0, 40)) for _ in range(rng.randint(1, 4))],
            temperature=rng.choice([0.0, 0.7, 1.0, 1.3]),
            yields=rng.choice([0, 0, 3, 9]),
        )
        for number in range(count)
    ]


def play(sampler: TorchSampler, scripts: list[Rollout], stop: StopConditions = StopConditions()) -> list[Rollout]:
    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(*(script.run(sampler, stop) for script in scripts)), 30)

    asyncio.run(main())
    return scripts


def tokens(scripts: list[Rollout]) -> list[list[tuple[int, ...]]]:
    return [[completion.token_ids for completion in script.completions] for script in scripts]


@torch.no_grad()
def plain_logprobs(model: PreTrainedModel, context: list[int], completion: Completion, temperature: float):
    """Logprobs of a completion by one ordinary forward pass over all ids, without any cache."""
    logits = model(torch.tensor([[*context, *completion.token_ids]])).logits[0].float() / (temperature or 1.0)
    wanted = logits[len(context) - 1 : -1].log_softmax(-1)
    return wanted.gather(1, torch.tensor(completion.token_ids)[:, None]).squeeze(1), wanted


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
@pytest.mark.parametrize(("slots", "prefill_tokens"), [(5, 4096), (64, 4096), (7, 16)])
def test_logprobs_equal_a_plain_forward_pass(kind: str, slots: int, prefill_tokens: int):
    chosen = policy(kind)
    sampler = TorchSampler(chosen, slots=slots, max_length=400, prefill_tokens=prefill_tokens)
    for script in play(sampler, rollouts(40)):
        for context, completion in zip(script.contexts, script.completions, strict=True):
            logprobs, table = plain_logprobs(chosen.model, context, completion, script.temperature)
            assert torch.allclose(torch.tensor(completion.logprobs), logprobs, atol=1e-5, rtol=0)
            if script.temperature == 0:
                assert completion.token_ids == tuple(table.argmax(-1).tolist())
