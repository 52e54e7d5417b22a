"""Finds headings in Markdown, and text that its author struck out or hid."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import accumulate, pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from evoseek.types import Mark

_SEEN = re.compile(r"\\[\s\S]|`+|<!--|~+|<(del|s|strike)(?:\s[^<>]{0,200})?>", re.IGNORECASE)
_STRIKE = re.compile("(?<!~)~~(?!~)")
_CLOSING = {"del": "</del>", "s": "</s>", "strike": "</strike>"}


def markdown_headings(text: str) -> Iterator[Mark]:
    """Yield the headings of a Markdown text, without those in code, lists and quotations."""
    starts = _starts(text)
    tokens = _tokens(text)
    for token, content in pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map:
            heading = " ".join(content.content.split())
            if heading and not any(map(is_rule, content.content.split("\n"))):  # below a table
                yield Mark(starts[token.map[0]], heading=heading, level=int(token.tag[1]))


def without_struck_and_hidden(text: str) -> tuple[str, int]:
    """Return a Markdown text without struck-out text and comments, and the number of comments."""
    if not any(sign in text for sign in ("~~", "<!--", *_CLOSING.values())):
        return text, 0
    starts = _starts(text)
    blocks = [token.map for token in _tokens(text) if token.type in ("inline", "html_block") and token.map]
    pieces, end, comments = list[str](), 0, 0
    for first, last in blocks:
        begin = max(starts[first], end)
        for start, stop in _left_out(text, begin, starts[last]):
            comments += text.startswith("<!--", start)
            pieces.append(text[end:start])
            end = stop + (text[start - 1 : start] in ("", " ", "\n") and text[stop : stop + 1] == " ")
    return "".join([*pieces, text[end:]]), comments


def _starts(text: str) -> list[int]:
    """Return where each line begins, then the end of the text."""
    return [0, *accumulate(len(line) + 1 for line in text.split("\n"))]


def _tokens(text: str) -> list[Token]:
    return _parser().parse(text)


@cache
def _parser() -> MarkdownIt:
    """Return a parser of blocks only. It reads a table as a paragraph, since its rule for tables can take long."""
    return MarkdownIt("commonmark").disable(["inline", "reference"])


def is_rule(line: str) -> bool:
    """Return whether a line can be the rule below the column headings of a table."""
    return "-" in line and "|" in line and not set(line) - set("|-:+ \t")


def _left_out(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a block that are struck out or comments, outside of code."""
    ticks = defaultdict[int, list[int]](list)
    for run in re.compile("`+").finditer(text, begin, end):
        ticks[len(run[0])].append(run.start())
    missing: set[str] = set()
    place = begin
    while found := _SEEN.search(text, place, end):
        opening, place = found[0], found.end()
        if opening[0] == "`":
            closing = ticks[len(opening)]
            after = bisect_right(closing, found.start())
            place = closing[after] + len(opening) if after < len(closing) else place
            continue
        if opening[0] == "~" and len(opening) != 2:  # a line of tildes, as in a form
            continue
        close = {"<!--": "-->", "~~": "~~"}.get(opening) or _CLOSING.get((found[1] or "").lower(), "")
        if not close or close in missing or (opening == "~~" and text[place : place + 1].isspace()):
            continue
        ending = _STRIKE.search(text, place, end) if opening == "~~" else None
        at = ending.start() if ending else -1 if opening == "~~" else text.find(close, place, end)
        if at < 0:
            missing.add(close)
        elif opening != "~~" or not text[at - 1].isspace():
            yield found.start(), at + len(close)
            place = at + len(close)
