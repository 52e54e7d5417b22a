import pytest

from evoseek.corpus.scripts import family, fold, is_unspaced, length, script, script_counts


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
