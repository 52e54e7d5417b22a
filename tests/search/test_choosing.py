"""Choosing how a corpus is searched by its headings."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from evoseek.errors import DataError
from evoseek.search.choosing import (
    HeadedText,
    Measured,
    best_of,
    choose,
    measure,
    sections_of,
    table,
    without_headings,
)
from evoseek.search.indexing import IndexPlan
from evoseek.types import TERM, Document, Mark, Passage

FILLER = "It is done in the usual way, as everybody who has seen it once will know. "
VERBS = ("paint", "repair", "clean", "open", "close", "move", "lift", "count", "test", "print")
NOUNS = ("door", "window", "engine", "table")
QUIET = Console(file=io.StringIO(), width=200)


def passage(start: int, end: int, document: str = "a", copies: tuple[Passage, ...] = ()) -> Passage:
    return Passage(f"{document}#{start}", document, "", "x" * (end - start), start, end, copies=copies)


def test_the_share_of_a_section_that_a_passage_or_a_copy_holds() -> None:
    section = HeadedText("How to open", "a", 100, 200)
    assert section.share(passage(50, 120)) == 0.2
    assert section.share(passage(120, 170)) == 0.5
    assert section.share(passage(0, 300)) == 1
    assert section.share(passage(200, 300)) == 0
    assert section.share(passage(100, 200, "b")) == 0
    assert section.share(passage(0, 50, "b", (passage(150, 200),))) == 0.5


def document(*headings: str, id: str = "a", level: int = 2) -> Document:
    """Each heading has 120 characters of text or more under it."""
    text, marks = "", list[Mark]()
    for heading in headings:
        marks.append(Mark(len(text), None, heading, level))
        text += f"{heading}\n{FILLER * 2}\n"
    return Document(id, id, text, marks=tuple(marks))


def test_sections_are_those_of_headings_that_say_something_and_occur_once() -> None:
    one = document("How to open doors", "Options", "See also this", id="a")
    other = document("See also this", "Closing a door", id="b")
    term = document("--open a door", id="c", level=TERM)
    found = sorted(sections_of([one, other, term]), key=lambda section: section.heading)
    assert [(section.heading, section.document_id) for section in found] == [
        ("Closing a door", "b"),
        ("How to open doors", "a"),
    ]
    assert one.text[found[1].start : found[1].end].strip() == (FILLER * 2).strip()
    assert sections_of([Document("d", "d", "A short one\nno", marks=(Mark(0, None, "A short one", 1),))]) == []


def test_a_heading_that_is_searched_for_stands_in_no_passage_of_its_document() -> None:
    documents = [document("How to open doors", "Options"), document("How to open doors", id="b")]
    section = HeadedText("How to open doors", "a", 0, 100)
    own = [one for one in without_headings(documents, [section], 1000) if one.document_id == "a"]
    other = [one for one in without_headings(documents, [section], 1000) if one.document_id == "b"]
    assert "How to open doors" not in "".join(one.contents for one in own)
    assert "Options" in "".join(one.contents for one in own)
    assert "How to open doors" in other[0].contents
    assert (own[0].start, own[-1].end) == (0, len(documents[0].text.rstrip()))  # places are those of the document


def test_as_many_passages_as_have_room_and_at_least_one() -> None:
    found = Measured(IndexPlan(), (0.2, 0.5, 0.6), (90.0, 200.0, 310.0))
    assert [(found.top_k(shown), found.at(shown)) for shown in (350, 310, 309, 200, 10)] == [
        (3, 0.6),
        (3, 0.6),
        (2, 0.5),
        (2, 0.5),
        (1, 0.2),
    ]


def test_the_best_is_hybrid_unless_another_one_is_clearly_better() -> None:
    def found(share: float, **plan: Any) -> Measured:
        return Measured(IndexPlan(**plan), (share,), (100.0,))

    static = found(0.49, engine="hybrid", encoder="static")
    assert best_of([found(0.48), found(0.50), static], 350) is static
    assert best_of([found(0.48), found(0.52), static], 350).plan.engine == "lexical"
    assert best_of([static, found(0.50, engine="hybrid", encoder="minilm")], 350) is static
    assert best_of([static, found(0.52, engine="hybrid", encoder="minilm")], 350).plan.encoder == "minilm"
    assert best_of([found(0.48), found(0.49, stemming="english")], 350).plan.stemming == "english"
    assert best_of([found(0.5), found(0.5, stemming="english")], 350).plan.stemming == "none"


def corpus(folder: Path) -> Path:
    """Forty sections, each of which says once, in other forms of the words, what its heading does."""
    folder.mkdir()
    for noun in NOUNS:
        sections = [f"## {verb.capitalize()}ing {noun}s\n\n{FILLER}You {verb} the {noun}. {FILLER}\n" for verb in VERBS]
        (folder / f"{noun}.md").write_text(f"# About {noun}\n\n" + "\n".join(sections))
    return folder


def test_stems_are_chosen_where_headings_have_other_forms_of_the_words(tmp_path: Path) -> None:
    """Without stems no heading has a word of its section; with them each finds it first, whatever the size."""
    plan = IndexPlan(max_words=60)
    chosen, top_k = choose(corpus(tmp_path / "docs"), plan, {"engine": "lexical", "max_words": 60}, QUIET, 100)
    assert (chosen.engine, chosen.stemming, chosen.max_words) == ("lexical", "english", 60)
    assert 1 <= top_k <= 5
    kept, _ = choose(tmp_path / "docs", plan, {"engine": "lexical", "max_words": 60, "stemming": "none"}, QUIET, 100)
    assert kept.stemming == "none"


def test_what_is_measured_is_what_the_engine_finds() -> None:
    """The third section alone has the words of its heading; the first one is found by none."""
    texts = ("Nothing", "Other things", "Sharpening a knife needs a stone")
    text, marks, sections = "", list[Mark](), list[HeadedText]()
    for heading, own in zip(("Silver spoons", "Iron forks", "Knife stone"), texts, strict=True):
        marks.append(Mark(len(text), None, heading, 2))
        start = len(text) + len(heading)
        text += f"{heading}\n{own}. {FILLER}\n"
        sections.append(HeadedText(heading, "a", start, len(text)))
    found = measure(IndexPlan(max_words=25), [Document("a", "a", text, marks=tuple(marks))], sections)
    assert found.found[0] == pytest.approx(1 / 3, abs=0.02)
    assert found.found[9] == pytest.approx(1 / 3, abs=0.02)
    shown = table([found], found.plan, 350)
    assert shown.row_count == 1


def test_a_corpus_without_headings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(FILLER * 20)
    with pytest.raises(DataError, match="has 0 headings of two words or more"):
        choose(tmp_path / "a.txt", IndexPlan(), {}, QUIET)
