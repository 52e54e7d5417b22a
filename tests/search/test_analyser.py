"""The analyser: what counts as the same word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.search.analyser import MAX_TOKEN_CHARACTERS, Analyser


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Kalo's mayor, in 1923!", ["kalo", "s", "mayor", "in", "1923"]),
        ("snake_case C++ a-b", ["snake", "case", "c", "a", "b"]),
        ("Ｃａｆé CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
        ("Łódź Ærø STRASSE Straße İstanbul", ["lodz", "aero", "strasse", "strasse", "istanbul"]),
        ("Ελλάδα ΕΛΛΑΔΑ", ["ελλαδα", "ελλαδα"]),
        ("東京都に行く", ["東京", "京都", "都に", "に行", "行く"]),
        ("東 in 京都", ["東", "in", "京都"]),
        ("ｶﾞｽ ガス", ["ガス", "ガス"]),
        ("한국어", ["한국", "국어"]),
        ("हिन्दी ภาษา", ["हिन्दी", "ภาษา"]),
        ("co\u00adoperate", ["cooperate"]),
        ("\ud800 ?! 🙂", []),
        ("x" * 100, ["x" * MAX_TOKEN_CHARACTERS]),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert Analyser().tokens(text) == tokens


def test_english_stemming() -> None:
    assert Analyser("english").tokens("The runner's cities were running") == [
        "the",
        "runner",
        "s",
        "citi",
        "were",
        "run",
    ]


@given(st.text())
def test_tokens_hold_no_space_and_are_their_own_tokens(text: str) -> None:
    tokens = Analyser().tokens(text)
    assert all(token and not any(character.isspace() for character in token) for token in tokens)
    assert Analyser().tokens(" ".join(tokens)) == tokens


@given(st.text(st.characters(max_codepoint=127)))
def test_the_short_way_for_ascii_is_the_long_way(text: str) -> None:
    assert Analyser().tokens(text + " 東")[:-1] == Analyser().tokens(text)
