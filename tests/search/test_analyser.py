"""The analyser: what counts as the same word."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.search.analyser import MAX_TOKEN_CHARACTERS, Analyser
from evoseek.text.scripts import UNSPACED, script


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
        ("हिन्दी ภาษา", ["हिन्दी", "ภา", "าษ", "ษา"]),
        ("កម្ពុជា", ["កម្", "ម្ពុ", "ពុជា"]),  # vowels and other marks stay with their letter
        ("བོད་ཡིག", ["བོད", "ཡིག"]),  # Tibetan sets its syllables apart
        ("كِتَابٌ، كتـاب", ["كتاب", "كتاب"]),
        ("سنة ١٩٥٨", ["سنه", "1958"]),
        ("کتابخانه\u200cها, کتابخانه ها", ["كتابخانه", "ها", "كتابخانه", "ها"]),
        ("क\u200cष", ["कष"]),
        ("Приказ №5, № 5", ["приказ", "no", "5", "no", "5"]),
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
        ("größe_Änderung 東京_x", ["grosse_anderung", "東京_x", "東", "京"]),
        ("C++, C/C++17 (C#) F♯ A*-Suche Disney+", ["c++", "c++", "c#", "f#", "a*", "disney+"]),
        (r"max\_queue\_size in C\# or C\+\+", ["max_queue_size", "c#", "c++"]),
        (".NET, ASP.NET and the .gitignore", ["asp.net", ".net", ".gitignore"]),
        ("**bold** *a* a*b 1+1 # Title #5 x++y a +b", []),
        ("1,250,000, 1'000 or 12 345 x", ["1250000", "1000", "12345"]),
        ("1.250", ["1.250", "1250"]),
        ("R&D of AT&T; ?a=1&b=2 A & B", ["r&d", "at&t"]),
        ("the U.S.A. at 5 p.m.", ["u.s.a", "p.m", "usa"]),
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


UNSPACED_TEXTS = ("绿茶的产地", "お茶を飲む", "ภาษาไทยง่าย", "ພາສາລາວ", "ភាសាខ្មែរ", "မြန်မာဘာသာ", "한국어를", "ꦧꦱꦗꦮ")


@pytest.mark.parametrize("text", UNSPACED_TEXTS)
def test_every_part_of_a_text_without_spaces_is_found_in_it(text: str) -> None:
    terms = set(Analyser().terms(text))
    marks = {character for character in text if unicodedata.category(character)[0] == "M"}
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            part = text[start:end]
            if part[0] not in marks and text[end : end + 1] not in marks:
                assert terms.issuperset(Analyser().terms(part)), part


def test_all_scripts_without_spaces_are_known() -> None:
    found = {script(character) for text in UNSPACED_TEXTS for character in text} - {""}
    assert found >= UNSPACED - {"TAI", "BALINESE"}


@given(st.text())
def test_the_terms_do_not_depend_on_the_encoding(text: str) -> None:
    forms = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert len({tuple(Analyser().terms(form)) for form in forms}) == 1


@given(st.text(st.sampled_from("abc XYZ_.'!?\n019")))
def test_plain_english_has_the_terms_of_version_1(text: str) -> None:
    assert Analyser().terms(text) == Analyser(version=1).terms(text) or re.search(
        r"\d[ .']\d{3}|(?<!\w)\.[a-z]", text, re.I
    )


@given(st.text())
def test_tokens_hold_no_space_and_are_their_own_tokens(text: str) -> None:
    tokens = Analyser().tokens(text)
    assert all(token and not any(character.isspace() for character in token) for token in tokens)
    assert Analyser().tokens(" ".join(tokens)) == tokens


@given(st.text(st.characters(max_codepoint=127)))
def test_the_short_way_for_ascii_is_the_long_way(text: str) -> None:
    assert Analyser().tokens(text + " 東")[:-1] == Analyser().tokens(text)
