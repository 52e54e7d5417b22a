import asyncio

import pytest

from evoseek.training.rollouts import Ahead


class Collector:
    """Collects a step once it is let go; an error that is let go is raised."""

    def __init__(self):
        self.begun, self.ended, self.gates = [], [], {}

    def let_go(self, step, result=None):
        self.gates.setdefault(step, asyncio.Future()).set_result(result)

    async def __call__(self, step):
        self.begun.append(step)
        try:
            result = await self.gates.setdefault(step, asyncio.Future())
        finally:
            self.ended.append(step)
        if isinstance(result, Exception):
            raise result
        return f"rollouts of {step}"


async def idle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_later_steps_begin_with_the_weights_of_the_step_before_and_none_after_the_last():
    async def run():
        collect, ahead = Collector(), Ahead(steps=2, last=4)
        begun = []
        for step in range(1, 5):
            collect.let_go(step)
            rollouts, seconds = await ahead.take(step, collect)
            assert rollouts == f"rollouts of {step}"
            assert seconds >= 0
            await idle()
            begun.append(list(collect.begun))
        assert begun == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]

    asyncio.run(run())


def test_what_is_dropped_has_ended_and_begins_again_when_it_is_taken():
    async def run():
        collect, ahead = Collector(), Ahead(steps=1, last=9)
        collect.let_go(1)
        await ahead.take(1, collect)
        await idle()
        await ahead.drop()
        assert collect.ended == [1, 2]
        collect.gates.clear()
        collect.let_go(2)
        assert (await ahead.take(2, collect))[0] == "rollouts of 2"
        assert collect.begun[:3] == [1, 2, 2]
        await ahead.drop()
        await ahead.drop()

    asyncio.run(run())


def test_an_error_of_a_later_step_waits_for_that_step():
    async def run():
        collect, ahead = Collector(), Ahead(steps=1, last=9)
        collect.let_go(2, ValueError("broken"))
        collect.let_go(1)
        await ahead.take(1, collect)
        await idle()
        with pytest.raises(ValueError, match="broken"):
            await ahead.take(2, collect)
        await ahead.drop()

    asyncio.run(run())
