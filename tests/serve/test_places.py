"""The queue: its places by number, in order, and given back however a request ends."""

import asyncio

import pytest

from evoseek.serve.batching import BusyError
from evoseek.serve.places import Places


def test_places_are_taken_in_order_and_given_back_once():
    async def scenario():
        places, begun = Places(1, 2), []
        own = [places.reserve() for _ in range(3)]
        with pytest.raises(BusyError):
            places.reserve()

        async def wait(number):
            await own[number].begin()
            begun.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(3)]
        await asyncio.sleep(0)
        assert (begun, places.taken, places.running, places.waiting) == ([0], 3, 1, 2)
        tasks[1].cancel()
        await asyncio.sleep(0)
        own[1].leave()  # it never began
        own[0].leave()
        own[0].leave()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (begun, places.taken, places.running) == ([0, 2], 1, 1)
        own[2].leave()
        assert (places.taken, places.running) == (0, 0)

    asyncio.run(scenario())


def test_when_to_ask_again_follows_how_long_answers_take():
    places = Places(1, 1)
    assert places.retry_after_s == 1
    for _ in range(8):
        places.learn(9.0)  # from 1: 1 + 8 * (1 - (7/8)^8) = 6.25
    assert places.retry_after_s == 7
    for _ in range(100):
        places.learn(1e6)
    assert places.retry_after_s == 60
