"""AdamW, its learning-rate schedule, and float32 master weights for a model in bfloat16."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from evoseek.errors import TrainingError
from evoseek.learner.settings import BETAS, WEIGHT_DECAY

LOWER = "master_lower_bits"  # a parameter's key in a checkpoint


def adamw(
    model: nn.Module, *, learning_rate: float, weight_decay: float = WEIGHT_DECAY, betas: tuple[float, float] = BETAS
) -> Optimizer:
    """Make AdamW (arXiv 1711.05101): decay decoupled from the gradient, only on matrices that multiply activations.

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
    """Return the factor of the learning rate in optimizer step `step` (0 = the first).

    It rises linearly over `warmup_steps`, then stays at 1, or falls linearly to 0 at `total_steps`.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if total_steps is None:
        return 1.0
    return max(0.0, (total_steps - step) / max(1, total_steps - warmup_steps))


class Masters:
    """The float32 masters of a model's trained bfloat16 parameters (mixed-precision training, arXiv 1710.03740), which
    replace them in an optimizer that has no state yet.

    A usual update is smaller than half the distance between neighbouring bfloat16 numbers, and would round to nothing.
    So the optimizer steps on float32 copies, the masters, and after each step the parameters are the rounded masters. A
    model without trained bfloat16 parameters has no masters, and nothing changes. One learner at a time may train such
    a model.

    On disk a master is stored once. The weight, which the policy's directory holds, is the master's upper 16 bits,
    rounded; the lower 16 bits are stored beside the optimizer's state and give the master back exactly. With the bits
    of a master as an unsigned number x < 2^32, all sums modulo 2^32:

        weight  h = floor((x + 2^15) / 2^16)             the upper half of x + 2^15
        lower   s = (x + 2^15) mod 2^16 - 2^15           the lower half of x as a signed number, -2^15 <= s < 2^15
        x = 2^16 h + s                                   since x + 2^15 = 2^16 floor(...) + (x + 2^15) mod 2^16

    This holds for every x. h is the bfloat16 number nearest to the master: a float's bits without the sign grow with
    its size, so adding half a step rounds to the nearest number (also subnormal), halves away from zero, and above the
    largest finite number to infinity. If halves went to the even neighbour, as torch rounds, an even h would stand for
    2^16 + 1 masters, more than 16 bits can tell apart.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        trained = [p for p in model.parameters() if p.requires_grad and p.dtype == torch.bfloat16]
        self._masters = {parameter: nn.Parameter(parameter.detach().float()) for parameter in trained}
        for group in optimizer.param_groups:
            group["params"] = [self.of(parameter) for parameter in group["params"]]
        if trained:
            optimizer.register_step_post_hook(self._round)

    def of(self, parameter: nn.Parameter) -> nn.Parameter:
        """Return the optimizer's tensor of a parameter: its master, or the parameter itself."""
        return self._masters.get(parameter, parameter)

    @contextmanager
    def collecting(self) -> Generator[None]:
        """Within the block, add each complete gradient to the master's, in float32, and free its memory."""
        hooks = [p.register_post_accumulate_grad_hook(self._collect) for p in self._masters]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def lower_bits(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Yield each parameter with a master, and the master's lower bits, int16 of the same shape."""
        for parameter, master in self._masters.items():
            yield parameter, split(master.detach())[1]

    def restore(self, lower: Mapping[nn.Parameter, Tensor]) -> None:
        """Set the masters from the parameters and what `lower_bits` gave. Raises TrainingError if one has none."""
        for parameter, master in self._masters.items():
            if parameter not in lower:
                raise TrainingError(
                    "The optimizer state has no master weights, but the policy is trained in bfloat16: it comes "
                    "from a run in another data type. Resume with the settings that the run was begun with."
                )
            master.data = joined(parameter.detach(), lower[parameter].to(parameter.device))

    def _collect(self, parameter: Tensor) -> None:
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            return
        master = self._masters[parameter]  # pyright: ignore[reportArgumentType]  # the parameter itself
        master.grad = gradient.float() if master.grad is None else master.grad.add_(gradient)

    @torch.no_grad()
    def _round(self, *_: object) -> None:
        for parameter, master in self._masters.items():
            parameter.copy_(split(master)[0])


def split(master: Tensor) -> tuple[Tensor, Tensor]:
    """Return a float32 tensor as its rounding to bfloat16 and its lower bits, int16."""
    bits = master.view(torch.int32)
    rounded = ((bits + 0x8000) >> 16).to(torch.int16).view(torch.bfloat16)
    return rounded, bits.to(torch.int16)


def joined(rounded: Tensor, lower: Tensor) -> Tensor:
    """Return the float32 tensor that was `split` into these two."""
    bits = (rounded.view(torch.int16).to(torch.int32) << 16) + lower
    return bits.view(torch.float32)
