"""The limits of a rollout, and its two times: the policy's writing time, and the waiting time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from math import inf, isfinite

from evoseek.errors import ConfigError
from evoseek.protocols import Sampler
from evoseek.types import Completion, SampleRequest

_CHARACTERS = 16  # per token: more than the average of any text


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one rollout; each has its StopReason.

    Attributes:
        max_turns: completions. The last may only answer: its calls are not run. max_tool_calls: calls in all turns
        together. max_malformed: turns with neither a call nor an answer (possibly because they were cut off) after
        which the
            model gets a notice and continues. 0 ends the rollout with the first of them.
        final_answer: a notice that the model gets once, when it asks for more calls than are left, or (with
            `max_malformed` above 0) when a turn is malformed once more than allowed: none of the turn's calls is made,
            the notice replaces each result, and in one more turn (if `max_turns` leaves one) it can only answer. None
            ends the rollout instead.
        max_tokens_per_turn: length of a completion.
        max_total_tokens: length of the trajectory, with prompt and observations; no more than the sampler's length.
        deadline_s: seconds that the sampler may work on the policy's own tokens; a policy that takes longer is scored.
        wait_s: seconds that the rollout may wait in all, for a slot of the embedded sampler, tools and engines; one
            that waits longer is Invalid. None: as many as `deadline_s`. A turn that has waited for longer is ended when
            it has been sampled; other time in the sampler is not counted, since the policy may be writing.

    Without both no clock is used, so that runs are reproducible.
    """

    max_turns: int = 5
    max_tool_calls: int = 16
    max_tokens_per_turn: int = 512
    max_total_tokens: int = 4096
    deadline_s: float | None = None
    wait_s: float | None = None
    final_answer: str | None = None
    max_malformed: int = 0

    @property
    def calls(self) -> int:
        """Maximum number of calls with one a turn: the last turn may only answer."""
        return min(self.max_tool_calls, self.max_turns - 1)

    @property
    def turn(self) -> int:
        """Tokens that a prompt leaves for a turn: a completion's, but at most half of all."""
        return min(self.max_tokens_per_turn, self.max_total_tokens // 2)

    @property
    def max_result_characters(self) -> int:
        """Maximum characters of a tool's result, cut off before encoding: more would exceed the rollout's tokens."""
        return _CHARACTERS * self.max_total_tokens

    @property
    def waiting_s(self) -> float | None:
        """Seconds that the rollout may wait; None: no limit."""
        return self.deadline_s if self.wait_s is None else self.wait_s


class Clock:
    """The two times of a rollout, each with its limit; without limits no clock is used.

    `waiting` is entered around the whole rollout and raises TimeoutError when it has waited for too long. The sampler
    reports how long it worked on a turn and how long the turn waited before, and ends one that would take more than the
    policy's time left. No turn is ended from here while it is sampled, since the policy may be writing: a sampler has
    limits of its own for servers that hang. Without `counts_queue` the wait for the sampler is not counted either.
    """

    def __init__(self, limits: Limits, *, counts_queue: bool = True) -> None:
        self.waiting = asyncio.timeout(limits.waiting_s)
        self._counts_queue = counts_queue
        self._left_s = inf if limits.deadline_s is None else limits.deadline_s

    @property
    def is_over(self) -> bool:
        """Whether the policy has used up its writing time."""
        return self._left_s <= 0

    async def sample(self, sampler: Sampler, request: SampleRequest) -> Completion:
        """Sample one turn within the remaining time. If the turn waited for too long, `waiting` ends. Raises
        ConfigError if the policy's own time is limited, but the sampler does not report it."""
        request, end = replace(request, max_seconds=self._left_s), self.waiting.when()
        if end is None:
            return await sampler.sample(request)
        time = asyncio.get_running_loop().time
        began = time()
        self.waiting.reschedule(None)
        try:
            completion = await sampler.sample(request)
        except Exception:
            self.waiting.reschedule(end + time() - began)  # an agent may go on
            raise
        if completion.seconds is None and isfinite(self._left_s):
            raise ConfigError(
                "The limit deadline_s needs the seconds that the sampler worked on a turn, but the sampler "
                f"{type(sampler).__name__} does not report them, so slow writing cannot be told from waiting. Leave "
                "deadline_s out; the limits in tokens bound what a policy writes."
            )
        self._left_s = 0.0 if completion.finish_reason == "time" else self._left_s - (completion.seconds or 0.0)
        end += max(time() - began - (completion.waited if self._counts_queue else 0.0), 0.0)
        self.waiting.reschedule(end)
        if end <= time():
            await asyncio.sleep(0)  # let the limit end the rollout: a last turn does not suspend it again
        return completion
