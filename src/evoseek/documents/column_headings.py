"""Whether the first row of a table holds its column headings."""

from __future__ import annotations

import re

_LOOKED_AT = 100  # rows below a possible row of column headings
LONGEST_NAME = 100  # characters of a column heading, or of a value that names a row
MOST = 0.9  # share of rows for which a statement about a column must hold
_YEAR = re.compile(r"(?:19|20)\d\d")
_AS_VALUE = re.compile(r"\W*\d|\S+@\S+\.|\w+://|.{40,}[.!?]$")  # 24 months, an address, a sentence

Cells = list[str]


def is_heading(rows: list[Cells], *, surely: bool = False) -> bool:
    """Return whether the first row names the columns of the others. It does not if it has numbers (except years and
    similar), or, unless numbers stand below its texts, a cell that looks like a value or occurs below. With `surely`,
    numbers must stand below."""
    first, below = rows[0], [row for row in rows[1 : _LOOKED_AT + 1] if row != rows[0]]
    numbers = _numbers(first)
    if not below or (numbers and not _is_series(numbers)):
        return False
    if numbers and all(_is_series(found) and len(found[0]) == len(numbers[0]) for found in map(_numbers, below[:3])):
        return False
    is_over_numbers = is_doubtful = False
    for column, cell in enumerate(first):
        values = [row[column] for row in below if column < len(row) and any(map(str.isalnum, row[column]))]
        if cell and not is_number(cell):
            is_over_numbers |= bool(values) and sum(map(is_number, values)) >= MOST * len(values)
            is_doubtful |= len(cell) > LONGEST_NAME or bool(_AS_VALUE.match(cell)) or cell in values
    return is_over_numbers or not (is_doubtful or surely)


def _numbers(cells: Cells) -> Cells:
    return list(dict.fromkeys(filter(is_number, cells)))


def is_number(cell: str) -> bool:
    """Return whether a cell is an amount, a date or similar: digits without letters."""
    return any(map(str.isdigit, cell)) and not any(map(str.isalpha, cell))


def _is_series(cells: Cells) -> bool:
    """Return whether these numbers can be headings: a year, or years, months or days in order."""
    is_year = len(cells) == 1 and _YEAR.fullmatch(cells[0]) is not None
    is_ordered = cells in (sorted(cells), sorted(cells, reverse=True)) and len(set(map(len, cells))) == 1
    return is_year or (len(cells) > 1 and is_ordered)
