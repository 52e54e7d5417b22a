"""A thread with an event loop of its own for rollouts: while a model computes, the server still answers others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs coroutines in its loop, from `start` to `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="rollouts", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. If the caller is cancelled, so is the coroutine."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    def stop(self, limit_s: float) -> bool:
        """Cancel what still runs, and end; False if that takes more than `limit_s` seconds. Nothing can interrupt a
        model that computes: the thread then ends with it, or with the process."""

        async def cancel() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        ending = asyncio.run_coroutine_threadsafe(cancel(), self._loop)
        ending.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        self._thread.join(limit_s)
        if self._thread.is_alive():
            return False
        self._loop.close()
        return True
