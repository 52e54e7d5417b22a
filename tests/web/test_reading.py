"""The reading agent: each segment at most once, a bounded memory, unproductive pages skipped, replies read strictly."""

import asyncio
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.scripted import ScriptedChat

from evoseek.errors import ReplyError, ToolError
from evoseek.types import Page
from evoseek.web.reading import (
    FORM,
    PageBeginning,
    ReadingAgent,
    beginning_of,
    count_words,
    parse_note,
    segments_of,
)

PAGE = Page("http://a.test/kalo", "Kalo", "Part one. Part two. Part three. Part four. Part five.")


class Template:
    """Shows the variables of a prompt as JSON."""

    def marked(self, **values):
        return json.dumps(values)


def note(relevant, read_on=True):
    return json.dumps({"relevant": relevant, "read_on": read_on})


def agent_of(script, **options):
    return ReadingAgent(ScriptedChat(script), Template(), **{"segment_words": 2, **options})


def read(agent, page=PAGE):
    return asyncio.run(agent.read(page, task="who ?", key="t/0/page-0"))


def shown(agent, what):
    return [json.loads(asked.messages[0].content)[what] for asked in agent.chat.asked]


def test_every_segment_is_read_once_in_order_with_the_notes_on_those_before_it():
    replies = iter([note("One.\n\n"), note(""), note("Three."), note("Four."), note("Five.")])
    agent = agent_of(lambda messages, key: next(replies))
    assert read(agent) == "One.\nThree.\nFour.\nFive."
    assert shown(agent, "segment") == ["Part one.", "Part two.", "Part three.", "Part four.", "Part five."]
    assert shown(agent, "memory") == ["", "One.", "One.", "One.\nThree.", "One.\nThree.\nFour."]
    assert set(shown(agent, "task")) == {"who ?"}
    assert [asked.key for asked in agent.chat.asked] == [f"t/0/page-0/segment-{n}" for n in range(1, 6)]
    assert all(asked.form == FORM for asked in agent.chat.asked)
    assert agent.counts == {"pages": 1, "segments": 5}


def test_it_stops_when_the_model_says_so():
    agent = agent_of({"t/0/page-0/segment-1": note("One."), "t/0/page-0/segment-2": note("Two.", False)})
    assert read(agent) == "One.\nTwo."
    assert len(agent.chat.asked) == 2


@pytest.mark.parametrize(("most", "segments"), [(1, 1), (3, 3), (5, 5), (99, 5)])
def test_trap_a_model_that_always_reads_on_reads_no_segment_twice(most, segments):
    """The published loop goes on with the last segment for ever."""
    agent = agent_of(lambda messages, key: note("More."), max_segments=most)
    assert read(agent) == "\n".join(["More."] * segments)
    assert len(agent.chat.asked) == len(set(shown(agent, "segment"))) == segments


@given(st.lists(st.tuples(st.text("ab .\n", max_size=30), st.booleans()), min_size=5, max_size=5))
def test_reading_ends_within_its_bounds_and_the_memory_only_grows(replies):
    numbers = iter(replies)
    agent = agent_of(lambda messages, key: note(*next(numbers)), memory_words=6, max_segments=4)
    result = read(agent)
    assert len(agent.chat.asked) <= 4
    assert count_words(result) <= 6
    assert all(later.startswith(earlier) for earlier, later in pairwise([*shown(agent, "memory"), result]))


def test_a_full_memory_ends_the_reading_and_the_last_note_is_cut_to_what_fits():
    agent = agent_of(lambda messages, key: note("Four words it has."), memory_words=6)
    assert read(agent) == "Four words it has.\nFour words"
    assert len(agent.chat.asked) == 2
    agent = agent_of(lambda messages, key: note("Four words it has. Then more of it."), memory_words=6)
    assert read(agent) == "Four words it has."
    assert len(agent.chat.asked) == 1
    agent = agent_of(lambda messages, key: note("Two words."), memory_words=4)
    assert read(agent) == "Two words.\nTwo words."
    assert len(agent.chat.asked) == 2


@pytest.mark.parametrize("skip_after", [1, 2, 3])
def test_a_page_whose_first_segments_give_nothing_is_skipped(skip_after):
    agent = agent_of(lambda messages, key: note(" \n "), skip_after=skip_after)
    assert read(agent) == ""
    assert len(agent.chat.asked) == skip_after
    assert agent.counts["skipped"] == 1


def test_one_useful_segment_among_the_first_keeps_it_reading():
    agent = agent_of(lambda messages, key: note("Two." if key.endswith("2") else ""), skip_after=2)
    assert read(agent) == "Two."
    assert len(agent.chat.asked) == 5
    assert agent.counts["skipped"] == 0


def test_a_page_without_text_asks_nobody_and_a_long_title_is_cut():
    agent = agent_of({})
    assert read(agent, Page("http://a.test/", "", " \n")) == ""
    assert agent.chat.asked == []
    agent = agent_of(lambda messages, key: note("One.", False))
    read(agent, Page("http://a.test/", "x" * 10**6, "One."))
    assert len(shown(agent, "title")[0]) == 360


def test_an_unreadable_reply_is_asked_for_once_more_with_other_random_numbers():
    agent = agent_of({"t/0/page-0/segment-1": "Well,", "t/0/page-0/segment-1/again": note("One.", False)})
    assert read(agent) == "One."
    assert agent.counts == {"pages": 1, "segments": 1, "repeated": 1}


def test_two_unreadable_replies_are_a_failure_never_an_empty_page():
    agent = agent_of(lambda messages, key: "I cannot do that.")
    with pytest.raises(ReplyError, match=r"'I cannot do that\.'.*read_on"):
        read(agent)
    assert len(agent.chat.asked) == 2


def test_a_chat_that_fails_is_not_asked_again():
    def script(messages, key):
        raise ToolError("The endpoint is down.")

    agent = agent_of(script)
    with pytest.raises(ToolError, match="is down"):
        read(agent)
    assert len(agent.chat.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [
        '{"relevant": "a  b", "read_on": true}',
        '\n{"read_on": true, "relevant": "a\\nb"}\n',
        '```json\n{"relevant": "a b", "read_on": true}\n```',
        '<think> {"relevant": "no", "read_on": false} </think>\n{"relevant": "a b", "read_on": true}',
    ],
)
def test_a_note_in_the_form_that_was_asked_for(reply):
    assert parse_note(reply) == ("a b", True)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "{}",
        "[]",
        '{"relevant": "a"}',
        '{"relevant": "a", "read_on": "true"}',
        '{"relevant": "a", "read_on": 1}',
        '{"relevant": null, "read_on": true}',
        '{"relevant": ["a"], "read_on": true}',
        '{"relevant": "a", "read_on": true, "task": "another"}',
        '{"relevant": "a", "relevant": "b", "read_on": true}',
        '[["relevant", "a"], ["read_on", true]]',
        '{"relevant": "a", "read_on": true} {"relevant": "b", "read_on": true}',
        'Here you are: {"relevant": "a", "read_on": true}',
        '{"relevant": "a", "read_on": true',
        "[" * 100_000,
    ],
)
def test_all_else_is_no_note(reply):
    with pytest.raises(ReplyError):
        parse_note(reply)


def test_a_page_is_read_to_the_end_of_a_sentence_whatever_the_task():
    page = Page("http://a.test/", "Kalo", "Kalo is a city. Its mayor is Meri. It lies by a lake.")
    assert asyncio.run(PageBeginning(9).read(page, task="who ?", key="k")) == "Kalo is a city. Its mayor is Meri."
    assert asyncio.run(PageBeginning(99).read(page, task="who ?", key="k")) == page.text


@pytest.mark.parametrize(
    ("text", "max_words", "segments"),
    [
        ("", 3, []),
        (" \n ", 3, []),
        ("one two three", 3, ["one two three"]),
        ("One two. Three four. Five six.", 5, ["One two. Three four.", "Five six."]),
        ("One two. Three four. Five six.", 4, ["One two. Three four.", "Five six."]),
        ("A heading\nthen words and more words", 3, ["A heading", "then words and", "more words"]),
        ("One. two three four five", 4, ["One. two three four", "five"]),  # an end in the first half is too early
        ('He said "no." Then he left.', 4, ['He said "no."', "Then he left."]),
        ("about 3.5 metres and more", 3, ["about 3.5 metres", "and more"]),
        ("\u65e5\u672c\u3002\u6771\u4eac\u3002", 1, ["\u65e5\u672c\u3002\u6771\u4eac\u3002"]),
        ("x" * 30, 1, ["x" * 12, "x" * 12, "x" * 6]),
    ],
)
def test_a_segment_ends_with_a_sentence_or_line_in_its_second_half_or_else_with_a_word(text, max_words, segments):
    assert list(segments_of(text, max_words)) == segments


@given(st.text(st.sampled_from("ab .\n!\u3002"), max_size=200), st.integers(1, 9))
def test_nothing_is_lost_and_every_bound_is_kept(text, max_words):
    segments = list(segments_of(text, max_words))
    assert "".join("".join(segments).split()) == "".join(text.split())
    assert all(1 <= count_words(segment) <= max_words for segment in segments)


def test_the_beginning_is_the_first_segment():
    assert beginning_of("One two. Three four.", 3) == "One two."
    assert beginning_of("One two. Three four.", 4) == "One two. Three four."
    assert beginning_of("", 4) == ""


def test_text_without_spaces_is_bounded_too():
    assert len(beginning_of("\u5b57" * 10**5, 50)) == 600
