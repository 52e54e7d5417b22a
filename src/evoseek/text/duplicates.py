"""Detects repeated texts: equal ones among tens of millions (`TextSet`), or near-duplicates (`NearDuplicates`).

Near-duplicates are found by MinHash signatures (Broder 1997) and banding (Leskovec et al., MMDS, ch. 3). A text is the
set of its word 3-shingles, in normal form. The similarity of two texts is the Jaccard index of their sets.
The signature of a set is its minimum under each of 128 hash functions. Two signatures agree at a place with a
probability that equals the similarity, so the share of equal places estimates it (standard error at most 0.044). Only
texts that agree in a whole band of places are compared: 100,000 questions take some 20 seconds and half a gigabyte.

In scripts without spaces a text is one word, so only equal texts are near-duplicates.
"""

from __future__ import annotations

import struct
from array import array
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b

from evoseek.errors import ConfigError
from evoseek.text.normalization import comparable

PLACES = 128
_WORDS = 3
_HASH = struct.Struct("<16I")  # one digest of 64 bytes serves as sixteen hash functions
_RECALL = 0.99  # of texts exactly at the threshold
_REST = 8  # bytes kept of a digest of ten; the first two are the address


class NearDuplicates:
    """Distinguishes new texts from those whose estimated similarity to an earlier one is at least `threshold`.

    With threshold 1, only texts with the same words in the same order are duplicates. Raises ConfigError for a
    threshold that is not above 0 and at most 1.
    """

    def __init__(self, threshold: float = 1.0) -> None:
        if not 0 < threshold <= 1:
            raise ConfigError(
                f"The similarity above which texts are duplicates is {threshold}. Set a value above 0 and at most 1 "
                "(1: only the same words in the same order)."
            )
        self._threshold = threshold
        self._rows = _rows(threshold)
        self._texts: set[str] = set()
        self._signatures: list[array[int]] = []
        self._bands: dict[bytes, list[int]] = {}

    def is_new(self, text: str, *, remember: bool = True) -> bool:
        """Return whether no remembered text is similar. By default, remember a new text; never a duplicate."""
        words = comparable(text)
        if words in self._texts:
            return False
        found = signature(text) if self._threshold < 1 else None
        if found is not None and self._is_like_another(found):
            return False
        if remember:
            self._remember(words, found)
        return True

    def remember(self, text: str) -> None:
        """Remember a text, duplicate or not."""
        self._remember(comparable(text), signature(text) if self._threshold < 1 else None)

    def _remember(self, words: str, found: array[int] | None) -> None:
        self._texts.add(words)
        if found is not None:
            for band in self._bands_of(found):
                self._bands.setdefault(band, []).append(len(self._signatures))
            self._signatures.append(found)

    def _is_like_another(self, found: array[int]) -> bool:
        others = {index for band in self._bands_of(found) for index in self._bands.get(band, ())}
        return any(similarity(found, self._signatures[index]) >= self._threshold for index in others)

    def _bands_of(self, found: array[int]) -> Iterator[bytes]:
        for start in range(0, PLACES - self._rows + 1, self._rows):
            yield bytes([start]) + found[start : start + self._rows].tobytes()


def shingles(text: str) -> set[str]:
    """Return every three consecutive words of the normal form, or the whole form if it has fewer."""
    words = comparable(text).split()
    return {" ".join(words[start : start + _WORDS]) for start in range(max(1, len(words) - _WORDS + 1))}


@lru_cache(maxsize=100_000)  # self-play compares with all earlier questions in every step
def signature(text: str) -> array[int]:
    """Return the minimum of each hash function over the text's shingles. Do not modify the result."""
    encoded = [shingle.encode("utf-8", "surrogatepass") for shingle in shingles(text)]
    least = array("I")
    for number in range(PLACES // 16):
        salt = number.to_bytes(16, "little")
        hashes = (_HASH.unpack(blake2b(shingle, salt=salt).digest()) for shingle in encoded)
        least.extend(map(min, zip(*hashes, strict=True)))
    return least


def similarity(one: array[int], other: array[int]) -> float:
    """Return the estimated Jaccard index of the texts with these signatures, in [0, 1]."""
    return sum(a == b for a, b in zip(one, other, strict=True)) / PLACES


def _rows(threshold: float) -> int:
    """Return the maximum places in a band that still compare texts at the threshold: 1 - (1 - t^rows)^bands."""
    enough = (rows for rows in range(PLACES, 0, -1) if 1 - (1 - threshold**rows) ** (PLACES // rows) >= _RECALL)
    return next(enough, 1)


class TextSet:
    """Detects repeated ids among tens of millions, by digests of 80 bits. The probability that two of 21 million ids
    share a digest is 2e-10."""

    def __init__(self) -> None:
        self._digests: defaultdict[bytes, bytearray] = defaultdict(bytearray)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, text: str) -> bool:
        """Add a text. Returns whether it is new."""
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=2 + _REST).digest()
        known, rest = self._digests[digest[:2]], digest[2:]
        place = known.find(rest)
        while place > 0 and place % _REST:  # the end of one and the beginning of the next
            place = known.find(rest, place + 1)
        if place < 0:
            known += rest
            self._count += 1
        return place < 0
