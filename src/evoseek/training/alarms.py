"""Alarms: a run learns nothing, its policy collapses, failures bias it, or the roles of self-play fool each other.

Each alarm is a function of a run's metric rows, in the order of steps; it returns the warning or None.

`hacking_alarm` compares the last three probes of the held-out questions with the three before, and a role's reward over
the same two stretches of steps. It is raised if the mean reward in the game rose by more than twice the standard error
of the difference (from its scatter within each stretch), while the mean probe fell by more than twice its own:
binomial, p (1 - p) / n for each probe of n questions (for rewards between 0 and 1 no sampling error is larger). If the
solver's reward rose, the roles may agree on wrong answers; if the proposer's, it may be paid for unanswerable
questions, and the solver's reward may fall, too.

A solver's reward on fresh proposals is not comparable with its reward on earlier questions: if a run has both, as in
Dr. Zero, only steps without proposals count as the game.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from evoseek.protocols import MetricSink
from evoseek.questions.outcomes import MEANINGS, REJECTED
from evoseek.rollout.record import read_trajectories
from evoseek.storage.metrics import MetricRow, counted
from evoseek.types import Scored

_PROBE = "eval/reward"
_PROBES = 3  # on each side of the comparison
_PROPOSALS = "selfplay/proposals"
_REJECTED = "selfplay/rejected/"
_SUSPICIONS = {
    "solver/answer_reward": "The roles may be fooling each other",
    "proposer/reward": "The proposer may be paid for questions that cannot be answered",
}
_SILENT_STEPS, _EXAMPLES, _LENGTH = 2, 3, 200  # steps without a question, examples, and characters of each
_ERRORS = 2.0  # standard errors that are more than chance
_STEPS = 3  # consecutive steps without any signal
_WINDOW = 5  # steps over which the signs of a collapse are averaged
_NEARLY_ALL = 0.9  # share of groups without a signal
_SOME = 0.5  # searches a rollout; below, a fall is not looked for
_LASTING = ("few searches", "little signal")  # repeated only after _WINDOW silent steps
_REMEDIES = (
    "Training continues. Try a first stage of hard questions alone ([[stages]] with questions.where), a "
    "lower learner.learning_rate, a higher rollout.temperature."
)


def alarms(rows: Sequence[MetricRow], *, relative: bool = True, trajectories: Path | None = None) -> Mapping[str, str]:
    """Return the warnings after these rows, by subject. For a run without any signal that warning replaces the signs of
    a collapse in the rows of the current stage. If rewards are not `relative` to the group mean, equal ones are a
    signal. `trajectories` is the run's record of rollouts, for examples."""
    stage = rows[-1].get("stage") if rows else None
    own = [row for row in rows if row.get("stage") == stage]
    found = {"game": hacking_alarm(rows), "proposals": proposal_alarm(rows, trajectories)}
    if words := no_signal(rows, relative=relative):
        found["no signal"] = words
    else:
        found |= {f"few searches/{stage}": fewer_searches(own), "failures": biased_by_failures(rows)}
        found |= {f"little signal/{stage}": little_signal(own)} if relative else {}
    return {about: words for about, words in found.items() if words}


class AlarmedMetrics:
    """A MetricSink that watches the rows and passes them on to `sink`.

    `notify` gets a warning when an alarm begins, and again only after it has ended (signs of a collapse: for more than
    five steps). In a `game` of the roles a row with a probe gets `selfplay/alarm`: 1.0 during `hacking_alarm`, else
    0.0. A row of a step with too many invalid rollouts is only passed on. `earlier` are the rows of a resumed run
    (`counted`); `relative` and `trajectories` are as in `alarms`.
    """

    def __init__(
        self,
        sink: MetricSink,
        notify: Callable[[str], None],
        *,
        earlier: Sequence[MetricRow] = (),
        relative: bool = True,
        game: bool = False,
        trajectories: Path | None = None,
    ) -> None:
        self._sink, self._notify, self._relative, self._game = sink, notify, relative, game
        self._rows, self._trajectories = list(earlier), trajectories
        self._lasted = dict.fromkeys(alarms(self._rows, relative=relative), len(self._rows))
        """The row count at which each alarm last held."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        if not counted([row := {"step": step, **metrics}]):
            self._sink.write(step, metrics)
            return
        self._rows.append(row)
        now = len(self._rows)
        found = alarms(self._rows, relative=self._relative)
        for about in found:
            silence = _WINDOW if about.startswith(_LASTING) else 1
            if now - self._lasted.get(about, -math.inf) > silence:
                self._notify(alarms(self._rows, relative=self._relative, trajectories=self._trajectories)[about])
            self._lasted[about] = now
        if "no signal" in found:
            self._lasted[f"little signal/{metrics.get('stage')}"] = now
        if self._game and _PROBE in metrics:
            metrics = {**metrics, "selfplay/alarm": float("game" in found)}
        self._sink.write(step, metrics)


def proposal_alarm(rows: Sequence[MetricRow], trajectories: Path | None = None) -> str | None:
    """Warn if no proposal of the last two steps with proposals became a question, with examples. Steps whose proposals
    all failed outside the policy do not count."""
    own = [
        row
        for row in rows
        if _value(row, "selfplay/valid_rate") is not None and row.get("proposer/rollout/invalid_frac") != 1.0
    ][-_SILENT_STEPS:]
    if len(own) < _SILENT_STEPS or any(row["selfplay/valid_rate"] for row in own):
        return None
    shares = {name.removeprefix(_REJECTED): own[-1][name] or 0.0 for name in own[-1] if name.startswith(_REJECTED)}
    frequent = sorted((share, name) for name, share in shares.items() if share)[::-1]
    reasons = [f"{name} {share:.0%}" for share, name in frequent]
    last = 0 if own[-1]["step"] is None else int(own[-1]["step"])
    return "\n".join(
        [
            f"No proposal of the last {_SILENT_STEPS} steps with proposals became a question, so the solver has "
            f"nothing to learn from. Reasons in step {last}: {', '.join(reasons[:_EXAMPLES])}. Training "
            "continues. Begin with a "
            "model that has learnt to propose (evoseek sft, with a proposer's demonstrations), or loosen the rule "
            "(filters) or check (verification) that rejects most.",
            *(_examples(trajectories, last) if trajectories is not None else ()),
        ]
    )


def _examples(trajectories: Path, step: int) -> Iterator[str]:
    """Yield some proposals of a step with the reasons for their rejection."""
    found = 0
    for record in read_trajectories(trajectories) if trajectories.is_file() else ():
        parts = record.outcome.parts if isinstance(record.outcome, Scored) else {}
        reason = next((part.removeprefix(REJECTED) for part in parts if part.startswith(REJECTED)), None)
        if record.step == step and reason is not None and found < _EXAMPLES:
            found += 1
            text = " ".join(record.trajectory.actions[-1].text.split()) if record.trajectory.actions else ""
            yield f"  {reason} ({MEANINGS.get(reason, 'an own rule')}): {text[:_LENGTH] or 'nothing was written'}"


def hacking_alarm(rows: Sequence[MetricRow]) -> str | None:
    """Warn if a role's reward in the game rises while the held-out score falls; None without enough data."""
    return next((words for reward in _SUSPICIONS if (words := _hacked(rows, reward))), None)


def _hacked(rows: Sequence[MetricRow], reward: str) -> str | None:
    probed = [index for index, row in enumerate(rows) if _value(row, _PROBE) is not None]
    if len(probed) < 2 * _PROBES:
        return None
    first = probed[-2 * _PROBES - 1] + 1 if len(probed) > 2 * _PROBES else 0
    middle, end = probed[-_PROBES - 1] + 1, probed[-1] + 1
    before, after = rows[first:middle], rows[middle:end]
    played = _games(rows, reward)
    games = _mean(played[first:middle]), _mean(played[middle:end])
    probes = _probe_mean(before), _probe_mean(after)
    if not (games[0] and games[1] and probes[0] and probes[1]):
        return None
    chance = _chance(probes[0], probes[1])
    if games[1].value - games[0].value <= _chance(games[0], games[1]) or probes[0].value - probes[1].value <= chance:
        return None
    return (
        f"{_SUSPICIONS[reward]}: over steps {_span(after)} {reward} rose to {games[1].value:.3f} (from "
        f"{games[0].value:.3f} over steps {_span(before)}), while {_PROBE} fell to {probes[1].value:.3f} (from "
        f"{probes[0].value:.3f}), more than the {chance:.3f} that chance explains. Training continues. Read some of "
        "the latest questions in the run's trajectories.jsonl: if they are wrong or trivial, stop and begin a new run "
        "with stricter checks (verification.readings, verification.closed_book) or another proposer.difficulty "
        "(failure rewards questions without an answer, uncertainty does not); if they are sound, try a lower "
        "learner.learning_rate."
    )


def no_signal(rows: Sequence[MetricRow], *, relative: bool = True) -> str | None:
    """Warn if no group of the last three steps had a signal. Steps without a solver's groups (a proposer's step of Dr.
    Zero) are skipped. If rewards are not `relative` to the group mean, equal ones are a signal, unless they are 0."""
    prefix = "solver/" if any("solver/frac_reward_zero_std" in row for row in rows) else ""
    own = [row for row in rows if row.get(f"{prefix}frac_reward_zero_std") is not None][-_STEPS:]
    if len(own) < _STEPS or any(row[f"{prefix}frac_reward_zero_std"] != 1.0 for row in own):
        return None
    last = {name.removeprefix(prefix): value for name, value in own[-1].items()}
    if not relative and last.get("reward"):
        return None
    reward = last.get("answer_reward", last.get("reward")) or 0.0
    answered, malformed, cut = (
        last.get(f"rollout/stop/{how}") or 0.0 for how in ("answered", "malformed", "max_tokens")
    )
    found = (
        f"For {_STEPS} steps all rollouts of every group had the same reward (for answers {reward:.3f} in the last), "
        f"so the policy learns nothing from them. Of the last step's rollouts {answered:.0%} were answered, "
        f"{malformed:.0%} malformed and {cut:.0%} cut off. Training continues. "
    )
    if reward >= 1.0:
        return found + "All are right: give harder questions."
    if answered < 0.5:
        return found + (
            "Most rollouts end without an answer. Read some in the run's trajectories.jsonl. If they are cut off, "
            "raise rollout.max_tokens_per_turn and rollout.max_total_tokens. If the model does not write the tags or "
            "calls that it is asked for, set rollout.max_malformed to 2, shorten the prompt (policy.prompts), or begin "
            "with a model tuned on demonstrations (evoseek sft): reinforcement learning cannot teach what is never "
            "tried."
        )
    if reward > 0.0:
        return found + "Each question is always answered right or always wrong. " + _REMEDIES.partition(". ")[2]
    return found + (
        "Rollouts answer, but never right. Begin with easier questions, check that the index holds the answers "
        "(evoseek search), raise rollout.group_size, or use a graded reward (reward.name=f1)."
    )


def little_signal(rows: Sequence[MetricRow]) -> str | None:
    """Warn if nearly all groups of the last steps had no signal."""
    shares = _values(rows, "frac_reward_zero_std")[-_WINDOW:]
    rewards = (_values(rows, "answer_reward") or _values(rows, "reward"))[-_WINDOW:]
    if len(shares) < _WINDOW or fmean(shares) < _NEARLY_ALL or not rewards:
        return None
    found = (
        f"In the last {_WINDOW} steps {fmean(shares):.0%} of the groups had no signal: all their rollouts had "
        f"the same reward, so nothing is learnt from them (the mean reward was {fmean(rewards):.3f}). "
    )
    if fmean(rewards) >= _NEARLY_ALL:
        return found + "Nearly all are right. Training continues; harder questions would teach more."
    return found + _REMEDIES


def fewer_searches(rows: Sequence[MetricRow]) -> str | None:
    """Warn if searches per rollout fell below half of the initial number."""
    calls = _values(rows, "tools/call_frequency")
    first, now = calls[:_WINDOW], calls[-_WINDOW:]
    if len(calls) < 2 * _WINDOW or fmean(first) < _SOME or fmean(now) >= fmean(first) / 2:
        return None
    return (
        f"Rollouts make {fmean(now):.2f} tool calls in the last {_WINDOW} steps, less than half of the "
        f"{fmean(first):.2f} at the beginning: the policy may be giving up searching. {_REMEDIES}"
    )


def biased_by_failures(rows: Sequence[MetricRow]) -> str | None:
    """Warn if failed tool calls moved the mean reward of the last steps more than chance explains."""
    name = "rollout/failure_bias"
    prefix = "solver/" if any("solver/reward" in row for row in rows) else ""
    own = [row for row in rows if row.get(f"{prefix}reward_std") is not None][-_WINDOW:]
    if len(own) < _WINDOW or not any(row.get(f"{prefix}{name}") for row in own):
        return None
    biases, stds, nums, invalid, refilled = (
        [row.get(f"{prefix}{key}") or 0.0 for row in own]
        for key in (name, "reward_std", "rollout/num", "rollout/invalid_frac", "rollout/refilled")
    )
    chance = 2 * fmean(stds) / math.sqrt(sum(nums))
    if abs(fmean(biases)) <= chance:
        return None
    share = (fmean(invalid) + fmean(refilled)) / (1 + fmean(refilled))
    return (
        f"In the last {_WINDOW} steps {share:.0%} of the attempts at a rollout failed, which moved the mean reward by "
        f"about {fmean(biases):+.3f}, more than the {chance:.3f} that chance explains: rollouts with more searches "
        "fail more, and from the remaining ones the policy learns to search less. Training continues. Repair the "
        "engine, or raise search.attempts."
    )


@dataclass(frozen=True, slots=True)
class _Mean:
    """A mean and its standard error."""

    value: float
    error: float


def _games(rows: Sequence[MetricRow], name: str) -> list[float | None]:
    """Return the game's reward in each row; None if not comparable."""
    games = [_value(row, name) for row in rows]
    kept = [None if _value(row, _PROPOSALS) is not None else game for row, game in zip(rows, games, strict=True)]
    return games if all(game is None for game in kept) else kept


def _mean(values: Iterable[float | None]) -> _Mean | None:
    """Return a mean; None for fewer than two values, whose scatter is unknown."""
    values = [value for value in values if value is not None]
    return _Mean(fmean(values), stdev(values) / math.sqrt(len(values))) if len(values) > 1 else None


def _probe_mean(rows: Sequence[MetricRow]) -> _Mean | None:
    scored = [(value, _value(row, "eval/n") or 0.0) for row in rows if (value := _value(row, _PROBE)) is not None]
    if not all(n > 0 for _, n in scored):
        return None
    variance = sum(value * (1.0 - value) / n for value, n in scored)
    return _Mean(fmean(value for value, _ in scored), math.sqrt(variance) / len(scored))


def _chance(one: _Mean, other: _Mean) -> float:
    """Return the largest difference of two means that chance explains."""
    return _ERRORS * math.hypot(one.error, other.error)


def _span(rows: Sequence[MetricRow]) -> str:
    return " to ".join(f"{row['step']:.0f}" for row in (rows[0], rows[-1]))


def _value(row: MetricRow, name: str) -> float | None:
    value = row.get(name)
    return value if value is not None and math.isfinite(value) else None


def _values(rows: Sequence[MetricRow], name: str) -> list[float]:
    """Return a metric's values where present: the solver's, if rows have roles."""
    solver = f"solver/{name}"
    name = solver if any(solver in row for row in rows) else name
    return [value for row in rows if (value := row.get(name)) is not None]
