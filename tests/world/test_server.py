"""The generated world's server, asked by a real client over the loopback."""

from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import httpx2
import pytest

from evoseek.errors import ConfigError
from evoseek.world.server import MAX_BODY, serving
from evoseek.world.site import ROBOTS, Site
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
    with httpx2.Client(base_url=api.host, timeout=30.0, trust_env=False) as client:
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
    connection = HTTPConnection(api.host.removeprefix("http://"))
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
    assert all(set(r) == {"title", "url", "content"} and r["url"].startswith(f"{api.host}/") for r in results)
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
    port = int(api.host.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port} "), serving(SITE, port):
        pass
