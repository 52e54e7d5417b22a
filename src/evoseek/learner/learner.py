"""The learner: one optimizer step from lists of TrainingSamples, or none without a gradient. It knows no algorithm:
losses are injected."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from transformers import PreTrainedModel

from evoseek.errors import TrainingError
from evoseek.learner.batch import make_batch, smaller_budget, split_by_tokens, trained_length
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.learner.logprobs import Forward, LogprobModel, checkpoint_activations
from evoseek.learner.optim import LOWER, Masters, adamw, schedule_factor
from evoseek.learner.settings import LearnerSettings
from evoseek.learner.sharding import read_weights, shard_module
from evoseek.loss.base import Loss, LossFn, LossInputs, Totals, ValueInputs
from evoseek.storage.files import write_atomic
from evoseek.types import TrainingSample

MAX_NON_FINITE = 3  # steps in a row whose loss or gradient is not finite, before training stops

_COUNTERS = ("step", "skipped_no_signal", "skipped_non_finite", "non_finite_in_a_row")
_DIFFERENCE = "sampling/sampling_logp_difference"
_TOKEN_SUMS = ("entropy", f"{_DIFFERENCE}/mean")
MAXIMA = (f"{_DIFFERENCE}/max",)  # of non-negative numbers

Inputs = TypeVar("Inputs", LossInputs, ValueInputs)

Term = tuple[Sequence[TrainingSample], LossFn[Inputs]]
OptimizerFactory = Callable[..., Optimizer]


@dataclass(frozen=True, slots=True)
class StepBatch(Generic[Inputs]):
    """A term of a step: its samples with a gradient, and the counts of all its samples with actions. The branches of a
    trajectory, which have its id, count as one sequence: a loss that averages sequences weights them by their tokens.
    """

    samples: Sequence[TrainingSample]
    counted: int
    totals: Totals
    loss: LossFn[Inputs]

    @classmethod
    def of(cls, samples: Sequence[TrainingSample], loss: LossFn[Inputs]) -> StepBatch[Inputs]:
        trained = [sample for sample in samples if trained_length(sample) > 0]
        lengths = Counter[str | int]()
        for number, sample in enumerate(trained):
            lengths[sample.id or number] += sum(sample.loss_mask)
        totals = Totals(tokens=lengths.total(), sequences=len(lengths))
        kept = [sample for sample in trained if loss.contributes(sample)]
        if _averages_sequences(loss):
            kept = [_weighted(sample, lengths[sample.id]) if sample.id else sample for sample in kept]
        return cls(kept, len(trained), totals, loss)

    @property
    def metrics(self) -> dict[str, float]:
        return {
            "learner/samples": float(self.counted),
            "learner/samples_without_gradient": float(self.counted - len(self.samples)),
        }


def _averages_sequences(loss: object) -> bool:
    own = getattr(loss, "loss", loss)  # of one with further terms
    return getattr(own, "aggregate", "") == "sequence-mean-token-mean" or getattr(own, "level", "") == "sequence"


def _weighted(sample: TrainingSample, tokens: int) -> TrainingSample:
    own = sum(sample.loss_mask)
    return sample if own == tokens else replace(sample, weight=sample.weight * own / tokens)


class LearnerBase(ABC, Generic[Inputs]):
    """The base of learners: counts steps, and skips steps without a gradient or with one that is not finite.

    Your own learner may derive from it and make the steps in `step_on`. `record` is called with the samples of every
    step before the step.
    """

    record: Callable[[Sequence[TrainingSample]], None] | None = None

    def __init__(self, forward: Forward[Inputs], loss: LossFn[Inputs], *, ranks: Ranks, dump: Path | None) -> None:
        self.forward, self.loss, self.ranks, self.dump = forward, loss, ranks, dump
        self.step = 0
        self.skipped_no_signal = 0
        self.skipped_non_finite = 0
        self.non_finite_in_a_row = 0

    @property
    def model(self) -> nn.Module:
        return self.forward.model

    @abstractmethod
    def step_on(self, batches: Sequence[StepBatch[Inputs]]) -> tuple[dict[str, float], list[dict[str, float]]]:
        """Make one optimizer step on the sum of these terms, at least one with samples, or skip it by
        `skip_non_finite`. Returns the step's metrics and each term's."""

    @abstractmethod
    def restart(self) -> None:
        """Keep the weights, but reset the optimizer's state and the schedule."""

    @abstractmethod
    def state_dict(self) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
        """Return everything besides the weights that the next step depends on: tensors by name, and JSON values."""

    @abstractmethod
    def load_state_dict(self, tensors: Mapping[str, torch.Tensor], values: Mapping[str, object]) -> None:
        """Restore what `state_dict` gave into a learner with the same settings and weights."""

    def update(self, samples: Sequence[TrainingSample], loss: LossFn[Inputs] | None = None) -> dict[str, float]:
        """Make one optimizer step and return its metrics under TRL's names. `loss` replaces the learner's own.

        A batch without any gradient (no samples, or every group's rewards equal) and a non-finite loss or gradient
        leave weights and optimizer untouched and are counted (`learner/skipped_*`); `loss`, `grad_norm` and `entropy`
        are then absent. If memory runs out, the micro-batches are halved permanently, and the step is repeated with the
        same gradient. Raises TrainingError at the third non-finite step in a row, if a single sample does not fit into
        memory or one of several ranks runs out of it, and if a step leaves non-finite weights, which no later step
        could repair.
        """
        step, (own,) = self.update_together([(samples, loss or self.loss)])
        return own | step

    def update_together(self, terms: Sequence[Term[Inputs]]) -> tuple[dict[str, float], list[dict[str, float]]]:
        """Make one optimizer step on the sum of several terms, each the loss of its own samples.

        Every term is divided by its own counts, so the gradient is the sum of the terms' gradients. A term without any
        gradient is left out, and the step is skipped only if all are; a non-finite term skips it for all. Returns the
        step's metrics (`grad_norm`, `learning_rate`, counts of skipped steps) and each term's. All else is as in
        `update`.
        """
        if self.record is not None:
            self.record([sample for samples, _ in terms for sample in samples])
        batches = [StepBatch.of(samples, loss) for samples, loss in terms]
        step: dict[str, float] = {}
        measured: list[dict[str, float]] = [{} for _ in batches]
        if any(batch.samples for batch in batches):
            step, measured = self.step_on(batches)
        else:
            self.skipped_no_signal += 1
        step |= {
            "learner/skipped_no_signal": float(self.skipped_no_signal),
            "learner/skipped_non_finite": float(self.skipped_non_finite),
        }
        return step, [metrics | batch.metrics for metrics, batch in zip(measured, batches, strict=True)]

    def skip_non_finite(self, samples: Sequence[TrainingSample], loss: float, norm: float) -> None:
        """Count a skipped step. If there were too many in a row, write the samples to `dump` and raise
        TrainingError."""
        self.skipped_non_finite += 1
        self.non_finite_in_a_row += 1
        if self.non_finite_in_a_row < MAX_NON_FINITE:
            return
        if self.dump is not None and self.ranks.is_first:
            found = {"step": self.step + 1, "loss": loss, "grad_norm": norm, "samples": [asdict(s) for s in samples]}
            write_atomic(self.dump, json.dumps(found))
        raise TrainingError(
            f"{MAX_NON_FINITE} optimizer steps in a row had a non-finite loss or gradient (last: loss {loss}, "
            f"gradient norm {norm}); the weights are still those after step {self.step}. "
            + (f"The samples of the last one are in {self.dump}. " if self.dump else "")
            + "Lower the learning rate, or turn bf16 off, in a new run with the policy of this one (--model RUN)."
        )

    def counters(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in _COUNTERS}

    def restore_counters(self, values: Mapping[str, object]) -> None:
        for name in _COUNTERS:
            setattr(self, name, values[name])


@dataclass(frozen=True, slots=True)
class LearnerContext(Generic[Inputs]):
    """The context to build a learner from, besides its settings: a model's forward pass and a loss.

    `deferred_weights` are the weight files of a model that several ranks share. The others are as in `Learner`.
    """

    forward: Forward[Inputs]
    loss: LossFn[Inputs]
    total_steps: int | None = None
    ranks: Ranks = ALONE
    dump: Path | None = None
    active: Callable[[], AbstractContextManager[object]] = nullcontext
    deferred_weights: tuple[Path, ...] = ()


class Learner(LearnerBase[Inputs]):
    """Trains a model in place on TrainingSamples, one optimizer step per `update`.

    The gradient is accumulated over micro-batches of at most `token_budget` tokens and divided by the counts of the
    whole batch. So it depends neither on the split nor on the number of processes (`ranks`): each gets all samples and
    computes its part of the micro-batches. Several steps on one batch of rollouts (mini-batches) are several calls of
    `update`: the samples carry the logprobs that they were sampled with.

    `bf16` runs the model's matrix products in bfloat16 (autocast); weights and optimizer keep their precision. Weights
    in bfloat16 are trained through float32 masters (see optim.Masters). `optimizer` builds the optimizer from (model,
    learning_rate=); a group's own learning rate is kept and multiplied by the schedule. Dropout is off, so that learner
    and sampler compute the same distribution. `active` is entered around each step: the `active` method of a policy
    that shares its model with others. If training stops for non-finite steps, their last batch is written to `dump` as
    JSON.
    """

    Settings = LearnerSettings

    @classmethod
    def build(cls, settings: LearnerSettings, context: LearnerContext[Inputs]) -> Learner[Inputs]:
        """Build from settings. In-place changes of the model come first: activation checkpointing, sharding."""
        if settings.gradient_checkpointing:
            checkpoint_activations(cast("PreTrainedModel", context.forward.model))
        shard_module(cast(nn.Module, context.forward), context.ranks)
        if context.deferred_weights:
            read_weights(cast(LogprobModel, context.forward), context.deferred_weights, context.ranks)
        return cls(settings, context)

    def __init__(
        self, settings: LearnerSettings, context: LearnerContext[Inputs], optimizer: OptimizerFactory = adamw
    ) -> None:
        super().__init__(context.forward, context.loss, ranks=context.ranks, dump=context.dump)
        self.settings, self.total_steps, self.active = settings, context.total_steps, context.active
        self.token_budget = settings.token_budget  # halved when memory runs out
        with self.active():
            self.optimizer = optimizer(self.model, learning_rate=settings.learning_rate)
            self.masters = Masters(self.model, self.optimizer)
            self.trained = [self.masters.of(p) for p in self.model.parameters() if p.requires_grad]
        self.base_rates = [float(group["lr"]) for group in self.optimizer.param_groups]

    def restart(self) -> None:
        self.optimizer.state.clear()
        self.step = 0

    def step_on(self, batches: Sequence[StepBatch[Inputs]]) -> tuple[dict[str, float], list[dict[str, float]]]:
        with self.active():
            return self._step(batches)

    def _step(self, batches: Sequence[StepBatch[Inputs]]) -> tuple[dict[str, float], list[dict[str, float]]]:
        rate = self._set_learning_rate()
        measured = self._accumulate_within_memory(batches)
        norm = _as_float(nn.utils.clip_grad_norm_(self.trained, self.settings.max_grad_norm))
        loss = sum(metrics["loss"] for metrics in measured if metrics)
        if not (math.isfinite(norm) and math.isfinite(loss)):
            self.optimizer.zero_grad(set_to_none=True)
            self.skip_non_finite([sample for batch in batches for sample in batch.samples], loss, norm)
            return {"learning_rate": rate}, [{} for _ in batches]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._check_weights(rate)
        self.non_finite_in_a_row = 0
        self.step += 1
        return {"grad_norm": norm, "learning_rate": rate}, measured

    def _accumulate_within_memory(self, batches: Sequence[StepBatch[Inputs]]) -> list[dict[str, float]]:
        while True:
            self.optimizer.zero_grad(set_to_none=True)  # gradients of an interrupted update, or one that did not fit
            try:
                return [self.accumulate(b.samples, b.totals, b.loss) if b.samples else {} for b in batches]
            except torch.OutOfMemoryError as error:
                remedy = "turn learner.gradient_checkpointing on, "
                parts = [part for batch in batches for part in self._split(batch.samples)]
                self.token_budget = smaller_budget(self.token_budget, parts, self.ranks, str(error), remedy=remedy)
            torch.cuda.empty_cache()  # here the error, and with it the failed pass, is freed

    def accumulate(
        self, samples: Sequence[TrainingSample], totals: Totals, loss: LossFn[Inputs] | None = None
    ) -> dict[str, float]:
        """Add the samples' gradient, as a share of `totals`, to the `.grad` of `trained`; return loss and metrics.

        `loss` replaces the learner's own."""
        sums: dict[str, torch.Tensor] = {}
        for part, counts in self.ranks.deal(self._split(samples)):
            weight = float(counts)
            batch = make_batch(part, next(self.model.parameters()).device)
            with self._precision():
                inputs = self.forward(batch)
            result = (loss or self.loss)(inputs, totals)
            with self.masters.collecting():
                (result.loss * weight).backward()
            for name, value in measure_part(inputs, result).items():
                add = torch.maximum if name in MAXIMA else torch.add
                sums[name] = add(sums[name], value * weight) if name in sums else value * weight
        highest = {name: float(sums.pop(name)) for name in MAXIMA if name in sums}
        values = self.ranks.sum({name: float(value) for name, value in sums.items()})
        return finish_metrics(values, self.ranks.max(highest))

    def _split(self, samples: Sequence[TrainingSample]) -> list[list[TrainingSample]]:
        return split_by_tokens(samples, self.token_budget, self.forward.packing_limit)

    def _precision(self) -> AbstractContextManager[object]:
        device = next(self.model.parameters()).device
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.settings.bf16)

    def _set_learning_rate(self) -> float:
        factor = schedule_factor(self.step, warmup_steps=self.settings.warmup_steps, total_steps=self.total_steps)
        for group, rate in zip(self.optimizer.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * factor
        return self.base_rates[0] * factor

    def _check_weights(self, rate: float) -> None:
        if not math.isfinite(_as_float(nn.utils.get_total_norm(self.trained))):
            raise TrainingError(
                f"Optimizer step {self.step + 1} (learning rate {rate:g}) left weights that are not finite: the policy "
                "has diverged. It was not saved; earlier checkpoints are intact. Lower the learning rate "
                "in a new run with the policy of this one (--model RUN)."
            )

    def state_dict(self) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
        names: dict[torch.Tensor, str] = {
            self.masters.of(parameter): name for name, parameter in self.model.named_parameters()
        }
        tensors = {
            f"{names[parameter]}/{key}": value
            for parameter, state in self.optimizer.state.items()
            for key, value in state.items()
        }
        tensors |= {f"{names[self.masters.of(p)]}/{LOWER}": lower for p, lower in self.masters.lower_bits()}
        return tensors, self.counters()

    def load_state_dict(self, tensors: Mapping[str, torch.Tensor], values: Mapping[str, object]) -> None:
        parameters = dict(self.model.named_parameters())
        lower: dict[nn.Parameter, torch.Tensor] = {}
        self.optimizer.state.clear()
        for full_name, value in tensors.items():
            name, key = full_name.rsplit("/", 1)
            if name not in parameters:
                raise TrainingError(
                    f"The optimizer state names the parameter {name!r}, which the model does not have. Resume "
                    "with the model and settings that the run was started with."
                )
            parameter = parameters[name]
            if key == LOWER:
                lower[parameter] = value
            else:
                self.optimizer.state[self.masters.of(parameter)][key] = value.clone().to(parameter.device)
        self.masters.restore(lower)
        self.restore_counters(values)


def measure_part(inputs: LossInputs | ValueInputs, result: Loss) -> dict[str, torch.Tensor]:
    """Return metrics of a micro-batch as sums to add up; for `MAXIMA`, the largest value."""
    sums = {"loss": result.loss.detach(), "tokens": inputs.loss_mask.sum(), **result.metrics}
    if isinstance(inputs, LossInputs):
        with torch.no_grad():
            difference = (inputs.logprobs - inputs.rollout_logprobs).abs().masked_fill(~inputs.loss_mask, 0.0)
            sums["entropy"] = inputs.entropies.detach().sum()
            sums[f"{_DIFFERENCE}/mean"] = difference.sum()
            sums[f"{_DIFFERENCE}/max"] = difference.max()
    return sums


def finish_metrics(sums: Mapping[str, float], highest: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of a batch, from the sums of `measure_part` and the maxima of `MAXIMA`."""
    tokens = sums["tokens"]
    found = {name: value for name, value in sums.items() if name != "tokens"}
    return {name: value / tokens if name in _TOKEN_SUMS else value for name, value in found.items()} | dict(highest)


def _as_float(value: torch.Tensor) -> float:
    """Return a scalar as a float; for sharded parameters the global value."""
    return float(value.full_tensor() if isinstance(value, DTensor) else value)
