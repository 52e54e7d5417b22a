"""Bodies are unpacked within bounds."""

import asyncio
import gzip
import random

import pytest

from evoseek.errors import PageError
from evoseek.search.browse.body import CutBodyError, read_body


def read(data, coding="", most=1_000_000, size=1000, **settings):
    taken = 0

    async def pieces():
        nonlocal taken
        for start in range(0, len(data), size):
            taken += 1
            yield data[start : start + size]

    return asyncio.run(read_body(pieces(), coding, most, **settings)), taken


TEXT = "".join(random.Random(0).choices("abcdefgh ", k=300_000)).encode()


def test_what_fits_is_given_whole():
    assert read(TEXT)[0] == TEXT
    assert read(gzip.compress(TEXT), "gzip")[0] == TEXT
    assert read(TEXT, most=len(TEXT))[0] == TEXT
    assert read(b"", "gzip")[0] == b""


def test_what_is_too_long_ends_at_once_or_is_cut():
    for data, coding in ((TEXT, ""), (gzip.compress(TEXT), "gzip")):
        with pytest.raises(PageError, match="longer than 100,000 bytes"):
            read(data, coding, most=100_000)
        assert read(data, coding, most=100_000, cut=True)[0] == TEXT[:100_000]


def test_a_bomb_is_refused_by_its_ratio():
    with pytest.raises(PageError, match="over 100 times"):
        read(gzip.compress(bytes(10**9 // 20)), "gzip", most=10**9)


def test_packed_bytes_count_too():
    empty_blocks = gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * 300_000  # unpack to nothing, for ever
    with pytest.raises(PageError, match="longer than"):
        read(empty_blocks, "gzip")


@pytest.mark.parametrize("data", [gzip.compress(TEXT)[:-100], b"no gzip at all", gzip.compress(TEXT)[:50] + b"x" * 999])
def test_damaged_bodies_are_failures(data):
    with pytest.raises(CutBodyError):
        read(data, "gzip")


@pytest.mark.parametrize("coding", ["br", "zstd", "deflate", "gzip, gzip", "compress"])
def test_no_other_coding_is_read(coding):
    with pytest.raises(PageError, match="packed as"):
        read(b"x", coding)
