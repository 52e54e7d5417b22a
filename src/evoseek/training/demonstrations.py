"""Demonstrations as training samples: those of a file, or the best rollouts of an earlier run.

Each is played by the rollout loop itself, with its turns in place of a sampler. So its prompt, its observations and its
tokens are those that a rollout would have had, and it is within the same limits. A proposer's has the prompt of a
proposal. A rollout of an earlier run keeps its own tokens where it can.
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
from typing import Any

from evoseek.corpus.demonstrations import (
    DemonstratedTurn,
    Demonstration,
    ProposerDemonstration,
    load_demonstrations,
)
from evoseek.corpus.language import is_refusal
from evoseek.corpus.resumable_jsonl import ResumableJsonl
from evoseek.env.environments import passage_task
from evoseek.errors import ConfigError, DataError, PolicyError, ToolError
from evoseek.learner.distributed import Ranks, gathered
from evoseek.reward.answer import substring_match
from evoseek.rollout.limits import Limits
from evoseek.rollout.record import record_of
from evoseek.rollout.roller import Roller, nothing_found
from evoseek.types import Completion, SampleRequest, Scored, StopReason, ToolCall, TrainingSample, Trajectory

SEARCH = "search"
"""The tool that demonstrations call."""

_AT_ONCE = 64  # demonstrations that are played concurrently
_TOO_LONG: Mapping[StopReason, str] = {
    StopReason.MAX_TURNS: "rollout.max_turns",
    StopReason.MAX_TOOL_CALLS: "rollout.max_tool_calls",
    StopReason.MAX_TOKENS: "rollout.max_tokens_per_turn or rollout.max_total_tokens",
}
_IN_TEST_SET = "its question is in the test set (evaluation.reviewed)"
_NO_DEMONSTRATION = "a turn of the rollout is neither a search nor the answer"
# Up to the end of the reasoning, which a template may have opened; or up to the first tag.
_THOUGHT = re.compile(r"\s*(?:(?:<think>)?((?:(?!<think>).)*?)</think>|([^<]*)<)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Roles:
    """The policy in the two roles that demonstrations may be of."""

    solver: Roller
    proposer: Roller


@dataclass(frozen=True, slots=True)
class Played:
    """Demonstrations as trajectories, in order, and why others are left out (each reason, how often)."""

    trajectories: tuple[Trajectory, ...]
    left_out: Counter[str]


def demonstrations_of_file(path: Path, roles: Roles) -> Played:
    """The demonstrations of a file, each played in its role. Raises DataError or ToolError."""
    return _checked(asyncio.run(play(load_demonstrations(path), roles)))


def demonstrations_of_run(
    path: Path, min_reward: float, roles: Roles, decode: Callable[[Sequence[int]], str]
) -> Played:
    """A solver's best rollouts in a record (trajectories.jsonl): their own tokens where they were sampled with this
    solver's tokenizer and prompts, or else played anew from their turns. Raises DataError or ToolError."""
    solver = roles.solver
    own: list[Trajectory] = []
    others: list[Demonstration] = []
    left_out: Counter[str] = Counter()
    for kept in kept_rollouts(path, min_reward):
        if kept.is_of(solver, decode):
            if _fits(kept.trajectory, solver.limits):
                own.append(kept.trajectory)
            else:
                left_out["it is longer than a rollout may be"] += 1
        elif (found := demonstration_of(kept.trajectory)) is not None:
            others.append(found)
        else:
            left_out[_NO_DEMONSTRATION] += 1
    played = asyncio.run(play(others, roles))
    return _checked(Played((*own, *played.trajectories), left_out + played.left_out))


def without(played: Played, reviewed: Container[str]) -> Played:
    """Those that are not about a question of the test set. Raises DataError if none is left."""
    kept = tuple(trajectory for trajectory in played.trajectories if trajectory.question.text not in reviewed)
    left_out = Counter({_IN_TEST_SET: len(played.trajectories) - len(kept)})
    return played if len(kept) == len(played.trajectories) else _checked(Played(kept, played.left_out + left_out))


@dataclass(frozen=True, slots=True)
class KeptRollout:
    """A rollout, and the text of each of its segments as it was recorded."""

    trajectory: Trajectory
    texts: tuple[str, ...]

    def is_of(self, solver: Roller, decode: Callable[[Sequence[int]], str]) -> bool:
        """Whether this solver's tokenizer and prompt are those that the rollout was sampled with: it would be given the
        same prompt ids, and reads the recorded texts from the recorded ids."""
        segments = self.trajectory.segments
        prompt = solver.renderer.render_prompt(solver.env.messages(self.trajectory.question))
        read = (decode(segment.token_ids) for segment in segments)
        return segments[0].token_ids == prompt and all(map(str.__eq__, read, self.texts))


def kept_rollouts(path: Path, min_reward: float) -> list[KeptRollout]:
    """The answers of a solver in a record (trajectories.jsonl) whose reward is at least `min_reward`, in its order; the
    same tokens once. Raises DataError if there are none."""
    seen = best = 0
    chosen: dict[str, dict[tuple[int, ...], KeptRollout]] = {}
    for reward, kept in filter(None, ResumableJsonl(path).rows(_read, "trajectory")):
        seen, best = seen + 1, max(best, reward)
        if kept is not None and reward >= min_reward:
            chosen.setdefault(kept.trajectory.question.text, {}).setdefault(kept.trajectory.token_ids, kept)
    if not chosen:
        raise DataError(
            f"None of the {seen} rollouts of a solver in {path} can be a demonstration: the highest reward of one is "
            f"{best:g}, and demonstrations.min_reward is {min_reward:g}. Lower it, or name a run whose "
            "policy was right more often."
        )
    return [kept for of_question in chosen.values() for kept in of_question.values()]


def _read(row: Any) -> tuple[float, KeptRollout | None] | None:
    """The reward of a solver's line, and its rollout if that answered; None for another role's: the reward of a
    proposal depends on the solver's rollouts, and its passage is no question."""
    record = record_of(row)
    if record.trajectory.role != "solver":
        return None
    if not isinstance(record.outcome, Scored):
        return 0.0, None
    texts = tuple(str(segment["text"]) for segment in row["segments"])
    answered = record.trajectory.answer is not None
    return record.outcome.reward, KeptRollout(record.trajectory, texts) if answered else None


def on_all_ranks(make: Callable[[], Played], ranks: Ranks) -> Played:
    """What the first rank makes, on every rank: engines may answer differently twice."""
    played = make() if ranks.is_first else Played((), Counter())
    return played if ranks.size == 1 else gathered(ranks, played, Played)[0]


def sample_of(trajectory: Trajectory) -> TrainingSample:
    """The sample of which the action tokens are learnt, with zero advantages."""
    zeros = (0.0,) * len(trajectory.token_ids)
    return TrainingSample(trajectory.token_ids, trajectory.loss_mask, zeros, zeros)


def hold_out(trajectories: Sequence[Trajectory], share: float, seed: int) -> tuple[list[Trajectory], list[Trajectory]]:
    """Demonstrations to train on, and those of a share of the questions to hold out: at least one question if the share
    is above 0. All demonstrations of a question are on the same side. Raises DataError if none is left."""
    questions = list(dict.fromkeys(trajectory.question.text for trajectory in trajectories))
    random.Random(f"{seed}/held-out").shuffle(questions)
    held = set(questions[: math.ceil(share * len(questions))])
    trained = [trajectory for trajectory in trajectories if trajectory.question.text not in held]
    if not trained:
        raise DataError(
            f"With demonstrations.held_out = {share:g}, all of the {len(trajectories)} demonstrations are held out and "
            "none is left to train on. Give more demonstrations, or set demonstrations.held_out to 0."
        )
    return trained, [trajectory for trajectory in trajectories if trajectory.question.text in held]


def summary(played: Played, what: str) -> str:
    """The number of demonstrations and of their tokens, and what is wrong with some, in words."""
    trajectories = played.trajectories
    tokens = sum(len(trajectory.token_ids) for trajectory in trajectories)
    written = sum(trajectory.num_action_tokens for trajectory in trajectories)
    words = f"{what}: {len(trajectories):,} demonstrations with {tokens:,} tokens, of which {written:,} are learnt."
    if played.left_out:
        words += f" {played.left_out.total():,} are left out; {_reason(played.left_out)}."
    if unread := sum(not _is_read(trajectory) for trajectory in trajectories):
        words += (
            f" In {unread:,} the answer is in none of the passages that were found: from them a policy learns to "
            "answer what it has not read. Check that the index is the one that they were made with, and search.top_k."
        )
    return words


class WrittenTurns:
    """A `Sampler` that gives turns that were written before, as token ids. Their logprobs are 0."""

    policy_version = 0

    def __init__(self, turns: Sequence[tuple[int, ...]]) -> None:
        self._turns = turns

    async def sample(self, request: SampleRequest) -> Completion:
        """The turn of that number, cut if it is longer than the request allows."""
        ids = self._turns[request.turn]
        kept = ids[: request.max_tokens]
        return Completion(kept, (0.0,) * len(kept), "stop" if len(kept) == len(ids) else "length")

    def release(self, trajectory_id: str) -> None:
        """Nothing is kept."""

    def update_weights(self, version: int, weights: Mapping[str, object] | None = None) -> None:
        """There are no weights."""


async def play(demonstrations: Sequence[Demonstration | ProposerDemonstration], roles: Roles) -> Played:
    """Play each demonstration with the environment, the renderer and the limits of its role.

    One that the tokenizer cannot write, or that the limits do not allow, is left out. Raises ToolError if a search
    fails, ConfigError if there is no search.
    """
    tools = roles.solver.env.tools
    if SEARCH not in tools:
        raise ConfigError(
            f"Demonstrations call the tool {SEARCH}, but the tools here are {', '.join(tools) or 'none'}. Put {SEARCH} "
            "into tools."
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
    """The demonstration that a solver's rollout gives; None if it did not answer, or had a turn that cannot be written
    down: one without a call, with several, or with a call of another tool than `search`; and for a proposal, which is
    no answer to its question."""
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
    """The trajectory, or in words why there is none."""
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
            "failed and give the same command again."
        )
    return trajectory if trajectory.answer is not None else _exceeds(trajectory.stop_reason)


def _ids(turn: DemonstratedTurn, roller: Roller) -> tuple[int, ...]:
    ending = ToolCall(SEARCH, {"query": turn.query}) if turn.answer is None else turn.answer
    return roller.renderer.render_turn(turn.thought, ending, turn.question or "")


def _strict(limits: Limits) -> Limits:
    """The same limits, but nothing is said to who exceeds them, and no clock is used for what was written before."""
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
        raise DataError(f"{failure.detail}. Give the index that the demonstrations are about (search.index).")
    return played


def _reason(left_out: Counter[str]) -> str:
    reason, count = left_out.most_common(1)[0]
    return f"the most frequent reason ({count:,} times): {reason.rstrip('.')}"


def _fits(trajectory: Trajectory, limits: Limits) -> bool:
    turns = [len(segment.token_ids) for segment in trajectory.segments if segment.kind == "action"]
    return (
        len(trajectory.token_ids) <= limits.max_total_tokens
        and len(turns) <= limits.max_turns
        and max(turns) <= limits.max_tokens_per_turn
        and len(trajectory.tool_results) <= limits.max_tool_calls
    )


def _is_read(trajectory: Trajectory) -> bool:
    """Whether a passage that was found, or that a proposer was shown, holds the answer, or a solver refuses."""
    if trajectory.role == "solver" and is_refusal(trajectory.answer):
        return True
    shown = [trajectory.question.text] if trajectory.role == "proposer" else []
    found = (passage.contents for result in trajectory.tool_results for passage in result.passages)
    return any(substring_match(text, [trajectory.answer or ""]) for text in (*shown, *found))
