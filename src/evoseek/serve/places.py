"""A bounded queue: how many answers are under way at once, and how many requests wait for a place."""

from __future__ import annotations

import asyncio
import math

from evoseek.serve.batching import BusyError

_LONGEST_S = 60


class Places:
    """`running` places, and a queue of at most `waiting` for them, in order of arrival. For one event loop."""

    def __init__(self, running: int, waiting: int) -> None:
        self.most = running + waiting
        self._free = asyncio.Semaphore(running)
        self._at_once, self._seconds = running, 1.0
        self.taken = self.running = 0

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return self.taken - self.running

    @property
    def retry_after_s(self) -> int:
        """Seconds after which there may be room in the queue: as long as one answer has taken lately."""
        return max(1, min(_LONGEST_S, math.ceil(self._seconds)))

    def reserve(self) -> Place:
        """A place in the queue, at once. Raises BusyError if there is none."""
        if self.taken >= self.most:
            raise BusyError
        return Place(self, self._free)

    def learn(self, seconds: float) -> None:
        """Note how long an answer took."""
        self._seconds += (seconds - self._seconds) / 8


class Place:
    """One place: reserved when it is made, until `leave`."""

    def __init__(self, places: Places, free: asyncio.Semaphore) -> None:
        self._places, self._free = places, free
        self._begun = self._left = False
        places.taken += 1

    async def begin(self) -> None:
        """Wait for the turn of this request."""
        await self._free.acquire()
        self._begun = True
        self._places.running += 1

    def leave(self) -> None:
        """Give the place back. A second call does nothing."""
        if self._left:
            return
        self._left = True
        self._places.taken -= 1
        if self._begun:
            self._places.running -= 1
            self._free.release()
