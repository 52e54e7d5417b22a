"""A generated world as a web site: the response to a browser for every path.

    /                    the front page
    /<slug>              the article of an entity; /<slug>/2 its second page, which some have
    /list/<type>/<n>     tables of all entities of a type
    /wiki/<slug>         a redirect to the article; /archive/<slug> one to that redirect
    /edit/<slug>         pages that robots.txt forbids
    anything else        404; the articles link to some of it, and a few search results lead there (/old/<slug>)

An article has a lead, sections, an infobox, and much around them that does not belong to it. Each of the entity's facts
stands on one of its pages in the plain phrasing of the world's grammar. The rest of the text states no fact.
"""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evoseek.text.templates import sandbox
from evoseek.types import Passage
from evoseek.world.grammar import fact_text
from evoseek.world.world import TYPES, Fact, World

ROBOTS = "User-agent: *\nDisallow: /edit/\n"
ROWS = 20  # of a list page
MOVED = "/wiki/"
_FOLDER = Path(__file__).parent / "site_templates"
_TEMPLATES = sandbox(_FOLDER, escapes=True)
_TEXTS = tomllib.loads((_FOLDER / "texts.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class SitePage:
    """The response for a path: HTML, or for a redirect (301, 302) the target path."""

    status: int
    html: str = ""
    location: str | None = None


class Site:
    """The site of a world. The places of facts, and everything else that is random, follow from `seed`.

    These are shares of the entities. With two or more facts, `second_page` have their last one on a separate page.
    Search results of `moved` lead to a redirect, and `dead` have a further result that leads nowhere. `told` is the
    share of (entity, relation) whose snippets state the fact that is searched.
    """

    def __init__(
        self,
        world: World,
        seed: int,
        *,
        second_page: float = 0.3,
        moved: float = 0.1,
        dead: float = 0.05,
        told: float = 0.15,
    ) -> None:
        self.world, self.seed = world, seed
        self._second_page, self._moved, self._dead, self._told = second_page, moved, dead, told
        shared = Counter(world.names)
        slugs = (
            "-".join(name.casefold().split()) + (f"-{entity}" if shared[name] > 1 else "")
            for entity, name in enumerate(world.names)
        )
        self._entities = {slug: entity for entity, slug in enumerate(slugs)}
        self._slugs = list(self._entities)

    def _draw(self, purpose: str, key: object) -> random.Random:
        return random.Random(f"{self.seed}/site {purpose}/{key}")

    # -- where things are -------------------------------------------------------------------------------------------

    def url_path(self, entity: int) -> str:
        """Return the path of an entity's article. It has the entity's number if names are equal."""
        return f"/{self._slugs[entity]}"

    def pages(self, entity: int) -> list[list[Fact]]:
        """Return the entity's facts for each page of its article."""
        facts = self.world.facts(entity)
        if len(facts) > 1 and self._draw("second page", entity).random() < self._second_page:
            return [facts[:-1], facts[-1:]]
        return [facts]

    def _page_path(self, entity: int, number: int) -> str:
        return self.url_path(entity) + (f"/{number}" if number > 1 else "")

    # -- searching --------------------------------------------------------------------------------------------------

    def passages(self) -> Iterator[Passage]:
        """Yield the passages that a search engine indexes: one for every page of an article.

        Its id is the path under which the engine knows the page, its document the number of the entity.
        """
        for entity, name in enumerate(self.world.names):
            moved = self._draw("moved", entity).random() < self._moved
            for number, facts in enumerate(self.pages(entity), start=1):
                text = " ".join((self._introduction(entity), *map(_sentence, facts)))
                path = MOVED + self._slugs[entity] if moved and number == 1 else self._page_path(entity, number)
                yield Passage(path, str(entity), name, text, 0, len(text))
                if number == 1 and self._draw("dead", entity).random() < self._dead:
                    yield Passage(f"/old/{self._slugs[entity]}", str(entity), name, text, 0, len(text))

    def snippet(self, entity: int, query: str) -> str:
        """Return the snippet of a search result about an entity: its type, and sometimes the searched fact."""
        words = set(query.casefold().replace("'s", " ").replace("?", " ").split())
        asked = next((fact for fact in self.world.facts(entity) if fact.relation in words), None)
        if asked is None or self._draw("snippet", f"{entity}/{asked.relation}").random() >= self._told:
            return self._introduction(entity)
        return f"{self._introduction(entity)} {_sentence(asked)}"

    def _introduction(self, entity: int) -> str:
        return f"{self.world.names[entity]} is a {self.world.types[entity]}."

    # -- pages ------------------------------------------------------------------------------------------------------

    def page(self, path: str) -> SitePage:
        match path.strip("/").split("/"):
            case [""]:
                return self._front()
            case ["about"]:
                return self._note(path, 200, "About", "This encyclopaedia is about a world that nobody has been to.")
            case ["list", kind, number] if _in_range(number, _list_pages(self.world.by_type.get(kind, []))):
                return self._list(path, kind, int(number))
            case ["wiki", slug] if slug in self._entities:
                return SitePage(301, location=f"/{slug}")
            case ["archive", slug] if slug in self._entities:
                return SitePage(302, location=MOVED + slug)
            case ["edit", slug] if slug in self._entities:
                return self._note(path, 200, "Sign in", "Only authors who have signed in can change this article.")
            case [slug] if slug in self._entities:
                return self._article(self._entities[slug], 1)
            case [slug, "2"] if slug in self._entities and len(self.pages(self._entities[slug])) > 1:
                return self._article(self._entities[slug], 2)
            case _:
                return self._note(path, 404, "Not found", "There is no such page in this encyclopaedia.")

    def _rendered(self, template: str, path: str, status: int = 200, **values: object) -> SitePage:
        lists = [(kind, f"/list/{kind}/1") for kind in TYPES]
        advertisement = self._draw("advertisement", path).choice(_TEXTS["advertisements"])
        html = _TEMPLATES.get_template(f"{template}.jinja").render(values, lists=lists, advertisement=advertisement)
        return SitePage(status, html)

    def _note(self, path: str, status: int, title: str, text: str) -> SitePage:
        return self._rendered("note", path, status, title=title, text=text)

    def _article(self, entity: int, number: int) -> SitePage:
        facts, path = self.pages(entity)[number - 1], self._page_path(entity, number)
        filler = iter(self._draw("filler", path).sample(_TEXTS["filler"], len(facts) + 3))
        lead = f"{self._introduction(entity)} {next(filler)} {_sentence(facts[0])} {next(filler)}"
        sections = [("", lead)]
        # The filler first, so that the heading, which has no full stop, is not read as the beginning of the fact.
        sections += [(_TEXTS["headings"][fact.relation], f"{next(filler)} {_sentence(fact)}") for fact in facts[1:]]
        sections.append(("Notes", f"{next(filler)} {next(filler)}"))
        return self._rendered(
            "article",
            path,
            title=self.world.names[entity],
            rows=[("type", self.world.types[entity], None), *(self._row(entity, fact) for fact in facts)],
            sections=sections,
            links=self._links(entity, number),
        )

    def _row(self, entity: int, fact: Fact) -> tuple[str, str, str | None]:
        """Return a row of the infobox; an object with an article is a link to it."""
        found = self.world.objects[fact.relation][entity]
        return fact.relation, fact.object, None if fact.relation == "year" else self.url_path(found)

    def _links(self, entity: int, number: int) -> list[tuple[str, str]]:
        slug = self._slugs[entity]
        other = [
            (f"Page {n}", self._page_path(entity, n)) for n in range(1, len(self.pages(entity)) + 1) if n != number
        ]
        return [*other, ("Earlier version", f"/archive/{slug}"), ("Talk", f"/talk/{slug}"), ("Edit", f"/edit/{slug}")]

    def _front(self) -> SitePage:
        chosen = self._draw("front", "articles").sample(range(len(self.world)), ROWS)
        rows = [(self.url_path(entity), [self.world.names[entity]]) for entity in chosen]
        return self._rendered(
            "list",
            "/",
            title="World Encyclopaedia",
            text="Articles of the day:",
            columns=["name"],
            rows=rows,
            next=None,
        )

    def _list(self, path: str, kind: str, number: int) -> SitePage:
        entities = self.world.by_type[kind]
        relation = next(iter(TYPES[kind][1]))
        rows = [
            (self.url_path(entity), [self.world.names[entity], self.world.object_name(relation, entity) or "unknown"])
            for entity in entities[(number - 1) * ROWS : number * ROWS]
        ]
        return self._rendered(
            "list",
            path,
            title=f"Every {kind}",
            text=f"Page {number} of {_list_pages(entities)}.",
            columns=["name", relation],
            rows=rows,
            next=f"/list/{kind}/{number + 1}" if number < _list_pages(entities) else None,
        )


def _sentence(fact: Fact) -> str:
    return fact_text(fact.subject, fact.relation, fact.object)


def _list_pages(entities: list[int]) -> int:
    return -(-len(entities) // ROWS)


def _in_range(number: str, last: int) -> bool:
    return number.isascii() and number.isdigit() and len(number) < 9 and 1 <= int(number) <= last
