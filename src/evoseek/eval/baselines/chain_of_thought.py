"""Chain of thought (Wei et al., arXiv 2201.11903): the model reasons step by step, from what it knows, and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from evoseek.eval.baselines.attempt import Attempt
    from evoseek.types import Trajectory


class ChainOfThought:
    """Asks for reasoning and then the answer. Prompt: baseline_cot. Without examples, unlike the paper."""

    searches: ClassVar[bool] = False

    async def __call__(self, attempt: Attempt) -> Trajectory:
        """One prompt."""
        return await attempt.roll("baseline_cot")
