"""Warnings for a run that learns nothing, or whose policy collapses: hardly any group has a signal, searches become
rare, or everything is answered after one search although some questions need more."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from evoseek.protocols import MetricSink
from evoseek.report.metrics import MetricRow

STEPS = 3
"""Number of steps in a row without any signal that raises the warning."""

WINDOW = 5
"""Number of steps over which the signs of a collapse are averaged."""

_NEARLY_ALL = 0.9  # share of groups without a signal
_SOME = 0.5  # searches a rollout below which there is nothing to fall
_ONE = (0.9, 1.1)  # searches a rollout, if nearly all make one
_RARELY = 0.2  # share of what is right
_NONE, _LITTLE = "no signal", "little signal"

REMEDIES = (
    "Training continues. What may help: a first stage of hard questions alone ([[stages]] with questions.where), "
    "questions.order=difficulty, a lower learner.learning_rate, a higher rollout.temperature."
)


def no_signal(rows: Sequence[MetricRow], *, relative: bool = True) -> str | None:
    """The warning for the user, or None. `rows` are metric rows in the order of their steps; steps without a solver's
    groups (a proposer's step of Dr. Zero) are skipped. If rewards are not `relative` to the group mean, equal ones are
    a signal too, unless they are 0."""
    prefix = "solver/" if any("solver/frac_reward_zero_std" in row for row in rows) else ""
    own = [row for row in rows if row.get(f"{prefix}frac_reward_zero_std") is not None][-STEPS:]
    if len(own) < STEPS or any(row[f"{prefix}frac_reward_zero_std"] != 1.0 for row in own):
        return None
    last = {name.removeprefix(prefix): value for name, value in own[-1].items()}
    reward = last.get("reward") or 0.0
    if not relative and reward != 0.0:
        return None
    answered, malformed, cut = (
        last.get(f"rollout/stop/{how}") or 0.0 for how in ("answered", "malformed", "max_tokens")
    )
    found = (
        f"For {STEPS} steps all rollouts of every group had the same reward (the last mean reward is {reward:.3f}), so "
        f"the policy learns nothing from them. Of the last step's rollouts {answered:.0%} were answered, "
        f"{malformed:.0%} malformed and {cut:.0%} cut off. Training continues. "
    )
    if reward >= 1.0:
        return found + "All are right: give harder questions."
    if answered < 0.5:
        return found + (
            "Most rollouts end without an answer: read some in the run's trajectories.jsonl. If they are cut off, "
            "raise rollout.max_tokens_per_turn and rollout.max_total_tokens. If the model does not write the tags or "
            "calls that it is asked for, set rollout.max_malformed to 2, shorten the prompt (policy.prompts), or begin "
            "with a model that was first tuned on demonstrations (evoseek sft): reinforcement learning cannot teach "
            "what is never tried."
        )
    if reward > 0.0:
        return found + "Each question is answered always right or always wrong. " + REMEDIES.partition(". ")[2]
    return found + (
        "Rollouts answer, but never right: begin with easier questions, check that the index holds the answers "
        "(evoseek search), raise rollout.group_size, or use a graded reward (reward.name=f1)."
    )


def little_signal(rows: Sequence[MetricRow]) -> str | None:
    """The warning that nearly all groups of the last steps had no signal; or None."""
    shares, rewards = _values(rows, "frac_reward_zero_std")[-WINDOW:], _values(rows, "reward")[-WINDOW:]
    if len(shares) < WINDOW or fmean(shares) < _NEARLY_ALL or not rewards:
        return None
    found = (
        f"In the last {WINDOW} steps {fmean(shares):.0%} of the groups had no signal: all their rollouts had "
        f"the same reward, so nothing is learnt from them (the mean reward was {fmean(rewards):.3f}). "
    )
    if fmean(rewards) >= _NEARLY_ALL:
        return found + "Nearly all are right. Training continues; harder questions would teach more."
    return found + REMEDIES


def fewer_searches(rows: Sequence[MetricRow]) -> str | None:
    """The warning that searches per rollout fell below half of those at the beginning; or None."""
    calls = _values(rows, "tools/call_frequency")
    first, now = calls[:WINDOW], calls[-WINDOW:]
    if len(calls) < 2 * WINDOW or fmean(first) < _SOME or fmean(now) >= fmean(first) / 2:
        return None
    return (
        f"Rollouts make {fmean(now):.2f} tool calls in the last {WINDOW} steps, less than half of the "
        f"{fmean(first):.2f} at the beginning: the policy may be giving up searching. {REMEDIES}"
    )


def one_search(rows: Sequence[MetricRow]) -> str | None:
    """The warning that questions of several hops are answered after one search, as those of one are, and hardly ever
    right; or None. Only where metrics are reported by hops."""
    hops = sorted({int(found[1]) for row in rows[-WINDOW:] for name in row if (found := _CALLS.search(name))})
    harder = [number for number in hops if number > 1]
    calls = {number: _values(rows, f"tools/call_frequency/hops_{number}")[-WINDOW:] for number in hops}
    right = {number: _values(rows, f"reward/hops_{number}")[-WINDOW:] for number in harder}
    if not harder or any(len(values) < WINDOW for values in (*calls.values(), *right.values())):
        return None
    if not all(_ONE[0] <= fmean(values) <= _ONE[1] for values in calls.values()):
        return None
    if any(fmean(values) >= _RARELY for values in right.values()):
        return None
    return (
        f"In the last {WINDOW} steps nearly every rollout answered after one search, also where questions have "
        f"{' or '.join(map(str, harder))} hops, which were right in {max(map(fmean, right.values())):.0%} at most: the "
        f"easy questions teach the policy to stop. {REMEDIES}"
    )


def biased_by_failures(rows: Sequence[MetricRow]) -> str | None:
    """The warning that failed tool calls have moved the mean reward of the last steps by more than chance explains; or
    None."""
    name = "rollout/failure_bias"
    prefix = "solver/" if any("solver/reward" in row for row in rows) else ""
    own = [row for row in rows if row.get(f"{prefix}reward_std") is not None][-WINDOW:]
    if len(own) < WINDOW or not any(row.get(f"{prefix}{name}") for row in own):
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
        f"In the last {WINDOW} steps {share:.0%} of the attempts at a rollout failed, which moved the mean reward by "
        f"about {fmean(biases):+.3f}, more than the {chance:.3f} that chance explains: rollouts that search more fail "
        "more, and from those that are left the policy learns to search less. Training continues. Repair the engine, "
        "or raise the number of attempts at a call (search.attempts, web.attempts, browse.attempts)."
    )


_CALLS = re.compile(r"^(?:solver/)?tools/call_frequency/hops_(\d+)$")


def _values(rows: Sequence[MetricRow], name: str) -> list[float]:
    """A metric's values, in the steps that have it: the solver's, where roles are told apart."""
    solver = f"solver/{name}"
    name = solver if any(solver in row for row in rows) else name
    return [value for row in rows if (value := row.get(name)) is not None]


def signs(rows: Sequence[MetricRow], *, relative: bool = True) -> dict[str, str]:
    """What is to be warned of after these rows, by what it is about; without any signal at all, that alone. `relative`
    is as in `no_signal`. Of a run with stages the signs of a collapse are looked for in the rows of the current one."""
    if words := no_signal(rows, relative=relative):
        return {_NONE: words}
    stage = rows[-1].get("stage") if rows else None
    own = [row for row in rows if row.get("stage") == stage]
    found = {
        f"few searches/{stage}": fewer_searches(own),
        f"one search/{stage}": one_search(own),
        "failures": biased_by_failures(rows),
    }
    if relative:
        found[f"{_LITTLE}/{stage}"] = little_signal(own)
    return {about: words for about, words in found.items() if words}


class SignalMetrics:
    """A MetricSink that watches the rows and passes them on to `sink`.

    `notify` is called with a warning when what it is about begins, and again only after it has ended (a sign of a
    collapse for more than `WINDOW` steps). `earlier` are the rows of a run that is resumed (`read_metrics`); `relative`
    is as in `no_signal`. Where a run has stages, the signs of a collapse are looked for among the rows of the current
    one, whose questions are alike.
    """

    def __init__(
        self,
        sink: MetricSink,
        notify: Callable[[str], None],
        *,
        earlier: Sequence[MetricRow] = (),
        relative: bool = True,
    ) -> None:
        self._sink, self._notify, self._relative = sink, notify, relative
        self._rows: list[MetricRow] = list(earlier)
        self._on = dict.fromkeys(
            signs(self._rows, relative=self._relative), len(self._rows)
        )  # at how many rows a warning last held

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Pass a row on."""
        self._rows.append(metrics)
        for about, words in signs(self._rows, relative=self._relative).items():
            silence = 1 if about == _NONE else WINDOW
            if about not in self._on or len(self._rows) - self._on[about] > silence:
                self._notify(words)
            little = f"{_LITTLE}/{metrics.get('stage')}"
            for same in (about, little) if about == _NONE else (about,):
                self._on[same] = len(self._rows)
        self._sink.write(step, metrics)
