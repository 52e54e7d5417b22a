"""What a verdict is; `test_verdict_table` holds the long list of shapes."""

import pytest

from evoseek.errors import ToolError
from evoseek.reward.verdict import parse_label, parse_verdict

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
    with pytest.raises(ToolError, match="holds no single verdict"):
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
