import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import DataError
from evoseek.questions.answers import load_answers, mine_answers
from evoseek.questions.questions import folded
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
