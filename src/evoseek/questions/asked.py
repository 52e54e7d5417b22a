"""What a server was asked: `asked.jsonl`, a line for each question, readable only by the file's owner.

    {"key": "sales", "id": "chatcmpl-...", "outcome": "answered", "seconds": 1.3, "question": "...", "searches": 2,
     "answer": "...", "citations": ["id", ...], "time": "..."}

`outcome` is answered, unsupported, no_answer, failed or cancelled. Without texts, question, answer and citations are
empty. A file that reaches 50 MB is renamed to `asked.1.jsonl`, in place of the one before.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, with_config

from evoseek.errors import EvoseekError
from evoseek.questions.feedback import Feedback
from evoseek.storage.jsonl import ResumableJsonl, locked, made_by

ASKED = "asked.jsonl"
_MAX_BYTES, _PRIVATE, _SHOWN = 50_000_000, 0o600, 500
_UNICODE = json.JSONEncoder(ensure_ascii=False)
_LOG = logging.getLogger(__name__)


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Asked:
    """A question that was asked; the module's docstring describes the fields."""

    key: str
    id: str
    outcome: str
    seconds: float
    question: str | None = None
    searches: int = 0
    answer: str | None = None
    citations: tuple[str, ...] = ()
    time: str = ""


_ROW = TypeAdapter(Asked)


class AskedLog:
    """The file at `path`, which need not exist yet. Without `has_texts` it keeps no question, answer or citation."""

    def __init__(self, path: Path, has_texts: bool = True) -> None:
        self.path, self._has_texts = path, has_texts

    def add(self, asked: Asked) -> None:
        """Append a question, with the time. A disk that refuses it is logged: the answer is given all the same."""
        asked = replace(asked, time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        if not self._has_texts:
            asked = replace(asked, question=None, answer=None, citations=())
        try:
            if self.path.exists() and self.path.stat().st_size > _MAX_BYTES:
                self.path.replace(self.path.with_suffix(".1.jsonl"))
            with locked(self.path, _PRIVATE):
                ResumableJsonl(self.path, _UNICODE).append([asdict(asked)])
        except (EvoseekError, OSError) as error:
            _LOG.error("A question was not logged: %s", error)

    def read(self) -> list[Asked]:
        """Read every line. Raises DataError, naming the line."""
        return list(ResumableJsonl(self.path).rows(made_by(_ROW), "question that was asked"))

    def overview(self, verdicts: Sequence[Feedback]) -> dict[str, Any]:
        """Return the counts by outcome and verdict, and the last 500 questions, newest first, with verdicts."""
        every, judged = self.read(), {feedback.id: feedback.verdict for feedback in verdicts}
        return {
            "asked": len(every),
            "outcomes": dict(Counter(one.outcome for one in every)),
            "verdicts": dict(Counter(judged[one.id] for one in every if one.id in judged)),
            "questions": [asdict(one) | {"verdict": judged.get(one.id)} for one in every[: -_SHOWN - 1 : -1]],
        }
