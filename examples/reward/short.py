"""A reward of one's own: a right answer is worth more, the fewer words it has."""

from evoseek.reward.answer import exact_match
from evoseek.types import Trajectory


async def short_answer(trajectory: Trajectory) -> float:
    """1 for a right answer of one word, a tenth less for each further word, at least a half; 0 for a wrong one."""
    answer = trajectory.answer or ""
    right = exact_match(answer, trajectory.question.golden_answers)
    return right * max(0.5, 1.1 - 0.1 * len(answer.split()))
