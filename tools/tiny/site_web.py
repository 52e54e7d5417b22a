"""A generated site as the web of rollouts in this process: no server, no network."""

from __future__ import annotations

from collections.abc import Sequence

from evoseek.errors import PageError
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Page, Passage
from evoseek.web.extract_worker import page
from evoseek.world.server import SiteApi
from evoseek.world.site import Site


class SiteWeb(SiteApi):
    """A `SearchEngine` and a `Fetcher` of a site's pages at `host`, with the results, redirects and pages of a served
    site. Its robots.txt is not asked."""

    is_local = True

    def __init__(self, site: Site, index: LexicalIndex, host: str = "http://127.0.0.1:43617") -> None:
        super().__init__(site, index, host)

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """For each query at most k results."""
        return [self.find(query, k) for query in queries]

    async def fetch(self, url: str) -> Page:
        """The page at an address, its text as it is taken from any page. Raises PageError for one that is not there."""
        path = url.removeprefix(self.host)
        if path == url:
            raise PageError(f"The page {url} cannot be read: there is no other host than {self.host}.")
        while (answer := self.site.page(path)).location is not None:
            path = answer.location
        if answer.status != 200:
            raise PageError(f"The page {self.host}{path} cannot be read: {answer.status}. Choose another page.")
        read = page({"kind": "text/html"}, answer.html.encode())
        return Page(self.host + path, str(read["title"]), str(read["text"]))
