"""An encoder for tests whose vectors are worked out by hand: the counts of the letters a to d, at unit length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evoseek.search.encoders import EncoderSettings, Vectors, unit
from evoseek.search.manifest import EncoderRecord

LETTERS = "abcd"


class LetterEncoder:
    """Counts letters; `calls` has the texts of each call. Raises KeyboardInterrupt after `limit` passages."""

    Settings = EncoderSettings

    def __init__(self, settings: object = None, *, weights: str = "1", limit: int | None = None) -> None:
        self.record = EncoderRecord(
            settings={"name": f"{__name__}:LetterEncoder"},
            query_prompt="",
            passage_prompt="",
            pooling="sum",
            dimension=len(LETTERS),
            weights=weights,
        )
        self.calls: list[list[str]] = []
        self._limit = limit

    def queries(self, texts: Sequence[str]) -> Vectors:
        return unit(np.array([[text.count(letter) for letter in LETTERS] for text in texts], np.float32))

    def passages(self, texts: Sequence[str]) -> Vectors:
        if self._limit is not None and sum(map(len, self.calls)) >= self._limit:
            raise KeyboardInterrupt
        self.calls.append(list(texts))
        return self.queries(texts)
