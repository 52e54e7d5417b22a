from collections.abc import Callable

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForTokenClassification

from evoseek.errors import PolicyError
from evoseek.learner.batch import make_batch
from evoseek.learner.values import ValueModel
from evoseek.types import TrainingSample


def critic(num_labels: int = 1) -> Qwen2ForTokenClassification:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=23,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
        num_labels=num_labels,
    )
    return Qwen2ForTokenClassification(config).eval()


@pytest.mark.parametrize("packed", [True, False])
def test_a_prediction_is_the_value_of_the_state_before_its_action_token(
    packed: bool, make_samples: Callable[..., list[TrainingSample]]
) -> None:
    model, samples = critic(), make_samples(6, shared=18)
    forward = ValueModel(model)
    if not packed:
        forward.packing_limit = 0
    inputs = forward(make_batch(samples, model.device))
    (inputs.predictions**2).sum().backward()
    got = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    for number, sample in enumerate(samples):
        values = model(torch.tensor([sample.token_ids])).logits[0, :, 0]
        expected = torch.cat([torch.zeros(1), values[:-1]]) * torch.tensor(sample.loss_mask)
        (expected**2).sum().backward()
        row = inputs.predictions[number]
        torch.testing.assert_close(row[: len(expected)], expected[: len(row)], atol=1e-5, rtol=1e-5)
        assert not row[~inputs.loss_mask[number]].any()
    scale = max(parameter.grad.abs().max().item() for parameter in model.parameters())
    for have, parameter in zip(got, model.parameters(), strict=True):
        torch.testing.assert_close(have, parameter.grad, atol=1e-5 * scale, rtol=0)


def test_the_rest_of_the_inputs_is_the_batch_s(make_samples: Callable[..., list[TrainingSample]]) -> None:
    batch = make_batch(make_samples(3), torch.device("cpu"))
    inputs = ValueModel(critic())(batch)
    assert inputs.predictions.dtype == torch.float32
    assert inputs.values is batch.values
    assert inputs.returns is batch.returns
    assert inputs.weights is batch.weights


def test_a_model_without_a_head_for_one_value_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"Qwen2ForTokenClassification with 3 labels.*one label.*load_critic"):
        ValueModel(critic(num_labels=3))
