"""The embedded tiny policy's model: an ordinary small Llama configuration, and an initialisation that can copy.

The slowest skill for such a model to learn is copying a name that it has never seen. Copying needs two attention layers
(an induction head, arXiv 2209.11895): heads that bring each position the tokens before it, and heads that look for a
place whose preceding token is the current one. `initialise` writes both into the weights and leaves the rest to
training.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

ROPE_BASE = 100_000.0
SLOW = 6  # rotary frequencies from this one on turn little over a few hundred tokens: content is compared in them
OFFSET_SHARPNESS = 6.5
MATCH_SCALE = 2.0
COPY_SCALE = 1.0
HEAD_SCALE = 0.05
PROMPTS = "tiny"


def tiny_config(vocabulary: int, *, eos_token_id: int, pad_token_id: int, layers: int = 4) -> LlamaConfig:
    """d = 128, 4 heads, 2 key-value heads: 0.8M parameters with 4 layers.

    `evoseek_prompts` names the prompt set that the model was made for; it is saved with the model.
    """
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE},
        attention_bias=True,
        tie_word_embeddings=False,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
        bos_token_id=None,
        evoseek_prompts=PROMPTS,  # pyright: ignore[reportCallIssue]  # further keys are kept
    )


def tiny_model(config: LlamaConfig, seed: int) -> LlamaForCausalLM:
    """Return a freshly initialised model: the same bits for the same seed, with any number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a factorisation on several threads rounds differently
    try:
        model = LlamaForCausalLM(config)
        initialise(model, seed)
    finally:
        torch.set_num_threads(threads)
    return model


@torch.no_grad()
def initialise(model: LlamaForCausalLM, seed: int) -> None:
    """Write previous-token heads (offsets 1 to 4) into layer 0 and matching heads into the later layers."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    width, heads, kv_heads = config.hidden_size, config.num_attention_heads, config.num_key_value_heads or 1
    size = width // heads

    def normal(weight: Tensor, std: float) -> None:
        weight.copy_(torch.randn(weight.shape, generator=generator) * std)

    def frame() -> Tensor:
        """[size, width] with orthonormal rows."""
        return torch.linalg.qr(torch.randn(width, size, generator=generator))[0].T.contiguous()

    normal(model.model.embed_tokens.weight, 1.0)
    model.lm_head.weight.copy_(model.model.embed_tokens.weight * HEAD_SCALE)
    read = [frame() for _ in range(kv_heads)]
    write = [frame().T.contiguous() for _ in range(heads)]
    for number, layer in enumerate(cast("list[LlamaDecoderLayer]", list(model.model.layers))):
        for projection in (layer.mlp.gate_proj, layer.mlp.up_proj):
            normal(projection.weight, 1 / math.sqrt(width))
        normal(layer.mlp.down_proj.weight, 0.02)
        if number == 0:
            _previous_token_heads(layer, read, write, size)
        else:
            _matching_heads(layer, read, write, [frame() for _ in range(kv_heads)], size)


def _previous_token_heads(layer: LlamaDecoderLayer, read: list[Tensor], write: list[Tensor], size: int) -> None:
    """Head h attends h + 1 positions back. Only the biases matter: with rotary positions, a key bias k and a query bias
    that is k turned by -(h + 1) positions give the score sum_i cos((distance - h - 1) theta_i), highest there."""
    attention = layer.self_attn
    half = size // 2
    theta = ROPE_BASE ** (-torch.arange(half) * 2 / size)
    strength = torch.zeros(half)
    strength[:SLOW] = OFFSET_SHARPNESS
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight.zero_()
    for head, out in enumerate(write):
        angle = -(head + 1) * theta
        bias = torch.cat([strength * angle.cos(), strength * angle.sin()])
        attention.q_proj.bias[head * size : (head + 1) * size] = bias
        attention.o_proj.weight[:, head * size : (head + 1) * size] = out
    for kv, rows in enumerate(read):
        block = slice(kv * size, (kv + 1) * size)
        attention.k_proj.bias[block] = torch.cat([strength, torch.zeros(half)])
        attention.v_proj.weight[block] = rows
    attention.v_proj.bias.zero_()
    attention.o_proj.bias.zero_()


def _matching_heads(
    layer: LlamaDecoderLayer, read: list[Tensor], write: list[Tensor], copied: list[Tensor], size: int
) -> None:
    """Even heads look for a place after the current token; odd heads for a place after the same two tokens."""
    attention = layer.self_attn
    groups = len(write) // len(copied)
    half = size // 2
    slow = ((torch.arange(size) % half) >= SLOW).float()[:, None] * MATCH_SCALE
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj):
        projection.bias.zero_()
    for head in range(len(write)):
        query = read[0] if head // groups == 0 else write[0].T
        attention.q_proj.weight[head * size : (head + 1) * size] = query * slow
        attention.o_proj.weight[:, head * size : (head + 1) * size] = copied[head // groups].T * COPY_SCALE
    for kv, rows in enumerate(copied):
        block = slice(kv * size, (kv + 1) * size)
        attention.k_proj.weight[block] = write[kv].T * slow
        attention.v_proj.weight[block] = rows
