"""Which settings of self-play go together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from evoseek.assemble.together import check_settings
from evoseek.config import Config
from evoseek.errors import ConfigError
from evoseek.reward.answer import GRADED

_NEEDS_TWO = ("linear", "parabolic", "uncertainty", "between")  # attempts, to tell a hard question from an easy one


def check_selfplay(config: Config) -> None:
    """Settings that are each possible, but not together. Raises ConfigError."""
    check_settings(config)
    checks = _judged, _one_policy, _estimators, _searches
    if problem := next(chain.from_iterable(check(config) for check in checks), None):
        raise ConfigError(problem)


def _judged(config: Config) -> Iterator[str]:
    metric = config.reward.metric
    if metric == "format_f1":
        yield (
            "reward.metric is format_f1, which goes down to -1, but a proposer is paid by shares of right answers. Set "
            "reward.metric to f1 or exact_match."
        )
    if "right_from" in config.selfplay.changed() and metric not in GRADED:
        yield (
            f"selfplay.right_from is {config.selfplay.right_from}, but has no effect with reward.metric {metric}, by "
            f"which an answer is right or wrong. Leave it out, or set reward.metric to {' or '.join(GRADED)}."
        )
    if config.selfplay.label == "majority" and metric == "judge":
        yield (
            "selfplay.label is majority and reward.metric is judge, but votes are counted and compared by an answer "
            "metric. Set reward.metric to exact_match or another one, or selfplay.label to proposer."
        )


def _one_policy(config: Config) -> Iterator[str]:
    if config.run.system == "ssp" and config.proposer.temperature != config.rollout.temperature:
        yield (
            f"proposer.temperature is {config.proposer.temperature} and rollout.temperature "
            f"{config.rollout.temperature}, but in ssp one policy plays both roles and is trained on the logprobs of "
            "one temperature. Set them to the same value."
        )
    if config.run.system == "ssp" and config.algorithm.filter_limit:
        yield (
            f"algorithm.filter_limit is {config.algorithm.filter_limit}, but ssp fills its batches in another way. Set "
            "it to 0, and choose ssp.fill."
        )
    if config.run.system == "dr-zero" and config.algorithm.filter_limit:
        yield (
            f"algorithm.filter_limit is {config.algorithm.filter_limit}, but in dr-zero the solver is asked each "
            "written question once before any comes again, and a filter skips those that a step had no need of. Set "
            "it to 0."
        )
    if config.policy.dtype != "float32" and config.lora.rank == 0:
        yield (
            f"policy.dtype is {config.policy.dtype}, but weights are trained in float32. Set policy.dtype to float32 "
            "and learner.bf16 to true, or train an adapter (lora.rank above 0)."
        )


def _estimators(config: Config) -> Iterator[str]:
    settings = config.proposer
    if config.algorithm.advantage == "gae":
        yield (
            "algorithm.advantage is gae, but self-play trains without a critic. Set it to group, leave-one-out, "
            "whitened or raw."
        )
    if settings.attempts == 1 and settings.difficulty in _NEEDS_TWO:
        yield (
            f"proposer.attempts is 1, but proposer.difficulty {settings.difficulty} is about how many of several "
            "attempts are right. Set proposer.attempts to 2 or more, or proposer.difficulty to failure."
        )
    alone = settings.group_by == "task" and settings.per_task == 1 and settings.singleton != "raw"
    if _proposer_learns(config) and settings.advantage == "group" and alone:
        yield (
            "proposer.group_by is task and proposer.per_task 1, so every proposal is compared with itself alone, and "
            "the proposer never learns. Set proposer.per_task to 2 or more, proposer.group_by to requested, or "
            "proposer.advantage to raw."
        )


def _proposer_learns(config: Config) -> bool:
    if config.run.system == "ssp":
        return config.ssp.train != "solver"
    return config.dr_zero.proposer_steps > 0 and not config.proposer.frozen


def _searches(config: Config) -> Iterator[str]:
    requested = max(number for number, share in enumerate(config.proposer.ratio, start=1) if share)
    asked, what = (requested, "searches") if config.run.system == "ssp" else (requested - 1, f"{requested} hops")
    turns, calls = config.proposer.max_turns - 1, config.rollout.max_tool_calls
    if asked > min(turns, calls):
        name, value = ("proposer.max_turns", asked + 1) if turns < calls else ("rollout.max_tool_calls", asked)
        yield (
            f"proposer.ratio asks for questions of up to {requested} {what.split()[-1]}, made with {asked} searches, "
            f"but proposer.max_turns {turns + 1} and rollout.max_tool_calls {calls} leave room for {min(turns, calls)}."
            f" Set {name} to {value} or more, or proposer.ratio to fewer shares."
        )
