"""What every learner does: one optimizer step from lists of TrainingSamples, or none where there is no gradient."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import torch
from torch import nn

from evoseek.errors import TrainingError
from evoseek.learner.batch import MicroBatch, trained_length
from evoseek.learner.distributed import Ranks
from evoseek.loss.base import Loss, LossFn, LossInputs, Totals, ValueInputs
from evoseek.storage.files import write_atomic
from evoseek.types import TrainingSample

MAX_NON_FINITE = 3  # steps in a row whose loss or gradient is not finite, before training stops

_COUNTERS = ("step", "skipped_no_signal", "skipped_non_finite", "non_finite_in_a_row")
_DIFFERENCE = "sampling/sampling_logp_difference"
_TOKEN_SUMS = ("entropy", f"{_DIFFERENCE}/mean")
MAXIMA = (f"{_DIFFERENCE}/max",)  # of numbers that are 0 or more

Inputs = TypeVar("Inputs", LossInputs, ValueInputs)
Given = TypeVar("Given", LossInputs, ValueInputs, covariant=True)

Term = tuple[Sequence[TrainingSample], LossFn[Inputs]]


class Forward(Protocol[Given]):
    """A model's forward pass over a micro-batch: `LogprobModel` for a policy, `ValueModel` for a critic."""

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""
        ...

    @property
    def packing_limit(self) -> int:
        """The length of the longest sample that can be packed; 0 if none can."""
        ...

    def __call__(self, batch: MicroBatch) -> Given:
        """The inputs of the loss."""
        ...


@dataclass(frozen=True, slots=True)
class StepBatch(Generic[Inputs]):
    """A term of a step: its samples with a gradient, and the counts of all its samples with actions."""

    samples: Sequence[TrainingSample]
    totals: Totals
    loss: LossFn[Inputs]

    @classmethod
    def of(cls, samples: Sequence[TrainingSample], loss: LossFn[Inputs]) -> StepBatch[Inputs]:
        """Of all samples of a term."""
        trained = [sample for sample in samples if trained_length(sample) > 0]
        totals = Totals(tokens=sum(sum(sample.loss_mask) for sample in trained), sequences=len(trained))
        return cls([sample for sample in trained if loss.contributes(sample)], totals, loss)

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers of samples."""
        return {
            "learner/samples": float(self.totals.sequences),
            "learner/samples_without_gradient": float(self.totals.sequences - len(self.samples)),
        }


class LearnerBase(ABC, Generic[Inputs]):
    """Counts steps, and skips those without a gradient or with one that is not finite.

    A learner of one's own may derive from it: it makes the steps in `step_on`. `record` is called with the samples of
    every step before it is made.
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
        """The model that is trained."""
        return self.forward.model

    @abstractmethod
    def step_on(self, batches: Sequence[StepBatch[Inputs]]) -> tuple[dict[str, float], list[dict[str, float]]]:
        """Make one optimizer step on the sum of these terms, of which one or more have samples, or skip it by
        `skip_non_finite`. Returns the step's metrics and those of each term."""

    @abstractmethod
    def restart(self) -> None:
        """Keep the weights, but reset the optimizer's state and the schedule to those of a new learner."""

    @abstractmethod
    def state_dict(self) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
        """Everything that the next step depends on besides the weights: tensors by name, and plain JSON values."""

    @abstractmethod
    def load_state_dict(self, tensors: Mapping[str, torch.Tensor], values: Mapping[str, object]) -> None:
        """Restore what `state_dict` gave, into a learner made with the same settings and the same weights."""

    def update(self, samples: Sequence[TrainingSample], loss: LossFn[Inputs] | None = None) -> dict[str, float]:
        """Make one optimizer step and return its metrics under TRL's names. `loss` is the learner's own unless another
        one is given.

        A batch without any gradient (no samples, or every group's rewards equal) and a non-finite loss or gradient
        leave weights and optimizer untouched and are counted (`learner/skipped_*`); `loss`, `grad_norm` and `entropy`
        are then absent. When memory runs out, the micro-batches are halved permanently, and the step is repeated with
        the same gradient. Raises TrainingError at the third non-finite step in a row, if a single sample does not fit
        into memory or one of several ranks runs out of it, and if a step leaves weights that are not finite: no later
        step could repair them.
        """
        step, (own,) = self.update_together([(samples, loss or self.loss)])
        return own | step

    def update_together(self, terms: Sequence[Term[Inputs]]) -> tuple[dict[str, float], list[dict[str, float]]]:
        """Make one optimizer step on the sum of several terms, each the loss of its own samples.

        Every term is divided by its own counts, as if it were a step by itself, so the gradient is the sum of theirs.
        A term without any gradient is left out, and the step is skipped only if all are; one that is not finite skips
        it for all. Returns the step's metrics (`grad_norm`, `learning_rate`, counts of skipped steps) and those of
        each term. All else is as in `update`.
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
        """Count a step that is not made. Raises TrainingError, and writes the samples to `dump`, if there were too many
        in a row."""
        self.skipped_non_finite += 1
        self.non_finite_in_a_row += 1
        if self.non_finite_in_a_row < MAX_NON_FINITE:
            return
        if self.dump is not None and self.ranks.is_first:
            found = {"step": self.step + 1, "loss": loss, "grad_norm": norm, "samples": [asdict(s) for s in samples]}
            write_atomic(self.dump, json.dumps(found))
        raise TrainingError(
            f"{MAX_NON_FINITE} optimizer steps in a row had a non-finite loss or gradient (last: loss {loss}, "
            f"gradient norm {norm}); weights are those of step {self.step}. "
            + (f"The samples of the last one are in {self.dump}. " if self.dump else "")
            + "Lower the learning rate, or turn bf16 off, in a new run with the policy of this one (--model RUN)."
        )

    def counters(self) -> dict[str, object]:
        """The counts, as plain JSON values."""
        return {name: getattr(self, name) for name in _COUNTERS}

    def restore_counters(self, values: Mapping[str, object]) -> None:
        """Become what `counters` gave."""
        for name in _COUNTERS:
            setattr(self, name, values[name])


def measure_part(inputs: LossInputs | ValueInputs, result: Loss) -> dict[str, torch.Tensor]:
    """Metrics of a micro-batch, as sums that add up over micro-batches; for `MAXIMA`, the largest value."""
    sums = {"loss": result.loss.detach(), "tokens": inputs.loss_mask.sum(), **result.metrics}
    if isinstance(inputs, LossInputs):
        with torch.no_grad():
            difference = (inputs.logprobs - inputs.rollout_logprobs).abs().masked_fill(~inputs.loss_mask, 0.0)
            sums["entropy"] = inputs.entropies.detach().sum()
            sums[f"{_DIFFERENCE}/mean"] = difference.sum()
            sums[f"{_DIFFERENCE}/max"] = difference.max()
    return sums


def finish_metrics(sums: Mapping[str, float], highest: Mapping[str, float]) -> dict[str, float]:
    """The metrics of all parts of a batch, from the sums of what `measure_part` gave, and the maximum of `MAXIMA`."""
    tokens = sums["tokens"]
    found = {name: value for name, value in sums.items() if name != "tokens"}
    return {name: value / tokens if name in _TOKEN_SUMS else value for name, value in found.items()} | dict(highest)
