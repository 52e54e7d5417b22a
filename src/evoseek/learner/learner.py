"""The learner: one optimizer step from a list of TrainingSamples. It is blind to algorithms: the loss is injected."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from torch.optim import Optimizer
from transformers import PreTrainedModel

from evoseek.errors import TrainingError
from evoseek.learner.batch import MicroBatch, pad, split_by_tokens, trained_length
from evoseek.learner.logprobs import LogprobModel
from evoseek.learner.optim import adamw, schedule_factor
from evoseek.loss.base import Loss, LossFn, LossInputs, Totals
from evoseek.types import TrainingSample

MAX_NON_FINITE = 3  # steps in a row whose loss or gradient is not finite, before training stops

OptimizerFactory = Callable[..., Optimizer]


class Learner:
    """Trains a causal language model in place on TrainingSamples, one optimizer step per `update`.

    The gradient is accumulated over micro-batches of at most `token_budget` padded tokens and divided by the counts of
    the whole batch, so it does not depend on the split. Several steps on one batch of rollouts (mini-batches, epochs)
    are several calls of `update`: the samples carry the logprobs they were sampled with.

    `temperature` is the one the samples were drawn at. `bf16` runs the model's matrix products in bfloat16 (autocast);
    weights and optimizer keep their precision. `optimizer` builds the optimizer from (model, learning_rate=,
    weight_decay=, betas=); a group's own learning rate is kept and multiplied by the schedule. Dropout is off, so that
    learner and sampler compute the same distribution.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        loss: LossFn,
        learning_rate: float,
        warmup_steps: int = 0,
        total_steps: int | None = None,
        weight_decay: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        max_grad_norm: float = 1.0,
        temperature: float = 1.0,
        token_budget: int = 8192,
        bf16: bool = False,
        optimizer: OptimizerFactory = adamw,
    ) -> None:
        self.model = model.eval()
        self.loss = loss
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.max_grad_norm = max_grad_norm
        self.token_budget = token_budget
        self.bf16 = bf16
        self.logprobs = LogprobModel(model, temperature=temperature)
        self.optimizer = optimizer(model, learning_rate=learning_rate, weight_decay=weight_decay, betas=betas)
        self.base_rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.step = 0
        self.skipped_no_signal = 0
        self.skipped_non_finite = 0
        self.non_finite_in_a_row = 0

    def update(self, samples: Sequence[TrainingSample]) -> dict[str, float]:
        """Make one optimizer step and return its metrics under TRL's names.

        A batch without any gradient (no samples, or every group's rewards equal) and a non-finite loss or gradient
        leave weights and optimizer untouched and are counted (`learner/skipped_*`); `loss`, `grad_norm` and `entropy`
        are then absent. Raises TrainingError at the third non-finite step in a row, and if a step leaves weights that
        are not finite: no later step could repair them.
        """
        trained = [sample for sample in samples if trained_length(sample) > 0]
        totals = Totals(tokens=sum(sum(sample.loss_mask) for sample in trained), sequences=len(trained))
        used = [sample for sample in trained if self.loss.contributes(sample)]
        metrics = self._step(used, totals) if used else {}
        self.skipped_no_signal += not used
        return metrics | {
            "learner/samples": float(len(trained)),
            "learner/samples_without_gradient": float(len(trained) - len(used)),
            "learner/skipped_no_signal": float(self.skipped_no_signal),
            "learner/skipped_non_finite": float(self.skipped_non_finite),
        }

    def _step(self, samples: Sequence[TrainingSample], totals: Totals) -> dict[str, float]:
        rate = self._set_learning_rate()
        self.optimizer.zero_grad(set_to_none=True)  # an update that was interrupted may have left some
        metrics = self.accumulate(samples, totals)
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm))
        if not (math.isfinite(norm) and math.isfinite(metrics["loss"])):
            self._skip_non_finite(metrics["loss"], norm)
            return {"learning_rate": rate}
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._check_weights(rate)
        self.non_finite_in_a_row = 0
        self.step += 1
        return metrics | {"grad_norm": norm, "learning_rate": rate}

    def accumulate(self, samples: Sequence[TrainingSample], totals: Totals) -> dict[str, float]:
        """Add the samples' gradient to the parameters' `.grad`, as a share of `totals`; return loss and metrics."""
        sums: dict[str, torch.Tensor] = {}
        for part in split_by_tokens(samples, self.token_budget):
            batch = pad(part, self.model.device)
            inputs = self._forward(batch)
            result = self.loss(inputs, totals)
            result.loss.backward()
            for name, value in _measure(inputs, result).items():
                sums[name] = sums[name] + value if name in sums else value
        values = {name: float(value) for name, value in sums.items()}
        tokens = values.pop("tokens")
        for name in ("entropy", "sampling/sampling_logp_difference/mean"):
            values[name] /= tokens
        return values

    def _forward(self, batch: MicroBatch) -> LossInputs:
        with self._precision():
            logprobs, entropies = self.logprobs(batch.token_ids, batch.loss_mask)
        return LossInputs(
            logprobs=logprobs,
            rollout_logprobs=batch.rollout_logprobs,
            advantages=batch.advantages,
            loss_mask=batch.loss_mask,
            weights=batch.weights,
            entropies=entropies,
        )

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self.model.device.type, dtype=torch.bfloat16, enabled=self.bf16)

    def _set_learning_rate(self) -> float:
        factor = schedule_factor(self.step, warmup_steps=self.warmup_steps, total_steps=self.total_steps)
        for group, rate in zip(self.optimizer.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * factor
        return self.base_rates[0] * factor

    def _skip_non_finite(self, loss: float, norm: float) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.skipped_non_finite += 1
        self.non_finite_in_a_row += 1
        if self.non_finite_in_a_row >= MAX_NON_FINITE:
            raise TrainingError(
                f"{MAX_NON_FINITE} optimizer steps in a row had a non-finite loss or gradient (last: loss {loss}, "
                f"gradient norm {norm}); weights are those of step {self.step}. Lower the learning rate, or turn "
                "bf16 off, and resume from the last checkpoint."
            )

    def _check_weights(self, rate: float) -> None:
        if not math.isfinite(float(torch.nn.utils.get_total_norm(self.model.parameters()))):
            raise TrainingError(
                f"Optimizer step {self.step + 1} (learning rate {rate:g}) left weights that are not finite: the policy "
                "has diverged. It was not saved; the checkpoints made before it are intact. Lower the learning rate "
                "and resume from the last checkpoint, or from an earlier one if this happens again."
            )

    def state_dict(self) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
        """All that the next step depends on besides the weights: tensors by name, and plain JSON values."""
        names: dict[torch.Tensor, str] = {parameter: name for name, parameter in self.model.named_parameters()}
        tensors = {
            f"{names[parameter]}/{key}": value
            for parameter, state in self.optimizer.state.items()
            for key, value in state.items()
        }
        return tensors, {name: getattr(self, name) for name in _COUNTERS}

    def load_state_dict(self, tensors: Mapping[str, torch.Tensor], values: Mapping[str, object]) -> None:
        """Restore what `state_dict` gave, into a learner made with the same settings and the same weights."""
        parameters = dict(self.model.named_parameters())
        self.optimizer.state.clear()
        for full_name, value in tensors.items():
            name, key = full_name.rsplit("/", 1)
            if name not in parameters:
                raise TrainingError(
                    f"The optimizer state names the parameter {name!r}, which the model does not have: resume with "
                    "the same model and settings that the run was started with."
                )
            parameter = parameters[name]
            self.optimizer.state[parameter][key] = value.clone().to(parameter.device)
        for name in _COUNTERS:
            setattr(self, name, values[name])


_COUNTERS = ("step", "skipped_no_signal", "skipped_non_finite", "non_finite_in_a_row")


def _measure(inputs: LossInputs, result: Loss) -> dict[str, torch.Tensor]:
    """Metrics of a micro-batch, as sums that add up over micro-batches."""
    with torch.no_grad():
        difference = (inputs.logprobs - inputs.rollout_logprobs).abs().masked_fill(~inputs.loss_mask, 0.0)
        return {
            "loss": result.loss.detach(),
            "tokens": inputs.loss_mask.sum(),
            "entropy": inputs.entropies.sum(),
            "sampling/sampling_logp_difference/mean": difference.sum(),
            **result.metrics,
        }
