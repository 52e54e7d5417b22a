"""Train with a reward of your own: 1 for a right answer, a tenth less for each search after the first.
Needs nothing: makes a small world with questions, and trains the tiny model for two steps."""

from evoseek import Run, Scored, Trajectory, make_world
from evoseek.text.normalization import exact_match


def frugal(trajectory: Trajectory) -> Scored:
    """Return the reward with its parts, which are logged. For what could not be judged return Invalid(reason)."""
    right = exact_match(trajectory.answer or "", trajectory.question.golden_answers)
    more = max(0, len(trajectory.tool_results) - 1)
    return Scored(right * 0.9**more, {"right": right, "more_searches": float(more)})


make_world("world", entities=200)
run = Run(
    "search-r1",
    "run",
    settings={
        "policy.model": "tiny",
        "search.index": "world/index",
        "questions.path": "world/questions.jsonl",
        "questions.per_step": 4,
        "run.steps": 2,
    },
    reward=frugal,
)
run.train()
print("mean reward:", run.evaluate("world/questions.jsonl").score.mean)
