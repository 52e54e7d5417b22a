"""Whose turn it is to ask a host."""

import asyncio
import time
from itertools import pairwise

import pytest

from evoseek.errors import ToolError
from evoseek.search.browse.throttle import HostThrottle

LONG = 1e9


def test_a_host_is_asked_at_intervals_and_hosts_do_not_wait_for_each_other():
    turns, begun = HostThrottle(0.2, 10), {"a": [], "b": []}

    async def ask(host):
        async with turns.turn(host, until=LONG):
            begun[host].append(time.monotonic())

    async def ask_all():
        await asyncio.gather(*map(ask, "aaabbb"))

    start = time.monotonic()
    asyncio.run(ask_all())
    for times in begun.values():
        assert times[0] - start < 0.2
        assert all(later - earlier >= 0.2 for earlier, later in pairwise(times))


def test_so_many_at_once():
    turns, current, most = HostThrottle(0, 2), 0, 0

    async def ask():
        nonlocal current, most
        async with turns.turn("a", until=LONG):
            current += 1
            most = max(most, current)
            await asyncio.sleep(0.005)
            current -= 1

    async def ask_all():
        await asyncio.gather(*(ask() for _ in range(7)))

    for _ in range(2):  # in two event loops
        asyncio.run(ask_all())
    assert most == 2


def test_a_delay_and_a_pause_hold_for_the_next_and_refuse_whoever_cannot_wait():
    turns = HostThrottle(0, 1)

    async def ask(delay_s=0.0, within=LONG):
        async with turns.turn("a", delay_s=delay_s, until=time.monotonic() + within):
            return time.monotonic()

    async def ask_all():
        first = await ask(delay_s=0.05)
        assert await ask() - first >= 0.05
        turns.pause("a", 60)
        with pytest.raises(ToolError, match="left alone for 60 more seconds"):
            await ask(within=15)

    asyncio.run(ask_all())


def test_who_gives_up_takes_nobodys_turn():
    turns = HostThrottle(0.3, 5)

    async def ask():
        async with turns.turn("a", until=LONG):
            return time.monotonic()

    async def ask_all():
        first = await ask()
        impatient = [asyncio.wait_for(ask(), 0.02) for _ in range(3)]
        *given_up, last = await asyncio.gather(*impatient, ask(), return_exceptions=True)
        assert [type(one) for one in given_up] == [TimeoutError] * 3
        assert last - first < 0.55

    asyncio.run(ask_all())
