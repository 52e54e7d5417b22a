"""Each fault of the server of tests is what it is said to be, and is drawn by what is asked for."""

import asyncio
import time
import zlib
from collections import Counter

import httpx2
import pytest
from tests.doubles.faults import BOMB_BYTES, INTERNAL, Fault, Faults
from tests.doubles.world_site import WorldSite

from evoseek.world.site import Site
from evoseek.world.world import World

SITE = Site(World.generate(3, 200, "train"), 0)
PATH = SITE.url_path(0)
SEARCH = "/searxng/search?q=a&format=json"


def visit(fault, task, *, pages=True, searches=True, **settings):
    """The result of `task(client, server)` with a server that has this fault, and nothing open after it."""

    async def run():
        server = WorldSite(SITE, **settings)
        server.page_faults.set({fault: 1.0} if pages else {})
        server.search_faults.set({fault: 1.0} if searches else {})
        async with server.serving() as url, httpx2.AsyncClient(base_url=url, timeout=30.0, trust_env=False) as client:
            result = await task(client, server)
        assert server.connections == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(run())


async def get(client, server):
    return await client.get(PATH), server.counts


def test_responses_that_are_false():
    (busy, counts), (captcha, _) = visit("too_many", get, retry_after_s=7), visit("captcha", get)
    assert (busy.status_code, busy.headers["retry-after"]) == (429, "7")
    assert counts == {"page": 1, "page too_many": 1}
    assert (captcha.status_code, "CAPTCHA" in captcha.text) == (200, True)
    inside, _ = visit("internal", get)
    assert (inside.status_code, inside.headers["location"] in INTERNAL) == (302, True)


def test_responses_that_are_sent_badly():
    with pytest.raises(httpx2.ReadError):
        visit("reset", get)
    with pytest.raises(httpx2.RemoteProtocolError, match="complete message body"):
        visit("wrong_length", get)
    start = time.monotonic()
    assert visit("slow", get, slow_s=0.2)[0].text == SITE.page(PATH).html
    assert time.monotonic() - start >= 0.2


def test_a_bomb_unpacks_to_a_thousand_times_its_size():
    async def raw(client, server):
        async with client.stream("GET", PATH) as response:
            assert response.headers["content-encoding"] == "gzip"
            return b"".join([piece async for piece in response.aiter_raw()])

    packed = visit("bomb", raw)
    assert len(packed) < 100_000
    assert len(zlib.decompress(packed, wbits=31)) == BOMB_BYTES


def test_a_hanging_server_says_nothing_and_lets_go_when_the_client_does():
    async def task(client, server):
        with pytest.raises(httpx2.ReadTimeout):
            await client.get(PATH, timeout=0.1)
        while server.connections:
            await asyncio.sleep(0.01)

    visit("hang", task)


def test_searches_and_pages_fail_apart_and_robots_txt_never():
    async def task(client, server):
        return [(await client.get(path)).status_code for path in (SEARCH, PATH, "/robots.txt")]

    assert visit("unavailable", task, pages=False) == [503, 200, 200]
    assert visit("unavailable", task, searches=False) == [200, 503, 200]


def test_faults_are_as_frequent_as_told_whatever_the_order_and_a_retry_is_drawn_anew():
    one, other = Faults("0"), Faults("0")
    asked = [f"/page-{number}" for number in range(2000)]
    assert not any(map(one.draw, asked))
    for faults in (one := Faults("0"), other):
        faults.set({"hang": 0.4, "reset": 0.1})
    first, second = ({name: one.draw(name) for name in asked} for _ in range(2))
    assert {name: (other.draw(name), other.draw(name)) for name in reversed(asked)} == {
        name: (first[name], second[name]) for name in asked
    }
    drawn = Counter(first.values())
    assert drawn[Fault.HANG] / 2000 == pytest.approx(0.4, abs=0.04)
    assert drawn[Fault.RESET] / 2000 == pytest.approx(0.1, abs=0.03)
    again = [second[name] is None for name in asked if first[name]]
    assert sum(again) / len(again) == pytest.approx(0.5, abs=0.06)
