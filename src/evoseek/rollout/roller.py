"""Rolls questions out: policy, environment, limits and random numbers. Every rollout comes from here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from evoseek.errors import ConfigError, ToolError
from evoseek.protocols import Chat, Environment, OpeningEnvironment, Renderer, RewardFn, Sampler
from evoseek.rollout.calls import Watch, unwatched
from evoseek.rollout.environments import after
from evoseek.rollout.gateway.attempts import AgentRunner, Rolled
from evoseek.rollout.limits import Limits
from evoseek.rollout.run import Reference, converse, run_trajectory
from evoseek.types import (
    Invalid,
    Message,
    Outcome,
    Question,
    StopReason,
    ToolResult,
    Trajectory,
    TrajectoryGroup,
)

REFILLS = 2
"""Number of times an Invalid member of a group is rolled out again."""

_ENOUGH = 10  # searches that tell a broken engine from queries that match nothing
_SHOWN = 80  # characters of a query
_NAMED = 5  # questions named in a text


@dataclass(frozen=True, slots=True)
class Roller:
    """An environment, its policy and limits. `temperature` 0 is greedy. Seed, trajectory id and turn determine random
    streams. `reference` answers in place of rollouts that are put off. An `agent` runs instead of the turn loop; the
    lengths of its prompts are unknown."""

    env: Environment
    renderer: Renderer
    sampler: Sampler
    limits: Limits
    temperature: float = 1.0
    seed: int = 0
    reference: Reference | None = None
    agent: AgentRunner | None = None

    def at(self, temperature: float | None) -> Roller:
        """Return this roller at another temperature; None changes nothing."""
        return self if temperature is None else replace(self, temperature=temperature)

    def after(self, history: Sequence[Message]) -> Roller:
        return replace(self, env=after(history, self.env))

    def prompt_length(self, question: Question) -> int:
        if self.agent is not None:
            return 0
        return len(self.renderer.render_prompt(self.env.messages(question)))

    def can_ask(self, question: Question) -> bool:
        """Return whether the prompt leaves room for a token, without which a rollout cannot begin."""
        return self.prompt_length(question) < self.limits.max_total_tokens

    def has_room(self, question: Question) -> bool:
        """Return whether the prompt leaves room for a turn (at most half of all tokens), and for what is found before
        the first turn (a third of all tokens)."""
        total = self.limits.max_total_tokens
        opening = total // 3 if isinstance(self.env, OpeningEnvironment) else 0
        return self.prompt_length(question) + opening + self.limits.turn <= total

    async def one(
        self,
        question: Question,
        trajectory_id: str,
        *,
        puts_off: bool = False,
        start: Trajectory | None = None,
        watch: Watch = unwatched,
    ) -> Trajectory:
        if self.agent is not None:
            rolled = Rolled(self.sampler, self.limits, self.temperature, self.seed)
            return await self.agent.attempt(question, trajectory_id, rolled, watch)
        return await run_trajectory(
            question,
            start=start,
            env=self.env,
            renderer=self.renderer,
            sampler=self.sampler,
            limits=self.limits,
            trajectory_id=trajectory_id,
            temperature=self.temperature,
            seed=self.seed,
            puts_off=puts_off,
            reference=self.reference,
            watch=watch,
        )

    async def group(
        self, question: Question, *, size: int, reward: RewardFn, key: str, refills: int = REFILLS, put_off: int = 0
    ) -> TrajectoryGroup:
        """Roll out `size` trajectories concurrently, with ids `<key>/0`, `<key>/1`, ..., and score each as it ends. The
        last `put_off` of them put off their first answer.

        An Invalid member is rolled out again, at most `refills` times, as `<key>/<i>r1`, `<key>/<i>r2`, ...: a new id
        gives new random numbers. `replaced` holds the replaced attempts; the last one stays, even if Invalid.
        """

        async def attempt(trajectory_id: str, puts_off: bool) -> tuple[Trajectory, Outcome]:
            trajectory = await self.one(question, trajectory_id, puts_off=puts_off)
            return trajectory, await score(trajectory, reward)

        async def member(index: int) -> tuple[Trajectory, Outcome, list[tuple[Trajectory, Invalid]]]:
            replaced: list[tuple[Trajectory, Invalid]] = []
            puts_off = index >= size - put_off
            trajectory, outcome = await attempt(f"{key}/{index}", puts_off)
            while isinstance(outcome, Invalid) and len(replaced) < refills:
                replaced.append((trajectory, outcome))
                trajectory, outcome = await attempt(f"{key}/{index}r{len(replaced)}", puts_off)
            return trajectory, outcome, replaced

        members = await asyncio.gather(*(member(index) for index in range(size)))
        return TrajectoryGroup(
            key,
            tuple(trajectory for trajectory, _, _ in members),
            tuple(outcome for _, outcome, _ in members),
            tuple(failed for _, _, replaced in members for failed in replaced),
        )


def askable(questions: Sequence[Question], roller: Roller, *, setting: str) -> tuple[list[Question], str]:
    """Return the questions whose prompts leave room to write, and a text about the others ("": none). `setting` names
    their file in the text. Raises ConfigError if none is left."""
    kept, too_long = list[Question](), list[Question]()
    for question in questions:
        (kept if roller.can_ask(question) else too_long).append(question)
    if not too_long:
        return kept, ""
    named = ", ".join(repr(question.id) for question in too_long[:_NAMED])
    named += f" and {len(too_long) - _NAMED} more" if len(too_long) > _NAMED else ""
    longest = max(map(roller.prompt_length, too_long))
    words = (
        f"{len(too_long)} of {len(questions)} questions of {setting} are left out, since their prompts leave no room "
        f"to write: the longest has {longest} tokens, and a rollout may have {roller.limits.max_total_tokens} "
        f"(rollout.max_total_tokens). Their ids: {named}."
    )
    if questions and not kept:
        raise ConfigError(f"{words} None is left. Raise rollout.max_total_tokens, or use a shorter prompt.")
    return kept, words


@dataclass(frozen=True, slots=True)
class ChatRoller:
    """A chat model in an environment, used like a `Roller`. The number of its prompts' tokens is unknown."""

    chat: Chat
    env: Environment
    limits: Limits

    def after(self, history: Sequence[Message]) -> ChatRoller:
        return replace(self, env=after(history, self.env))

    def prompt_length(self, question: Question) -> int:
        return 0

    def has_room(self, question: Question) -> bool:
        return True

    async def one(self, question: Question, trajectory_id: str, *, watch: Watch = unwatched) -> Trajectory:
        return await converse(
            question, env=self.env, chat=self.chat, limits=self.limits, trajectory_id=trajectory_id, watch=watch
        )


async def score(trajectory: Trajectory, reward: RewardFn) -> Outcome:
    """Return the outcome of a trajectory. A failed trajectory is Invalid and not scored; so is one whose reward
    fails."""
    if trajectory.stop_reason.is_failure:
        return Invalid(trajectory.stop_reason, trajectory.failure or "")
    try:
        return await reward(trajectory)
    except ToolError as error:
        return Invalid(StopReason.REWARD_FAILED, str(error))


def searches(trajectories: Sequence[Trajectory]) -> list[ToolResult]:
    """Return the results of calls that searched."""
    return [result for trajectory in trajectories for result in trajectory.results if any(result.queries)]


def nothing_found(trajectories: Sequence[Trajectory]) -> Invalid | None:
    """Return the failure of an engine that found nothing in any search of these rollouts; None if it found something,
    or made fewer than ten searches.

    If an engine is down, it raises an error, and the rollout ends Invalid. If it has lost its index, it answers every
    query with an empty list: each rollout would be scored, mostly as wrong, and trained on, and in self-play pay the
    proposer. One rollout cannot tell this from queries that match nothing; a whole step can.
    """
    made = searches(trajectories)
    if len(made) < _ENOUGH or any(result.passages for result in made):
        return None
    return Invalid(
        StopReason.TOOL_FAILED,
        f"The search engine found nothing in any of {len(made)} searches, the first for "
        f"{made[0].queries[0][:_SHOWN]!r}. Its index is empty or lost, or lacks what the policy searches for: "
        "try your own query",
    )


def as_failed(group: TrajectoryGroup, failure: Invalid) -> TrajectoryGroup:
    """Replace every outcome of a group by the failure."""
    return replace(group, outcomes=(failure,) * len(group.outcomes))


def failed_if_nothing_found(groups: Sequence[TrajectoryGroup]) -> list[TrajectoryGroup]:
    """Return the groups unchanged; all Invalid if the engine found nothing for any of them."""
    failure = nothing_found([trajectory for group in groups for trajectory in group.trajectories])
    return [as_failed(group, failure) for group in groups] if failure else list(groups)
