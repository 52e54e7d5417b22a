"""Metrics of a step's rollouts, named as in TRL's GRPOTrainer if it has the same number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev, stdev
from typing import cast

from evoseek.errors import TrainingError
from evoseek.eval.statistics import surely_more
from evoseek.reward.shaping import unshaped
from evoseek.rollout.roller import searches
from evoseek.training.question_order import label
from evoseek.types import Invalid, Scored, StopReason, TrajectoryGroup

_SIGNAL = ("reward", "answer_reward", "frac_reward_zero_std", "tools/call_frequency")


@dataclass(frozen=True, slots=True)
class StepReport:
    """The report of a step. The config alone determines `metrics`; `timings` also depend on the machine. `failures` and
    `num_rollouts` count every attempt, also retried ones, since a retry does not remove their bias."""

    metrics: Mapping[str, float]
    timings: Mapping[str, float]
    failures: tuple[Invalid, ...]
    num_rollouts: int

    @classmethod
    def of(
        cls, groups: Iterable[TrajectoryGroup], metrics: Mapping[str, float], timings: Mapping[str, float]
    ) -> StepReport:
        outcomes = [outcome for group in groups for _, outcome in group.attempts]
        failures = tuple(outcome for outcome in outcomes if isinstance(outcome, Invalid))
        return cls(metrics, timings, failures, len(outcomes))

    def has_too_many_failures(self, share: float) -> bool:
        """Return whether surely more than this share of the attempts failed: the rest is biased towards few searches,
        so nothing of the step may be trained on or counted."""
        return surely_more(len(self.failures), self.num_rollouts, share)


def too_many_failures(groups: Iterable[TrajectoryGroup], share: float) -> bool:
    """Return `has_too_many_failures` of a step with these groups, before it trains; pass all groups, also untrained
    ones."""
    return StepReport.of(groups, {}, {}).has_too_many_failures(share)


def checked_report(system: str, given: object) -> StepReport:
    """Check what a system's step returned. Raises TrainingError for anything but a StepReport with numbers by name."""
    if not isinstance(given, StepReport):
        fault = f"returned an object of the type {type(given).__name__}"
    elif not (fault := _fault_of(given)):
        return given
    raise TrainingError(
        f"The step of the system {system} {fault}. Expected a StepReport of evoseek.training.rollout_metrics: metrics "
        "and timings that are numbers (int or float) by name, and the Invalid outcomes among all its rollouts. The "
        "step is discarded. Correct the system."
    )


def _fault_of(report: StepReport) -> str:
    """Describe what is wrong with a report; "" for nothing."""
    failures = cast("Sequence[object]", report.failures)
    if len(failures) > report.num_rollouts or not all(isinstance(one, Invalid) for one in failures):
        return f"reported {len(failures)} failures of {report.num_rollouts} rollouts"
    numbers = cast("Iterable[tuple[object, object]]", [*report.metrics.items(), *report.timings.items()])
    wrong = (pair for pair in numbers if not (isinstance(pair[0], str) and isinstance(pair[1], int | float)))
    return next((f"reported {name!r} = {value!r} ({type(value).__name__})" for name, value in wrong), "")


def describe_failures(failures: Sequence[Invalid], attempts: int, what: str = "rollouts") -> str:
    """Describe how many attempts failed, and their most frequent reason."""
    reason, count = Counter(failure.reason for failure in failures).most_common(1)[0]
    detail = next(failure.detail for failure in failures if failure.reason == reason)
    return (
        f"{len(failures)} of {attempts} {what} were invalid. The most frequent reason is {reason} ({count} {what}): "
        f"{detail.rstrip('.') or 'no detail'}."
    )


def rollout_metrics(groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
    """Return metrics of the rollouts of one step. Invalid rollouts count in shares and lengths, never in rewards.

    reward                    mean over scored rollouts
    answer_reward             the same without penalties and the share for evidence
    reward_std                mean over groups of the standard deviation within the group (n - 1)
    frac_reward_zero_std      share of groups whose rewards are all equal: they give no signal
    frac_answer_reward_zero_std  the same of `answer_reward`: no answer of the group is better than another
    completions/mean_length   action tokens a rollout
    tools/call_frequency      tool calls a rollout
    tools/empty_frac          share of searches that found nothing; where all do, the engine has failed
    rollout/num               rollouts
    rollout/invalid_frac      share of rollouts that failed outside the policy
    completions/malformed     turns a rollout with neither a call nor an answer and a next one; left out if none
    rollout/branches          contexts a rollout: 1 more for each rewriting; left out if none was rewritten
    rollout/stop/<reason>     share of rollouts with this stop reason; for an invalid one, why it is invalid
    rollout/refilled          failed attempts that were rolled out again, per rollout
    rollout/refilled/<reason> the same for one reason
    rollout/branches/<cause>  contexts a rollout that began for this cause (`rollout.gateway.calls`)
    rollout/failure_bias      estimate of how far failed tool calls have moved `reward`; left out if none failed

    A number that has no value (no scored rollout, no group of two, no search) is left out.
    """
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    outcomes = [outcome for group in groups for outcome in group.outcomes]
    rewards = [[outcome.reward for outcome in group.outcomes if isinstance(outcome, Scored)] for group in groups]
    scored = [reward for group in rewards for reward in group]
    compared = [group for group in rewards if len(group) > 1]
    answers = [[unshaped(outcome) for outcome in group.outcomes if isinstance(outcome, Scored)] for group in groups]
    metrics: dict[str, float] = {}
    if scored:
        metrics["reward"] = fmean(scored)
        metrics["answer_reward"] = fmean(reward for group in answers for reward in group)
    if compared:
        metrics["reward_std"] = fmean(stdev(group) for group in compared)
        metrics["frac_reward_zero_std"] = fmean(pstdev(group) == 0.0 for group in compared)
        metrics["frac_answer_reward_zero_std"] = fmean(pstdev(group) == 0.0 for group in answers if len(group) > 1)
    metrics["completions/mean_length"] = fmean(trajectory.num_action_tokens for trajectory in trajectories)
    metrics["tools/call_frequency"] = fmean(len(trajectory.tool_results) for trajectory in trajectories)
    called = Counter(result.call.name for trajectory in trajectories for result in trajectory.tool_results)
    if len(called) > 1:
        metrics |= {f"tools/call_frequency/{name}": count / len(trajectories) for name, count in called.items()}
    if told := sum(
        1 for trajectory in trajectories for action in trajectory.actions[:-1] if action.problem is not None
    ):
        metrics["completions/malformed"] = told / len(trajectories)
    if made := searches(trajectories):
        metrics["tools/empty_frac"] = fmean(not result.passages for result in made)
    branches = [len(trajectory.branches) for trajectory in trajectories]
    if max(branches) > 1:
        metrics["rollout/branches"] = fmean(branches)
    metrics["rollout/num"] = float(len(outcomes))
    causes = Counter(segment.cause for one in trajectories for segment in one.segments if segment.cause)
    metrics |= {f"rollout/branches/{cause}": count / len(outcomes) for cause, count in sorted(causes.items())}
    metrics["rollout/invalid_frac"] = fmean(isinstance(outcome, Invalid) for outcome in outcomes)
    ends = Counter(
        outcome.reason if isinstance(outcome, Invalid) else trajectory.stop_reason
        for trajectory, outcome in zip(trajectories, outcomes, strict=True)
    )
    refilled = Counter(failure.reason for group in groups for _, failure in group.replaced)
    metrics["rollout/refilled"] = refilled.total() / len(outcomes)
    for reason in StopReason:
        metrics[f"rollout/stop/{reason}"] = ends[reason] / len(outcomes)
        if reason.is_failure:
            metrics[f"rollout/refilled/{reason}"] = refilled[reason] / len(outcomes)
    if (bias := failure_bias(groups)) is not None:
        metrics["rollout/failure_bias"] = bias
    return metrics


def failure_bias(groups: Sequence[TrajectoryGroup]) -> float | None:
    """Return the mean reward of the scored rollouts minus an estimate of the mean without failed tool calls; None if
    none failed, or nothing was scored.

    If a share q of the calls fails, a rollout of N calls survives with probability (1 - q)^N, whether failed ones are
    retried or not. So each scored rollout stands for (1 - q)^-N attempts of its group, and all groups count the same.
    """
    attempts = [attempt for group in groups for attempt in group.attempts]
    failed = sum(isinstance(outcome, Invalid) and outcome.reason is StopReason.TOOL_FAILED for _, outcome in attempts)
    scored = [
        (outcome.reward, len(trajectory.results), len(group.attempts))
        for group in groups
        for trajectory, outcome in group.attempts
        if isinstance(outcome, Scored)
    ]
    if not failed or not scored:
        return None
    left = 1.0 - failed / (failed + sum(len(trajectory.results) for trajectory, _ in attempts))
    rewards = [reward for reward, _, _ in scored]
    return fmean(rewards) - fmean(rewards, [left**-calls / size for _, calls, size in scored])


def metrics_by(
    groups: Sequence[TrajectoryGroup], key: str, measure: Callable[[Sequence[TrajectoryGroup]], Mapping[str, float]]
) -> dict[str, float]:
    """Return the metrics of `measure` for each value of a metadata field, as <name>/<key>_<value>."""
    by_value: dict[str, list[TrajectoryGroup]] = {}
    for group in groups:
        value = label(group.trajectories[0].question, key)
        if value is not None:
            by_value.setdefault("_".join(value.split()), []).append(group)
    return {
        f"{name}/{key}_{value}": number
        for value, own in sorted(by_value.items())
        for name, number in measure(own).items()
    }


def signal_metrics(groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
    """Return the part of `rollout_metrics` that shows success on a kind of question."""
    metrics = rollout_metrics(groups)
    return {name: metrics[name] for name in _SIGNAL if name in metrics}


def staleness_metrics(groups: Sequence[TrajectoryGroup], step: int) -> dict[str, float]:
    """Return how many steps older the weights that began the rollouts' turns are than the weights that a step trains:

    rollout/staleness/mean    over the tokens that the policy wrote
    rollout/staleness/max     of any of them
    """
    turns = [
        (step - 1 - (trajectory.policy_version if segment.policy_version is None else segment.policy_version), segment)
        for group in groups
        for trajectory in group.trajectories
        for segment in trajectory.segments
        if segment.kind == "action"
    ]
    tokens = sum(len(segment.token_ids) for _, segment in turns)
    if not tokens:
        return {}
    return {
        "rollout/staleness/mean": sum(age * len(segment.token_ids) for age, segment in turns) / tokens,
        "rollout/staleness/max": float(max(age for age, _ in turns)),
    }


def prefixed(role: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Prefix metrics with a role: `reward` becomes `solver/reward`."""
    return {f"{role}/{name}": value for name, value in metrics.items()}


def tool_latency_s(groups: Sequence[TrajectoryGroup]) -> float:
    """Return the mean seconds per tool call; 0.0 without calls."""
    latencies = [
        result.latency_s for group in groups for trajectory in group.trajectories for result in trajectory.results
    ]
    return fmean(latencies) if latencies else 0.0
