"""float32 masters of bfloat16 weights: how they are rounded, stored, and trained."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.doubles.learners import learner_of
from tools.tiny.muon import MuonAdamW
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from evoseek.errors import TrainingError
from evoseek.learner.checkpoint import CheckpointPart, restore, save_checkpoint
from evoseek.learner.learner import Learner, OptimizerFactory
from evoseek.learner.logprobs import LogprobModel
from evoseek.learner.optim import adamw, joined, split
from evoseek.loss.base import Totals
from evoseek.loss.clipped import ClippedLoss
from evoseek.storage.checkpoints import latest_checkpoint
from evoseek.types import TrainingSample

Make = Callable[..., list[TrainingSample]]
STORED = "policy.optimizer/rank-00000-of-00001.safetensors"


def tensor_of(*bits: int) -> torch.Tensor:
    """float32 numbers from their bits."""
    return torch.tensor([bit - (1 << 32) if bit >> 31 else bit for bit in bits], dtype=torch.int32).view(torch.float32)


def upper(rounded: torch.Tensor) -> list[int]:
    return [int(half) & 0xFFFF for half in rounded.view(torch.int16)]


@pytest.mark.parametrize(
    ("bits", "half", "lower"),
    [
        (0x3F800000, 0x3F80, 0),  # 1
        (0x3F800001, 0x3F80, 1),
        (0x3F807FFF, 0x3F80, 0x7FFF),  # just below the middle between two neighbours
        (0x3F808000, 0x3F81, -0x8000),  # the middle, above an even one: away from zero
        (0x3F818000, 0x3F82, -0x8000),  # the middle, above an odd one
        (0x3F808001, 0x3F81, -0x7FFF),
        (0x3FFFFFFF, 0x4000, -1),  # up to the next power of two
        (0xBF807FFF, 0xBF80, 0x7FFF),  # negative ones, by their size
        (0xBF808000, 0xBF81, -0x8000),
        (0xBF80FFFF, 0xBF81, -1),
        (0x00000000, 0x0000, 0),
        (0x80000000, 0x8000, 0),  # -0
        (0x00000001, 0x0000, 1),  # the smallest subnormal number, rounded to 0
        (0x00008000, 0x0001, -0x8000),  # subnormal, up to the smallest bfloat16
        (0x007FFFFF, 0x0080, -1),  # the largest subnormal number, up to the smallest normal one
        (0x80008001, 0x8001, -0x7FFF),
        (0x7F7F7FFF, 0x7F7F, 0x7FFF),  # the last one that is rounded to the largest bfloat16
        (0x7F7F8000, 0x7F80, -0x8000),  # and the first one that is rounded to infinity
        (0x7F7FFFFF, 0x7F80, -1),
        (0xFF7FFFFF, 0xFF80, -1),
        (0x7F800000, 0x7F80, 0),  # infinity
        (0xFF800000, 0xFF80, 0),
    ],
)
def test_a_master_is_rounded_to_the_nearest_and_comes_back_bit_for_bit(bits: int, half: int, lower: int) -> None:
    rounded, rest = split(tensor_of(bits))
    assert (upper(rounded), rest.tolist(), rest.dtype) == ([half], [lower], torch.int16)
    assert torch.equal(joined(rounded, rest).view(torch.int32), tensor_of(bits).view(torch.int32))


@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=50))
def test_any_bits_come_back(bits: list[int]) -> None:
    """Even those of NaN; and every other number is rounded as torch does it, but for halves."""
    numbers = tensor_of(*bits)
    rounded, lower = split(numbers)
    assert torch.equal(joined(rounded, lower).view(torch.int32), numbers.view(torch.int32))
    for bit, ours, theirs in zip(bits, upper(rounded), upper(numbers.bfloat16()), strict=True):
        assert ours == theirs or bit & 0xFFFF == 0x8000 or bit & 0x7FFFFFFF > 0x7F800000


def test_all_lower_halves_of_some_upper_ones() -> None:
    for half in (0x0000, 0x007F, 0x3F80, 0x3F81, 0x7F7F, 0x8000, 0xBF81, 0xFF7F):
        numbers = torch.tensor([struct.unpack("<i", struct.pack("<HH", low, half))[0] for low in range(1 << 16)])
        numbers = numbers.to(torch.int32).view(torch.float32)
        rounded, lower = split(numbers)
        assert torch.equal(joined(rounded, lower).view(torch.int32), numbers.view(torch.int32))
        assert upper(rounded) == [half] * 0x8000 + [half + 1] * 0x8000


@pytest.fixture
def llama() -> PreTrainedModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=23,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():  # and not the rotations of positions, which are float32 in a loaded model, too
        parameter.data = parameter.data.bfloat16()
    return model


def make_learner(model: PreTrainedModel, **options: object) -> Learner:
    settings = {"learning_rate": 0.01, "warmup_steps": 4, "token_budget": 40} | options
    return learner_of(LogprobModel(model), loss=ClippedLoss(), **settings)


def test_updates_too_small_for_bfloat16_add_up(llama: PreTrainedModel, make_samples: Make) -> None:
    """From 1 the next bfloat16 below is 1 - 2^-8. Adam's first steps have the size of the learning rate: 3e-4."""
    weight = llama.model.norm.weight
    assert torch.equal(weight, torch.ones_like(weight))
    learner = make_learner(llama, learning_rate=3e-4, warmup_steps=0, weight_decay=0.0)
    master = learner.masters.of(weight)
    samples = make_samples(6)
    learner.update(samples)
    assert torch.equal(weight, torch.ones_like(weight))
    assert (1 - master).abs().max().item() == pytest.approx(3e-4, rel=1e-3)
    for _ in range(12):
        learner.update(samples)
    assert not torch.equal(weight, torch.ones_like(weight))
    for parameter in llama.parameters():
        assert torch.equal(split(learner.masters.of(parameter).detach())[0], parameter)
        assert parameter.grad is None


def test_gradients_of_micro_batches_are_added_in_float32(llama: PreTrainedModel, make_samples: Make) -> None:
    """Sums in bfloat16 would differ from those of the parts in its eighth bit."""
    samples = make_samples(6)
    learner = make_learner(llama, token_budget=1)  # each by itself
    totals = Totals(tokens=sum(sum(sample.loss_mask) for sample in samples), sequences=len(samples))
    parts = []
    for sample in samples:
        learner.accumulate([sample], totals)
        parts.append([master.grad for master in learner.trained])
        learner.optimizer.zero_grad()
    learner.accumulate(samples, totals)
    for number, master in enumerate(learner.trained):
        assert master.grad.dtype == torch.float32
        assert torch.equal(parts[0][number].bfloat16().float(), parts[0][number])  # one backward pass is in bfloat16
        total = sum(part[number] for part in parts)
        assert torch.allclose(master.grad, total, rtol=1e-5, atol=1e-6 * float(total.abs().max()))


def test_the_gradient_is_clipped_before_the_masters_step(llama: PreTrainedModel, make_samples: Make) -> None:
    learner = make_learner(llama, optimizer=sgd, learning_rate=1.0, warmup_steps=0, max_grad_norm=1e-3)
    before = [master.detach().clone() for master in learner.trained]
    assert learner.update(make_samples(6))["grad_norm"] > 1e-2
    steps = [(master.detach() - old).double() for master, old in zip(learner.trained, before, strict=True)]
    assert sum(float((step**2).sum()) for step in steps) ** 0.5 == pytest.approx(1e-3, rel=1e-3)


def sgd(model: torch.nn.Module, *, learning_rate: float, **_: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=learning_rate)


def save(run: Path, learner: Learner, step: int) -> Path:
    parts = {"policy": CheckpointPart(learner.model.save_pretrained, learner)}
    return save_checkpoint(run, step=step, parts=parts, position={})


@pytest.mark.parametrize("optimizer", [adamw, MuonAdamW, sgd])
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(
    llama: PreTrainedModel, make_samples: Make, tmp_path: Path, optimizer: OptimizerFactory
) -> None:
    learner = make_learner(llama, optimizer=optimizer)
    for step in range(3):
        learner.update(make_samples(6, seed=step))
    save(tmp_path, learner, 3)
    uninterrupted = [learner.update(make_samples(6, seed=step)) for step in range(3, 6)]

    checkpoint = latest_checkpoint(tmp_path)
    assert checkpoint is not None
    loaded = AutoModelForCausalLM.from_pretrained(checkpoint.part_directory("policy"), dtype=torch.bfloat16)
    resumed = make_learner(loaded, optimizer=optimizer)
    restore(checkpoint, "policy", resumed)
    assert [resumed.update(make_samples(6, seed=step)) for step in range(3, 6)] == uninterrupted
    assert all(torch.equal(a, b) for a, b in zip(learner.trained, resumed.trained, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(llama.parameters(), loaded.parameters(), strict=True))
    left, right = learner.state_dict()[0], resumed.state_dict()[0]
    assert left.keys() == right.keys()
    assert all(torch.equal(tensor, right[name]) for name, tensor in left.items())


def test_a_checkpoint_holds_every_master_once(llama: PreTrainedModel, make_samples: Make, tmp_path: Path) -> None:
    """Twelve bytes a weight: two of the weight, two of the rest of its master, eight of AdamW's moments."""
    learner = make_learner(llama)
    learner.update(make_samples(6))
    directory = save(tmp_path, learner, 1)
    stored = load_file(directory / STORED)
    sizes = {
        name: tensor.nbytes for name, tensor in (stored | load_file(directory / "policy/model.safetensors")).items()
    }
    steps = sum(size for name, size in sizes.items() if name.endswith("/step"))
    assert sum(sizes.values()) - steps == 12 * llama.num_parameters()


def test_a_state_without_masters_is_refused(llama: PreTrainedModel, make_samples: Make) -> None:
    learner = make_learner(llama)
    tensors, values = learner.state_dict()
    kept = {name: tensor for name, tensor in tensors.items() if "norm" not in name}
    with pytest.raises(TrainingError, match="no master weights"):
        learner.load_state_dict(kept, values)


def test_restarting_keeps_the_masters(llama: PreTrainedModel, make_samples: Make) -> None:
    learner = make_learner(llama)
    learner.update(make_samples(6))
    before = [master.detach().clone() for master in learner.trained]
    learner.restart()
    assert not learner.optimizer.state
    assert all(torch.equal(a, b) for a, b in zip(learner.trained, before, strict=True))


def test_a_learner_that_is_gone_takes_no_gradient(llama: PreTrainedModel, make_samples: Make) -> None:
    first, second = make_learner(llama), make_learner(llama)
    second.update(make_samples(6))
    assert all(master.grad is None for master in first.trained)
    assert second.step == 1


def test_float32_weights_are_their_own_masters(model: PreTrainedModel) -> None:
    learner = make_learner(model)
    assert all(a is b for a, b in zip(learner.trained, model.parameters(), strict=True))
    assert learner.state_dict()[0] == {}
