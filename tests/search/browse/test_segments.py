"""Segments: within the bound, at sentence ends where there are any, nothing lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.search.browse.segments import beginning_of, count_words, segments_of


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
