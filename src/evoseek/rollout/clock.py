"""The two times of a rollout: its own, in which the policy writes, and the time in which it waits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf, isfinite

from evoseek.protocols import Sampler
from evoseek.rollout.limits import Limits
from evoseek.types import Completion, SampleRequest


class Clock:
    """The two times of a rollout, each with its limit; without limits no clock is used.

    `waiting` is entered around the whole rollout and raises TimeoutError when it has waited for too long. The policy's
    own time moves this deadline: the sampler reports how long it worked, and ends a turn that would take more than the
    time left. Without `deadline_s` nothing tells a sampler that writes from one that hangs, so there a single turn may
    take no longer than is left to wait; its own time is credited when it ends.
    """

    def __init__(self, limits: Limits) -> None:
        self.waiting = asyncio.timeout(limits.waiting_s)
        self._left_s = inf if limits.deadline_s is None else limits.deadline_s

    @property
    def is_over(self) -> bool:
        """Whether the policy has written for as long as it may."""
        return self._left_s <= 0

    async def sample(self, sampler: Sampler, request: SampleRequest) -> Completion:
        """Sample one turn within the time that is left. If the turn took too long, `waiting` ends."""
        request, end = replace(request, max_seconds=self._left_s), self.waiting.when()
        if end is None:
            completion = await sampler.sample(request)
        else:
            time = asyncio.get_running_loop().time
            began = time()
            self.waiting.reschedule(end + self._left_s if isfinite(self._left_s) else end)
            completion = await sampler.sample(request)
            end += min(completion.seconds, time() - began)
            is_late = end <= time()
            self.waiting.reschedule(end)
            if is_late:
                await asyncio.sleep(0)  # lets the limit end the rollout: a last turn does not suspend it again
        self._left_s = 0.0 if completion.finish_reason == "time" else self._left_s - completion.seconds
        return completion
