"""The evidence of a question: the documents or passages that hold its answer, and how much of it was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from evoseek.types import Passage, Question


def evidence_of(question: Question) -> tuple[str, ...]:
    """The titles or ids of the documents, or the ids of the passages, that hold the answer, from the question's
    metadata; empty if unknown."""
    given = question.metadata.get("evidence")
    texts = cast("list[object]", given) if isinstance(given, list | tuple) else []
    return tuple(text for text in texts if isinstance(text, str) and text.strip())


def recall(evidence: Sequence[str], passages: Iterable[Passage]) -> float | None:
    """The share of the evidence that is among the passages, by `names_of`; None without evidence."""
    wanted = {folded(text) for text in evidence}
    return len(wanted & names_of(passages)) / len(wanted) if wanted else None


def names_of(passages: Iterable[Passage]) -> set[str]:
    """What evidence may call these passages: their titles, their documents' ids and their own, folded."""
    return {folded(name) for passage in passages for name in (passage.title, passage.document_id, passage.id)}


def missing(evidence: Sequence[str], names: set[str]) -> list[str]:
    """The evidence that is not among these `names_of` passages."""
    return [text for text in evidence if folded(text) not in names]


def folded(text: str) -> str:
    """A name without the differences of upper and lower case and of spaces."""
    return " ".join(text.split()).casefold()
