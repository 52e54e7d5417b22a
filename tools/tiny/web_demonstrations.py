"""Demonstrations of searching and browsing a generated site, from which the tiny policy learns to use the web.

For each hop one search, and where the snippets do not tell the fact, the page that does. Prompts and observations are
the tools' own, with the tiny prompt set. Most demonstrations give up: they answer without a look at the
page, or after the first hop. That browsing is rewarded, and that all hops are needed, is left to reinforcement
learning.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from evoseek.rollout.prompts import load_prompts
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage, Question, ToolCall
from evoseek.web.reading import PageBeginning
from evoseek.web.tools import BrowseTool, WebRollouts, WebSearchTool
from evoseek.world.grammar import chain_text
from evoseek.world.site import Site
from evoseek.world.world import Fact
from tools.tiny.demonstrations import (
    MAX_TRIES,
    Demonstration,
    Piece,
    draw_chain,
    draw_phrasing,
    say,
    solve_prompt,
)
from tools.tiny.site_web import SiteWeb

RESULTS = 3
PAGE_WORDS = 80
HOPS = (1, 2, 3)
_PROMPTS = load_prompts("tiny")


@dataclass(frozen=True, slots=True)
class WebMixture:
    """How flawed the demonstrations are: in what share of the hops whose snippets do not suffice no page is opened, and
    in what share of the questions of several hops the first one is all that is looked for."""

    no_browse: float = 0.7
    early_stop: float = 0.6
    other_phrasing: float = 0.2


class WebDemonstrator:
    """Writes demonstrations about one site. `index` holds the site's passages."""

    def __init__(self, site: Site, index: LexicalIndex, mixture: WebMixture, rng: random.Random) -> None:
        self.site, self.index, self.mixture, self.rng = site, index, mixture, rng

    def draw(self) -> Demonstration:
        """A demonstration. Its hops are drawn before anything else: longer ones fail more often."""
        while True:
            hops = self.rng.choice(HOPS)
            for _ in range(MAX_TRIES):
                made = asyncio.run(self._solve(hops))
                if made is not None:
                    return made

    async def _solve(self, hops: int) -> Demonstration | None:
        drawn = draw_chain(self.site.world, self.rng, hops)
        if drawn is None:
            return None
        name, relations, chain = drawn
        if len(chain) > 1 and self.rng.random() < self.mixture.early_stop:
            chain = chain[:1]
        text = chain_text(name, relations, draw_phrasing(self.rng, self.mixture.other_phrasing))
        port = self.rng.randrange(1024, 65536)  # so that addresses are copied, not known by heart
        search, browse = web_tools(SiteWeb(self.site, self.index, f"http://127.0.0.1:{port}"))
        question = Question("", text, ())
        search, browse = search.for_question(question, ""), browse.for_question(question, "")
        pieces, thought = [Piece("prompt", solve_prompt(text))], ""
        for fact in chain:
            query = f"{fact.subject}'s {fact.relation}"
            found = await search(ToolCall("web_search", {"queries": [query]}))
            pieces += [Piece("action", f"{thought}<search> {query} </search>"), Piece("observation", found.text)]
            if say(fact) not in found.text:
                page = await _open(browse, fact, found.passages)
                if page is None:
                    return None
                if self.rng.random() < self.mixture.no_browse:
                    guess = found.passages[0].title
                    return (*pieces, Piece("action", f"<answer> {guess} </answer>"))
                pieces += page
            thought = f"<think> {say(fact)} </think>"
        return (*pieces, Piece("action", f"{thought}<answer> {chain[-1].object} </answer>"))


def web_tools(web: SiteWeb) -> tuple[WebSearchTool, BrowseTool]:
    """The tools of the web as the tiny policy has them."""
    rollouts = WebRollouts()
    search = WebSearchTool(web, _PROMPTS["web_results"], rollouts, k=RESULTS)
    return search, BrowseTool(web, PageBeginning(PAGE_WORDS), _PROMPTS["pages"], rollouts)


async def _open(browse: BrowseTool, fact: Fact, results: Sequence[Passage]) -> list[Piece] | None:
    """The first of the results whose page tells the fact: its address as it was shown, and the page."""
    for result in results:
        if result.title == fact.subject:
            address = result.id.split("://", 1)[-1]
            page = await browse(ToolCall("browse", {"urls": [address]}))
            if say(fact) in page.text:
                return [Piece("action", f"<browse> {address} </browse>"), Piece("observation", page.text)]
    return None
