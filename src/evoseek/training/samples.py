"""What the learner is given of each rollout, on disk: `samples.jsonl`, one JSON object a line, appended step by step.

    id             the trajectory's id, as in trajectories.jsonl
    advantages     of its action tokens: one number if all have the same, else one for each
    old_logprobs   of its action tokens, by the learner before the optimizer step; only with record_samples=tokens, or
                   where the loss needs them

A rollout that is not trained on has no line. With mini-batches, the learner's logprobs are those before the step of the
rollout's own mini-batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from evoseek.corpus.resumable_jsonl import ResumableJsonl
from evoseek.training.update import SampleTransform
from evoseek.types import TrainingSample


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """Appends samples to `file`, on the first rank only. `complete` puts in the learner's logprobs where they are
    missing; it is called on all ranks, since they share that work."""

    file: ResumableJsonl
    is_first: bool
    complete: SampleTransform | None = None

    def __call__(self, samples: Sequence[TrainingSample]) -> None:
        """Record the samples that have a trajectory's id. Raises RunError when the disk does not take them."""
        named = [sample for sample in samples if sample.id and any(sample.loss_mask)]
        # the sampler's record itself is none of the learner's, which may well be equal to it
        named = [replace(s, old_logprobs=None) if s.old_logprobs is s.rollout_logprobs else s for s in named]
        if self.complete is not None and any(sample.old_logprobs is None for sample in named):
            named = self.complete(named)
        if self.is_first and named:
            self.file.append(map(_row, named))


def _row(sample: TrainingSample) -> Mapping[str, object]:
    advantages = list(compress(sample.advantages, sample.loss_mask))
    same = len(set(advantages)) == 1
    row: dict[str, object] = {"id": sample.id, "advantages": advantages[0] if same else advantages}
    if sample.old_logprobs is None:
        return row
    return {**row, "old_logprobs": list(compress(sample.old_logprobs, sample.loss_mask))}
