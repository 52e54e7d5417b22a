"""Headings of Markdown by the blocks of CommonMark, and what is struck out or a comment."""

from __future__ import annotations

import time
import warnings

import pytest

from evoseek.documents.formats import parse_markdown
from evoseek.documents.markdown import markdown_headings, without_struck_and_hidden


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("# A\n\n```make``` runs it.\n\n# B", ["A", "B"]),
        ("````md\n```\n# no\n```\n````\n# A", ["A"]),
        ("~~~\n```\n# no\n~~~\n# A", ["A"]),
        ("```\n# no\n~~~\n# no\n```\n# A", ["A"]),
        ("```\n# a fence that never ends", []),
        ("    # code\n\n# A", ["A"]),
        ("\t# code\n\n# A", ["A"]),
        ("- item\n---\n\n# A", ["A"]),
        ("1. item\n---\n\n# A", ["A"]),
        ("> quoted\n---\n\n# A", ["A"]),
        ("- item\n\n  ```\n  # no\n  ```\n\n# A", ["A"]),
        ("<!--\n# no\n-->\n# A", ["A"]),
        ("<pre>\n# no\n</pre>\n# A", ["A"]),
        ("| a | b |\n|---|---|\n| c | d |\n---\n\n# A", ["A"]),
        ("Two\nlines\n===\n\nB\n-", ["Two lines", "B"]),
        ("#no\n\n####### no\n\n## A ##", ["A"]),
        ("---\n\n# A", ["A"]),
        ("A `code` *b*\n---", ["A `code` *b*"]),
        ("#\n# A", ["A"]),
        ("> # quoted\n\n- # item\n\n# A", ["A"]),
    ],
)
def test_headings_are_those_of_the_blocks_of_a_text(text: str, headings: list[str]) -> None:
    found = list(markdown_headings(text))
    assert [mark.heading for mark in found] == headings
    for mark in found:
        assert text[mark.start :].lstrip("# ").startswith((mark.heading or "").split()[0])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("It lasts ~~twelve~~ thirty months.", "It lasts thirty months."),
        ("- ~~twelve~~ thirty", "- thirty"),
        ("| a | b |\n|---|---|\n| ~~12~~ 30 | x |", "| a | b |\n|---|---|\n| 30 | x |"),
        ("It lasts <del>twelve</del> <s class=x>ten</s> thirty.", "It lasts thirty."),
        ("## Terms ~~old~~ new", "## Terms new"),
        ("A<!-- hidden --> b", "A b"),
        ("A\n\n<!--\nhidden\n-->\n\nb", "A\n\n\n\nb"),
        ("~~two\nlines~~ x", "x"),
        ("Run `~~x~~` and ``a ` ~~b~~``.", "Run `~~x~~` and ``a ` ~~b~~``."),
        ("```\n~~x~~ <!-- y -->\n```", "```\n~~x~~ <!-- y -->\n```"),
        ("    ~~x~~", "    ~~x~~"),
        ("at ~~ 5 and ~~ 6", "at ~~ 5 and ~~ 6"),
        ("a ~~~word~~~ b", "a ~~~word~~~ b"),
        ("Name ~~~~~~~~~ Date ~~~~~", "Name ~~~~~~~~~ Date ~~~~~"),
        (r"not \~~struck~~ here", r"not \~~struck~~ here"),
        ("~~open\n\nother~~", "~~open\n\nother~~"),
        ("~~~\n~~x~~\n~~~", "~~~\n~~x~~\n~~~"),
        ("a <b>~~x~~</b>", "a <b></b>"),
        ("x < y -- z --> w", "x < y -- z --> w"),
    ],
)
def test_struck_words_and_comments_are_left_out_but_not_in_code(text: str, left: str) -> None:
    assert without_struck_and_hidden(text)[0] == left


def test_comments_are_counted_and_soft_hyphens_left_out() -> None:
    with pytest.warns(UserWarning, match="hidden parts left out: 2 comments"):
        parsed = parse_markdown("# Guide<!-- a -->\n\nDonau\u00addampf.\n\n<!-- b -->\n## End".encode())
    assert (parsed.title, [mark.heading for mark in parsed.marks]) == ("Guide", ["Guide", "End"])
    assert "Donaudampf." in parsed.text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_markdown(b"# Guide\n\n~~no~~ Text").text == "# Guide\n\nText"


@pytest.mark.parametrize(
    "part", ["* ", ">", "> a\n", "[", "[a]:\n", "` `` ", "~~a ", "<!-- ", "<del ", "|", "|a|\n", "a\n"]
)
def test_no_text_takes_long(part: str) -> None:
    """It is parsed without a limit of time."""
    seconds = []
    for size in (20_000, 160_000):
        text = part * (size // len(part))
        start = time.process_time()
        list(markdown_headings(text))
        without_struck_and_hidden(f"{text}\n\n~~")
        seconds.append(time.process_time() - start)
    assert seconds[1] < 24 * seconds[0] + 0.2
