"""The documents behind an agent, for clients that search by themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from starlette.responses import FileResponse, Response

from evoseek.errors import DataError
from evoseek.protocols import PassageStore, SearchEngine
from evoseek.search.engines import search
from evoseek.types import Passage

MAX_PASSAGES, MAX_NEIGHBOURS, MAX_QUERY, MAX_ID = 50, 10, 20_000, 1_000
FILES = "v1/files"
_SHOWN = {".pdf": "application/pdf", ".html": "text/html", ".htm": "text/html"} | dict.fromkeys(
    (".txt", ".md", ".rst", ".org", ".csv", ".tsv"), "text/plain"
)
_LOOKED_AT = 300  # passages
_UNLINKED = (".jsonl", ".mbox", ".gz")  # which hold many documents, or none that a browser opens


Found = list[list[Passage]]
Run = Callable[[Coroutine[Any, Any, Found]], Awaitable[Found]]


async def _directly(searching: Coroutine[Any, Any, Found]) -> Found:
    return await searching


class Library:
    """An engine, and where it has one, its store of passages. `run` runs its searches, by default where they are
    awaited."""

    def __init__(self, engine: SearchEngine, run: Run = _directly) -> None:
        self._engine, self._run = engine, run
        self._store = engine if isinstance(engine, PassageStore) else None

    @property
    def opens(self) -> bool:
        """Whether passages can be opened by their ids."""
        return self._store is not None

    def describe(self) -> dict[str, object]:
        """The number of passages, and three questions that the documents may answer, from the places that some of the
        first passages name. Empty where passages cannot be listed."""
        if self._store is None:
            return {}
        places = {(p.title, p.heading or ""): None for p in islice(self._store.passages(), _LOOKED_AT) if p.title}
        named = [place for place in places if place[1] and place[1] != place[0]] or list(places)
        few = named[:: max(1, len(named) // 3)][:3]
        return {"passages": len(self._store), "examples": [_example(title, heading) for title, heading in few]}

    async def search(self, query: str, k: int) -> Sequence[Passage]:
        """At most k passages, best first. Raises DataError for a query that is empty or too long, ToolError."""
        if not query.strip() or len(query) > MAX_QUERY or not 1 <= k <= MAX_PASSAGES:
            raise DataError(
                f"The query has {len(query):,} characters and k is {k}. Expected a text of at most {MAX_QUERY:,} "
                f"characters, and k from 1 to {MAX_PASSAGES}."
            )
        return (await self._run(search(self._engine, [query], k)))[0]

    def open(self, id: str, neighbours: int) -> Sequence[Passage]:
        """A passage with up to so many of its document before and after it, in the document's order. An id is looked up
        in the index and nowhere else. Raises DataError, also for an id that is not in the index."""
        if self._store is None:
            raise DataError("The engine that is searched does not give passages by their ids. Search instead.")
        if len(id) > MAX_ID or not 0 <= neighbours <= MAX_NEIGHBOURS:
            raise DataError(
                f"The id has {len(id):,} characters and neighbours is {neighbours}. Expected an id that a search gave, "
                f"and neighbours from 0 to {MAX_NEIGHBOURS}."
            )
        try:
            own = self._store.get(id)
        except DataError as error:
            raise DataError("There is no passage with this id. Give an id that a search gave.") from error
        document, _, number = id.rpartition("#")
        if not number.isdecimal():
            return [own]
        near = range(max(0, int(number) - neighbours), int(number) + neighbours + 1)
        passages = [_existing(self._store, f"{document}#{place}") for place in near]
        return [passage for passage in passages if passage and passage.document_id == own.document_id]


def _example(title: str, heading: str) -> str:
    return f"What does {title} say about {heading}?" if heading and heading != title else f"What is {title}?"


def linked(passages: Iterable[Mapping[str, object]], files: Collection[str]) -> list[dict[str, object]]:
    """Citations with a `link` to the file, if it is one of `files`, at the page if there is one: an address relative to
    the server's."""
    return [{**passage, **_link(str(passage.get("file")), passage.get("page"), files)} for passage in passages]


def _link(file: str, page: object, files: Collection[str]) -> dict[str, object]:
    if file not in files or PurePath(file).suffix.lower() in _UNLINKED:
        return {}
    return {"link": f"{FILES}/{quote(file)}" + (f"#page={page}" if page else "")}


def document(path: Path) -> Response:
    """A file of the corpus, which anybody may have written: a browser shows a page without running anything of it, and
    what it cannot show is saved."""
    kind = _SHOWN.get(path.suffix.lower())
    headers = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
    if kind != "application/pdf":  # which browsers show outside of the page's origin, but not in a sandbox
        headers["Content-Security-Policy"] = "sandbox; default-src 'none'; style-src 'unsafe-inline'"
    return FileResponse(
        path,
        headers=headers,
        media_type=kind or "application/octet-stream",
        filename=path.name,
        content_disposition_type="inline" if kind else "attachment",
    )


def _existing(store: PassageStore, id: str) -> Passage | None:
    try:
        return store.get(id)
    except DataError:
        return None
