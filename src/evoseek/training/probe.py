"""A probe that compares sampler and learner on short samples after every update of the weights.

    difference = |sampler's logprob - learner's logprob|     for each sampled token; the mean and the maximum of all

In one process and float32 only rounding remains (below 1e-4 in the tests); another precision or engine adds its own. A
sampler with old or mixed-up weights differs by far more, and is found before a step trains on its samples.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from evoseek.assembly.settings import TrainingSettings
from evoseek.errors import SamplerError, TrainingError
from evoseek.learner.distributed import ALONE, Ranks, gathered
from evoseek.protocols import Sampler
from evoseek.rollout.roller import Roller
from evoseek.training.update import SampleTransform
from evoseek.types import Completion, Question, SampleRequest, TrainingSample

TOKENS = 16  # of each sample
QUESTIONS = ("What comes next, and why?", "Who wrote it, and when?", "Which city lies by the longest river?")
Drawn = tuple[str, list[TrainingSample], str]  # a sampler's name, its samples, and an error if there are none
_LOST = "sampling/servers_lost"
EXACT, ROUNDED = 3e-4, 0.1  # the bounds in float32 and in other data types


def probe_bound(settings: TrainingSettings) -> float:
    """Return the largest mean difference between the logprobs of sampler and learner that rounding explains in their
    data types. A larger difference stops a run."""
    learner = settings.learner
    is_exact = settings.policy.dtype == "float32" and not learner.bf16 and not learner.is_remote
    return EXACT if is_exact else ROUNDED


Probed = tuple[Roller, SampleTransform]
"""A policy's roller, and a transform that puts the learner's logprobs into `old_logprobs`."""


@dataclass(frozen=True, slots=True)
class WeightsProbe:
    """A comparison of the logprobs of sampler and learner, for each trained policy and each of the sampler's
    `replicas`.

    With several `ranks` each draws from its own servers, and all compare all samples.

    No update may be in progress. The metrics are `sampling/probe_difference` (the maximum), `sampling/probe_mean`, and,
    for a sampler with replicas, `sampling/servers_lost`, the number of replicas that could not be compared.
    """

    policies: Sequence[Probed]
    bound: float = math.inf
    ranks: Ranks = ALONE

    async def __call__(self, step: int) -> Mapping[str, float]:
        """Return the differences with the weights of a step. Raises TrainingError if a mean exceeds the bound,
        SamplerError if nothing could be sampled."""
        found = [await self._probed(roller, score, step) for roller, score in self.policies]
        return {name: (sum if name == _LOST else max)(row[name] for row in found) for name in found[0]}

    async def _probed(self, roller: Roller, score: SampleTransform, step: int) -> Mapping[str, float]:
        sampler: Any = roller.sampler
        replicas: Sequence[Any] | None = getattr(sampler, "replicas", None)
        draws = (self._draw(roller, one, step, number) for number, one in enumerate(replicas or [sampler]))
        rows = await asyncio.gather(*draws)
        if replicas is not None:
            rows = [row for share in gathered(self.ranks, rows, list[Drawn]) for row in share]
        found = [self._compared(score(samples), step, name) for name, samples, _ in rows if samples]
        if not found:
            raise SamplerError(rows[0][2])
        lost = {} if replicas is None else {_LOST: float(len(rows) - len(found))}
        numbers = {"difference": max(map(max, found)), "mean": max(map(fmean, found))}
        return {f"sampling/probe_{name}": number for name, number in numbers.items()} | lost

    async def _draw(self, roller: Roller, sampler: Sampler, step: int, number: int) -> Drawn:
        """Return one sample for each question."""
        name = str(getattr(sampler, "name", "the sampler"))
        request = SampleRequest("", 0, (), TOKENS, roller.temperature or 1.0, roller.renderer.stop, roller.seed)

        async def sampled(place: int, text: str) -> TrainingSample:
            trajectory_id = f"probe/{step}/{number}/{place}"
            prompt = roller.renderer.render_prompt(roller.env.messages(Question("probe", text, ())))
            try:
                completion = await sampler.sample(replace(request, trajectory_id=trajectory_id, token_ids=prompt))
                return _sample(prompt, completion)
            finally:
                roller.sampler.release(trajectory_id)

        try:
            return name, await asyncio.gather(*(sampled(*one) for one in enumerate(QUESTIONS))), ""
        except SamplerError as error:
            return name, [], str(error)

    def _compared(self, scored: Sequence[TrainingSample], step: int, name: str) -> list[float]:
        differences = [
            abs(own - other)
            for sample in scored
            for own, other, is_action in zip(
                sample.rollout_logprobs, sample.old_logprobs or (), sample.loss_mask, strict=True
            )
            if is_action
        ]
        if not fmean(differences) <= self.bound:
            raise TrainingError(
                f"With the weights of step {step}, {name} and the learner give {len(differences)} sampled tokens "
                f"logprobs that differ by {fmean(differences):.2g} on average and {max(differences):.2g} at most; "
                f"rounding explains {self.bound:g} on average. The sampler does not compute the trained "
                "policy: it has other weights, or another data type. Check that the servers were started with "
                "the policy's own model, in the type that --dry-run names; docs/train.md lists other causes. "
                "To switch the comparison off, set sampler.probe_every=0."
            )
        return differences


def _sample(prompt: Sequence[int], written: Completion) -> TrainingSample:
    ids, zeros = (*prompt, *written.token_ids), (0.0,) * len(prompt)
    mask = tuple(place >= len(prompt) for place in range(len(ids)))
    return TrainingSample(ids, mask, (*zeros, *written.logprobs), advantages=(0.0,) * len(ids))
