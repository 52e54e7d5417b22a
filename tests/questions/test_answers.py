import json
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import DataError
from evoseek.questions.answers import (
    TitleFinder,
    load_answers,
    mine_answers,
    names,
    numbers,
    phrases,
    split_dates,
    title_key,
)
from evoseek.questions.questions import folded
from evoseek.text.language import STOP_WORDS
from evoseek.types import Passage
from evoseek.world.world import World


def passages(*pairs):
    return [Passage(f"d{n}#0", f"d{n}", title, text) for n, (title, text) in enumerate(pairs)]


APOLLO = passages(
    ("Apollo program", "On 20 July 1969 Neil Armstrong of NASA landed. A flight computer of 2 kg helped."),
    ("Neil Armstrong (astronaut)", "Neil Armstrong flew in the Apollo  Program. He worked for NASA in Houston."),
    ("NASA", "NASA runs a flight computer of 2 kg."),
)


def test_every_kind_is_mined_in_the_passages_about_something_else_and_the_most_frequent_come_first():
    assert mine_answers(APOLLO) == [
        "NASA",
        "Apollo program",
        "Neil Armstrong",
        "Houston",
        "Neil Armstrong of NASA",
        "20 July 1969",
        "2 kg",
        "flight computer",
    ]


def test_a_name_at_the_start_of_a_sentence_counts_if_it_is_one_elsewhere():
    texts = passages(("a", "We saw Meri. Yesterday it rained."), ("b", "Meri left."), ("c", "Nobody. Then Meri came."))
    assert mine_answers(texts) == ["Meri"]


def test_the_parts_of_a_run_count_if_they_are_names_elsewhere():
    texts = passages(("a", "We met Ada Bo of Kalo."), ("b", "We met Ada Bo."), ("c", "We went to the House of Kalo."))
    assert mine_answers(texts) == ["Ada Bo", "Ada Bo of Kalo", "House of Kalo"]


def test_what_only_its_own_passages_mention_is_no_answer():
    kalo = ("Kalo (city)", "Kalo is in Nidaland. People love Kalo.")
    assert mine_answers(passages(kalo, ("Meri", "A mayor."))) == ["Nidaland"]
    assert mine_answers(passages(kalo, ("Meri", "Is mayor of Kalo."))) == [
        "Kalo",
        "Nidaland",
    ]


def test_nothing_too_long_empty_or_made_of_stop_words_is_mined():
    titles = ["The", "Between", "...", "one two three four five six", "x" * 81, "C-3", "", " "]
    texts = [(title, "The between ... one two three four five six " + "x" * 81 + " C-3") for title in titles]
    assert mine_answers(passages(*texts))[0] == "C-3"
    assert all(len(answer) <= 80 and any(map(str.isalnum, answer)) for answer in mine_answers(passages(*texts)))


def test_in_a_world_all_objects_are_found_and_hardly_anything_else():
    world = World.generate(1, 200, "train")
    objects = {str(world.object_name(relation, s)) for relation, found in world.objects.items() for s in found}
    mined = set(mine_answers(world.passages()))
    assert len(objects & mined) >= 0.99 * len(objects)
    assert len(mined - objects) <= 0.02 * len(objects)


def test_the_order_of_the_passages_does_not_matter_where_spellings_agree():
    texts = list(World.generate(1, 200, "train").passages())
    shuffled = random.Random(0).sample(texts, len(texts))
    assert mine_answers(texts) == mine_answers(iter(texts)) == mine_answers(shuffled)


def test_of_several_spellings_in_one_passage_the_first_by_letter_is_kept_whatever_the_hashes():
    words = ["Ada", "Bode", "Cymo", "Dulo", "Enko", "Fami", "Gazu", "Hilo"]
    text = "We saw " + ", ".join(f"{word} and {word.upper()}" for word in words)
    assert mine_answers(passages(("t", text))) == [word.upper() for word in words]


def test_a_text_without_capitals_gives_titles_numbers_and_phrases():
    texts = passages(("北京", "柏林有370万人。1990年。"), ("柏林", "北京有370万人。"))
    assert mine_answers(texts) == ["北京", "柏林", "1990年", "370万人", "万人"]


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=60)), max_size=4))
def test_whatever_is_mined_is_different_usable_and_survives_a_file(tmp_path_factory, pairs):
    mined = mine_answers(passages(*pairs))
    forms = [folded(answer) for answer in mined]
    assert len(set(forms)) == len(forms)
    assert all(any(map(str.isalnum, answer)) for answer in mined)
    if mined:
        path = write(tmp_path_factory.mktemp("answers") / "answers.jsonl", *({"answer": answer} for answer in mined))
        assert load_answers(path) == mined


def write(path, *rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_a_file_needs_answers_alone_and_the_first_of_equal_ones_stays(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        '\ufeff{"answer": " Lake Geneva "}',
        "",
        {"answer": "1990", "other": 1},
        {"answer": "lake  geneva"},
    )
    assert load_answers(path) == ["Lake Geneva", "1990"]


@pytest.mark.parametrize(
    ("row", "phrase"),
    [
        ({"text": "Meri"}, 'Expected a line such as {"answer": "Lake Geneva"}'),
        ({"answer": 1990}, "no usable answer, but 1990"),
        ({"answer": " The ... "}, "no usable answer"),
    ],
)
def test_a_bad_line_is_named(tmp_path, row, phrase):
    path = write(tmp_path / "a.jsonl", {"answer": "fine"}, row)
    with pytest.raises(DataError) as caught:
        load_answers(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert phrase in str(caught.value)


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
