"""The two times of a rollout: its own, in which the policy writes, and the time in which it waits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf, isfinite

from evoseek.errors import ConfigError
from evoseek.protocols import Sampler
from evoseek.rollout.limits import Limits
from evoseek.types import Completion, SampleRequest


class Clock:
    """The two times of a rollout, each with its limit; without limits no clock is used.

    `waiting` is entered around the whole rollout and raises TimeoutError when it has waited for too long. The sampler
    reports how long it worked on a turn and how long the turn waited before, and ends one that would take more than the
    policy's time left. No turn is ended from here while it is sampled, since the policy may be writing: a sampler has
    limits of its own for servers that hang.
    """

    def __init__(self, limits: Limits) -> None:
        self.waiting = asyncio.timeout(limits.waiting_s)
        self._left_s = inf if limits.deadline_s is None else limits.deadline_s

    @property
    def is_over(self) -> bool:
        """Whether the policy has written for as long as it may."""
        return self._left_s <= 0

    async def sample(self, sampler: Sampler, request: SampleRequest) -> Completion:
        """Sample one turn within the time that is left. If the turn waited for too long, `waiting` ends. Raises
        ConfigError for a limit on the policy's own time, if the sampler does not report that."""
        request, end = replace(request, max_seconds=self._left_s), self.waiting.when()
        if end is None:
            return await sampler.sample(request)
        time = asyncio.get_running_loop().time
        began = time()
        self.waiting.reschedule(None)
        completion = await sampler.sample(request)
        if completion.seconds is None and isfinite(self._left_s):
            raise ConfigError(
                "The limit deadline_s needs the seconds that the sampler worked on a turn, but this sampler does not "
                f"report them ({type(sampler).__name__}): a policy that writes slowly cannot be told from a turn that "
                "waited. Leave deadline_s out; the limits in tokens bound what a policy writes."
            )
        self._left_s = 0.0 if completion.finish_reason == "time" else self._left_s - (completion.seconds or 0.0)
        end += max(time() - began - completion.waited, 0.0)
        self.waiting.reschedule(end)
        if end <= time():
            await asyncio.sleep(0)  # lets the limit end the rollout: a last turn does not suspend it again
        return completion
