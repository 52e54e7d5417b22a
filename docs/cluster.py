"""Prints the table of docs/train.md: `python docs/cluster.py`."""

from evoseek.assembly.memory_needs import memory_needs
from evoseek.assembly.sources import load_settings
from evoseek.models.shape import ModelShape, shape_of

SIZES = [
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
]
MODELS = {
    "SmolLM2-135M": ((576, 30, 9, 3, 1536, 49152), True),
    "Qwen2.5-0.5B": ((896, 24, 14, 2, 4864, 151936), True),
    "Qwen2.5-1.5B": ((1536, 28, 12, 2, 8960, 151936), True),
    "Qwen2.5-3B": ((2048, 36, 16, 2, 11008, 151936), True),
    "Qwen2.5-7B": ((3584, 28, 28, 4, 18944, 152064), False),
    "Qwen2.5-32B": ((5120, 64, 40, 8, 27648, 152064), False),
}
SERVED = {"sampler.name": "vllm", "sampler.urls": [f"http://127.0.0.1:{8000 + number}" for number in range(16)]}
WAYS = {
    "1, `torch`": ({}, 1),
    "1, adapter in bfloat16": ({"lora.rank": 32, "policy.dtype": "bfloat16"}, 1),
    "8, `torch`": ({}, 8),
    "8, servers": (SERVED, 8),
    "16, servers": (SERVED, 16),
}
TOKENS = 4096
SHOWN = ("learner", "sampler", "reference")


def shape(model: str) -> ModelShape:
    """From the sizes in the model's config.json."""
    numbers, tied = MODELS[model]
    found = shape_of({**dict(zip(SIZES, numbers, strict=True)), "tie_word_embeddings": tied})
    assert found is not None
    return found


def row(model: str) -> list[str]:
    """A model's line."""
    own = shape(model)
    cells = [model, f"{own.parameters / 1e9:.2f}"]
    for options, processes in WAYS.values():
        needs = memory_needs(load_settings(options=options), own, processes)
        cells.append(f"{sum(size for name, size in needs.items() if name in SHOWN) / 2**30:.1f}")
    return [*cells, f"{2 * TOKENS * own.kv_numbers / 2**20:.0f}"]


def table() -> str:
    """The whole table."""
    head = ["model", "10^9 parameters", *WAYS, f"a rollout of {TOKENS} tokens, MiB"]
    lines = [head, ["---"] * len(head), *map(row, MODELS)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(table())
