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
    """

    def __init__(self, limits: Limits) -> None:
        self.waiting = asyncio.timeout(limits.waiting_s)
        self._left_s = inf if limits.deadline_s is None else limits.deadline_s

    @property
    def is_over(self) -> bool:
        """Whether the policy has written for as long as it may."""
        return self._left_s <= 0

    async def sample(self, sampler: Sampler, request: SampleRequest) -> Completion:
        """Sample one turn within the time that is left."""
        request, end = replace(request, max_seconds=self._left_s), self.waiting.when()
        if end is None:
            completion = await sampler.sample(request)
        else:
            began = asyncio.get_running_loop().time()
            self.waiting.reschedule(end + self._left_s if isfinite(self._left_s) else None)
            completion = await sampler.sample(request)
            took = asyncio.get_running_loop().time() - began
            self.waiting.reschedule(end + min(completion.seconds, took))
        self._left_s = 0.0 if completion.finish_reason == "time" else self._left_s - completion.seconds
        return completion
