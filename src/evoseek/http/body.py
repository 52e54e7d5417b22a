"""Reads the body of a response piece by piece, so that a small body cannot unpack to a huge one, nor tiny pieces stop
the event loop."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterable

MAX_RATIO = 100
"""Maximum ratio of a body's unpacked to its packed length: HTML packs to about a fifth, seldom to a fiftieth."""

_FREE = 64 * 1024  # bytes before the ratio counts
_PIECE = (
    64  # least number of bytes that a piece counts as: a chunk of one byte has six of framing, and takes long to read
)
_BATCH = 32  # pieces before others have their turn: reading these takes about a millisecond
_GZIP, _MEMBER = 16 + zlib.MAX_WBITS, b"\x1f"


class BodyError(Exception):
    """A body that is refused, on every attempt. The error's text is a predicate that follows "it" or "the page"."""


class CutBodyError(Exception):
    """A packed body is damaged or ends too early."""


async def read_body(pieces: AsyncIterable[bytes], coding: str, max_bytes: int, *, cut: bool = False) -> bytes:
    """Read a body and unpack it by its Content-Encoding: gzip (the one to request) or none.

    Raises BodyError for another coding, for more than `max_bytes` before or after unpacking (with `cut`, the first
    `max_bytes` are returned instead), and for a body that unpacks to more than `MAX_RATIO` times its length. Each piece
    counts as at least 64 bytes. Raises CutBodyError. Other tasks run in between, even if the pieces are tiny.
    """
    if coding not in ("", "identity", "gzip", "x-gzip"):
        raise BodyError(f"is packed as {coding[:40]!r}, which was not asked for")
    members = _Members() if "gzip" in coding else None
    body, received, counted, number = bytearray(), 0, 0, 0
    async for piece in pieces:
        received, counted, number = received + len(piece), counted + max(len(piece), _PIECE), number + 1
        body += piece if members is None else members.unpacked(piece, max_bytes + 1 - len(body))
        if len(body) > _FREE and len(body) > MAX_RATIO * received:
            raise BodyError(f"unpacks to over {MAX_RATIO} times its length, as no text does")
        if max(len(body), counted) > max_bytes:
            if cut:
                return bytes(body[:max_bytes])
            raise BodyError(f"is longer than {max_bytes:,} bytes")
        if number % _BATCH == 0:
            await asyncio.sleep(0)
    if members is not None and received and not members.are_whole:
        raise CutBodyError("it ends before all is unpacked")
    return bytes(body)


class _Members:
    """Unpacks the members of a gzip stream in order (RFC 1952, 2.2). As in browsers, anything after them is ignored."""

    def __init__(self) -> None:
        self._member, self._is_over = zlib.decompressobj(_GZIP), False

    @property
    def are_whole(self) -> bool:
        return self._member.eof

    def unpacked(self, data: bytes, most: int) -> bytes:
        """Unpack at most `most` bytes (1 or more) and discard the rest. Raises CutBodyError."""
        found = bytearray()
        while data and len(found) < most and not self._is_over:
            if self._member.eof and data.startswith(_MEMBER):
                self._member = zlib.decompressobj(_GZIP)
            elif self._member.eof:
                self._is_over = True
                break
            try:
                found += self._member.decompress(data, most - len(found))
            except zlib.error as error:
                raise CutBodyError(f"it cannot be unpacked ({error})") from error
            data = self._member.unused_data
        return bytes(found)
