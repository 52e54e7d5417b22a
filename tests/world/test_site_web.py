"""A generated site without a network gives what its server gives."""

import asyncio

import httpx2
import pytest

from evoseek.errors import PageError
from evoseek.search.lexical import LexicalIndex
from evoseek.world.server import WorldSite
from evoseek.world.site import MOVED, Site
from evoseek.world.site_web import SiteWeb
from evoseek.world.world import World


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
