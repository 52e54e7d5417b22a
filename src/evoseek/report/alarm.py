"""Alarms of self-play: no proposal becomes a question, or the roles deceive themselves, and the reward of a role rises
while the held-out score falls.

If that is the solver's, the roles may agree on wrong answers. If it is the proposer's, it may have learnt to ask what
nobody can answer, where that is paid: in a long run of Search Self-play the solver's reward falls then, too.

Compared are the last few probes of the held-out questions with as many before them, and the role's reward over the
same two stretches of steps. The alarm is raised when both hold:

    the mean in-game reward rose by more than twice the standard error of the difference, as its scatter from step to
    step within each stretch gives it, and

    the mean probe fell by more than twice its standard error: binomial, p (1 - p) / n for each probe of n questions
    (for rewards between 0 and 1 no sampling error is larger, and asking the same questions again only makes it
    smaller), or by the scatter of the probes where no n is known.

A solver's reward on fresh proposals is not comparable with that on questions kept before: where there are steps of
both kinds, as in Dr. Zero, only those without proposals count as the game.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from evoseek.protocols import MetricSink
from evoseek.report.metrics import MetricRow
from evoseek.report.proposals import MEANINGS
from evoseek.report.view.rollouts import REJECTED
from evoseek.rollout.record import read_trajectories
from evoseek.types import Scored

_PROBE = "eval/reward"
_PROPOSALS = "selfplay/proposals"
_REJECTED = "selfplay/rejected/"
_ROLES = ("solver/reward", "proposer/reward")
_SUSPECTED = {
    _ROLES[0]: "The roles may be fooling each other",
    _ROLES[1]: "The proposer may be paid for questions that cannot be answered",
}
_STEPS, _EXAMPLES, _LENGTH = 2, 3, 200  # steps without a proposal, examples, and characters of each
_ERRORS = 2.0  # so many standard errors are more than chance


def proposal_alarm(rows: Sequence[MetricRow], trajectories: Path | None = None) -> str | None:
    """The warning for the user if no proposal of the last two steps with proposals became a question, or None. Examples
    are those of the last step in the run's record of rollouts."""
    own = [row for row in rows if _value(row, "selfplay/valid_rate") is not None][-_STEPS:]
    if len(own) < _STEPS or any(row["selfplay/valid_rate"] for row in own):
        return None
    shares = {name.removeprefix(_REJECTED): own[-1][name] or 0.0 for name in own[-1] if name.startswith(_REJECTED)}
    frequent = sorted((share, name) for name, share in shares.items() if share)[::-1]
    reasons = [f"{name} {share:.0%}" for share, name in frequent]
    last = 0 if own[-1]["step"] is None else int(own[-1]["step"])
    return "\n".join(
        [
            f"No proposal of the last {_STEPS} steps with proposals became a question, so the solver has nothing to "
            f"learn from. Reasons in step {last}: {', '.join(reasons[:_EXAMPLES])}. Training continues. Begin with a "
            "model that was shown how to propose (evoseek sft, with demonstrations of a proposer), or loosen the rule "
            "(filters) or the check (verification) that rejects most.",
            *(_examples(trajectories, last) if trajectories is not None else ()),
        ]
    )


def _examples(trajectories: Path, step: int) -> Iterator[str]:
    """Some proposals of a step, each with the reason of its rejection."""
    found = 0
    for record in read_trajectories(trajectories) if trajectories.is_file() else ():
        parts = record.outcome.parts if isinstance(record.outcome, Scored) else {}
        reason = next((part.removeprefix(REJECTED) for part in parts if part.startswith(REJECTED)), None)
        if record.step == step and reason is not None and found < _EXAMPLES:
            found += 1
            text = " ".join(record.trajectory.actions[-1].text.split()) if record.trajectory.actions else ""
            yield f"  {reason} ({MEANINGS.get(reason, 'an own rule')}): {text[:_LENGTH] or 'nothing was written'}"


def hacking_alarm(rows: Sequence[MetricRow], *, in_game: str | None = None, window: int = 3) -> str | None:
    """The warning for the user, or None. `rows` are metric rows in the order of their steps; `in_game` names the reward
    of the game, by default that of either role; `window` is the number of probes on each side of the comparison.

    Also None while there is too little to compare: fewer than 2 `window` probes, or fewer than two in-game rewards on a
    side.
    """
    names = _ROLES if in_game is None else (in_game,)
    return next((words for name in names if (words := _alarm(rows, name, window))), None)


def _alarm(rows: Sequence[MetricRow], in_game: str, window: int) -> str | None:
    probed = [index for index, row in enumerate(rows) if _value(row, _PROBE) is not None]
    if len(probed) < 2 * window:
        return None
    first = probed[-2 * window - 1] + 1 if len(probed) > 2 * window else 0
    middle, end = probed[-window - 1] + 1, probed[-1] + 1
    before, after = rows[first:middle], rows[middle:end]
    played = _games(rows, in_game)
    games = _mean(played[first:middle]), _mean(played[middle:end])
    probes = _probe_mean(before), _probe_mean(after)
    if not (games[0] and games[1] and probes[0] and probes[1]):
        return None
    chance = _chance(probes[0], probes[1])
    if games[1].value - games[0].value <= _chance(games[0], games[1]) or probes[0].value - probes[1].value <= chance:
        return None
    suspected = _SUSPECTED.get(in_game, _SUSPECTED[_ROLES[0]])
    return (
        f"{suspected}: over steps {_steps(after)} {in_game} rose to {games[1].value:.3f} (from "
        f"{games[0].value:.3f} over steps {_steps(before)}), while {_PROBE} fell to {probes[1].value:.3f} (from "
        f"{probes[0].value:.3f}), more than the {chance:.3f} that chance explains. Training continues. Read some of "
        "the latest questions in the run's trajectories.jsonl: if they are wrong or trivial, stop and begin a new run "
        "with stricter checks (verification.from_passages, verification.closed_book, "
        "verification.ambiguity) or another proposer.difficulty (failure pays for what nobody can answer, uncertainty "
        "does not); if they are sound, try a lower learner.learning_rate."
    )


class AlarmedMetrics:
    """A MetricSink that watches the rows and passes them on to `sink`. `trajectories` is the run's record of rollouts,
    for examples.

    A row with a probe gets `selfplay/alarm`, 1.0 while the alarm lasts and else 0.0. `notify` is called with the
    warning when the alarm begins, and again only after it has ended. `earlier` are the rows of a resumed run
    (`read_metrics`).
    """

    def __init__(
        self,
        sink: MetricSink,
        notify: Callable[[str], None],
        *,
        earlier: Sequence[MetricRow] = (),
        in_game: str | None = None,
        window: int = 3,
        trajectories: Path | None = None,
    ) -> None:
        self._trajectories = trajectories
        self._sink, self._notify, self._in_game, self._window = sink, notify, in_game, window
        self._rows = list(earlier)
        self._is_on = hacking_alarm(self._rows, in_game=in_game, window=window) is not None
        self._is_silent = proposal_alarm(self._rows) is not None

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Pass a row on."""
        self._rows.append({"step": step, **metrics})
        if "selfplay/valid_rate" in metrics:
            is_silent = proposal_alarm(self._rows) is not None
            if is_silent and not self._is_silent:
                self._notify(proposal_alarm(self._rows, self._trajectories) or "")
            self._is_silent = is_silent
        if _PROBE in metrics:
            words = hacking_alarm(self._rows, in_game=self._in_game, window=self._window)
            if words and not self._is_on:
                self._notify(words)
            self._is_on = words is not None
            metrics = {**metrics, "selfplay/alarm": float(self._is_on)}
        self._sink.write(step, metrics)


@dataclass(frozen=True, slots=True)
class _Mean:
    """A mean and its standard error."""

    value: float
    error: float


def _games(rows: Sequence[MetricRow], name: str) -> list[float | None]:
    """The reward of the game in each row; None in rows where it is not comparable."""
    games = [_value(row, name) for row in rows]
    kept = [None if _value(row, _PROPOSALS) is not None else game for row, game in zip(rows, games, strict=True)]
    return games if all(game is None for game in kept) else kept


def _mean(values: Iterable[float | None]) -> _Mean | None:
    """None for fewer than two values, whose scatter is unknown."""
    values = [value for value in values if value is not None]
    return _Mean(fmean(values), stdev(values) / math.sqrt(len(values))) if len(values) > 1 else None


def _probe_mean(rows: Sequence[MetricRow]) -> _Mean | None:
    scored = [(value, _value(row, "eval/n") or 0.0) for row in rows if (value := _value(row, _PROBE)) is not None]
    if not all(n > 0 for _, n in scored):
        return _mean(value for value, _ in scored)
    variance = sum(value * (1.0 - value) / n for value, n in scored)
    return _Mean(fmean(value for value, _ in scored), math.sqrt(variance) / len(scored))


def _chance(one: _Mean, other: _Mean) -> float:
    """The largest difference of two means that chance explains."""
    return _ERRORS * math.hypot(one.error, other.error)


def _steps(rows: Sequence[MetricRow]) -> str:
    return " to ".join(f"{row['step']:.0f}" for row in (rows[0], rows[-1]))


def _value(row: MetricRow, name: str) -> float | None:
    value = row.get(name)
    return value if value is not None and math.isfinite(value) else None
