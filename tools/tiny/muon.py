"""Muon (Jordan 2024, arXiv 2502.16982) for the hidden matrices and AdamW for all other parameters, as one optimizer.

Training a small model from scratch, Muon's orthogonalised updates learn to copy in a fraction of AdamW's steps. For
fine-tuning and reinforcement learning use AdamW.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch.optim import AdamW, Muon, Optimizer


class MuonAdamW(Optimizer):
    """Two optimizers that share one state and one list of parameter groups, so that schedules and checkpoints see one.

    `learning_rate` is Muon's; AdamW's is `learning_rate * adamw_share`. Embeddings and the output head belong to AdamW.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        learning_rate: float,
        weight_decay: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        adamw_share: float = 0.15,
    ) -> None:
        outer = [module for name, module in model.named_modules() if isinstance(module, nn.Embedding) or "head" in name]
        excluded = {id(parameter) for module in outer for parameter in module.parameters()}
        matrices = [p for p in model.parameters() if p.ndim == 2 and id(p) not in excluded]
        chosen = {id(parameter) for parameter in matrices}
        rest = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
        super().__init__([*matrices, *rest], {})
        self.parts: tuple[Optimizer, ...] = (
            Muon(matrices, lr=learning_rate, weight_decay=weight_decay),
            AdamW(rest, lr=learning_rate * adamw_share, betas=betas, weight_decay=0.0),
        )
        for part in self.parts:
            part.state = self.state
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step of both."""
        loss = closure() if closure is not None else None
        for part in self.parts:
            part.step()
        return loss
