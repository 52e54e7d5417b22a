import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.questions.answers import TitleFinder, names, numbers, phrases, split_dates, title_key
from evoseek.text.language import STOP_WORDS


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It fell on 20 July 1969.", {"20 July 1969"}),
        ("It fell on July 20, 1969, in July 1969 and in 1969.", {"July 20, 1969", "July 1969", "1969"}),
        ("1969-07-20 or 20.07.1969 or 20/7/1969", {"1969-07-20", "20.07.1969", "20/7/1969"}),
        ("am 3. Oktober 1990, le 14 juillet 1789, el 12 de octubre de 1492", None),
        ("統一は1990年10月3日、壁は1989年。", {"1990年10月3日", "1989年"}),
        ("the 1990s, 1,990 men, 19900, 3.1990, v1990, 999 and 2100", set()),
    ],
)
def test_dates(text, found):
    expected = {"3. Oktober 1990", "14 juillet 1789", "12 de octubre de 1492"} if found is None else found
    assert split_dates(text)[0] == expected


def test_the_rest_of_a_text_has_no_dates_left():
    assert split_dates("In March 1969 Meri left.") == ({"March 1969"}, "In , Meri left.")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("120 km, 16GB and 42 % of 3.5 million people", {"120 km", "16GB", "42 %", "3.5 million people"}),
        ("1,234,567 inhabitants", {"1,234,567 inhabitants"}),
        ("the 3rd of 12 and 7, v2 x", set()),
        ("人口370万", {"370万"}),
        ("120 километров", {"120 километров"}),
    ],
)
def test_numbers_have_a_unit(text, found):
    assert numbers(text) == found


@pytest.mark.parametrize(
    ("text", "sure", "unsure"),
    [
        ("Kalo's mayor is Meri Dana. Nida is big.", {"Meri Dana"}, {"Kalo", "Nida"}),
        ("In the United States it rains.", {"United States"}, set()),
        (
            "He saw the University of the Arts, Ludwig van Beethoven and J. R. R. Tolkien.",
            {"University of the Arts", "Ludwig van Beethoven", "J. R. R. Tolkien"},
            {"University", "Arts", "Ludwig", "Beethoven"},
        ),
        (
            "we met O'Brien, Jean-Luc and NASA’s men at Musée d'Orsay",
            {"O'Brien", "Jean-Luc", "NASA", "Musée d'Orsay"},
            (),
        ),
        (
            "a heading\nLong Line\n- Item\n“Quoted words” said Élise Ødegård",
            {"Élise Ødegård"},
            ("Long Line", "Item", "Quoted"),
        ),
        ("она жила в Нижнем Новгороде", {"Нижнем Новгороде"}, set()),
        ("I think so. The one. हिन्दी भाषा 北京", set(), set()),
    ],
)
def test_names_are_runs_of_capitalised_words_that_do_not_merely_open_a_sentence(text, sure, unsure):
    assert names(text) == (sure, set(unsure))


def test_a_name_that_also_opens_a_sentence_is_sure():
    assert names("Meri came. He met Meri.") == ({"Meri"}, set())


def test_phrases_are_neighbours_without_stop_words_capitals_or_punctuation_between():
    text = "the deep neural network of a Big model, learning rate. x learning-rate schedule"
    expected = {"deep neural", "neural network", "deep neural network", "learning rate", "learning-rate schedule"}
    assert phrases(text) == expected
    assert phrases("हिन्दी भाषा में") == {"हिन्दी भाषा", "भाषा में", "हिन्दी भाषा में"}
    assert phrases("北京大学, 学院") == {"北京", "京大", "大学", "北京大", "京大学", "学院"}


def test_titles_are_found_as_whole_words_whatever_their_case():
    find = TitleFinder(["Apollo program", "Apollo", "The Hague", "北京大学", "हिन्दी भाषा", "---"])
    assert find("the apollo  program") == {"apollo", "apollo program"}
    assert find("in The Hague; Apollos") == {"the hague"}
    assert find("他在北京大学。") == {title_key("北京大学")}
    assert find("वह हिन्दी भाषा है") == {title_key("हिन्दी भाषा")}


@given(st.text())
def test_any_text_can_be_read_and_what_is_found_stands_in_it(text):
    dates, rest = split_dates(text)
    sure, unsure = names(rest)
    for found in dates | numbers(text) | phrases(text):
        assert found in text
    for found in sure | unsure:
        assert found in rest
        assert found.casefold() not in STOP_WORDS


@pytest.mark.parametrize("piece", ["a", "A", "1", "Ab ", "1 ", "ab-", "A.", "the ", "1.", "北", "Aa'", "1 a "])
def test_long_runs_of_anything_take_no_time(piece):
    text = piece * (100_000 // len(piece))
    start = time.process_time()
    split_dates(text), numbers(text), names(text), phrases(text), TitleFinder([piece * 2])(text)
    assert time.process_time() - start < 2


def test_stop_words_are_in_lower_case():
    assert {"the", "und", "между", "más"} <= STOP_WORDS
    assert all(word == word.lower() for word in STOP_WORDS)
