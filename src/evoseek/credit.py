"""From rewards to advantages: the credit functions of all algorithms, as parts with their settings.

Each takes rewards and group keys, in parallel. A reward of None is an Invalid member, which stays None and enters no
statistic. If rewards are equal, advantages relative to them are exactly 0. A credit may declare two attributes, which
`is_relative` and `needs_critic` read. One with an argument `trajectories` also gets these, and may return a list with
an advantage for each of a trajectory's turns.

    REINFORCE     r_i                                                        `raw_advantages` (Williams 1992)
    GRPO          (r_i - mean of its group) / (std of its group + eps)       `group_advantages` (arXiv 2402.03300)
    Dr. GRPO       r_i - mean of its group                                   the same, scale "none" (arXiv 2503.20783)
    RLOO           r_i - mean of r_j, j != i                                 `leave_one_out_advantages`
    REINFORCE++   (r_i - mean of the batch) / std of the batch               `whitened_advantages` (arXiv 2501.03262)
    PPO           delta_t + gamma lam advantage_{t+1}                        `gae`, then `whiten`

The group is the question for GRPO and the requested number of hops for HRPO (Dr. Zero); std divides by n - 1. In small
groups std is a noisy estimate, which inflates rare rewards. REINFORCE has no baseline: rewards in [0, 1] only push up.
REINFORCE++ takes its baseline from the whole batch, so one rollout a question is enough; an easy question then gets
positive advantages for any answer, a hard one negative ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from numbers import Real
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field, SerializeAsAny

from evoseek.config.registry import KINDS, find
from evoseek.config.sections import Chosen, PartSettings
from evoseek.errors import EvoseekError, TrainingError
from evoseek.types import Trajectory

Rewards = Sequence[float | None]
Groups = Sequence[Hashable]
Advantages = list[float | None] | list[float | list[float] | None]
Credit = Callable[..., Advantages]


class CreditSettings(PartSettings):
    """From rewards to advantages."""

    in_stage = "*"
    name: str = Field(default="group", description="Credit: a built-in name, or package.module:Name.")


CreditPart = Annotated[SerializeAsAny[CreditSettings], Chosen("credit", CreditSettings)]


def is_relative(credit: object) -> bool:
    """Return a credit's `is_relative`, False by default: whether equal rewards in a group give no signal."""
    return bool(getattr(credit, "is_relative", False))


def needs_critic(credit: object) -> bool:
    """Return a credit's `needs_critic`, False by default: whether it takes a critic's value of every token."""
    return bool(getattr(credit, "needs_critic", False))


def credits_with_critic() -> tuple[str, ...]:
    """Return the names of the built-in credits that need a critic."""
    return tuple(name for name in KINDS["credit"].parts if needs_critic(find("credit", name)))


def advantages_of(
    credit: Callable[..., Any], rewards: Rewards, groups: Groups, trajectories: Sequence[Trajectory] = ()
) -> list[float | list[float] | None]:
    """Return a credit's advantages: for each reward a number, or one for each turn of its trajectory; None leaves a
    rollout out. Raises TrainingError for anything else, and if the credit fails."""
    more = {"trajectories": trajectories} if trajectories and _takes_trajectories(credit) else {}
    given = _called(credit, rewards, groups, **more)
    what = "advantages for the rewards"
    if not more or not isinstance(given, list | tuple) or len(cast("list[object]", given)) != len(rewards):
        return [*_checked(credit, given, len(rewards), what, or_none=True)]
    made: list[float | list[float] | None] = []
    for own, trajectory in zip(cast("list[object]", given), trajectories, strict=True):
        if isinstance(own, list | tuple) or getattr(own, "shape", ()):
            turns = sum(segment.kind == "action" for segment in trajectory.segments)
            numbers = _checked(credit, own, turns, f"advantages for the turns of {trajectory.id!r}")
            made.append(cast("list[float]", numbers))
        else:
            made += _checked(credit, [own], 1, what, or_none=True)
    return made


def _takes_trajectories(credit: Callable[..., Any]) -> bool:
    try:
        return "trajectories" in signature(credit).parameters
    except (TypeError, ValueError):  # of C code, which has none
        return False


def estimates_of(
    credit: Callable[..., Any], rewards: Sequence[float], values: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Return the advantages and returns of a rollout's action tokens, by a credit that needs a critic. Raises
    TrainingError for anything else, and if the credit fails."""
    given = _called(credit, rewards, values)
    if not isinstance(given, tuple | list) or len(pair := cast("Sequence[object]", given)) != 2:
        raise TrainingError(
            f"The credit {_name(credit)} gave {_shown(given)}. Expected a pair: the advantages of a rollout's action "
            "tokens, and their returns. Nothing was trained on."
        )
    advantages, returns = (
        cast("list[float]", _checked(credit, part, len(rewards), f"{what} for the action tokens"))
        for part, what in zip(pair, ("advantages", "returns"), strict=True)
    )
    return advantages, returns


def _called(credit: Callable[..., Any], *arguments: object, **more: object) -> object:
    try:
        return credit(*arguments, **more)
    except EvoseekError:
        raise
    except (Exception, SystemExit) as error:
        raise TrainingError(
            f"The credit {_name(credit)} failed: {type(error).__name__}: {error}. Nothing was trained on. Correct the "
            "credit."
        ) from error


def _checked(credit: object, given: object, size: int, what: str, *, or_none: bool = False) -> list[float | None]:
    many = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    numbers = list(cast("Iterable[object]", given)) if many and getattr(given, "shape", (1,)) else None
    if numbers is None or len(numbers) != size:
        found = _shown(given) if numbers is None else f"{len(numbers)} numbers"
        raise TrainingError(
            f"The credit {_name(credit)} gave {found}. Expected {size} {what}, in their order. Nothing was trained on."
        )
    for number in numbers:
        if not (number is None and or_none) and not (isinstance(number, Real) and math.isfinite(number)):
            raise TrainingError(
                f"The credit {_name(credit)} gave {_shown(number)} among the {what}. Expected finite numbers"
                f"{', or None for a rollout that is left out' if or_none else ''}. Nothing was trained on."
            )
    return [None if number is None else float(cast("float", number)) for number in numbers]


def _name(credit: object) -> str:
    return str(getattr(credit, "__name__", type(credit).__name__))


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 80 else f'{text[:80]}...'} ({type(value).__name__})"


@dataclass(frozen=True, slots=True)
class GroupCredit:
    """GRPO, Dr. GRPO and HRPO: relative to the group mean; see `group_advantages`."""

    class Settings(CreditSettings):
        """Settings of group-relative credit."""

        scale: Literal["std", "none"] = Field(
            default="std", description="Whether advantages are divided by the group's standard deviation."
        )
        singleton: Literal["raw", "zero", "drop"] = Field(
            default="zero",
            description="Advantage in a group of one: the reward (raw), 0 (zero), or no advantage, so "
            "that the rollout is left out (drop).",
        )

    scale: Literal["std", "none"] = Settings().scale
    singleton: Literal["raw", "zero", "drop"] = Settings().singleton
    is_relative: ClassVar[bool] = True

    @classmethod
    def build(cls, settings: Settings, context: object) -> GroupCredit:
        return cls(settings.scale, settings.singleton)

    def __call__(self, rewards: Rewards, groups: Groups) -> list[float | None]:
        return group_advantages(rewards, groups, scale=self.scale, singleton=self.singleton)


class LeaveOneOutCredit:
    """RLOO: relative to the mean of the group's other members."""

    is_relative = True

    def __call__(self, rewards: Rewards, groups: Groups) -> list[float | None]:
        return leave_one_out_advantages(rewards, groups)


@dataclass(frozen=True, slots=True)
class CriticCredit:
    """PPO: generalised advantage estimation with a critic."""

    class Settings(CreditSettings):
        """Settings of advantage estimation."""

        gamma: float = Field(default=1.0, gt=0, le=1, description="Discount of rewards, per token.")
        lam: float = Field(
            default=1.0, ge=0, le=1, description="Lambda of GAE: 1 uses the rewards as observed, 0 trusts the critic."
        )

    gamma: float = Settings().gamma
    lam: float = Settings().lam
    needs_critic: ClassVar[bool] = True

    @classmethod
    def build(cls, settings: Settings, context: object) -> CriticCredit:
        return cls(settings.gamma, settings.lam)

    def __call__(self, rewards: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
        """Return the advantages and returns of one trajectory's action tokens."""
        return gae(rewards, values, gamma=self.gamma, lam=self.lam)


def group_advantages(
    rewards: Rewards,
    groups: Groups,
    *,
    scale: Literal["std", "none"] = "std",
    singleton: Literal["raw", "zero", "drop"] = "zero",
    eps: float = 1e-6,
) -> list[float | None]:
    """Return the advantage of each reward within its group; `rewards` and `groups` run in parallel.

    `singleton` is the advantage in a group with a single valid member: its own reward, as if mean 0 and std 1 ("raw"),
    0 ("zero") or None ("drop").
    """
    members: dict[Hashable, list[int]] = {}
    for index, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
        if reward is not None:
            members.setdefault(group, []).append(index)
    advantages: list[float | None] = [None] * len(rewards)
    for indices in members.values():
        values = [value for value in (rewards[index] for index in indices) if value is not None]
        results = [_single(values[0], scale, singleton, eps)] if len(values) == 1 else _centred(values, scale, eps)
        for index, result in zip(indices, results, strict=True):
            advantages[index] = result
    return advantages


def _single(reward: float, scale: str, singleton: str, eps: float) -> float | None:
    if singleton == "drop":
        return None
    if singleton == "zero":
        return 0.0
    return reward / (1.0 + eps) if scale == "std" else reward


def _centred(values: list[float], scale: str, eps: float) -> list[float]:
    if min(values) == max(values):  # rounding of the mean must not create a signal
        return [0.0] * len(values)
    mean = math.fsum(values) / len(values)
    deviations = [value - mean for value in values]
    if scale == "none":
        return deviations
    std = math.sqrt(math.fsum(deviation**2 for deviation in deviations) / (len(values) - 1))
    return [deviation / (std + eps) for deviation in deviations]


def leave_one_out_advantages(rewards: Rewards, groups: Groups) -> list[float | None]:
    """Return RLOO's advantages (arXiv 2402.14740): relative to the mean reward of the group's *other* members.

    They are Dr. GRPO's times n / (n - 1). So the baseline is independent of the member from which it is subtracted, and
    the gradient is unbiased. Nothing divides by a standard deviation, so the scale of rewards matters. A group's only
    valid member gets 0.
    """
    sizes = Counter(group for reward, group in zip(rewards, groups, strict=True) if reward is not None)
    centred = group_advantages(rewards, groups, scale="none", singleton="zero")
    return [
        None if advantage is None else advantage * sizes[group] / max(sizes[group] - 1, 1)
        for advantage, group in zip(centred, groups, strict=True)
    ]


def whiten(sequences: Sequence[Sequence[float]], *, eps: float = 1e-8) -> list[list[float]]:
    """Return (a - mean) / sqrt(variance + eps) of per-token numbers over all tokens of all sequences, in the same
    shape.

    PPO whitens the advantages of all tokens of a batch. Every token counts alike, so a long trajectory weighs more. Use
    the whole batch of an optimizer step: if rollouts are spread over several processes, gather first. Whitening fails
    in batches of few numbers: rare large ones then set the scale of all others.
    """
    values = [value for sequence in sequences for value in sequence]
    if not values or min(values) == max(values):  # rounding of the mean must not create a signal
        return [[0.0] * len(sequence) for sequence in sequences]
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    scale = math.sqrt(variance + eps)
    return [[(value - mean) / scale for value in sequence] for sequence in sequences]


def raw_advantages(rewards: Rewards, groups: Groups = ()) -> list[float | None]:
    """Return the rewards themselves: REINFORCE."""
    return list(rewards)


def whitened_advantages(rewards: Rewards, groups: Groups = (), *, eps: float = 1e-8) -> list[float | None]:
    """Return REINFORCE++'s advantages: rewards whitened over all valid members of the batch, each counting once.

    For the KL penalty per token of REINFORCE++, subtract it from the tokens' rewards and use `whiten` over tokens.
    """
    (valid,) = whiten([[reward for reward in rewards if reward is not None]], eps=eps)
    whitened = iter(valid)
    return [None if reward is None else next(whitened) for reward in rewards]


def gae(
    rewards: Sequence[float], values: Sequence[float], *, gamma: float, lam: float
) -> tuple[list[float], list[float]]:
    """Return (advantages, returns) of one trajectory's action tokens, from their rewards and the values before each:
    generalised advantage estimation (arXiv 1506.02438, eq. 16).

        delta_t     = r_t + gamma V_{t+1} - V_t         V is 0 after the last token
        advantage_t = delta_t + gamma lam advantage_{t+1}
        return_t    = advantage_t + V_t

    Only *action* tokens are steps: the first token after an observation follows the token before it. So no credit is
    lost in a tool's output, and a critic need not value it. lam = 1 uses the rewards as observed (unbiased, noisy);
    lam = 0 trusts the critic one token ahead, which fails while the critic is wrong. An outcome reward stands on the
    last token, with 0.0 on all others. Advantages are not whitened. Raises ValueError if the lengths differ.
    """
    advantages: list[float] = []
    advantage = next_value = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        delta = reward + gamma * next_value - value
        advantage = delta + gamma * lam * advantage
        advantages.append(advantage)
        next_value = value
    advantages.reverse()
    return advantages, [advantage + value for advantage, value in zip(advantages, values, strict=True)]
