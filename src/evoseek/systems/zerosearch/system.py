"""ZeroSearch (arXiv 2505.04588): a policy learns to search without a search engine, from a language model that plays
one.

    for step = 1 .. steps:
        p = the noise curriculum at this step
        draw a batch of questions; G rollouts of each, in which every query is answered by the simulator: with noisy
            documents with probability p, else with useful ones
        reward = F1 of the answer; one update: REINFORCE, GRPO or PPO, on the tokens that the policy wrote

The simulator is frozen. It knows the golden answer, so it can lead a policy to an answer that the policy could not
find: evaluate such a policy on a real engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field

from evoseek.assembly.settings import RunSettings
from evoseek.chat.settings import SimulatorSettings
from evoseek.config.sections import Section, part
from evoseek.credit import CreditPart
from evoseek.errors import ConfigError
from evoseek.loss.settings import LossPart
from evoseek.reward.functions import RewardPart
from evoseek.search.settings import SearchPart
from evoseek.systems.search_r1 import Rollouts, SearchR1
from evoseek.training.rollout_metrics import StepReport

if TYPE_CHECKING:
    from evoseek.systems.zerosearch.engine import SimulatedEngine
    from evoseek.training.plan import TrainingContext, TrainingPlan


class NoiseSettings(Section):
    """The noise of simulated search from the first step to the last."""

    noise_start: float = Field(default=0.0, ge=0, le=1, description="Share of noisy searches at the first step.")
    noise_end: float = Field(default=0.75, ge=0, le=1, description="Share of noisy searches at the last step.")


class ScheduledRunSettings(RunSettings):
    """The run as a whole. The noise of a step depends on the number of steps, so a resumed run keeps it."""

    on_resume = RunSettings.on_resume.removeprefix("steps ")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroSearch(SearchR1):
    """ZeroSearch (arXiv 2505.04588): a policy learns to search from a language model that plays the search engine.

    It is Search-R1 with a simulated engine, whose noise in a step is `noise`.
    """

    engine: SimulatedEngine
    noise: Callable[[int], float]
    simulated: dict[int, dict[str, float]] = field(default_factory=dict[int, dict[str, float]])
    """The simulator's counts in steps that were rolled out but not reported yet."""

    class Settings(SearchR1.Settings):
        """Settings of ZeroSearch."""

        searches_engine = False
        run: ScheduledRunSettings = ScheduledRunSettings(system="zerosearch")  # pyright: ignore[reportIncompatibleVariableOverride]
        search: SearchPart = part("auto", top_k=5)
        reward: RewardPart = part("f1")  # exact match evaluates a policy; this must not reward long answers
        credit: CreditPart = part("raw")
        loss: LossPart = part("reinforce", aggregate="sequence-sum")
        zerosearch: NoiseSettings = NoiseSettings()
        simulator: SimulatorSettings = SimulatorSettings()

    @classmethod
    def build(cls, settings: Settings, context: TrainingContext) -> TrainingPlan:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Build the plan; the engine is the simulator, unless the caller brings one."""
        from evoseek.systems.zerosearch.engine import simulated_engine

        given = context.objects.search
        engine = simulated_engine(context.settings) if given is None else given
        if not hasattr(engine, "simulating"):
            raise ConfigError(
                f"The search engine given to zerosearch, a {type(engine).__name__}, is not a simulator: it has no "
                "method simulating (see SimulatedEngine). Give a simulator, or leave search out and set [simulator]."
            )
        own, steps = settings.zerosearch, settings.run.steps
        noise = partial(noise_probability, total_steps=steps, start=own.noise_start, end=own.noise_end)
        return cls.plan(settings, context, engine, engine=engine, noise=noise)

    async def step(self, step: int) -> StepReport:
        report = await SearchR1.step(self, step)
        return replace(report, metrics={**report.metrics, **self.simulated.pop(step)})

    async def collect(self, step: int) -> Rollouts:
        noise = self.noise(step)
        with self.engine.simulating(noise) as own:
            rollouts = await SearchR1.collect(self, step)
        counts = sum((Counter(share) for share in self.rollouts.ranks.gather(dict(own))), Counter[str]())
        queries = max(1, counts["queries"])
        self.simulated[step] = {
            "simulator/noise": noise,
            "simulator/queries": float(counts["queries"]),
            **{f"simulator/{what}": counts[what] / queries for what in ("noisy", "repeated", "failed")},
        }
        return rollouts


def noise_probability(step: int, total_steps: int, start: float, end: float, base: float = 4.0) -> float:
    """Return the probability that a simulated result of step `step` (of `total_steps`) is noisy (eq. 3):

        p_i = p_s + (b^(i/m) - 1) / (b - 1) * (p_e - p_s)        for step i of m, and p_e from step m on

    With b > 1 it rises slowly at first and fast at the end.
    """
    if step >= total_steps:
        return end
    return start + (base ** (step / total_steps) - 1.0) / (base - 1.0) * (end - start)
