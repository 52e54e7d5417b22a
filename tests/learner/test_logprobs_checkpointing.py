import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from evoseek.errors import PolicyError
from evoseek.learner.batch import make_batch
from evoseek.learner.logprobs import LogprobModel, checkpoint_activations
from evoseek.types import TrainingSample

Make = Callable[..., list[TrainingSample]]


def run(forward: LogprobModel, samples: list[TrainingSample]) -> tuple[int, list[torch.Tensor]]:
    """Bytes that autograd keeps for the backward pass (parameters aside), and the gradient."""
    parameters = {parameter.data_ptr() for parameter in forward.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in parameters:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    forward.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        inputs = forward(make_batch(samples, torch.device("cpu")))
        loss = (inputs.logprobs**2).sum()
    forward_bytes = sum(kept.values())
    loss.backward()
    return forward_bytes, [parameter.grad.clone() for parameter in forward.parameters()]


@pytest.mark.parametrize("packed", [True, False])
def test_memory_falls_and_the_gradient_is_the_same_bit_for_bit(
    model: PreTrainedModel, make_samples: Make, packed: bool
) -> None:
    """In evaluation mode, and with our attention in the second computation too."""
    samples, forward = make_samples(8, shared=18), LogprobModel(model)
    if not packed:
        forward.packing_limit = 0
    plain_bytes, plain = run(forward, samples)
    checkpoint_activations(model)
    model.eval()
    fewer_bytes, recomputed = run(forward, samples)
    assert fewer_bytes < plain_bytes / 3
    for one, other in zip(plain, recomputed, strict=True):
        assert torch.equal(one, other)


def test_layers_run_once_without_a_gradient_and_twice_with_one(model: PreTrainedModel, make_samples: Make) -> None:
    calls: list[int] = []
    model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    forward = LogprobModel(model)
    checkpoint_activations(model)
    calls.clear()
    with torch.no_grad():
        forward(make_batch(make_samples(2), model.device))
    assert len(calls) == 1
    run(forward, make_samples(2))
    assert len(calls) == 3


def test_generation_with_a_cache_is_as_before(model: PreTrainedModel) -> None:
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    expected = model(ids, use_cache=True)
    checkpoint_activations(model)
    got = model(ids, use_cache=True)
    assert torch.equal(got.logits, expected.logits)
    assert got.past_key_values.get_seq_length() == 5


def test_a_copy_of_the_model_computes_with_its_own_weights(model: PreTrainedModel) -> None:
    checkpoint_activations(model)
    copied: Any = copy.deepcopy(model)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    expected = model(ids).logits.detach().clone()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(copied(ids).logits, expected)


def test_a_model_without_such_layers_is_refused(model: PreTrainedModel) -> None:
    del model.model.layers[:]
    with pytest.raises(PolicyError, match=r"Qwen2ForCausalLM has no layers that allow.*Turn it off"):
        checkpoint_activations(model)
