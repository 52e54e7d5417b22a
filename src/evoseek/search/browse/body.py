"""The body of a response, unpacked piece by piece so that a small one cannot become a huge one."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterable
from typing import Protocol

from evoseek.errors import PageError

MAX_RATIO = 100
"""How many times its length a packed body may have unpacked: HTML packs to about a fifth, seldom to a fiftieth."""

_FREE = 64 * 1024  # bytes before the ratio counts
_GZIP = 16 + zlib.MAX_WBITS


class CutBodyError(Exception):
    """A packed body is damaged or ends too early."""


async def read_body(pieces: AsyncIterable[bytes], coding: str, max_bytes: int, *, cut: bool = False) -> bytes:
    """The body, unpacked as its Content-Encoding says: gzip (the one that is asked for) or none.

    Raises PageError for another coding, for more than `max_bytes` before or after unpacking (with `cut`, only the first
    `max_bytes` are given instead), and for a body that unpacks to more than `MAX_RATIO` times its length; CutBodyError.
    """
    if coding not in ("", "identity", "gzip", "x-gzip"):
        raise PageError(f"The page is packed as {coding[:40]!r}, which was not asked for. Choose another page.")
    unpacker = zlib.decompressobj(_GZIP) if "gzip" in coding else None
    body, received = bytearray(), 0
    async for piece in pieces:
        received += len(piece)
        body += piece if unpacker is None else _unpacked(unpacker, piece, max_bytes + 1 - len(body))
        if len(body) > _FREE and len(body) > MAX_RATIO * received:
            raise PageError(f"The page unpacks to over {MAX_RATIO} times its length, as no text does. Choose another.")
        if max(len(body), received) > max_bytes:
            if cut:
                return bytes(body[:max_bytes])
            raise PageError(f"The page is longer than {max_bytes:,} bytes. Choose another page.")
    if unpacker is not None and received and not unpacker.eof:
        raise CutBodyError("it ends before all is unpacked")
    return bytes(body)


class _Unpacker(Protocol):
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _unpacked(unpacker: _Unpacker, piece: bytes, most: int) -> bytes:
    try:
        return unpacker.decompress(piece, most)
    except zlib.error as error:
        raise CutBodyError(f"it cannot be unpacked ({error})") from error
