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


@pytest.mark.parametrize(
    ("text", "identifiers"),
    [
        ("Set cache_size, or os.path.join().", ["cache_size", "os.path.join"]),
        ("Since 3.8.2: sizes_of. __init__ a-b", ["3.8.2", "sizes_of"]),
        ("größe_Änderung 東京_x", ["grosse_anderung", "東京_x"]),
        ("x" * 99 + "_y", ["x" * MAX_TOKEN_CHARACTERS]),
        ("x" * 1_000_000, []),
        ("", []),
    ],
)
def test_an_identifier_is_a_term_besides_its_words(text: str, identifiers: list[str]) -> None:
    analyser = Analyser("english")
    assert analyser.terms(text) == [*analyser.tokens(text), *identifiers]


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
