"""The generated world's server, asked by a real client over the loopback."""

import asyncio
import time
import zlib

import httpx2
import pytest
from tests.doubles.faults import BOMB_BYTES, INTERNAL
from tests.doubles.world_site import WorldSite

from evoseek.errors import ConfigError, PageError
from evoseek.search.lexical import LexicalIndex
from evoseek.world.server import SiteWeb
from evoseek.world.site import MOVED, ROBOTS, Site
from evoseek.world.world import World

WORLD = World.generate(3, 200, "train")
SITE = Site(WORLD, 0)
PATH = SITE.url_path(0)
FACT = WORLD.facts(0)[0]
QUERY = f"{FACT.subject}'s {FACT.relation}"


def visit(task, **settings):
    """The result of `task(client, server)` with a server running, and the server, which has nothing open after it."""

    async def run():
        server = WorldSite(SITE, **settings)
        async with server.serving() as url, httpx2.AsyncClient(base_url=url, timeout=30.0, trust_env=False) as client:
            result = await task(client, server)
        assert server.connections == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result, server

    return asyncio.run(run())


async def talk(server, data: bytes) -> bytes:
    """All that the server says to these bytes, until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    writer.write(data)
    said = await reader.read()
    writer.close()
    return said


# The site


def test_pages_are_those_of_the_site_with_its_statuses_and_redirects():
    async def task(client, server):
        return [await client.get(path) for path in (PATH, "/nowhere", f"/wiki{PATH}", "/robots.txt")]

    (article, nowhere, moved, robots), server = visit(task)
    assert (article.status_code, article.text) == (200, SITE.page(PATH).html)
    assert article.headers["content-type"] == "text/html; charset=utf-8"
    assert (nowhere.status_code, nowhere.text) == (404, SITE.page("/nowhere").html)
    assert (moved.status_code, moved.headers["location"]) == (301, PATH)
    assert robots.text == ROBOTS
    assert server.counts == {"page": 3, "robots": 1}


def test_one_connection_serves_many_requests():
    async def task(client, server):
        opened = []
        for _ in range(5):
            await client.get(PATH)
            await client.head(PATH)
            opened.append(server.connections)
        return opened

    assert visit(task)[0] == [1] * 5


def test_what_is_no_request_is_told_so():
    async def task(client, server):
        head = b"POST /search HTTP/1.1\r\nhost: a\r\ncontent-length: 999999\r\n\r\n"
        said = await talk(server, b"no request\r\n\r\n"), await talk(server, head + b" " * 99_999)
        return [*(text[:12] for text in said), (await client.delete(PATH)).status_code]

    said, server = visit(task)
    assert said == [b"HTTP/1.1 400", b"HTTP/1.1 413", 405]
    assert server.counts["bad request"] == 2


# Searching


def asked(query):
    return {"params": {"q": query, "format": "json"}}


def test_a_search_in_the_shape_of_searxng():
    async def task(client, server):
        found = (await client.get("/searxng/search", **asked(QUERY))).json()["results"]
        return found, (await client.get(found[0]["url"])).status_code, server.url

    (results, status, url), server = visit(task)
    assert len(results) == 10
    assert results[0]["title"] == WORLD.names[0]
    assert all(set(r) == {"title", "url", "content"} and r["url"].startswith(f"{url}/") for r in results)
    assert results[0]["content"] == SITE.snippet(0, QUERY)
    assert status in (200, 301)
    assert server.counts == {"search": 1, "page": 1}


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        (400, {"method": "GET", "url": "/searxng/search?q=a"}),
        (405, {"method": "POST", "url": "/searxng/search", "content": b"[" * 9999}),
        (200, {"method": "GET", "url": "/searxng/search?q=%ED%A0%80&format=json"}),
    ],
)
def test_searches_that_are_not_in_order(status, request_):
    async def task(client, server):
        return (await client.request(**request_)).status_code

    assert visit(task)[0] == status


def test_of_every_fact_the_best_result_leads_to_the_page_that_states_it():
    async def task(client, server):
        first = []
        for entity in range(0, len(WORLD), 9):
            for fact in WORLD.facts(entity):
                query = f"{fact.subject}'s {fact.relation}"
                result = (await client.get("/searxng/search", **asked(query))).json()["results"][0]
                page = await client.get(result["url"], follow_redirects=True)
                first.append(f"{fact.subject}&#39;s {fact.relation} is {fact.object}." in page.text)
        return sum(first) / len(first)

    assert visit(task)[0] > 0.95


# Faults


def failing(fault, task, *, only=None, **settings):
    async def run(client, server):
        for kind, faults in (("page", server.page_faults), ("search", server.search_faults)):
            faults.set({fault: 1.0} if only in (None, kind) else {})
        return await task(client, server)

    return visit(run, **settings)


async def get(client, server):
    return await client.get(PATH)


def test_too_many_unavailable_and_captcha():
    busy, server = failing("too_many", get, retry_after_s=7)
    assert (busy.status_code, busy.headers["retry-after"]) == (429, "7")
    assert server.counts == {"page": 1, "page too_many": 1}
    assert failing("unavailable", get)[0].status_code == 503
    captcha = failing("captcha", get)[0]
    assert captcha.status_code == 200
    assert "CAPTCHA" in captcha.text


def test_a_redirect_to_an_internal_address():
    response = failing("internal", get)[0]
    assert response.status_code == 302
    assert response.headers["location"] in INTERNAL


def test_a_reset_and_a_wrong_length_break_the_connection():
    with pytest.raises(httpx2.ReadError):
        failing("reset", get)
    with pytest.raises(httpx2.RemoteProtocolError, match="complete message body"):
        failing("wrong_length", get)


def test_a_slow_body_is_whole_in_the_end():
    start = time.monotonic()
    assert failing("slow", get, slow_s=0.2)[0].text == SITE.page(PATH).html
    assert time.monotonic() - start >= 0.2


def test_a_bomb_unpacks_to_a_thousand_times_its_size():
    async def raw(client, server):
        async with client.stream("GET", PATH) as response:
            assert response.headers["content-encoding"] == "gzip"
            return b"".join([piece async for piece in response.aiter_raw()])

    packed = failing("bomb", raw)[0]
    assert len(packed) < 100_000
    unpacker, size = zlib.decompressobj(wbits=31), 0
    while not unpacker.eof:
        size += len(unpacker.decompress(packed, 2**20))
        packed = unpacker.unconsumed_tail
    assert size == BOMB_BYTES


def test_a_hanging_server_says_nothing_and_lets_go_when_the_client_does():
    async def task(client, server):
        with pytest.raises(httpx2.ReadTimeout):
            await client.get(PATH, timeout=0.1)
        while server.connections:
            await asyncio.sleep(0.01)
        return True

    assert failing("hang", task)[0]


def test_searches_and_pages_fail_apart_and_robots_txt_never():
    async def task(client, server):
        search = await client.get("/searxng/search", **asked(QUERY))
        return [search.status_code, *[(await client.get(path)).status_code for path in (PATH, "/robots.txt")]]

    assert failing("unavailable", task, only="search")[0] == [503, 200, 200]
    assert failing("unavailable", task, only="page")[0] == [200, 503, 200]


def test_asking_again_can_succeed_in_the_same_way_each_time():
    async def task(client, server):
        server.page_faults.set({"unavailable": 0.5})
        return [(await client.get(PATH)).status_code for _ in range(12)]

    one, other = visit(task)[0], visit(task)[0]
    assert one == other
    assert set(one) == {200, 503}


# Many, and the end


def test_hundreds_of_connections_at_once_are_answered_and_none_is_left():
    request = f"GET {PATH} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode()

    async def task(client, server):
        opened = await asyncio.gather(
            *(asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2])) for _ in range(400))
        )
        for _, writer in opened:
            writer.write(request)
        said = await asyncio.gather(*(reader.read() for reader, _ in opened))
        for _, writer in opened:
            writer.close()
        while server.connections:
            await asyncio.sleep(0.01)
        return sum(text.startswith(b"HTTP/1.1 200") for text in said)

    assert visit(task)[0] == 400


def test_leaving_ends_requests_that_hang_and_connections_that_are_idle():
    async def run():
        server = WorldSite(SITE)
        server.page_faults.set({"hang": 1.0})
        async with server.serving():
            waiting = [asyncio.create_task(talk(server, data)) for data in (b"", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")]
            while server.connections < 2:
                await asyncio.sleep(0.01)
        assert server.connections == 0
        return await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)

    assert all(said == b"" or isinstance(said, ConnectionError) for said in asyncio.run(run()))


def test_a_port_that_is_taken_is_an_error_that_says_so():
    async def task(client, server):
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} "):
            async with WorldSite(SITE).serving(port):
                pass

    visit(task)


def test_a_second_serving_gives_results_with_its_own_address(tmp_path):
    async def run():
        server, links = WorldSite(SITE, tmp_path / "index"), []
        for _ in range(2):
            async with server.serving() as url, httpx2.AsyncClient(base_url=url, trust_env=False) as client:
                found = await client.get("/searxng/search", **asked(QUERY))
                links.append((found.json()["results"][0]["url"], url))
        return links

    assert all(link.startswith(url) for link, url in asyncio.run(run()))
    assert (tmp_path / "index").is_dir()


@pytest.fixture(scope="module")
def site():
    return Site(World.generate(4, 200, "pretrain"), 2)


@pytest.fixture(scope="module")
def index(site, tmp_path_factory):
    return LexicalIndex.build(tmp_path_factory.mktemp("index") / "index", site.passages())


def fetch(web, url):
    return asyncio.run(web.fetch(url))


def test_results_are_those_of_the_server(site, index):
    queries = [f"{site.world.names[entity]}'s employer" for entity in range(3)]

    async def both():
        async with WorldSite(site).serving() as host, httpx2.AsyncClient(trust_env=False) as client:
            served = [
                (await client.get(f"{host}/searxng/search", params={"q": query, "format": "json"})).json()["results"]
                for query in queries
            ]
            return served, await SiteWeb(site, index, host).search(queries, 10)

    served, found = asyncio.run(both())
    assert [[(r["title"], r["url"], r["content"]) for r in results] for results in served] == [
        [(passage.title, passage.id, passage.text) for passage in passages] for passages in found
    ]


def test_every_page_tells_the_facts_that_stand_on_it_and_shows_nothing_around_them(site, index):
    web = SiteWeb(site, index, "http://a.test:1")
    entity = next(n for n in range(200) if len(site.pages(n)) == 2)
    for number, facts in enumerate(site.pages(entity), start=1):
        page = fetch(web, f"http://a.test:1{site.url_path(entity)}{'/2' if number == 2 else ''}")
        assert all(f"{fact.subject}'s {fact.relation} is {fact.object}." in page.text for fact in facts)
        assert page.title.startswith(site.world.names[entity])
        assert "cookies" not in page.text


def test_redirects_are_followed(site, index):
    web, slug = SiteWeb(site, index), site.url_path(5)[1:]
    direct = fetch(web, f"{web.host}/{slug}")
    assert fetch(web, f"{web.host}{MOVED}{slug}") == fetch(web, f"{web.host}/archive/{slug}") == direct
    assert direct.url == f"{web.host}/{slug}"


@pytest.mark.parametrize("url", ["http://127.0.0.1:43617/old/x", "http://127.0.0.1:4361/about", "/about"])
def test_what_is_not_there_is_the_page_s_own_problem(site, index, url):
    with pytest.raises(PageError, match=r"404|no other host"):
        fetch(SiteWeb(site, index), url)
