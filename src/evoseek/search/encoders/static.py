"""The encoder `static`: the mean of token vectors that come inside the package wordllama. No torch, no network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from evoseek.files import file_digest, json_digest
from evoseek.search.encoders.encoder import EncoderSettings, Vectors, package_file, unit
from evoseek.search.manifest import EncoderRecord

_PACKAGE, _EXTRA = "wordllama", "static"
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_WORDS = 200_000  # words whose tokens are kept: a language's frequent ones


class StaticEncoder:
    """The mean of the vectors of a text's tokens, at unit length: 256 numbers, thousands of passages a second.

    Tokens are made word by word, so a text's vector does not depend on its white space.
    """

    Settings = EncoderSettings

    @classmethod
    def build(cls, settings: EncoderSettings, context: object) -> StaticEncoder:
        """The encoder with the package's weights. Raises ConfigError if the package is not installed."""
        return cls(package_file(_PACKAGE, _WEIGHTS, extra=_EXTRA), package_file(_PACKAGE, _TOKENIZER, extra=_EXTRA))

    def __init__(self, weights: Path, tokenizer: Path) -> None:
        """`weights`: a safetensors file with one matrix (V, D), a row for each token of the tokenizer (JSON)."""
        (matrix,) = load_file(weights).values()
        self._matrix: NDArray[np.float32] = matrix.astype(np.float32)
        cutter: Any = Tokenizer.from_file(str(tokenizer))
        cutter.no_padding()
        cutter.no_truncation()
        self._tokens = lru_cache(_WORDS)(partial(_tokens, cutter))
        self.record = EncoderRecord(
            settings={"name": "static"},
            query_prompt="",
            passage_prompt="",
            pooling="mean",
            dimension=self._matrix.shape[1],
            weights=json_digest([file_digest(weights), file_digest(tokenizer)]),
        )

    def queries(self, texts: Sequence[str]) -> Vectors:
        """The vectors of queries."""
        means = np.zeros((len(texts), self.record.dimension), np.float32)
        for number, text in enumerate(texts):
            if tokens := [token for word in text.split() for token in self._tokens(word)]:
                means[number] = self._matrix[tokens].mean(axis=0)
        return unit(means)

    def passages(self, texts: Sequence[str]) -> Vectors:
        """The vectors of passages, which are made like those of queries."""
        return self.queries(texts)


def _tokens(tokenizer: Any, word: str) -> list[int]:
    return tokenizer.encode(word, add_special_tokens=False).ids
