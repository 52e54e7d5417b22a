"""Words that were cut at the ends of lines."""

from __future__ import annotations

import time

import pytest

from evoseek.documents.formats import parse_html, parse_plain
from evoseek.documents.hyphens import join_cut_words


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("the manufac-\nturer repairs it", "the manufacturer\nrepairs it"),
        ("the manufac-\nturer.\nIt is", "the manufacturer.\nIt is"),
        ("Die Donaudampfschifffahrtsgesell-\nschaft wurde", "Die Donaudampfschifffahrtsgesellschaft\nwurde"),
        ("in any repre-\n  sentation (repre-\nsentation)", "in any representation\n(representation)\n"),
        ("THE MANUFAC-\nTURER", "THE MANUFACTURER\n"),
        ("a manufac\u00ad\nturer and manu\u00adfacturers", "a manufacturer and manufacturers"),
        ("the manufac\u2010\nturer repairs", "the manufacturer\nrepairs"),
        # The joined word occurs elsewhere, or is common.
        ("It is in-\nside, and in side", "It is inside,\nand in side"),
        ("a data-\nbase, a base, data, a database", "a database,\na base, data, a database"),
        # Compounds.
        ("a well-\nknown pump", "a well-known\npump"),
        ("a long-\nterm plan", "a long-term\nplan"),
        ("a high-\npressure pump. The high pressure", "a high-pressure\npump. The high pressure"),
        ("a seal-\ntight pump, seal-tight", "a seal-tight\npump, seal-tight"),
        # Left as they are.
        ("Nord-\nSüd", "Nord-\nSüd"),
        ("COVID-\n19", "COVID-\n19"),
        ("Vor-\nund Nachteile", "Vor-\nund Nachteile"),
        ("state-of-\nthe-art", "state-of-\nthe-art"),
        ("a list -\nof words", "a list -\nof words"),
        ("- a\n- b", "- a\n- b"),
        ("hhmm-\nhh'mm", "hhmm-\nhh'mm"),
        ("--no-\nx", "--no-\nx"),
        (
            "Release   Owner   GPL-\n            from    compatible",
            "Release   Owner   GPL-\n            from    compatible",
        ),
    ],
)
def test_a_word_is_joined_and_a_compound_keeps_its_hyphen(text: str, whole: str) -> None:
    assert join_cut_words([text]) == [whole]
    assert parse_plain(text.encode()).text == whole


def test_what_occurs_on_another_page_counts() -> None:
    assert join_cut_words(["a rain-\nfall", "rain and a fall: a rainfall"])[0] == "a rainfall\n"
    assert join_cut_words(["a rain-\nfall", "rain and a fall"])[0] == "a rain-fall\n"


def test_soft_hyphens_of_a_page_are_no_letters() -> None:
    words = "The manu&shy;facturer repairs every pump of the series in May. " * 4
    source = f"<body><h1>Donau&shy;dampf</h1><p>{words}</p><h2>Valves</h2><p>{words}</p>"
    parsed = parse_html(source.encode())
    assert (parsed.title, parsed.text.split("\n")[0]) == ("Donaudampf", "Donaudampf")
    assert "manufacturer" in parsed.text


@pytest.mark.parametrize("part", ["a", "ab-\n", "ab-\ncd-", "-", "ab-\n ", "ab-\nx" + "y" * 300])
def test_no_text_takes_long(part: str) -> None:
    start = time.process_time()
    join_cut_words([part * (1_000_000 // len(part))])
    assert time.process_time() - start < 20
