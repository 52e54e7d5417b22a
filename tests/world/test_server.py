"""The generated world's server, asked by a real client over the loopback; and the same web without a network."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import httpx2
import pytest

from evoseek.errors import ConfigError, PageError
from evoseek.search.lexical import LexicalIndex
from evoseek.world.server import MAX_BODY, SiteWeb, serving
from evoseek.world.site import MOVED, ROBOTS, Site
from evoseek.world.world import World

WORLD = World.generate(3, 200, "train")
SITE = Site(WORLD, 0)
PATH = SITE.url_path(0)
FACT = WORLD.facts(0)[0]
QUERY = f"{FACT.subject}'s {FACT.relation}"


@pytest.fixture(scope="module")
def api():
    with serving(SITE) as api:
        yield api


@pytest.fixture(scope="module")
def client(api):
    with httpx2.Client(base_url=api.web.host, timeout=30.0, trust_env=False) as client:
        yield client


def found(client, query):
    return client.get("/searxng/search", params={"q": query, "format": "json"}).json()["results"]


def test_pages_are_those_of_the_site_with_its_statuses_and_redirects(api, client):
    api.counts.clear()
    article, nowhere, moved, robots = map(client.get, (PATH, "/nowhere", f"/wiki{PATH}", "/robots.txt"))
    assert (article.status_code, article.text) == (200, SITE.page(PATH).html)
    assert article.headers["content-type"] == "text/html; charset=utf-8"
    assert (nowhere.status_code, nowhere.text) == (404, SITE.page("/nowhere").html)
    assert (moved.status_code, moved.headers["location"]) == (301, PATH)
    assert robots.text == ROBOTS
    assert api.counts == {"page": 3, "robots": 1}


def test_one_connection_serves_many_requests_and_a_head_is_without_its_page(api):
    connection = HTTPConnection(api.web.host.removeprefix("http://"))
    connection.connect()
    opened, lengths = connection.sock, []
    for method in ("GET", "HEAD", "GET"):
        connection.request(method, PATH)
        lengths.append(len(connection.getresponse().read()))
    assert lengths == [len(SITE.page(PATH).html.encode()), 0, lengths[0]]
    assert connection.sock is opened
    connection.close()


@pytest.mark.parametrize(
    ("status", "method", "target", "length"),
    [
        (400, "GET", "/searxng/search?q=a", 0),
        (405, "POST", "/searxng/search", 9_999),
        (413, "POST", "/searxng/search", MAX_BODY + 1),
        (200, "GET", "/searxng/search?q=%ED%A0%80&format=json", 0),
        (501, "DELETE", PATH, 0),
    ],
)
def test_requests_that_are_not_in_order(client, status, method, target, length):
    assert client.request(method, target, content=b"[" * length).status_code == status


def test_a_search_in_the_shape_of_searxng(api, client):
    api.counts.clear()
    results = found(client, QUERY)
    assert len(results) == 10
    assert results[0]["title"] == WORLD.names[0]
    assert all(set(r) == {"title", "url", "content"} and r["url"].startswith(f"{api.web.host}/") for r in results)
    assert results[0]["content"] == SITE.snippet(0, QUERY)
    assert client.get(results[0]["url"]).status_code in (200, 301)
    assert api.counts == {"search": 1, "page": 1}


def test_of_every_fact_the_best_result_leads_to_the_page_that_states_it(client):
    first = []
    for entity in range(0, len(WORLD), 9):
        for fact in WORLD.facts(entity):
            (result, *_) = found(client, f"{fact.subject}'s {fact.relation}")
            page = client.get(result["url"], follow_redirects=True)
            first.append(f"{fact.subject}&#39;s {fact.relation} is {fact.object}." in page.text)
    assert sum(first) / len(first) > 0.95


def test_many_requests_at_once_are_answered(client):
    with ThreadPoolExecutor(32) as threads:
        assert {response.text for response in threads.map(client.get, [PATH] * 100)} == {SITE.page(PATH).html}


def test_a_port_that_is_taken_is_an_error_that_says_so(api):
    port = int(api.web.host.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port} "), serving(SITE, port):
        pass


@pytest.fixture(scope="module")
def site():
    return Site(World.generate(4, 200, "pretrain"), 2)


@pytest.fixture(scope="module")
def index(site, tmp_path_factory):
    return LexicalIndex.build(tmp_path_factory.mktemp("index") / "index", site.passages())


def fetch(web, url):
    return asyncio.run(web.fetch(url))


def test_results_without_a_network_are_those_of_the_server(api, client, tmp_path):
    queries = [f"{name}'s employer" for name in WORLD.names[:3]]
    index = LexicalIndex.build(tmp_path / "index", SITE.passages())
    inside = asyncio.run(SiteWeb(SITE, index, api.web.host).search(queries, 10))
    assert [[(one["title"], one["url"], one["content"]) for one in found(client, query)] for query in queries] == [
        [(passage.title, passage.id, passage.text) for passage in passages] for passages in inside
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
