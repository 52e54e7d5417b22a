"""A very small model and made-up samples."""

import random
from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from evoseek.types import TrainingSample

VOCABULARY = 23


@pytest.fixture
def model() -> PreTrainedModel:
    """A Qwen2 of two layers, always with the same random weights."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    return Qwen2ForCausalLM(config).eval()


@pytest.fixture
def make_samples() -> Callable[..., list[TrainingSample]]:
    """`make_samples(n, seed)`: prompt, action, observation, action of random lengths; some end in an observation.

    With `shared`, every other sample begins with the same prompt of so many tokens.
    """

    def sample(rng: random.Random, prompt: list[int]) -> TrainingSample:
        mask = [False] * (len(prompt) or rng.randint(1, 5))
        for action in (True, False, True, False)[: rng.randint(1, 4)]:
            mask += [action] * rng.randint(1, 6)
        advantage = rng.choice([-1.0, 0.5, 1.5])
        token_ids = (*prompt, *(rng.randrange(VOCABULARY) for _ in mask[len(prompt) :]))
        logprobs = tuple(rng.uniform(-4.0, -2.0) if on else 0.0 for on in mask)
        return TrainingSample(
            token_ids=token_ids,
            loss_mask=tuple(mask),
            rollout_logprobs=logprobs,
            old_logprobs=logprobs,
            advantages=tuple(advantage if on else 0.0 for on in mask),
        )

    def make(n: int, seed: int = 0, shared: int = 0) -> list[TrainingSample]:
        rng = random.Random(seed)
        prompt = [rng.randrange(VOCABULARY) for _ in range(shared)]
        return [sample(rng, prompt if number % 2 else []) for number in range(n)]

    return make
