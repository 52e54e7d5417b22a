"""Settings of self-play that Dr. Zero and Search Self-play share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from evoseek.assembly.settings import TrainingSettings
from evoseek.config.registry import KINDS, find
from evoseek.config.sections import MANY, Count, Needs, Section, Share, Temperature, part, table
from evoseek.credit import CreditPart, credits_with_critic, needs_critic
from evoseek.loss.settings import LossPart
from evoseek.reward.functions import lowest_of
from evoseek.text.normalization import METRICS


def _above_zero(shares: tuple[float, ...]) -> tuple[float, ...]:
    if shares and not any(shares):
        raise ValueError("at least one share must be above 0, as in [4, 3, 2, 1]")
    return shares


class ProposerSettings(Section):
    """How questions are proposed, the reward of a proposal, and how the proposer learns from it."""

    ratio: Annotated[tuple[Share, ...], AfterValidator(_above_zero)] = Field(
        default=(4.0, 3.0, 2.0, 1.0),
        description="Relative shares of tasks that request 1, 2, ... hops or searches. [] requests none: the proposer "
        "chooses (dr-zero).",
    )
    temperature: Temperature = Field(default=1.0, description="Sampling temperature of proposals.")
    attempts: int = Field(default=5, ge=1, le=10_000, description="Number of the solver's attempts at every question.")
    max_turns: int = Field(default=6, ge=1, le=10_000, description="Maximum number of completions of a proposal.")
    max_tokens_per_turn: Count = Field(default=160, description="Maximum number of tokens of a proposal's completion.")
    difficulty: Literal["linear", "parabolic", "uncertainty", "between", "failure"] = Field(
        default="linear",
        description="How the solver's pass rate becomes the proposer's reward: as in Dr. Zero, its ablation, R-Zero, "
        "SQLM, or SSP.",
    )
    format_weight: float = Field(default=0.5, ge=0, le=100, description="Weight of Dr. Zero's format reward.")
    rejected_reward: float = Field(
        default=0.0, ge=-100, le=100, description="Reward of a rejected proposal; a negative value is a penalty."
    )
    per_task: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Number of proposals for each passage or answer; rewards of several are relative to each other.",
    )
    credit: CreditPart = part("group")
    loss: LossPart = part("reinforce", aggregate="token-mean")


class FilterSettings(Section):
    """Rules by which proposals are rejected. A proposal whose question contains its answer always is."""

    rules: Literal["basic", "full"] = Field(
        default="basic",
        description="Set of rules: full also judges the wording, by English and German words, and is the default for "
        "all models but the package's; basic does not.",
    )
    min_words: int = Field(default=3, ge=1, le=MANY, description="Minimum number of words of a question.")
    min_searches: int = Field(
        default=0,
        ge=0,
        le=MANY,
        description="Minimum number of searches of a proposal; above 0 none may be repeated. Search Self-play: "
        "1, as in the paper; its published code has 2.",
    )
    near_duplicates: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Minimum Jaccard similarity (MinHash) to another question at which a question is rejected as a "
        "near-duplicate; 0 accepts all, but no question is written twice.",
    )


class VerificationSettings(Section):
    """The verification, which rejects questions because of a reader's answers."""

    readings: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="Number of readings of the proposer's passages. A question is rejected if the first does not find "
        "its answer, or if another answer is as frequent in all readings. 0: no such check.",
    )
    passages: Literal["retrieved", "supporting"] = Field(
        default="retrieved",
        description="Passages for the reader: all that the proposer found (retrieved), or those that it wrote about "
        "(supporting).",
    )
    noise_passages: int = Field(
        default=4, ge=0, le=1000, description="Number of noise passages, from other proposals, that are mixed in."
    )
    noise: Literal["passages", "trajectories"] = Field(
        default="passages",
        description="Unit of noise_passages: single passages that other proposals found, or whole trajectories: all "
        "passages of other proposals (as in Search Self-play's published code).",
    )
    closed_book: bool = Field(
        default=False,
        description="Whether a question is rejected if the reader answers it correctly without any passage.",
    )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        return (Needs("noise*", "readings"),)


class SelfPlaySettings(Section):
    """Settings that both self-play systems share."""

    proposals_per_step: int = Field(default=32, ge=1, le=100_000, description="Number of proposals in a step.")
    label: Literal["proposer", "majority"] = Field(
        default="proposer",
        description="Answer that counts as right: the proposer's, or the solver's most frequent one (majority).",
    )
    world: str = Field(
        default="",
        description="File world.json of a generated world, whose oracle then judges the questions for the metrics.",
    )


class GameSettings(TrainingSettings, ABC):
    """Settings of every self-play system."""

    has_critic = False
    proposer: ProposerSettings = table()
    filters: FilterSettings = FilterSettings()
    verification: VerificationSettings = VerificationSettings()
    selfplay: SelfPlaySettings = SelfPlaySettings()

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Return the effects: penalties in the reward have none, since it also measures the share of right answers."""
        why = "In self-play a reward also says what share of answers is right."
        return (
            *super().effects(),
            *(Needs(f"reward.{name}", "", (), why) for name in ("overlong_max", "unanswered_penalty", "wrong_penalty")),
        )

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from self._judged()
        yield from self._estimators()
        yield from self._searches()

    @property
    @abstractmethod
    def searches(self) -> tuple[int, str]:
        """The number of searches for the longest requested question, and the name of the unit."""
        ...

    @property
    @abstractmethod
    def proposer_learns(self) -> bool: ...

    @property
    def group_by(self) -> Literal["requested", "task"]:
        """The group whose mean a reward is relative to: proposals of the same task, or of the same requested number."""
        return "task"

    @property
    def longest(self) -> int:
        """The largest requested number of hops or searches; 0 if the proposer chooses."""
        return max((number for number, share in enumerate(self.proposer.ratio, start=1) if share), default=0)

    def one_temperature(self, where: str) -> Iterator[str]:
        """Yield a problem if one policy in both roles samples at two temperatures: it learns on logprobs of one."""
        if self.proposer.temperature != self.rollout.temperature:
            yield (
                f"proposer.temperature is {self.proposer.temperature} and rollout.temperature "
                f"{self.rollout.temperature}, but {where} one policy plays both roles and is trained on the logprobs "
                "of one temperature. Set them to the same value."
            )

    def _judged(self) -> Iterator[str]:
        name = self.reward.name
        if (lowest := lowest_of(find("reward", name))) < 0:
            yield (
                f"reward.name is {name}, which goes down to {lowest:g}, but a proposer's reward needs shares of right "
                "answers. Set reward.name to f1 or exact_match."
            )
        if self.selfplay.label == "majority" and name not in METRICS:
            yield (
                f"selfplay.label is majority and reward.name is {name}, but votes are compared by an "
                f"answer metric. Set reward.name to one of {', '.join(METRICS)}, or selfplay.label to proposer."
            )

    def _estimators(self) -> Iterator[str]:
        proposer = self.proposer
        for at, credit in (("credit", self.credit), ("proposer.credit", proposer.credit)):
            if needs_critic(find("credit", credit.name)):
                others = [name for name in KINDS["credit"].parts if name not in credits_with_critic()]
                yield (
                    f"{at}.name is {credit.name}, but self-play trains no critic. Set it to "
                    f"{', '.join(others[:-1])} or {others[-1]}."
                )
        if proposer.attempts == 1 and proposer.difficulty != "failure":
            yield (
                f"proposer.attempts is 1, but proposer.difficulty {proposer.difficulty} compares several "
                "attempts. Set proposer.attempts to 2 or more, or proposer.difficulty to failure."
            )
        singleton = getattr(proposer.credit, "singleton", "zero")
        alone = self.group_by == "task" and proposer.per_task == 1 and singleton != "raw"
        if self.proposer_learns and proposer.credit.name == "group" and alone:
            yield (
                "proposer.credit.name is group and proposer.per_task 1, so every reward is relative to itself alone, "
                "and the proposer never learns. Set proposer.per_task to 2 or more, or proposer.credit.name to raw."
            )

    def _searches(self) -> Iterator[str]:
        asked, what = self.searches
        turns, calls = self.proposer.max_turns - 1, self.rollout.max_tool_calls
        if asked > min(turns, calls):
            name, value = ("proposer.max_turns", asked + 1) if turns < calls else ("rollout.max_tool_calls", asked)
            yield (
                f"proposer.ratio asks for questions of up to {self.longest} {what}, made with {asked} searches, but "
                f"proposer.max_turns {turns + 1} and rollout.max_tool_calls {calls} leave room for "
                f"{min(turns, calls)}. Set {name} to {value} or more, or proposer.ratio to fewer shares."
            )
