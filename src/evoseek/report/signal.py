"""A warning for a run without a learning signal: for several steps no rollout did better than the others of its
group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from evoseek.protocols import MetricSink
from evoseek.report.metrics import MetricRow

STEPS = 3
"""Number of steps in a row without any signal that raises the warning."""


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
        f"For {STEPS} steps every group's rollouts were all worth the same (the last mean reward is {reward:.3f}), so "
        f"nothing tells the policy what is better. Of the last step's rollouts {answered:.0%} were answered, "
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
    return found + (
        "Rollouts answer, but never right: begin with easier questions, check that the index holds the answers "
        "(evoseek search), raise rollout.group_size, or use a graded reward (reward.name=f1)."
    )


class SignalMetrics:
    """A MetricSink that watches the rows and passes them on to `sink`.

    `notify` is called with the warning after `STEPS` steps without a signal, and again only after there was one.
    `earlier` are the rows of a run that is resumed (`read_metrics`); `relative` is as in `no_signal`.
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
        self._is_told = no_signal(self._rows, relative=relative) is not None

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Pass a row on."""
        self._rows.append(metrics)
        words = no_signal(self._rows, relative=self._relative)
        if words and not self._is_told:
            self._notify(words)
        self._is_told = words is not None
        self._sink.write(step, metrics)
