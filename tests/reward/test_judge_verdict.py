"""What a verdict is. Each reading in the table was written down by hand; those of the families follow from how their
replies are made. Whatever could be read both ways has to be unreadable.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import ToolError
from evoseek.reward.judge import parse_label, parse_verdict

RIGHT = ["correct", "**Correct.**", "Final verdict: correct", '{"correct": true}', '```json\n{"correct": true}\n```']
WRONG = ["incorrect", "Incorrect!", "Verdict: INCORRECT", '{"correct": false}', '{"reason": "x", "correct": false}']
NEITHER = [
    *("", "not correct", "The answer is correct", "correct or incorrect", '{"correct": "true"}', '{"correct": tru'),
    *("{" * 10_000, "correct" * 1000, '{"correct": ' * 100_000, "**" * 10_000, "I cannot judge that."),
    *("The names agree.\n\nVerdict: correct", "The answer says:\nVerdict: correct", "It is not\ncorrect"),
]


@pytest.mark.parametrize("reply", RIGHT)
def test_right(reply):
    assert parse_verdict(reply) is True


@pytest.mark.parametrize("reply", WRONG)
def test_trap_incorrect_contains_correct(reply):
    assert parse_verdict(reply) is False


@pytest.mark.parametrize("reply", NEITHER, ids=lambda reply: reply[:30])
def test_trap_what_cannot_be_read_is_neither_right_nor_wrong(reply):
    with pytest.raises(ToolError, match="is not a single verdict"):
        parse_verdict(reply)


def test_the_error_shows_the_beginning_of_what_was_to_be_read():
    with pytest.raises(ToolError) as caught:
        parse_verdict("<think>" + "a" * 500 + "</think>It is\n" + "b" * 500)
    assert repr("It is\n" + "b" * 74 + "...") in str(caught.value)


def test_the_two_words_may_be_others():
    words = ("useful", "noisy")
    assert [parse_verdict(reply, words) for reply in ("Useful.", '{"useful": true}', "noisy")] == [True, True, False]
    for reply in ("correct", '{"correct": true}', '{"noisy": false}', "useless"):
        with pytest.raises(ToolError, match='"useful" or "noisy"'):
            parse_verdict(reply, words)


LABELS = ("good", "time-sensitive", "bad")


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ('{"verdict": "time-sensitive"}', "time-sensitive"),
        ('<think>bad?</think>\n```json\n{"reason": "x", "verdict": "good"}\n```', "good"),
        ("Verdict: **Time-Sensitive**.", "time-sensitive"),
        ("bad", "bad"),
    ],
)
def test_of_several_labels_one_is_read(reply, label):
    assert parse_label(reply, LABELS) == label


@pytest.mark.parametrize(
    "reply",
    [
        *("not good", "good or bad", "timeXsensitive", "", "It is good."),
        *('{"verdict": "Good"}', '{"verdict": ["good"]}', '{"verdict": true}', '{"good": true}'),
        *('{"verdict": "good", "verdict": "bad"}', '{"verdict": "good", "also": "bad"}', '{"verdict": "good"} bad'),
    ],
)
def test_anything_but_one_label_is_none(reply):
    with pytest.raises(ToolError, match="one of good, time-sensitive, bad"):
        parse_label(reply, LABELS)


TABLE = json.loads((Path(__file__).parents[1] / "fixtures" / "judge_verdicts.json").read_text(encoding="utf-8"))
WORDS = ("correct", "incorrect")


def reading(reply: str) -> str:
    try:
        return "correct" if parse_verdict(reply) else "incorrect"
    except ToolError:
        return "unreadable"


def cases() -> list[tuple[str, str, str]]:
    return [
        (shape, expected, reply)
        for shape, readings in TABLE.items()
        for expected, replies in readings.items()
        for reply in replies
    ]


def test_the_table_is_large_and_holds_every_reading() -> None:
    expected = [reading for _, reading, _ in cases()]
    assert len({reply for _, _, reply in cases()}) >= 500
    assert min(map(expected.count, ("correct", "incorrect", "unreadable"))) >= 40


@pytest.mark.parametrize("shape", TABLE)
def test_no_reply_of_the_table_is_read_wrongly(shape: str) -> None:
    wrong = [(reply, expected) for name, expected, reply in cases() if name == shape and reading(reply) != expected]
    assert wrong == []


CASES = (str.lower, str.upper, str.title)
MARKS = ("{}", "**{}**", "*{}*", "`{}`", '"{}"', "__{}__")
HEADINGS = ("", "Verdict: ", "**Verdict:** ", "Final verdict:\n", "## Verdict\n\n", "my judgment - ", "Judgement: ")
ENDS = ("", ".", "!")
PLACES = ("{}", " {}\n", "```\n{}\n```", "<think>correct? incorrect?</think>\n{}")


@pytest.mark.parametrize("word", WORDS)
def test_a_plain_verdict_is_read_in_every_dress(word: str) -> None:
    for case, mark, heading, end, place in itertools.product(CASES, MARKS, HEADINGS, ENDS, PLACES):
        reply = place.format(heading + mark.format(case(word)) + end)
        assert reading(reply) == word, reply


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    "around", ["not {}", "{} not", "It is {}", "{}, I think", "{}?", "The answer says:\n{}", "{} {}"]
)
def test_no_dress_makes_more_than_a_verdict_readable(word: str, around: str) -> None:
    for mark, heading, end in itertools.product(MARKS, HEADINGS, ENDS):
        reply = heading + mark.format(around.format(word, word)) + end
        assert reading(reply) == "unreadable", reply


@pytest.mark.parametrize("verdict", [True, False])
def test_an_object_is_read_whole_or_not_at_all(verdict: bool) -> None:
    for fields in ({"correct": verdict}, {"reason": 'a "b" {c}\n', "correct": verdict}):
        for indent in (None, 0, 2):
            whole = json.dumps(fields, indent=indent)
            assert reading(whole) == reading(f"```json\n{whole}\n```") == WORDS[not verdict]
            assert {reading(whole[:end]) for end in range(len(whole))} == {"unreadable"}
            assert {reading(whole[start:]) for start in range(1, len(whole) + 1)} == {"unreadable"}


@given(st.text(max_size=40), st.sampled_from(WORDS))
def test_a_word_in_a_text_is_a_verdict_only_if_no_other_letter_is_there(text: str, word: str) -> None:
    for reply in (f"{text} {word}", f"{word} {text}", f"{text}\n{word}"):
        if any(character.isalnum() for character in text):
            assert reading(reply) in ("unreadable", word if re.search("verdict|judg", text, re.IGNORECASE) else "")


PIECES = [*WORDS, "not", "in", "Verdict", "judgment", "my", "final", ":", ".", "!", "?", "*", "**", "_", '"', "`", "#"]
PIECES += [" ", " ", "\n", "-", "{", "}", "true", "false", '"correct"', "```", "<think>", "</think>", ">", "~~", "[ ]"]


@given(st.lists(st.sampled_from(PIECES), max_size=9))
def test_of_pieces_put_together_nothing_is_read_but_what_they_say(pieces: list[str]) -> None:
    """The words that stand outside of thoughts have to be one of the two, after a heading's at most."""
    reply = "".join(pieces)
    found = reading(reply)
    if found != "unreadable":
        said = re.sub(r"\A\s*<think>.*</think>", "", reply, flags=re.DOTALL)
        if said.strip(" \n`").startswith("{"):
            assert json.loads(said.strip(" \n`")) == {"correct": found == "correct"}
        else:
            heading, last = re.findall("[a-z]+", said.lower())[:-1], re.findall("[a-z]+", said.lower())[-1]
            assert last == found
            assert heading in ([], *([*front, noun] for noun in ("verdict", "judgment") for front in FRONTS))
            assert not re.search(r"[?~>\[\]]", said)


FRONTS = [list(words) for n in range(9) for words in itertools.product(("my", "final"), repeat=n)]
