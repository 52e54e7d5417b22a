import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.text.scripts import (
    family,
    find_citations,
    fold,
    fold_characters,
    fold_places,
    is_unspaced,
    length,
    script,
    script_counts,
    without_citations,
)


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Café «Ω» — Ｆｕｌｌ！", "cafe ω full"),
        ("2,400 m", "2400 m"),
        ("Meri's U.S.", "meri s u s"),
        ("मेरठ में", "मेरठ में"),  # vowels that are written as marks stay
        ("ที่ไหน", "ที่ไหน"),
        ("مُحَمَّد", "محمد"),
        ("서울", "서울"),
        ("?!", ""),
    ],
)
def test_what_stays_of_a_text_when_it_is_compared(text: str, folded: str) -> None:
    assert fold(text) == folded


FORMS = [  # of one text each
    ("O\u2019Brien", "O'Brien", "O\u02bcBrien", "Ｏ＇Ｂｒｉｅｎ"),
    ("1939-1945", "1939\u20131945", "1939\u22121945", "1939 \u2013 1945", "１９３９－１９４５"),
    ("-40 °C", "\u221240 °C", "\u201340 °C", "minus 40 °C", "-40 \u2103", "-٤٠ °C"),
    ("Café", "Cafe\u0301", "ＣＡＦÉ", "cafe"),
    ("final", "\ufb01nal", "fi\u00adnal", "fi\u200bnal"),
    ("1958", "١٩٥٨", "۱۹۵۸", "१९५८", "๑๙๕๘", "１９５８", "𝟏𝟗𝟓𝟖"),
    ("1000", "1 000", "1,000", "1\u00a0000", "1\u202f000", "1'000", "1\u2019000", "١٬٠٠٠"),
    ("1250000", "1,250,000", "1.250.000", "12,50,000", "1 250 000"),
    ("1250000.75", "1,250,000.75", "1.250.000,75"),
    ("3.5", "3,5", "٣٫٥", "３．５"),
    ("10^6", "10⁶"),
    ("m2", "m²", "m^2"),
    ("1/2", "½", "1\u20442", "１／２"),
    ("2 1/2", "2½"),
    ("أحمد", "احمد", "أَحْمَد", "أحـمد"),
    ("الإدارة", "الاداره", "الْإِدَارَة"),
    ("کتابی", "كتابي"),
    ("שָׁלוֹם", "שלום"),
    ("ガス", "ｶﾞｽ", "カ\u3099ス"),
    ("葛城", "葛\U000e0100城"),
    ("C#", "C♯", r"C\#"),
    ("Java", "Java™"),
    ("한글", unicodedata.normalize("NFD", "한글")),
]
OTHERS = [  # numbers and names that are not one
    ("40", "-40"),
    ("40", "-$40"),
    ("20", "-20", "2.0"),
    ("35", "3.5", "3/5", "3:5", "3^5"),
    ("12", "1/2"),
    ("106", "10⁶", "10 6"),
    ("212", "2½", "2 12"),
    ("401 bar", "40¹ bar"),
    ("5", ".5", "1.5"),
    ("382", "3.8.2", "3.82"),
    ("1030", "10:30"),
    ("1e5", "1e-5"),
    ("C", "C++", "C#", "C*", "C+"),
    ("F", "F#"),
    ("3142", "3.142"),
    ("0.250", "250", "0250"),
]


@pytest.mark.parametrize("forms", FORMS, ids=lambda forms: forms[0])
def test_forms_of_one_text_are_one(forms: tuple[str, ...]) -> None:
    assert len({fold(form, grouped=" ") for form in forms}) == 1


@pytest.mark.parametrize("others", OTHERS, ids=lambda others: others[0])
def test_a_sign_makes_another_number_or_name(others: tuple[str, ...]) -> None:
    assert len({fold(other) for other in others}) == len(others)


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("from -40 to -20", "from -40 to -20"),
        ("−40–−20", "-40 -20"),
        ("10-20 well-known A-1", "10 20 well known a 1"),
        ("03.05.1999, 2024-05-01, 31/12/24", "03 05 1999 2024 05 01 31 12 24"),
        ("**bold** *A* a*b # Title C++, (C#)", "bold a a b title c++ c#"),
        ("12 345 and 100 200", "12 345 and 100 200"),  # one number or two
        ("1.250 mm", "1.250 mm"),
        ("It cost 5. 300 came, 1,2,3", "it cost 5 300 came 1 2 3"),
    ],
)
def test_which_signs_stay(text: str, folded: str) -> None:
    assert fold(text) == folded


WRITTEN = st.text() | st.lists(
    st.sampled_from([*"0123456789 .,-/:^+#*'aCé½⁶①ﾞ١٬٫−–’™ß가한", "\u0301", "minus ", "000", "U\u0308", "ม้", "ชำ"])
).map("".join)


@given(WRITTEN)
def test_folded_characters_are_their_own_form(text: str) -> None:
    assert fold_characters(fold_characters(text)) == fold_characters(text)


@given(st.lists(st.sampled_from([one for ones in (*FORMS, *OTHERS) for one in ones])).map(" and ".join))
def test_a_folded_text_is_its_own_form(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(WRITTEN)
def test_the_encoding_of_a_text_makes_no_difference(text: str) -> None:
    assert fold(unicodedata.normalize("NFD", text)) == fold(unicodedata.normalize("NFC", text))


@given(WRITTEN)
def test_folded_characters_know_their_places(text: str) -> None:
    folded, places = fold_places(text)
    assert len(folded) == len(places)
    assert all(0 <= start < end <= len(text) for start, end in places)
    assert places == sorted(places)


@given(st.sampled_from([form for forms in FORMS for form in forms if form]))
def test_the_places_of_a_text_hold_its_words(text: str) -> None:
    assert " ".join(fold_places(text)[0].split()) == fold(text)


def test_accents_can_be_kept() -> None:
    assert (fold("Où", accents=True), fold("Où")) == ("où", "ou")


@pytest.mark.parametrize(
    ("character", "name"), [("a", "LATIN"), ("ж", "CYRILLIC"), ("京", "HAN"), ("ア", "KANA"), ("ไ", "THAI"), ("7", "")]
)
def test_the_script_of_a_character(character: str, name: str) -> None:
    assert script(character) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [("東京はどこ", "KANA"), ("东京", "HAN"), ("Kyoto 京都", "LATIN"), ("서울 漢", "HANGUL"), ("7?", "")],
)
def test_the_script_of_a_text(text: str, name: str) -> None:
    assert family(script_counts(text)) == name


@pytest.mark.parametrize(
    ("text", "words", "characters"),
    [("who is it", 3, 9), ("法国的首都是哪里", 4, 16), ("สะพานแก้ว", 9 / 4, 9), ("수도는?", 1.5, 7), ("", 0, 0)],
)
def test_lengths_are_comparable_between_scripts(text: str, words: float, characters: int) -> None:
    assert length(text) == (words, characters)


def test_which_texts_have_no_spaces() -> None:
    assert (is_unspaced("ที่"), is_unspaced("서울"), is_unspaced("word")) == (True, False, False)


@pytest.mark.parametrize(
    ("text", "plain", "found"),
    [
        ("SAVEPOINT [2]", "SAVEPOINT", [(2, 9)]),
        ("It stops [1][3]. It starts [1, 12].", "It stops. It starts.", [(1, 8), (3, 8), (1, 19), (12, 19)]),
        ("It stops.[2] So", "It stops. So", [(2, 9)]),
        ("argv[1], [0] and [2024]", "argv[1], [0] and [2024]", []),
    ],
)
def test_citations_are_found_and_left_out(text, plain, found):
    assert find_citations(text) == (plain, found)
    assert without_citations(text) == plain


def test_of_a_text_that_is_a_citation_all_is_left():
    assert without_citations("[2]") == "[2]"
