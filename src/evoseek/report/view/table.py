"""A run as columns for the page's list, and the details of its rollouts in packed chunks.

On a page, data is JSON that cannot end its script: everything but ASCII is escaped, and so are `<`, `>` and `&`. A
packed part is JSON, compressed by gzip and written in base64, so it holds only letters, digits, `+`, `/` and `=`.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer

from evoseek.report.view.rollouts import RecordedCredit, RecordedRollout, detail_of, rollout_of
from evoseek.report.view.source import RunSource


class TokenTexts:
    """The texts of token ids, from a tokenizer's file; none without one.

    The text of a token that is part of a character is the replacement character.
    """

    def __init__(self, path: Path | None, notes: list[str]) -> None:
        self.texts: dict[int, str] = {}
        self._tokenizer: Tokenizer | None = None
        if path is None:
            notes.append("The run holds no tokenizer, so tokens are shown by their ids.")
            return
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises Exception itself
            notes.append(f"{path} cannot be read as a tokenizer ({error}), so tokens are shown by their ids.")
            return
        anchor = self._tokenizer.encode("a", add_special_tokens=False).ids[-1:] or [0]
        self._before = anchor
        self._start = self._tokenizer.decode(anchor, skip_special_tokens=False)

    def add(self, ids: list[int]) -> None:
        """Find the texts of these ids. Raises TypeError or OverflowError for anything else."""
        if self._tokenizer is None:
            return
        for token in {*ids} - self.texts.keys():
            text = self._tokenizer.decode([*self._before, token], skip_special_tokens=False)
            self.texts[token] = text.removeprefix(self._start)


_ESCAPED = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


def script_json(value: object) -> str:
    """Write a value as JSON for a script element. Non-finite numbers become null."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPED)


def packed(value: object) -> str:
    """Write a value as compressed JSON in base64; equal values give equal texts."""
    return base64.b64encode(gzip.compress(script_json(value).encode("ascii"), 6, mtime=0)).decode("ascii")


def source_hash(text: str) -> str:
    """Return the hash that names a script or style in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def _finite(value: object) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in cast("Mapping[str, object]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(one) for one in cast("Sequence[object]", value)]
    return value


CHUNK = 128
"""Number of rollouts in a chunk."""

_SHOWN = 160  # characters of an answer or a proposed question in the list


_COLUMNS = (
    *("id", "step", "role", "stop", "reward", "invalid", "rejected", "hops", "searches", "tokens", "answer"),
    *("stated", "advantage", "question", "episode"),
)


@dataclass(slots=True)
class RolloutTable:
    """The rollouts of a run in columns, and their details, `CHUNK` in each of `chunks`. Questions and episodes, which
    many rollouts share, are numbered."""

    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _COLUMNS})
    questions: dict[tuple[str, str, tuple[str, ...]], int] = field(default_factory=dict[Any, int])
    episodes: dict[str, int] = field(default_factory=dict[str, int])
    chunks: list[str] = field(default_factory=list[str])
    token_texts: Mapping[int, str] = field(default_factory=dict[int, str])

    @classmethod
    def of(cls, source: RunSource) -> RolloutTable:
        """Read the rollouts of a run. Raises DataError."""
        table, tokens = cls(), TokenTexts(source.tokenizer_file(), source.notes)
        waiting: list[dict[str, Any]] = []

        def detailed(row: Any) -> tuple[RecordedRollout, dict[str, Any], RecordedCredit | None]:
            rollout = rollout_of(row)
            detail = detail_of(row, credit := source.credits.get(rollout.id))
            for segment in detail["segments"]:
                tokens.add(segment.get("ids", []))
            return rollout, detail, credit

        for rollout, detail, credit in source.rollouts(detailed):
            table._add(rollout, credit)
            waiting.append(detail)
            if len(waiting) == CHUNK:
                table.chunks.append(packed(waiting))
                waiting = []
        table.chunks += [packed(waiting)] if waiting else []
        table.token_texts = tokens.texts
        return table

    def _add(self, rollout: RecordedRollout, credit: RecordedCredit | None) -> None:
        question = (rollout.question_id, rollout.question, rollout.golden_answers)
        values = (
            *(rollout.id, rollout.step, rollout.shown_role, rollout.stop_reason, rollout.reward, rollout.invalid),
            *(rollout.rejected, rollout.hops, rollout.searches, rollout.tokens),
            *(text and text[:_SHOWN] for text in (rollout.answer, rollout.stated)),
            _mean_advantage(credit),
            self.questions.setdefault(question, len(self.questions)),
            self.episodes.setdefault(rollout.episode, len(self.episodes)),
        )
        for name, value in zip(_COLUMNS, values, strict=True):
            self.columns[name].append(value)

    def json(self) -> dict[str, Any]:
        """Return all but the chunks and the token texts."""
        return {"columns": self.columns, "questions": list(self.questions), "episodes": list(self.episodes)}


def _mean_advantage(credit: RecordedCredit | None) -> float | None:
    if credit is None:
        return None
    own = credit.advantages
    return float(f"{own if isinstance(own, float | int) else sum(own) / max(1, len(own)):.4g}")
