"""The thread of the rollouts, and how it ends."""

import asyncio
import threading

import pytest

from evoseek.serve.answer_queue import Worker


@pytest.fixture
def worker():
    worker = Worker()
    worker.start()
    return worker


def test_what_runs_is_cancelled(worker):
    async def use():
        waiting = asyncio.create_task(worker.run(asyncio.Event().wait()))
        await asyncio.sleep(0)
        assert await asyncio.to_thread(worker.stop, 60)
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(use())


def test_what_cannot_be_interrupted_is_not_waited_for_without_a_limit(worker):
    computing, done = threading.Event(), threading.Event()

    async def compute():
        computing.set()
        done.wait()  # as a model computes: nothing else runs in this thread meanwhile

    async def use():
        running = asyncio.create_task(worker.run(compute()))
        await asyncio.to_thread(computing.wait)
        assert not await asyncio.to_thread(worker.stop, 0.01)
        done.set()
        await asyncio.wait({running})

    asyncio.run(use())


def test_what_ignores_that_it_is_cancelled_is_not_waited_for_without_a_limit(worker):
    async def stubborn(ended):
        while not ended.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    async def use():
        ended = threading.Event()
        running = asyncio.create_task(worker.run(stubborn(ended)))
        await asyncio.sleep(0.05)
        assert not await asyncio.to_thread(worker.stop, 0.01)
        ended.set()
        await asyncio.wait({running})

    asyncio.run(use())
