"""The web of a generated site without a network: its pages tell the facts that stand on them."""

import asyncio

import pytest
from tools.tiny.site_web import SiteWeb

from evoseek.errors import PageError
from evoseek.search.lexical import LexicalIndex
from evoseek.world.site import MOVED, Site
from evoseek.world.world import World

SITE = Site(World.generate(4, 200, "pretrain"), 2)


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    index = LexicalIndex.build(tmp_path_factory.mktemp("index") / "index", SITE.passages())
    return SiteWeb(SITE, index, "http://a.test:1")


def fetch(web, path):
    return asyncio.run(web.fetch(path if "//" in path else f"{web.host}{path}"))


def test_every_page_tells_the_facts_that_stand_on_it_and_shows_nothing_around_them(web):
    entity = next(n for n in range(200) if len(SITE.pages(n)) == 2)
    for number, facts in enumerate(SITE.pages(entity), start=1):
        page = fetch(web, f"{SITE.url_path(entity)}{'/2' if number == 2 else ''}")
        assert all(f"{fact.subject}'s {fact.relation} is {fact.object}." in page.text for fact in facts)
        assert page.title.startswith(SITE.world.names[entity])
        assert "cookies" not in page.text


def test_redirects_are_followed(web):
    slug = SITE.url_path(5)[1:]
    direct = fetch(web, f"/{slug}")
    assert fetch(web, f"{MOVED}{slug}") == fetch(web, f"/archive/{slug}") == direct
    assert direct.url == f"{web.host}/{slug}"


@pytest.mark.parametrize("url", ["/old/x", "http://127.0.0.1:4361/about", "http://b.test:1/about"])
def test_what_is_not_there_is_the_page_s_own_problem(web, url):
    with pytest.raises(PageError, match=r"404|no other host"):
        fetch(web, url)
