"""Whose time it is: a rollout's own, in which the policy writes, or that in which it waits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf, isfinite

from evoseek.protocols import Sampler
from evoseek.rollout.limits import Limits
from evoseek.types import Completion, SampleRequest


class Clock:
    """The two times of a rollout, each with its limit; without limits no clock is looked at.

    `waiting` is entered around the whole rollout and raises TimeoutError when that has waited for too long. What the
    policy writes moves its end: the sampler says how long it worked, and ends a turn that would take more than is left.
    Without `deadline_s` nothing tells a sampler that writes from one that hangs, so there a single turn may take no
    longer than is left to wait; what it wrote for is given back when it ends.
    """

    def __init__(self, limits: Limits) -> None:
        self.waiting = asyncio.timeout(limits.waiting_s)
        self._left_s = inf if limits.deadline_s is None else limits.deadline_s

    @property
    def is_over(self) -> bool:
        """Whether the policy has written for as long as it may."""
        return self._left_s <= 0

    async def sample(self, sampler: Sampler, request: SampleRequest) -> Completion:
        """Sample one turn within the time that is left. Where it was waited for too long, `waiting` ends."""
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
