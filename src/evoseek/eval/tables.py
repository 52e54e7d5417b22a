"""The results of an evaluation for people and programs: JSON, and tables for the terminal and Markdown, always with n
and an interval.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from evoseek.agent.bound import Bound
from evoseek.eval.comparison import Compared, ComparedSides
from evoseek.eval.results import GROUPS, OF_SENTENCES, Cost, Results, Score
from evoseek.eval.risk import bounds, fewest
from evoseek.eval.statistics import CONFIDENCE, Interval, wilson_interval
from evoseek.storage.metrics import MetricRow
from evoseek.text.normalization import SPARE_WORDS
from evoseek.text.printable import shown

NAMES = {
    "exact_match": "EM",
    "substring_match": "subEM",
    "guarded_substring_match": "guarded subEM",
    "f1": "F1",
    "set_f1": "set F1",
    "fan_out": "fan-out accuracy",
    "judge": "judge",
}
_LETTERS = string.ascii_uppercase  # that stand for evaluations
_EVIDENCE = {"recall": "evidence found", "all_found": "all of it found"}
_MEANINGS = {
    "substring_match": "a golden answer stands anywhere in the answer, even inside a word",
    "guarded_substring_match": f"as whole words, in an answer at most {SPARE_WORDS} words longer than it",
    "set_f1": "F1 over the sets of words of both, articles kept",
}


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of texts: title, head and rows."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def results_json(results: Results, about: Mapping[str, object]) -> dict[str, Any]:
    """Return everything that the samples determine as JSON values. `about` describes the evaluation."""
    return {
        **about,
        "metric": results.metric,
        "questions_asked": results.n,
        "samples": results.per_question,
        "final": results.is_final,
        **score_json(results.score(results.metric)),
        "scores": {metric: score_json(results.score(metric)) for metric in results.metrics},
        "pass_at": {
            metric: {str(k): score_json(one) for k, one in found.items()}
            for metric in results.metrics
            if (found := results.pass_at(metric))
        },
        "by": {
            group: {
                metric: {value: score_json(one) for value, one in results.by(group, metric).items()}
                for metric in results.metrics
            }
            for group in GROUPS
        },
        **{
            name: {kind: {key: score_json(one) for key, one in scores.items()} for kind, scores in found.items()}
            for name, found in _groups(results).items()
        },
        "bounds": {f"{share:g}": asdict(one) if one else None for share, one in bounds(results).items()},
        "evidence": {name: score_json(one) for name, one in results.evidence().items()},
        "cost": {name: asdict(cost) for name, cost in results.costs().items()},
        "invalid": [
            {"question": one.question, "sample": one.number, "reason": one.invalid, "detail": one.detail}
            for one in results.invalid
        ],
    }


def _groups(results: Results) -> dict[str, dict[str, dict[str, Score]]]:
    return {"kinds": results.kinds(), "answers": results.answers(), "refusals": results.refusals()}


def score_json(score: Score) -> dict[str, object]:
    """Return a score as JSON values."""
    interval = [score.interval.low, score.interval.high]
    return {"mean": score.mean, "interval_95": interval, "n": score.n, "n_invalid": score.n_invalid}


def grids(results: Results, title: str) -> list[Grid]:
    """Make the tables without times: metrics, pass@k, groups by the declared metric, evidence and cost."""
    over = f"avg@{results.per_question}" if results.per_question > 1 else "score"
    head = f"{over} [95 % interval]"
    scores = {
        **{metric_name(metric): results.score(metric) for metric in results.metrics},
        **{
            f"pass@{size}, {metric_name(metric)}": one
            for metric in results.metrics
            for size, one in results.pass_at(metric).items()
        },
        **{_EVIDENCE[name]: one for name, one in results.evidence().items()},
    }
    groups = (
        score_grid(f"{metric_name(results.metric)} by {group}", group, {head: results.by(group, results.metric)})
        for group in GROUPS
    )
    refusals = {name.replace("_", " "): shares for name, shares in results.refusals().items()}
    made = [
        score_grid(title, "metric", {head: scores}),
        kinds_grid(results.kinds()),
        answers_grid(results.answers(), results.metric),
        score_grid("Refusing what the documents do not answer", "", refusals),
        bounds_grid(bounds(results)),
        *groups,
        cost_grid(results.costs()),
    ]
    return [grid for grid in made if grid.rows]


def score_grid(title: str, about: str, columns: Mapping[str, Mapping[str, Score]]) -> Grid:
    """Lay out columns of scores with a row for each name; `about` heads the names."""
    names = dict.fromkeys(name for scores in columns.values() for name in scores)
    rows = (
        (name, *(score_text(scores[name]) if name in scores else "" for scores in columns.values())) for name in names
    )
    return Grid(title, (about, *columns), tuple(rows))


def answers_grid(answers: Mapping[str, Mapping[str, Score]], metric: str) -> Grid:
    """Show the endings of questions by a metric, in columns for answerable and unanswerable ones."""
    named = {
        f"{kind} questions" if kind != "sentences" else "answers of sentences": {
            name.replace("_", " "): score for name, score in scores.items()
        }
        for kind, scores in answers.items()
    }
    return score_grid(f"Answers and refusals, right by {metric_name(metric)}", "", named)


def kinds_grid(kinds: Mapping[str, Mapping[str, Score]]) -> Grid:
    """Show each kind of answer by its own metrics."""
    names = {**NAMES, "cited": "cited passages right", **_EVIDENCE}
    rows = ((kind, names[metric], score_text(one)) for kind, scores in kinds.items() for metric, one in scores.items())
    return Grid("Short answers and answers of sentences", ("answers", "metric", "score [95 % interval]"), tuple(rows))


def bounds_grid(bounds: Mapping[float, Bound | None]) -> Grid:
    """Show for each promised share of wrong answers how many would be shown, and how many of these were wrong here."""
    rows = list[tuple[str, ...]]()
    for share, one in bounds.items():
        cells = ("not promised", f"needs {fewest(share)} shown, all right", "")
        if one is not None:
            shown, wrong = f"{one.shown} of {one.questions}", f"{one.wrong} of {one.shown}"
            cells = ("any" if one.above is None else f"above {one.above:.3f}", shown, wrong)
        rows.append((f"{share:.0%}", *cells))
    title = f"Wrong answers among the shown, bounded with {CONFIDENCE:.0%} confidence"
    return Grid(title, ("at most", "certainty", "shown", "wrong of these"), tuple(rows))


def cost_grid(costs: Mapping[str, Cost], title: str = "Cost of a sample") -> Grid:
    """Show the costs of samples."""
    rows = ((name, f"{cost.mean:,.1f}", f"{cost.total:,.0f}") for name, cost in costs.items())
    return Grid(title, ("", "mean", "sum"), tuple(rows))


def note(results: Results) -> str | None:
    """Return notes for the tables: the meaning of metrics that papers define differently, unanswerable questions, and
    Invalid samples. None without any."""
    notes = [f"{metric_name(metric)}: {_MEANINGS[metric]}." for metric in results.metrics if metric in _MEANINGS]
    if sentences := results.in_sentences():
        notes.append(
            f"{sentences} of {len(results.samples)} answers hold a golden answer within a longer text, which EM counts "
            f"as wrong. Where a model answers in sentences, score by reward.name={OF_SENTENCES}."
        )
    if unanswerable := len({one.question for one in results.samples if not one.answerable}):
        notes.append(
            f"{unanswerable} of {results.n} questions are marked as unanswerable: by every metric a refusal is right "
            "there and any answer wrong, as in SQuAD 2.0."
        )
    if failed := results.invalid:
        shown = ", ".join(f"{one.question}/{one.number} ({one.invalid})" for one in failed[:10])
        more = f" and {len(failed) - 10} more" if len(failed) > 10 else ""
        notes.append(
            f"Not final: {len(failed)} of {len(results.samples)} samples are Invalid and count as wrong: {shown}{more}."
            " The same command with --out draws them again."
        )
    return " ".join(notes) or None


def comparison_grids(compared: Compared) -> list[Grid]:
    """Show the means over the common questions, and the differences of every pair. Letters stand for names: two names
    are too long for one row."""
    letters = dict(zip(compared.means, _LETTERS, strict=False)) if len(compared.means) <= len(_LETTERS) else {}
    means = tuple((letters.get(name, ""), name, f"{mean:.3f}") for name, mean in compared.means.items())
    title = f"{metric_name(compared.metric)} over {_counted(compared.n, 'common question')}"
    rows = (
        (
            f"{letters.get(one.second, one.second)} - {letters.get(one.first, one.first)}",
            _signed(one.difference, one.interval),
            one.test,
            f"{one.p_value:.2g}",
            f"{one.adjusted:.2g}",
            f"{one.detectable:.3f}",
        )
        for one in compared.pairs
    )
    head = ("", "difference [95 % interval]", "test", "p", "p (Holm)", "detectable")
    differences = f"Paired differences, {_counted(len(compared.pairs), 'comparison')}"
    return [Grid(title, ("", "evaluation", "mean"), means), Grid(differences, head, tuple(rows))]


def sides_grids(compared: ComparedSides) -> list[Grid]:
    """Show the mean of each seed on both sides, and the difference of the sides."""
    sides = (("A", compared.first), ("B", compared.second))
    means = (*((side, name, f"{mean:.3f}") for side, own in sides for name, mean in own.items()),)
    title = f"{metric_name(compared.metric)} over {_counted(compared.n, 'common question')}"
    row = ("B - A", _signed(compared.difference, compared.interval), compared.test, f"{compared.p_value:.2g}")
    head = ("", "mean difference [95 % interval over seeds]", "test", "p")
    differences = f"{len(compared.first)} seeds against {len(compared.second)}"
    return [Grid(title, ("", "evaluation", "mean"), means), Grid(differences, head, (row,))]


def _signed(difference: float, interval: Interval) -> str:
    return f"{difference:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def terminal(grid: Grid) -> Table:
    """Make a table for the terminal."""
    table = Table(title=shown(grid.title))
    for name in grid.head:
        table.add_column(shown(name), overflow="fold")  # a name cut short would be ambiguous
    for row in grid.rows:
        table.add_row(*map(shown, row))
    return table


def markdown(made: Sequence[Grid], text: str | None) -> str:
    """Write all tables as Markdown."""
    texts: list[str] = []
    for grid in made:
        lines = [grid.head, ("---",) * len(grid.head), *grid.rows]
        rows = ("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        texts.append(f"**{grid.title}**\n\n" + "\n".join(rows))
    return "\n\n".join([*texts, *([text] if text else [])]) + "\n"


def metric_name(metric: str) -> str:
    """Name a metric as papers write it."""
    return NAMES.get(metric, metric)


def score_text(score: Score) -> str:
    """Write a mean with its 95 % interval, n, and the number of invalid rollouts, if any."""
    invalid = f", {score.n_invalid} invalid" if score.n_invalid else ""
    if math.isnan(score.mean):
        return f"no score (n={score.n}{invalid})"
    return f"{interval_text(score.mean, score.interval.low, score.interval.high)} (n={score.n}{invalid})"


def interval_text(mean: float, low: float, high: float) -> str:
    """Write a mean with its interval."""
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def held_out_score(row: MetricRow) -> Score:
    """Read the held-out score of a row of metrics.jsonl, with the interval of right and wrong answers (Wilson's), an
    upper bound for graded ones. For a mean outside [0, 1] the interval has no meaning."""
    mean, n = row["eval/reward"] or 0.0, int(row.get("eval/n") or 0)
    interval = wilson_interval(min(max(round(mean * n), 0), n), n)
    return Score(mean, interval, n, int(row.get("eval/n_invalid") or 0))
