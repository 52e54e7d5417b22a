"""Passages: exact offsets, nothing lost, and cuts where a reader would make them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.corpus.passages import split_document
from evoseek.errors import ConfigError
from evoseek.types import Document, Mark, Passage

TEXTS = st.lists(
    st.sampled_from(["Kalo", "is", "a", "city.", "\n", "\n\n", " ", "  ", "東京都。", "…", "é", "x" * 250]), max_size=80
).map(" ".join) | st.text(max_size=300)


def texts(text: str, max_words: int) -> list[str]:
    return [passage.text for passage in split_document(Document("d", "T", text), max_words=max_words)]


@given(TEXTS, st.integers(1, 30))
def test_passages_are_exact_and_lose_nothing(text: str, max_words: int) -> None:
    passages = split_document(Document("d", "T", text), max_words=max_words)
    assert [passage.id for passage in passages] == [f"d#{number}" for number in range(len(passages))]
    end = 0
    for passage in passages:
        assert passage.text == text[passage.start : passage.end] == passage.text.strip()
        assert text[end : passage.start].strip() == ""
        assert 1 <= len(passage.text.split()) <= max_words
        assert (passage.title, passage.document_id) == ("T", "d")
        end = passage.end
    assert text[end:].strip() == ""


@given(st.integers(1, 500), st.integers(1, 20))
def test_text_without_spaces_cannot_make_a_passage_of_unbounded_length(length: int, max_words: int) -> None:
    assert all(len(part) <= 100 * max_words for part in texts("x" * length * 10, max_words))
    assert all(len(part) <= max_words for part in texts("京" * length, max_words))


def test_cuts_at_a_paragraph_before_a_sentence_before_a_word() -> None:
    assert texts("one two three.\n\nfour. five six seven", 6) == ["one two three.", "four. five six seven"]
    assert texts("one two three. four five six seven", 6) == ["one two three.", "four five six seven"]
    assert texts("one two three four five six seven", 6) == ["one two three four five six", "seven"]
    # The only border lies in the first half: better a short passage than a cut sentence.
    assert texts("one. two three four five six seven", 6) == ["one.", "two three four five six seven"]


def test_what_fits_is_one_passage_and_nothing_is_none() -> None:
    assert texts("one. two.\n\nthree.", 3) == ["one. two.\n\nthree."]
    assert texts(" \n ", 3) == []


def test_no_words_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_words=0"):
        split_document(Document("d", "", "x"), max_words=0)


def test_a_passage_has_the_page_and_heading_where_it_begins() -> None:
    marks = (Mark(0, page=1), Mark(5, page=2, heading="Meri"))
    document = Document("d", "T", "Kalo. Meri. Supa.", file="d.pdf", marks=marks)
    found = split_document(document, max_words=1)
    assert [(p.text, p.file, p.page, p.heading) for p in found] == [
        ("Kalo.", "d.pdf", 1, None),
        ("Meri.", "d.pdf", 2, "Meri"),
        ("Supa.", "d.pdf", 2, "Meri"),
    ]
    assert found[1].citation == 'd.pdf, page 2, "Meri", characters 6-11'
    assert found[1].place == {"file": "d.pdf", "page": 2, "heading": "Meri", "start": 6, "end": 11}
    assert (Passage("p", "d", "", "x").citation, Passage("p", "d", "", "x").place) == ("d", {})
