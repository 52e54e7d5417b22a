"""At most so many calls at once, the others in line."""

import asyncio

import pytest

from evoseek.errors import ConfigError, PageError, ToolError
from evoseek.http.limits import CallPool


class Calls:
    """Calls that end when told, in a pool: who has begun, and how many run at once."""

    def __init__(self, concurrency=2):
        self.pool = CallPool(concurrency=concurrency)
        self.begun, self.running, self.most = [], 0, 0
        self.ends = {}

    def start(self, name):
        async def call():
            self.begun.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                return await self.ends.setdefault(name, asyncio.get_running_loop().create_future())
            finally:
                self.running -= 1

        return asyncio.create_task(self.pool.run(call))


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


def test_calls_run_in_the_order_in_which_they_came_only_so_many_at_once():
    async def run():
        calls = Calls(concurrency=3)
        tasks = [calls.start(n) for n in range(40)]
        await settle()
        assert calls.begun == [0, 1, 2]
        for n in range(40):
            calls.ends[n].set_result(n)
            await settle()
        assert await asyncio.gather(*tasks) == list(range(40))
        assert (calls.begun, calls.most) == (list(range(40)), 3)

    asyncio.run(run())


def test_a_late_comer_does_not_overtake():
    async def run():
        calls = Calls(concurrency=1)
        tasks = [calls.start(n) for n in range(4)]
        await settle()
        calls.ends[0].set_result(0)
        await asyncio.sleep(0)
        tasks.append(calls.start(4))
        await settle()
        for n in range(1, 5):
            calls.ends[n].set_result(n)
            await settle()
        assert calls.begun == [0, 1, 2, 3, 4]

    asyncio.run(run())


@pytest.mark.parametrize("cancelled", range(6))
def test_a_cancelled_caller_frees_its_place_wherever_it_is(cancelled):
    """Of six, two run."""

    async def run():
        calls = Calls()
        tasks = [calls.start(n) for n in range(6)]
        await settle()
        tasks[cancelled].cancel()
        for n in range(6):
            await settle()
            if n != cancelled:
                calls.ends[n].set_result(n)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results.pop(cancelled), asyncio.CancelledError)
        assert results == [n for n in range(6) if n != cancelled]
        assert calls.most == 2
        assert calls.running == 0

    asyncio.run(asyncio.wait_for(run(), 10))


def test_cancelling_one_in_the_instant_of_its_turn_loses_no_place():
    async def run():
        calls = Calls(concurrency=1)
        tasks = [calls.start(n) for n in range(3)]
        await settle()
        calls.ends[0].set_result(0)
        await asyncio.sleep(0)  # the turn is handed on, and 1 has not yet run
        tasks[1].cancel()
        await settle()
        assert 2 in calls.begun
        calls.ends[2].set_result(2)
        assert await tasks[2] == 2

    asyncio.run(asyncio.wait_for(run(), 10))


@pytest.mark.parametrize("error", [ToolError("down"), PageError("gone"), TimeoutError("its own"), KeyError("a bug")])
def test_what_a_call_raises_passes_through_and_frees_the_place(error):
    async def run():
        calls = Calls(concurrency=1)
        tasks = [calls.start(n) for n in range(2)]
        await settle()
        calls.ends[0].set_exception(error)
        with pytest.raises(type(error)) as raised:
            await tasks[0]
        assert raised.value is error
        await settle()
        calls.ends[1].set_result(1)
        assert await tasks[1] == 1

    asyncio.run(run())


def test_a_pool_serves_one_event_loop_after_another():
    pool = CallPool(concurrency=1)

    async def call():
        await asyncio.sleep(0)
        return 1

    async def run():
        return await asyncio.gather(*(pool.run(call) for _ in range(5)))

    assert [asyncio.run(run()) for _ in range(3)] == [[1] * 5] * 3


def test_a_pool_that_allows_no_call_is_refused():
    with pytest.raises(ConfigError, match="Expected at least one call"):
        CallPool(concurrency=0)
