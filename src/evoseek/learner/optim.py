"""AdamW and its learning-rate schedule."""

from __future__ import annotations

from torch import nn
from torch.optim import AdamW, Optimizer


def adamw(
    model: nn.Module, *, learning_rate: float, weight_decay: float = 0.01, betas: tuple[float, float] = (0.9, 0.999)
) -> Optimizer:
    """AdamW (arXiv 1711.05101): decay decoupled from the gradient, and only on matrices that multiply activations.

    Norms, biases and embeddings (also an output head tied to them) are not decayed.
    """
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = [parameter for parameter in trainable if parameter.ndim >= 2 and id(parameter) not in embeddings]
    chosen = {id(parameter) for parameter in decayed}
    rest = [parameter for parameter in trainable if id(parameter) not in chosen]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return AdamW([group for group in groups if group["params"]], lr=learning_rate, betas=betas, fused=True)


def schedule_factor(step: int, *, warmup_steps: int, total_steps: int | None = None) -> float:
    """What the learning rate is multiplied by in optimizer step `step` (0 = the first).

    Rises linearly over `warmup_steps`, then stays at 1, or falls linearly to 0 at `total_steps` if that is given.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if total_steps is None:
        return 1.0
    return max(0.0, (total_steps - step) / max(1, total_steps - warmup_steps))
