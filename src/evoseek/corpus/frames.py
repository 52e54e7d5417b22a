"""Byte strings over a pipe, each after its length."""

from __future__ import annotations

from typing import IO


def write_frame(pipe: IO[bytes], data: bytes) -> None:
    """Write one, and flush it."""
    pipe.write(len(data).to_bytes(4, "big") + data)
    pipe.flush()


def read_frame(pipe: IO[bytes], limit: int) -> bytes | None:
    """The next one; None if the other side is gone, in the middle of one too, or says more than `limit` bytes."""
    size = int.from_bytes(head, "big") if len(head := pipe.read(4)) == 4 else limit + 1
    if size > limit:
        return None
    data = pipe.read(size)
    return data if len(data) == size else None
