"""Tool calls through real Ray workers, of which some are lost. Needs the extra `ray`; takes a minute.

Run: python -m pytest tests/extra/test_ray_pool.py
"""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from evoseek.errors import ConfigError, PageError, ToolError
from evoseek.search.web.ray_pool import RayPool
from evoseek.types import Page

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray", exc_type=ImportError)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    places = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "src")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(places))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def pool(cluster):
    made = RayPool("ray_workers:make", {"name": "web"}, workers=2, in_flight=4, waiting=8, deadline_s=30.0, attempts=2)
    yield made
    made.close()


def told(found):
    """Process, calls that ran beside this one, and the most there ever were."""
    return tuple(map(int, found[0][0].text.split()))


def test_results_and_errors_come_back_as_they_are(pool):
    async def run():
        (first,), (second,) = await pool.search(["a", "b"], 1)
        assert (first.id, first.document_id, second.id, first.score) == ("a", "web", "b", 0.5)
        assert await pool.fetch("http://x/") == Page("http://x/", "web", "text")
        with pytest.raises(PageError, match=r"^http://x/gone is gone$"):
            await pool.fetch("http://x/gone")
        with pytest.raises(ToolError, match=r"^the engine is down$"):
            await pool.search(["down"], 1)
        with pytest.raises(ToolError, match="failed with KeyError: 'a bug'"):
            await pool.search(["bug"], 1)

    asyncio.run(run())


def test_one_of_the_workers_is_killed_and_every_call_is_answered(pool):
    async def run():
        first = await asyncio.gather(*(pool.search([f"slow {n}"], 1) for n in range(8)))
        before = {told(found)[0] for found in first}
        calls = asyncio.gather(*(pool.search([f"slow {n}"], 1) for n in range(100)))
        await asyncio.sleep(0.15)
        os.kill(lost := min(before), signal.SIGKILL)
        answers = await calls
        assert [found[0][0].id for found in answers] == [f"slow {n}" for n in range(100)]
        after = {told(found)[0] for found in await asyncio.gather(*(pool.search(["slow"], 1) for _ in range(8)))}
        assert len(before) == len(after) == 2
        assert lost not in after
        assert max(told(found)[2] for found in answers) == 4  # in_flight

    asyncio.run(run())


def test_a_call_that_ends_its_worker_fails_after_so_many_and_the_pool_goes_on(pool):
    async def run():
        with pytest.raises(ToolError, match="lost with each of 2 workers of the Ray pool"):
            await pool.search(["die"], 1)
        assert await pool.fetch("http://x/") == Page("http://x/", "web", "text")

    asyncio.run(run())


def test_a_hanging_call_ends_by_the_deadline_and_in_its_worker_too(pool):
    quick = RayPool("ray_workers:make", {"name": "web"}, workers=1, in_flight=2, waiting=0, deadline_s=1.0)

    async def run():
        begun = time.monotonic()
        with pytest.raises(ToolError, match="not answered within 1 seconds"):
            await quick.search(["hang"], 1)
        assert time.monotonic() - begun < 5.0
        await asyncio.sleep(0.3)
        assert told(await quick.search(["a"], 1))[1] == 1  # nothing runs beside it

    asyncio.run(run())
    quick.close()
    assert ray.is_initialized()  # it was not begun by the pool


def test_workers_that_cannot_be_made_are_told_of_at_once():
    for factory, spec in (("ray_workers:nothing", {}), ("ray_workers:make", {"nome": "web"})):
        with pytest.raises(ConfigError, match=f"could not be made by {factory}"):
            RayPool(factory, spec, workers=1, in_flight=1, waiting=0, deadline_s=1.0)
