"""Demonstrations as training samples.

The rollout loop itself plays each one, with its turns in place of a sampler. So it has the prompt, observations and
tokens of a rollout, and keeps the same limits. A proposer's has the prompt of a proposal.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evoseek.errors import ConfigError, DataError, PolicyError, ToolError
from evoseek.learner.distributed import Ranks, gathered
from evoseek.questions.demonstrations import DemonstratedTurn, Demonstration, ProposerDemonstration, load_demonstrations
from evoseek.rollout.environments import passage_task
from evoseek.rollout.limits import Limits
from evoseek.rollout.roller import Roller, nothing_found
from evoseek.text.language import is_refusal
from evoseek.text.normalization import substring_match
from evoseek.types import Completion, SampleRequest, StopReason, ToolCall, TrainingSample, Trajectory

SEARCH = "search"
"""The tool that demonstrations call."""

_AT_ONCE = 64  # demonstrations played concurrently
_TOO_LONG: Mapping[StopReason, str] = {
    StopReason.MAX_TURNS: "rollout.max_turns",
    StopReason.MAX_TOOL_CALLS: "rollout.max_tool_calls",
    StopReason.MAX_TOKENS: "rollout.max_tokens_per_turn or rollout.max_total_tokens",
}
_IN_TEST_SET = "its question is in the test set (evaluation.reviewed)"
# Up to the end of the reasoning, which a template may open; or up to the first tag.
_THOUGHT = re.compile(r"\s*(?:(?:<think>)?((?:(?!<think>).)*?)</think>|([^<]*)<)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Roles:
    """A roller of the policy for each role that a demonstration can have."""

    solver: Roller
    proposer: Roller


@dataclass(frozen=True, slots=True)
class Played:
    """Demonstrations as trajectories, in order, and the counted reasons why others are left out."""

    trajectories: tuple[Trajectory, ...]
    left_out: Counter[str]


def demonstrations_of_file(path: Path, roles: Roles) -> Played:
    """Play the demonstrations of a file, each in its role. Raises DataError or ToolError."""
    return _checked(asyncio.run(play(load_demonstrations(path), roles)))


def without(played: Played, reviewed: Container[str]) -> Played:
    """Leave out demonstrations of the test set's questions. Raises DataError if none is left."""
    kept = tuple(trajectory for trajectory in played.trajectories if trajectory.question.text not in reviewed)
    left_out = Counter({_IN_TEST_SET: len(played.trajectories) - len(kept)})
    return played if len(kept) == len(played.trajectories) else _checked(Played(kept, played.left_out + left_out))


def on_all_ranks(make: Callable[[], Played], ranks: Ranks) -> Played:
    """Return what the first rank makes, on every rank: engines may answer differently the second time."""
    played = make() if ranks.is_first else Played((), Counter())
    return played if ranks.size == 1 else gathered(ranks, played, Played)[0]


def samples_of(trajectories: Sequence[Trajectory]) -> list[TrainingSample]:
    """Make samples with zero advantages, one for each branch, whose action tokens are learnt."""
    branches = [branch for trajectory in trajectories for branch in trajectory.branches]
    zeros = [(0.0,) * len(branch.token_ids) for branch in branches]
    return [TrainingSample(b.token_ids, b.loss_mask, zero, zero) for b, zero in zip(branches, zeros, strict=True)]


def hold_out(trajectories: Sequence[Trajectory], share: float, seed: int) -> tuple[list[Trajectory], list[Trajectory]]:
    """Split demonstrations by question into those to train on and a held-out share: at least one question if the share
    is above 0. Raises DataError if none is left."""
    questions = list(dict.fromkeys(trajectory.question.text for trajectory in trajectories))
    random.Random(f"{seed}/held-out").shuffle(questions)
    held = set(questions[: math.ceil(share * len(questions))])
    trained = [trajectory for trajectory in trajectories if trajectory.question.text not in held]
    if not trained:
        raise DataError(
            f"demonstrations.held_out is {share:g}, so all of the {len(trajectories)} demonstrations are held out and "
            "none is left to train on. Give more demonstrations, or set demonstrations.held_out to 0."
        )
    return trained, [trajectory for trajectory in trajectories if trajectory.question.text in held]


def summary(played: Played, what: str) -> str:
    """Describe the demonstrations: their number, their tokens, and what is wrong with some."""
    trajectories = played.trajectories
    tokens = sum(len(trajectory.token_ids) for trajectory in trajectories)
    written = sum(trajectory.num_action_tokens for trajectory in trajectories)
    words = f"{what}: {len(trajectories):,} demonstrations with {tokens:,} tokens; {written:,} are learnt."
    if played.left_out:
        words += f" {played.left_out.total():,} are left out; {_reason(played.left_out)}."
    if unread := sum(not _is_read(trajectory) for trajectory in trajectories):
        words += (
            f" In {unread:,} no found passage contains the answer: they teach a policy to answer what it has not "
            "read. Check that index and search.top_k are the ones that they were made with."
        )
    return words


class WrittenTurns:
    """A `Sampler` that returns prewritten turns as token ids, with logprobs of 0."""

    policy_version = 0

    def __init__(self, turns: Sequence[tuple[int, ...]]) -> None:
        self._turns = turns

    async def sample(self, request: SampleRequest) -> Completion:
        ids = self._turns[request.turn]
        kept = ids[: request.max_tokens]
        return Completion(kept, (0.0,) * len(kept), "stop" if len(kept) == len(ids) else "length")

    def release(self, trajectory_id: str) -> None:
        """Do nothing: no state is kept."""

    def update_weights(self, version: int, weights: Mapping[str, object] | None = None) -> None:
        """Do nothing: there are no weights."""


async def play(demonstrations: Sequence[Demonstration | ProposerDemonstration], roles: Roles) -> Played:
    """Play each demonstration with its role's environment, renderer and limits; leave out those that do not fit. Raises
    ToolError if a search fails, ConfigError without a search."""
    tools = roles.solver.env.tools
    if SEARCH not in tools:
        raise ConfigError(
            f"Demonstrations call the tool {SEARCH}, but the tools are {', '.join(tools) or 'none'}. Add {SEARCH} to "
            "tools."
        )
    trajectories: list[Trajectory] = []
    left_out: Counter[str] = Counter()
    for first in range(0, len(demonstrations), _AT_ONCE):
        batch = enumerate(demonstrations[first : first + _AT_ONCE], start=first)
        for played in await asyncio.gather(*(_played(demo, roles, f"demonstration/{n}") for n, demo in batch)):
            if isinstance(played, str):
                left_out[played] += 1
            else:
                trajectories.append(played)
    return Played(tuple(trajectories), left_out)


def demonstration_of(trajectory: Trajectory) -> Demonstration | None:
    """Turn a solver's rollout into a demonstration; None without an answer, for a proposal, and for a turn with several
    calls, with none, or with a call of another tool than `search`."""
    if trajectory.role == "proposer":
        return None
    turns = [_turn(action.text, action.tool_calls, action.answer) for action in trajectory.actions]
    kept = tuple(turn for turn in turns if turn is not None)
    if trajectory.answer is None or len(kept) < len(turns) or not all(turn.query for turn in kept[:-1]):
        return None
    return Demonstration(trajectory.question, kept) if kept and kept[-1].answer else None


async def _played(
    demonstration: Demonstration | ProposerDemonstration, roles: Roles, trajectory_id: str
) -> Trajectory | str:
    """Play one demonstration; return the trajectory, or the reason why there is none."""
    if isinstance(demonstration, ProposerDemonstration):
        roller, question = roles.proposer, passage_task(demonstration.id, demonstration.passage, demonstration.hops)
    else:
        roller, question = roles.solver, demonstration.question
    try:
        turns = [_ids(turn, roller) for turn in demonstration.turns]
    except PolicyError as error:
        return str(error)
    own = replace(roller, sampler=WrittenTurns(turns), limits=_strict(roller.limits))
    if own.prompt_length(question) >= own.limits.max_total_tokens:
        return _exceeds(StopReason.MAX_TOKENS)
    trajectory = await own.one(question, trajectory_id)
    if trajectory.failure:
        raise ToolError(
            f"The demonstration {question.id!r} could not be shown: {trajectory.failure} Repair what "
            "failed, and run the same command again."
        )
    return trajectory if trajectory.answer is not None else _exceeds(trajectory.stop_reason)


def _ids(turn: DemonstratedTurn, roller: Roller) -> tuple[int, ...]:
    ending = ToolCall(SEARCH, {"query": turn.query}) if turn.answer is None else turn.answer
    return roller.renderer.render_turn(turn.thought, ending, turn.question or "")


def _strict(limits: Limits) -> Limits:
    return replace(limits, max_malformed=0, final_answer=None, deadline_s=None, wait_s=limits.waiting_s)


def _exceeds(reason: StopReason) -> str:
    return f"it is longer than a rollout may be ({_TOO_LONG.get(reason, reason)})"


def _turn(text: str, calls: Sequence[ToolCall], answer: str | None) -> DemonstratedTurn | None:
    found = _THOUGHT.match(text)
    thought = " ".join((found[1] or found[2] or "").split()) if found else ""
    if answer is not None:
        return DemonstratedTurn(thought, answer=answer) if answer.strip() else None
    if len(calls) != 1 or calls[0].name != SEARCH:
        return None
    query = calls[0].arguments.get("query")
    return DemonstratedTurn(thought, query=query.strip()) if isinstance(query, str) and query.strip() else None


def _checked(played: Played) -> Played:
    if not played.trajectories:
        raise DataError(
            f"None of the {played.left_out.total():,} demonstrations can be learnt; {_reason(played.left_out)}. Raise "
            "the limits (rollout), or choose a model, a format (policy.format) or demonstrations that fit."
        )
    if failure := nothing_found(played.trajectories):
        raise DataError(f"{failure.detail}. Set search.index to the index of the demonstrations.")
    return played


def _reason(left_out: Counter[str]) -> str:
    reason, count = left_out.most_common(1)[0]
    return f"the most frequent reason ({count:,} times): {reason.rstrip('.')}"


def _is_read(trajectory: Trajectory) -> bool:
    """Return whether a found passage, or a proposer's source, holds the answer, or a solver abstains."""
    if trajectory.role == "solver" and is_refusal(trajectory.answer):
        return True
    shown = [trajectory.question.text] if trajectory.role == "proposer" else []
    found = (passage.contents for passage in trajectory.passages)
    return any(substring_match(text, [trajectory.answer or ""]) for text in (*shown, *found))
