"""The engine `remote`: a retrieval server, Search-R1's or `evoseek serve retrieval`; and their wire format.

    POST /retrieve {"queries": ["...", ...], "topk": 3, "return_scores": true}
    -> {"result": [[{"document": {"id": "...", "contents": "title\\ntext"}, "score": 0.5}, ...], ...]}

Without `return_scores` the lists contain only documents. In our documents, the first line also has the heading, as in
`Passage.contents`, and there is a `document_id`. If the passage was read from a file, they also have its `title` and
its citation: `file`, `start`, `end`, and `page` and `heading` if there are any.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from sys import float_info
from typing import Annotated, Any, cast

import httpx2
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from evoseek.errors import ToolError
from evoseek.http.limits import Retry
from evoseek.http.server import Server, check_url, json_of, key_of
from evoseek.search.calling import all_of, merge_copies
from evoseek.search.settings import SearchSettings
from evoseek.text.scripts import well_formed
from evoseek.types import Passage

BATCH = 64  # maximum queries of a request
CONCURRENCY = 64  # concurrent requests
TIMEOUT_S = 30.0  # in which the server must reply
TOP_K = 3  # if a request does not state a number
MAX_QUERIES, MAX_QUERY, MAX_K = 1_024, 20_000, 1_000  # queries of a request, characters of one, passages for one
_TIMES = 4  # times the requested number, if there are copies among the results
_MAX_WAIT_S = 20.0  # the longest wait before a retry


class RemoteSettings(SearchSettings):
    """A retrieval server."""

    on_resume = f"{SearchSettings.on_resume} url api_key_env"
    name: str = Field(default="remote", description="Name of the engine.")
    url: str = Field(default="", description="Address of the server, with the path, such as http://host:8000/retrieve.")
    api_key_env: str = Field(default="", description="Environment variable that holds the server's key, if it has one.")

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if not self.url:
            yield (
                "search.name is remote, but search.url is empty. Set search.url to the server's address, such as "
                "http://127.0.0.1:8000/retrieve."
            )


class RemoteEngine:
    """A retrieval server: Search-R1's, or `evoseek serve retrieval`.

    Requests are POSTs, with the retries of `http.server.Server`. Failures, and replies that are not in the wire format,
    raise ToolError; they never count as an empty result.

    Raises ConfigError for an unusable address or key.
    """

    Settings = RemoteSettings
    is_local = False
    retries = True  # itself, only after transient failures: `SearchTool` adds no retries

    def __init__(self, settings: RemoteSettings) -> None:
        check_url(settings.url, setting="search.url", example="http://127.0.0.1:8000/retrieve")
        self._url = settings.url
        self._api_key = key_of(settings.api_key_env, setting="search.api_key_env")
        self._server = Server(
            setting="search.url",
            api_key=self._api_key,
            timeout_s=TIMEOUT_S,
            retry=Retry(settings.attempts, settings.wait_s, _MAX_WAIT_S),
            concurrency=CONCURRENCY,
            headers={"Authorization": f"Bearer {self._api_key}"} if self._api_key else None,
        )

    @classmethod
    def build(cls, settings: RemoteSettings, context: object) -> RemoteEngine:
        return cls(settings)

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return, for each query, at most k passages with different texts, best first. If the results contain copies,
        more are requested once. Raises ToolError."""
        if k < 1:
            return [[] for _ in queries]
        found = await self._found(queries, k)
        shown = [merge_copies(passages) for passages in found]
        short = [place for place, own in enumerate(shown) if len(own) < len(found[place]) == k]
        if short and (more := min(_TIMES * k, MAX_K)) > k:
            for place, own in zip(short, await self._found([queries[n] for n in short], more), strict=True):
                shown[place] = merge_copies(own)[:k]
        return shown

    async def _found(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        parts = [queries[start : start + BATCH] for start in range(0, len(queries), BATCH)]
        try:
            found = await all_of(self._part(part, k) for part in parts)
        except ToolError as error:
            raise ToolError(f"The retrieval server {self._url} gave nothing: {error}", code=error.code) from error
        return [passages for part in found for passages in part]

    async def _part(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        async def attempt(client: httpx2.AsyncClient) -> list[list[Passage]]:
            asked = [query[:MAX_QUERY] for query in queries]
            body = json.dumps({"queries": asked, "topk": k, "return_scores": True})  # ASCII
            reply = await self._server.send(
                client, "POST", self._url, content=body, headers={"Content-Type": "application/json"}
            )
            if not reply.is_success:
                raise ToolError(
                    f"{self._server.refusal(reply)}. It is not retried: correct search.url or the key.",
                    code="retriever.refused",
                )
            return read_result(json_of(reply.body, secret=self._api_key), queries=len(queries), k=k)

        return await self._server.call(attempt)


def _proper(query: object) -> object:
    return well_formed(query) if isinstance(query, str) else query  # with half a surrogate pair it would not be a text


class Request(BaseModel):
    """A request for at most `topk` passages for each query."""

    model_config = ConfigDict(strict=True)
    queries: list[Annotated[str, Field(max_length=MAX_QUERY), BeforeValidator(_proper)]] = Field(max_length=MAX_QUERIES)
    topk: int | None = Field(default=None, ge=1, le=MAX_K)
    return_scores: bool | None = None

    @property
    def k(self) -> int:
        return self.topk or TOP_K


def result_body(found: Sequence[Sequence[Passage]], *, return_scores: bool) -> dict[str, object]:
    """Make the reply with the passages of each query, as JSON."""
    return {"result": [[_item(passage, return_scores) for passage in passages] for passages in found]}


def read_result(body: object, *, queries: int, k: int) -> list[list[Passage]]:
    """Read the passages from a JSON reply to this number of queries, at most k for each.

    Raises ToolError for any other reply: only an empty list for a query means that nothing was found."""
    result = cast("dict[str, object]", body).get("result") if isinstance(body, dict) else None
    if not isinstance(result, list) or len(cast("list[object]", result)) != queries:
        raise ToolError(f"its reply is {_shown(body)}. Expected an object whose `result` has {queries} lists.")
    return [_passages(items)[:k] for items in cast("list[object]", result)]


def _passages(items: object) -> list[Passage]:
    if not isinstance(items, list):
        raise ToolError(f"its reply has {_shown(items)} as the result of a query. Expected a list of documents.")
    return [_passage(item) for item in cast("list[object]", items)]


def _passage(item: object) -> Passage:
    """Convert a document to a passage, with its score if there is one. Raises ToolError for an invalid one."""
    match item:
        case {"document": dict(document), "score": int(score) | float(score)} if abs(score) <= float_info.max:
            pass
        case {"document": dict(document)} | dict(document):
            score = None
        case _:
            document, score = {}, None
    fields = cast("dict[str, Any]", document)
    contents = fields.get("contents")
    if not isinstance(contents, str):
        raise ToolError(f"there is the document {_shown(item)}. Expected one with a text `contents`.")
    title, text = Passage.parse_contents(well_formed(contents))
    own = hashlib.sha256(contents.encode(errors="replace")).hexdigest()[:16]  # some servers send no id
    passage_id = well_formed(str(own if (given := fields.get("id")) is None else given))
    document_id = well_formed(str(passage_id if (named := fields.get("document_id")) is None else named))
    passage = Passage(passage_id, document_id, title, text, 0, len(text), score=score)
    return _cited(passage, fields)


def _cited(passage: Passage, fields: dict[str, Any]) -> Passage:
    """Add the citation's fields that have this project's form: other servers' fields may mean anything."""
    match fields:
        case {"file": str(file), "start": int(start), "end": int(end)} if end - start == len(passage.text):
            page, heading, title = (fields.get(key) for key in ("page", "heading", "title"))
            return replace(
                passage,
                title=well_formed(title) if isinstance(title, str) else passage.title,
                start=start,
                end=end,
                file=well_formed(file),
                page=page if type(page) is int else None,
                heading=well_formed(heading) if isinstance(heading, str) else None,
            )
        case _:
            return passage


def _item(passage: Passage, return_scores: bool) -> dict[str, object]:
    label, title = (" ".join(text.splitlines()) for text in (passage.label, passage.title))  # the first line
    document: dict[str, object] = {"id": passage.id, "document_id": passage.document_id}
    document["contents"] = f"{label}\n{passage.text}"
    if passage.file is not None:
        document |= {**passage.place, "title": title, "start": passage.start, "end": passage.end}
    return {"document": document, "score": passage.score} if return_scores else document


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
