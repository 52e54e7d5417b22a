"""Checks the results of a search engine: users may provide their own engine, and a template renders nearly any object
as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evoseek.errors import ToolError
from evoseek.protocols import SearchEngine
from evoseek.types import Passage


async def search(engine: SearchEngine, queries: Sequence[str], k: int) -> list[list[Passage]]:
    """The engine's results. Raises ToolError, also if their shape is not that of `SearchEngine`."""
    found: Any = await engine.search(queries, k)
    if not isinstance(found, list | tuple) or len(found) != len(queries):
        got = f"{len(found)} results" if isinstance(found, list | tuple) else repr(found)[:80]
        raise _wrong(engine, f"{got} for {len(queries)} queries")
    for passages in found:
        if not isinstance(passages, list | tuple):
            raise _wrong(engine, f"{repr(passages)[:80]} as the result of a query")
        if wrong := [passage for passage in passages if not _is_passage(passage)]:
            raise _wrong(engine, f"{repr(wrong[0])[:80]}, of the type {type(wrong[0]).__name__}, as a passage")
    return [list(passages[:k]) for passages in found]


def _is_passage(passage: Any) -> bool:
    fields = ("id", "document_id", "title", "text")
    return isinstance(passage, Passage) and all(isinstance(getattr(passage, field), str) for field in fields)


def _wrong(engine: SearchEngine, got: str) -> ToolError:
    return ToolError(
        f"The search engine {type(engine).__name__} gave {got}. Expected for each query a list of "
        "evoseek.types.Passage whose id, document_id, title and text are texts. Correct its method `search`."
    )
