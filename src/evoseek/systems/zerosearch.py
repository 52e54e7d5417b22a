"""ZeroSearch (arXiv 2505.04588): search is learnt without a search engine, from a language model that plays one.

    for step = 1 .. steps:
        p = the noise curriculum at this step
        draw a batch of questions; G rollouts of each, in which every query is answered by the simulator: with noisy
            documents with probability p, else with useful ones
        reward = F1 of the answer; one update: REINFORCE, GRPO or PPO, on the tokens that the policy wrote

The simulator is frozen. It is given the golden answer, so it can lead a policy there that could not find it: a policy
that has learnt only this has to be examined on a real engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from evoseek.search.simulated import SimulatedEngine
from evoseek.systems.search_r1 import SearchR1
from evoseek.training.loop import StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroSearch(SearchR1):
    """One training step of ZeroSearch: Search-R1 whose engine is simulated, as noisy as `noise` says of the step."""

    engine: SimulatedEngine
    noise: Callable[[int], float]

    async def step(self, step: int) -> StepReport:
        """Set the noise; then a step of Search-R1."""
        self.engine.noise = self.noise(step)
        self.engine.counts.clear()
        report = await SearchR1.step(self, step)
        shares = self.rollouts.ranks.gather(dict(self.engine.counts))
        counts = sum((Counter(share) for share in shares), Counter[str]())
        queries = max(1, counts["queries"])
        return replace(
            report,
            metrics={
                **report.metrics,
                "simulator/noise": self.engine.noise,
                "simulator/queries": float(counts["queries"]),
                **{f"simulator/{what}": counts[what] / queries for what in ("noisy", "repeated", "failed")},
            },
        )
