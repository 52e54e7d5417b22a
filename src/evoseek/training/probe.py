"""A probe that compares sampler and learner on a short sample, after new weights were handed over.

    difference = max over the sample's tokens of |sampler's logprob - learner's logprob|

In one process and float32 only rounding is left (below 1e-4 in the tests); another precision or engine adds its own. A
sampler that missed new weights, or mixed them up, differs by far more, before a step is trained on what it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evoseek.rollout.roller import Roller
from evoseek.training.update import SampleTransform
from evoseek.types import Question, SampleRequest, TrainingSample

TOKENS = 16
_QUESTION = Question("probe", "What comes next, and why?", ())


@dataclass(frozen=True, slots=True)
class WeightsProbe:
    """Compares the logprobs of sampler and learner. `score` puts the learner's own into `old_logprobs`.

    The sampler has to be idle. Its metric is `sampling/probe_difference`.
    """

    roller: Roller
    score: SampleTransform

    async def __call__(self, step: int) -> Mapping[str, float]:
        """The difference with the weights of a step. Raises SamplerError."""
        roller = self.roller
        prompt = roller.renderer.render_prompt(roller.env.messages(_QUESTION))
        name = f"probe/{step}"
        request = SampleRequest(name, 0, prompt, TOKENS, roller.temperature or 1.0, roller.renderer.stop, roller.seed)
        try:
            completion = await roller.sampler.sample(request)
        finally:
            roller.sampler.release(name)
        zeros = (0.0,) * len(prompt)
        sample = TrainingSample(
            token_ids=(*prompt, *completion.token_ids),
            loss_mask=(False,) * len(prompt) + (True,) * len(completion.token_ids),
            rollout_logprobs=(*zeros, *completion.logprobs),
            advantages=zeros + (0.0,) * len(completion.token_ids),
        )
        (scored,) = self.score([sample])
        pairs = zip(sample.rollout_logprobs, scored.old_logprobs or (), strict=True)
        return {"sampling/probe_difference": max(abs(a - b) for a, b in pairs)}
