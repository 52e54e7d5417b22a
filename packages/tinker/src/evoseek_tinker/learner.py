"""The learner whose weights are at a service that speaks the Tinker API; the losses are computed here.

    forward      at the service: logprobs of the samples' tokens
    loss         here, any LossFn: it and its slopes, the derivatives by each logprob
    backward     at the service: by a loss whose derivatives are those slopes
    optim_step   at the service

So the gradient is exactly the loss's own, for one and a half times the work. A loss sees logprobs and nothing else of
the model: there is no entropy and no critic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from evoseek.assembly.settings import TrainingSettings
from evoseek.errors import ConfigError, TrainingError
from evoseek.learner.batch import MicroBatch, loss_inputs, make_batch, trained_length
from evoseek.learner.learner import MAXIMA, LearnerBase, LearnerContext, StepBatch, finish_metrics, measure_part
from evoseek.learner.optim import schedule_factor
from evoseek.learner.settings import BETAS
from evoseek.loss.base import LossInputs
from evoseek.types import TrainingSample
from evoseek_tinker.policy import TinkerPolicy, saved_state
from evoseek_tinker.sdk import API_KEY, AdamStep, NewModel, RemoteModel, ServiceError, find_key, load_sdk
from evoseek_tinker.settings import TinkerSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RemoteForward:
    """The forward pass at the service. The inputs that it gives carry a gradient only up to `logprobs`, a leaf; there
    are no entropies."""

    policy: TinkerPolicy

    @property
    def model(self) -> nn.Module:
        """The model, without weights."""
        return self.policy.model

    @property
    def packing_limit(self) -> int:
        """Nothing is packed here."""
        return 0

    def __call__(self, batch: MicroBatch) -> LossInputs:
        """The loss inputs of the batch."""
        lengths = [_last(mask) + 1 for mask in batch.loss_mask]
        rows = [ids[:length].tolist() for ids, length in zip(batch.token_ids, lengths, strict=True)]
        found = [torch.tensor([0.0, *values]) for values in self.policy.remote.logprobs(rows)]
        logprobs = pad_sequence(found, batch_first=True).masked_fill(~batch.loss_mask, 0.0).requires_grad_()
        return loss_inputs(batch, logprobs, torch.zeros_like(logprobs))

    def score(self, samples: Sequence[TrainingSample]) -> list[tuple[float, ...]]:
        """Of each sample the logprobs of its T tokens, 0.0 off the mask. Raises TrainingError."""
        lengths = [trained_length(sample) for sample in samples]
        rows = [sample.token_ids[:length] for sample, length in zip(samples, lengths, strict=True) if length]
        found = iter(_served(lambda: self.policy.remote.logprobs(rows)))
        return [
            _on_actions(sample, next(found) if length else ()) for sample, length in zip(samples, lengths, strict=True)
        ]


class TinkerLearner(LearnerBase[LossInputs]):
    """Trains a TinkerPolicy at its service, one optimizer step per `update`.

    Every failure of the service is a TrainingError: what the service then holds is not known, so that the run has to be
    resumed from its last checkpoint, which it does with a new copy of the weights that were saved there.
    """

    Settings = TinkerSettings

    @classmethod
    def sdk(cls) -> Any:
        """The module of the SDK; a double in a class derived from this one. Raises ConfigError."""
        return load_sdk()

    @classmethod
    def load_policy(cls, settings: TrainingSettings, directory: Path | None, name: str) -> TinkerPolicy:
        """The policy of a checkpoint's directory, or one that begins as the model of the settings. Nothing is sent.
        Raises ConfigError, PolicyError or CheckpointError."""
        own = cast("TinkerSettings", settings.learner)
        new = NewModel(own.base_model or settings.policy.model, settings.lora.rank, settings.run.seed)
        remote = RemoteModel(
            cls.sdk(),
            new,
            api_key=find_key(own.api_key_env or API_KEY, own.base_url),
            base_url=own.base_url,
            state=saved_state(directory) if directory else "",
            timeout_s=own.timeout_s,
            gradient=own.gradient,
        )
        return TinkerPolicy.over(remote, settings.policy.model, name)

    @staticmethod
    def forward_of(policy: TinkerPolicy, *, temperature: float, entropy_gradient: bool = False) -> RemoteForward:
        """The policy's forward pass. `temperature` and `entropy_gradient` have been checked in the settings."""
        return RemoteForward(policy)

    @classmethod
    def build(cls, settings: TinkerSettings, context: LearnerContext[LossInputs]) -> TinkerLearner:
        """From settings. Raises ConfigError."""
        if not isinstance(context.forward, RemoteForward):
            raise ConfigError(
                "learner.name is tinker, which trains a policy, but it was asked to train another model (a critic). "
                "Choose a credit function that needs none, such as credit.name = group."
            )
        if context.ranks.size > 1:
            raise ConfigError(
                f"learner.name is tinker, but {context.ranks.size} processes train together, and the service trains "
                "for one. Start the run in one process: it computes next to nothing by itself."
            )
        return cls(settings, context)

    def __init__(self, settings: TinkerSettings, context: LearnerContext[LossInputs]) -> None:
        super().__init__(context.forward, context.loss, ranks=context.ranks, dump=context.dump)
        self._settings, self._context = settings, context
        self._remote = cast("RemoteForward", context.forward).policy.remote  # as `build` checks
        self._active: Callable[[], AbstractContextManager[object]] = context.active

    def step_on(self, batches: Sequence[StepBatch[LossInputs]]) -> tuple[dict[str, float], list[dict[str, float]]]:
        """One optimizer step."""
        rate = self._learning_rate()
        with self._active():
            terms = [self._differentiate(batch) if batch.samples else None for batch in batches]
            made = [term for term in terms if term]
            loss = sum(term.metrics["loss"] for term in made)
            every = [abs(slope) for term in made for row in term.slopes for slope in row]
            largest = max(every) if all(map(math.isfinite, every)) else math.nan  # max overlooks what is not a number
            if not (math.isfinite(loss) and math.isfinite(largest)):
                self.skip_non_finite([sample for batch in batches for sample in batch.samples], loss, largest)
                return {"learning_rate": rate}, [{} for _ in batches]
            rows, slopes, logprobs = ([row for term in made for row in getattr(term, name)] for name in _ROWS)
            own = self._settings
            adam = AdamStep(rate, BETAS, own.weight_decay, own.max_grad_norm)
            norm = _served(lambda: self._remote.step(rows, slopes, logprobs, adam))
        self.non_finite_in_a_row = 0
        self.step += 1
        return {**norm, "learning_rate": rate}, [term.metrics if term else {} for term in terms]

    def restart(self) -> None:
        """Keep the weights, but reset the optimizer's state and the schedule, as in a new learner."""
        _served(self._remote.forget_optimizer)
        self.step = 0

    def state_dict(self) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
        """Save weights and optimizer at the service. Gives the counts, and where the state is."""
        return {}, self.counters() | {"state": _served(self._remote.save)}

    def load_state_dict(self, tensors: Mapping[str, torch.Tensor], values: Mapping[str, object]) -> None:
        """Restore the counts; the policy was loaded from the state."""
        self.restore_counters(values)

    def _differentiate(self, batch: StepBatch[LossInputs]) -> _Term:
        """A term's loss, and its slopes."""
        packed = make_batch(batch.samples, torch.device("cpu"))
        inputs = _served(lambda: self.forward(packed))
        result = batch.loss(inputs, batch.totals)
        result.loss.backward()
        slopes = inputs.logprobs.grad
        if slopes is None:
            raise TrainingError(
                f"The loss {type(batch.loss).__name__} has no gradient by the logprobs. With learner.name = tinker a "
                "loss can be differentiated by them alone; choose another one."
            )
        sums = {name: float(value) for name, value in measure_part(inputs, result).items() if name != "entropy"}
        highest = {name: sums.pop(name) for name in MAXIMA}
        lengths = [trained_length(sample) for sample in batch.samples]
        return _Term(
            [list(sample.token_ids[:length]) for sample, length in zip(batch.samples, lengths, strict=True)],
            [row[1:length].tolist() for row, length in zip(slopes, lengths, strict=True)],
            [row[1:length].tolist() for row, length in zip(inputs.logprobs.detach(), lengths, strict=True)],
            finish_metrics(sums, highest),
        )

    def _learning_rate(self) -> float:
        own, context = self._settings, self._context
        factor = schedule_factor(self.step, warmup_steps=own.warmup_steps, total_steps=context.total_steps)
        return own.learning_rate * factor


@dataclass(frozen=True, slots=True)
class _Term:
    """The samples of a term: token ids, and of all but the first the slopes of the loss and the logprobs now."""

    rows: list[list[int]]
    slopes: list[list[float]]
    logprobs: list[list[float]]
    metrics: dict[str, float]


_ROWS = ("rows", "slopes", "logprobs")


def _served(call: Callable[[], T]) -> T:
    """What a call to the service gives. Raises TrainingError."""
    try:
        return call()
    except ServiceError as error:
        raise TrainingError(
            f"{error} What it holds now is not known, so training stops here. Every checkpoint refers to weights that "
            "were saved before: repair what failed and give the same command again, which resumes from the last one."
        ) from error


def _last(mask: torch.Tensor) -> int:
    return int(mask.nonzero().max())


def _on_actions(sample: TrainingSample, logprobs: Sequence[float]) -> tuple[float, ...]:
    """Logprobs of all tokens but the first, up to the last action, at their places in the sample."""
    values = [0.0, *logprobs, *([0.0] * len(sample.token_ids))]
    return tuple(value if acts else 0.0 for value, acts in zip(values, sample.loss_mask, strict=False))
