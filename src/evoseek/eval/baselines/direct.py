"""Direct answering: the answer alone, from what the model knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from evoseek.eval.baselines.attempt import Attempt
    from evoseek.types import Trajectory


class Direct:
    """Asks for the answer and nothing else. Prompt: baseline_direct."""

    searches: ClassVar[bool] = False

    async def __call__(self, attempt: Attempt) -> Trajectory:
        """One prompt."""
        return await attempt.roll("baseline_direct")
