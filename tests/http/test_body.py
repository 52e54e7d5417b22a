"""Bodies are unpacked within bounds."""

import asyncio
import gzip
import random

import pytest

from evoseek.http.body import BodyError, CutBodyError, read_body


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
        with pytest.raises(BodyError, match="longer than 100,000 bytes"):
            read(data, coding, most=100_000)
        assert read(data, coding, most=100_000, cut=True)[0] == TEXT[:100_000]


def test_a_bomb_is_refused_by_its_ratio():
    with pytest.raises(BodyError, match="over 100 times"):
        read(gzip.compress(bytes(10**9 // 20)), "gzip", most=10**9)


def test_packed_bytes_count_too():
    empty_blocks = gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * 300_000  # unpack to nothing, for ever
    with pytest.raises(BodyError, match="longer than"):
        read(empty_blocks, "gzip")


@pytest.mark.parametrize("data", [gzip.compress(TEXT)[:-100], b"no gzip at all", gzip.compress(TEXT)[:50] + b"x" * 999])
def test_damaged_bodies_are_failures(data):
    with pytest.raises(CutBodyError):
        read(data, "gzip")


@pytest.mark.parametrize("coding", ["br", "zstd", "deflate", "gzip, gzip", "compress"])
def test_no_other_coding_is_read(coding):
    with pytest.raises(BodyError, match="packed as"):
        read(b"x", coding)


MEMBERS = [b"one and ", b"", TEXT, b"the last"]


@pytest.mark.parametrize("size", [1, 7, 1000, 10**6])
def test_a_body_of_several_gzip_members_is_read_whole(size):
    data = b"".join(map(gzip.compress, MEMBERS))
    most = 100 * len(data)
    assert read(data, "gzip", size=size, most=most)[0] == b"".join(MEMBERS)
    for rest in (b"\0" * 100, b"no member", b"\0\x1f"):
        assert read(data + rest, "gzip", size=size, most=most)[0] == b"".join(MEMBERS)
    with pytest.raises(CutBodyError):
        read(data[:-1], "gzip", size=size, most=most)


def test_the_bounds_hold_for_all_members_together():
    members = gzip.compress(TEXT) + gzip.compress(TEXT)
    assert read(members, "gzip", most=2 * len(TEXT))[0] == TEXT + TEXT
    with pytest.raises(BodyError, match="longer than 599,999 bytes"):
        read(members, "gzip", most=2 * len(TEXT) - 1)
    assert read(members, "gzip", most=2 * len(TEXT) - 1, cut=True)[0] == (TEXT + TEXT)[:-1]
    with pytest.raises(BodyError, match="over 100 times"):
        read(gzip.compress(bytes(60_000)) * 1000, "gzip", most=10**9)


def test_a_piece_counts_as_64_bytes_at_least():
    assert read(TEXT[:1000], size=1, most=64_000)[0] == TEXT[:1000]
    with pytest.raises(BodyError, match="longer than 63,999 bytes"):
        read(TEXT[:1000], size=1, most=63_999)
    assert read(TEXT[:1000], size=1, most=640, cut=True) == (TEXT[:11], 11)  # the first that is too much ends it


def test_others_have_their_turn_while_pieces_are_tiny():
    turns = 0

    async def pieces():
        for _ in range(3200):
            yield b"x"

    async def other():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def both():
        task = asyncio.create_task(other())
        await read_body(pieces(), "", 10**6)
        task.cancel()

    asyncio.run(both())
    assert turns >= 99  # once for 32 pieces
