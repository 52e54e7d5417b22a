"""What the measurement of memory counts, on a learner whose sizes are known."""

import pytest
import torch
from tests.doubles.learners import learner_of
from torch import nn
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen2Config, Qwen2ForCausalLM

from evoseek.errors import TrainingError
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.likelihood import ReinforceLoss
from evoseek.types import TrainingSample

SIZES = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 32}
NUMBERS = 1200
"""Embeddings and a head of 32 * 8 each; queries, keys, values (each 8 * 8 + 8) and outputs (8 * 8); three matrices of
8 * 16; three norms of 8."""


@pytest.fixture(scope="module")
def script_held(script):
    return script("rank_memory").held


@pytest.fixture
def learner():
    model = Qwen2ForCausalLM(Qwen2Config(num_key_value_heads=2, **SIZES)).eval()
    return learner_of(LogprobModel(model), loss=ReinforceLoss(), learning_rate=1e-3)


def test_weights_moments_and_second_copies_are_told_apart(learner, script_held):
    sample = TrainingSample((1, 2, 3), (False, True, True), (0.0, -1.0, -1.0), (0.0, 1.0, 1.0))
    learner.update([sample])
    before = script_held(learner)
    own = sum(parameter.nbytes for parameter in learner.model.parameters())
    steps = 4 * len(list(learner.model.parameters()))  # AdamW's own count, a number for each parameter
    assert before["weights"] == own == 4 * NUMBERS
    assert before["moments"] == 2 * own + steps
    copy, other = nn.Parameter(torch.ones(1000)), torch.ones(500)
    after = script_held(learner)
    assert after["a second copy"] - before["a second copy"] == copy.nbytes
    assert after["other"] - before["other"] == other.nbytes


def test_the_most_memory_at_once_is_that_of_tensors_that_live_together(script):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as made:
        for _ in range(3):
            one = torch.empty(2**20, dtype=torch.uint8)
            other = torch.empty(2**21, dtype=torch.uint8)
            del one, other
    assert script("rank_memory").most_allocated(made) == 2**20 + 2**21


def test_before_a_step_there_is_nothing_to_count(learner, script_held):
    with pytest.raises(TrainingError, match="No optimizer step"):
        script_held(learner)
