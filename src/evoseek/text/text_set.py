"""A set of very many texts, in about 12 bytes each."""

from __future__ import annotations

from collections import defaultdict
from hashlib import blake2b

_REST = 8  # bytes of a digest of ten that are kept; the first two say where


class TextSet:
    """Which of tens of millions of ids came before, by digests of 80 bits: that two of 21 million ids have the same one
    has a probability of 2e-10."""

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
