import pytest
import torch
from transformers import PreTrainedModel

from evoseek.learner.optim import adamw, schedule_factor


@pytest.mark.parametrize(
    ("step", "total", "expected"),
    [
        (0, None, 0.25),
        (3, None, 1.0),
        (4, None, 1.0),
        (100, None, 1.0),
        (4, 14, 1.0),
        (9, 14, 0.5),
        (14, 14, 0.0),
        (99, 14, 0.0),
    ],
)
def test_schedule_with_four_warmup_steps(step: int, total: int | None, expected: float) -> None:
    assert schedule_factor(step, warmup_steps=4, total_steps=total) == pytest.approx(expected)


def test_without_warmup_the_first_step_has_the_full_rate() -> None:
    assert schedule_factor(0, warmup_steps=0) == 1.0


def test_only_matrices_that_multiply_activations_decay(model: PreTrainedModel) -> None:
    """With zero gradients AdamW only decays: each decayed parameter shrinks by (1 - learning rate * decay)."""
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = adamw(model, learning_rate=0.1, weight_decay=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        decays = "proj.weight" in name or "lm_head" in name
        torch.testing.assert_close(parameter.detach(), before[name] * (0.95 if decays else 1.0), msg=name)
    assert model.get_input_embeddings().weight.equal(before["model.embed_tokens.weight"])
