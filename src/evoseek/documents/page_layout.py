"""Tables and columns on the pages of a PDF.

The page's text has a line for each row of a table, with the words of its cells. Columns of prose may appear as lines
across all columns.

The position of words follows from a second text of the page, whose lines are spaced as on paper.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from evoseek.documents.column_headings import is_heading
from evoseek.documents.hyphens import join_cut_words

_CELL = re.compile(r"\S+(?: \S+)*")
_AMOUNT = re.compile(r"[^\w\s]{0,2} ?\d[\d.,' ]*(?: ?(?:%|[^\w\s]|[A-Z]{3}))?")  # 115.00, € 115, -4 %, 40 EUR
_LEAST_ROWS, _LEAST_LINES = 3, 4  # rows of a table, and lines of columns of prose
_WORDS_OF_PROSE = 4  # in a line of a column
_NEAR = 2  # characters between the same column on two pages


class _Block(NamedTuple):
    """Lines of a text, from `first` on, in the same columns, each with its cells."""

    first: int
    end: int
    columns: list[tuple[int, int]]
    rows: list[list[str]]

    @property
    def is_prose(self) -> bool:
        """Whether every column is prose."""
        columns = [[len(cell.split()) for cell in column if cell] for column in zip(*self.rows, strict=True)]
        return len(self.rows) >= _LEAST_LINES and all(sum(words) >= _WORDS_OF_PROSE * len(words) for words in columns)


def with_tables(texts: Sequence[str], layouts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the texts of pages with tables in Markdown and columns of prose one after the other, and the numbers of
    the pages with such columns. A table that continues on the next page has its column headings there, too."""
    found, in_columns = list[str](), list[int]()
    open_table: tuple[list[str], _Block] | None = None
    for number, (text, layout) in enumerate(zip(texts, layouts, strict=True), start=1):
        lines = text.split("\n")
        blocks = list(_blocks(lines, layout.split("\n")))
        written, end = list[str](), 0
        for block in blocks:
            written += lines[end : block.first]
            end = block.end
            before = open_table if not any(map(str.strip, written)) or len(written) <= _LEAST_ROWS else None
            names = _names(block, before)
            if block.is_prose:
                in_columns += [number] if number not in in_columns else []
                written += [cell for column in zip(*block.rows, strict=True) for cell in column if cell]
                open_table = None
            elif names:
                rows = [row for row in block.rows if row != names]
                written += ["", _row(names), "|---" * len(names) + "|", *map(_row, rows), ""]
                open_table = names, block
            else:
                written += lines[block.first : block.end]
                open_table = None
        is_last = bool(blocks) and len(lines) - end <= _LEAST_ROWS  # except for a footer
        open_table = open_table if is_last else None
        found.append("\n".join([*written, *lines[end:]]).strip("\n") if blocks else text)
    return found, in_columns


def _names(block: _Block, before: tuple[list[str], _Block] | None) -> list[str]:
    """Return the column headings of a table: its own, or the ones of a table at the end of the previous page."""
    if before and len(before[1].columns) == len(block.columns):
        starts = zip(before[1].columns, block.columns, strict=True)
        if all(abs(one[0] - other[0]) <= _NEAR for one, other in starts):
            return before[0]
    is_narrow = len(block.columns) == 2
    is_named = all(any(map(str.isalpha, cell)) for cell in block.rows[0])
    is_long = len(block.rows) >= _LEAST_ROWS + is_narrow
    is_table = is_named and is_long and is_heading(block.rows, surely=is_narrow)
    return block.rows[0] if is_table else []


def _row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _blocks(lines: Sequence[str], layout: Sequence[str]) -> Iterator[_Block]:
    """Yield runs of lines that share two or more columns."""
    places = _places(lines, layout)
    columns, rows, first, last = list[tuple[int, int]](), list[list[str]](), 0, -1
    for line, place in [*places, ("", -1)]:
        cells = [(match.start(), match.end(), match[0]) for match in _CELL.finditer(line)]
        spread = _assigned(columns, cells) if rows and place == last + 1 else None
        if spread is None:
            if len(rows) > 1:
                yield _Block(first, last + 1, columns, rows)
            columns = [(start, end) for start, end, _ in cells]
            rows = [[text for *_, text in cells]] if len(cells) > 1 else []
            first = place
        elif _continues(spread) and not any(map(_are_amounts, rows[-1], spread)):
            rows[-1] = list(map(_joined, rows[-1], spread))
        else:
            rows.append(spread)
        last = place


def _continues(row: Sequence[str]) -> bool:
    """Return whether a line continues the cells above, rather than being a row whose first cell is above."""
    return not row[0] and sum(map(bool, row)) < max(2, len(row) - 1)


def _are_amounts(above: str, below: str) -> bool:
    """Return whether a cell and the text below are two numbers, as in a row of sums, not one cell of two lines."""
    return _AMOUNT.fullmatch(above) is not None and _AMOUNT.fullmatch(below) is not None


def _joined(above: str, below: str) -> str:
    """Join the two lines of a cell, and a word hyphenated between them."""
    if above.endswith(("-", "\u2010")) and below:
        return " ".join(join_cut_words([f"{above}\n{below}"])[0].split())
    return " ".join(filter(None, (above, below)))


def _assigned(columns: list[tuple[int, int]], cells: Sequence[tuple[int, int, str]]) -> list[str] | None:
    """Assign cells to columns, which are widened to fit them; None unless each has a column of its own."""
    row, reach = [""] * len(columns), list(columns)
    for start, end, text in cells:
        over = [n for n, (left, right) in enumerate(columns) if start < right and left < end]
        if len(over) != 1 or row[over[0]]:
            return None
        left, right = columns[over[0]]
        row[over[0]], reach[over[0]] = text, (min(left, start), max(right, end))
    if not cells or (len(cells) == 1 and row[0]) or any(one[1] > two[0] for one, two in pairwise(reach)):
        return None
    columns[:] = reach
    return row


def _places(lines: Sequence[str], layout: Sequence[str]) -> list[tuple[str, int]]:
    """Return the lines of the second text that the first has too, each with its place in the first."""
    places = defaultdict[str, list[int]](list)
    for number, line in enumerate(lines):
        places["".join(line.split())].append(number)
    found, last = list[tuple[str, int]](), -1
    for line in layout:
        own = places.get("".join(line.split()), []) if line.strip() else []
        if (after := bisect_right(own, last)) < len(own):
            last = own[after]
            found.append((line.expandtabs(), last))
    return found
