"""The tiny model's initialisation writes heads that copy, before any training."""

import torch
from tools.tiny.model import tiny_config, tiny_model


def test_it_has_less_than_a_million_parameters() -> None:
    model = tiny_model(tiny_config(350, eos_token_id=2, pad_token_id=0), seed=0)
    assert sum(parameter.numel() for parameter in model.parameters()) < 1_000_000


def test_heads_of_the_first_layer_attend_one_to_four_tokens_back() -> None:
    model = tiny_model(tiny_config(350, eos_token_id=2, pad_token_id=0), seed=0)
    model.set_attn_implementation("eager")
    ids = torch.randint(0, 350, (2, 40), generator=torch.Generator().manual_seed(0))
    attention = model(ids, output_attentions=True).attentions[0]  # [B, heads, T, T]
    for head in range(4):
        assert attention[:, head].diagonal(-(head + 1), 1, 2)[:, 8:].min() > 0.9


def test_heads_of_the_second_layer_attend_to_the_token_after_an_earlier_occurrence() -> None:
    model = tiny_model(tiny_config(350, eos_token_id=2, pad_token_id=0), seed=0)
    model.set_attn_implementation("eager")
    ids = torch.randperm(350, generator=torch.Generator().manual_seed(0))[:24].repeat(2).unsqueeze(0)
    attention = model(ids, output_attentions=True).attentions[1]
    matched = attention.diagonal(-23, 2, 3)[..., 1:]  # position t + 24 looks at t + 1
    assert matched.mean() > 5 / 48  # five times what a head that looks everywhere alike would give


def test_the_seed_decides() -> None:
    config = tiny_config(100, eos_token_id=2, pad_token_id=0)
    weights = [tiny_model(config, seed).lm_head.weight for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
