"""What training changed: held-out scores before and after, and a question as it was answered before and after."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from evoseek.eval.evaluate import Evaluation, Result, evaluate
from evoseek.eval.statistics import paired_test
from evoseek.report.answers import trajectory_text
from evoseek.report.evaluation import comparison_table, evaluation_table
from evoseek.report.printable import say
from evoseek.training.context import Context
from evoseek.training.settings import TrainingSettings
from evoseek.types import Question

SAMPLED, GREEDY = "sampled", "greedy"


@dataclass(frozen=True, slots=True)
class Learnt:
    """Held-out scores by name (`SAMPLED`, `GREEDY`, ...) before and after training; the same names in both."""

    before: dict[str, Evaluation]
    after: dict[str, Evaluation]


def measure(
    context: Context, questions: Sequence[Question], others: Mapping[str, Sequence[Question]] | None = None
) -> dict[str, Evaluation]:
    """The held-out scores of a policy: sampled as in training, greedy, sampled on other questions (by name), and
    without search."""
    searching, alone = context.solver(context.held_out_engine), context.agent.solver([])

    async def all_of_them() -> dict[str, Evaluation]:
        scored = partial(evaluate, metric=context.metric, reward=context.reward)
        return {
            SAMPLED: await scored(questions, roller=searching),
            GREEDY: await scored(questions, roller=searching.at(0.0)),
            **{f"{SAMPLED}, {name}": await scored(other, roller=searching) for name, other in (others or {}).items()},
            f"{SAMPLED}, search off": await scored(questions, roller=alone),
        }

    return asyncio.run(all_of_them())


def show(learnt: Learnt, settings: TrainingSettings, console: Console) -> None:
    """Tables, a paired test, and one question as it was answered before and after."""
    before, after = learnt.before, learnt.after
    title = f"Held-out {settings.reward.name} with 95 % intervals"
    for name in (SAMPLED, GREEDY):
        drawn = f"temperature {settings.rollout.temperature:g}" if name == SAMPLED else name
        console.print(evaluation_table(f"{title}, {drawn}", {"before": before[name], "after": after[name]}))
    console.print(comparison_table(title, before, after))
    old, new = (evaluations[SAMPLED].rewards() for evaluations in (before, after))
    shared = [key for key in old if key in new]
    test = paired_test([old[key] for key in shared], [new[key] for key in shared])
    say(console, f"Paired, sampled: {test.difference:+.3f} over {test.n} questions, p = {test.p_value:.2g}.")
    for name, result in zip(("before", "after"), best_example(learnt), strict=True):
        say(console, f"\nOne question {name}:\n{trajectory_text(result.trajectory, result.outcome)}")


def best_example(learnt: Learnt) -> tuple[Result, Result]:
    """The question with the most hops whose greedy answer, as by `ask`, training turned from wrong to right; any
    question if there is none."""
    old, new = (evaluations[GREEDY] for evaluations in (learnt.before, learnt.after))
    pairs = list(zip(old.results, new.results, strict=True))
    turned = [
        pair
        for pair in pairs
        if new.rewards().get(pair[1].question.id) == 1.0 and old.rewards().get(pair[0].question.id) == 0.0
    ]
    return max(turned or pairs, key=lambda pair: int(str(pair[0].question.metadata.get("hops", 0))))
