"""Which texts came before, by their digests."""

from __future__ import annotations

from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from evoseek.text import text_set
from evoseek.text.text_set import TextSet


@given(st.lists(st.text(st.characters(), max_size=3)))
def test_it_is_a_set(texts: list[str]) -> None:
    """Lone surrogates are texts, too."""
    ours, theirs = TextSet(), set[str]()
    for text in texts:
        assert ours.add(text) == (text not in theirs)
        theirs.add(text)
    assert len(ours) == len(theirs)


def test_digests_are_compared_at_their_own_places(monkeypatch) -> None:
    """After 0000 0101 and 0101 0000 the digest 0101 0101 of eight bytes is found between them, and is still new."""
    half, other = b"\0" * 4, b"\1" * 4
    digests = {"a": half + other, "b": other + half, "c": other + other, "d": half + half}

    def digest(text: bytes, digest_size: int):
        found = blake2b(text, digest_size=digest_size)
        return type("Known", (), {"digest": lambda self: b"xx" + digests[text.decode()], "of": found})()

    monkeypatch.setattr(text_set, "blake2b", digest)
    texts = TextSet()
    assert [texts.add(text) for text in "abcdabcd"] == [True] * 4 + [False] * 4
