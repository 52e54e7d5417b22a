"""Tables: CSV, TSV and, by openpyxl (an extra), Excel workbooks. Each row stands alone, with its column headings."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, time
from functools import partial
from typing import Any

from evoseek.corpus.archives import checked_archive
from evoseek.corpus.decoding import decode
from evoseek.corpus.formats import Parsed
from evoseek.errors import DataError
from evoseek.types import Mark

_BEGINNING = 64 * 1024  # characters by which the delimiter is known
csv.field_size_limit(2**31 - 1)  # files are bounded already


def parse_csv(data: bytes, encoding: str | None = None) -> Parsed:
    """A table whose cells are separated by tabs, semicolons, commas or bars: by what divides the most of its first rows
    into equally many cells."""
    text, guessed = decode(data, encoding)
    rows = csv.reader(io.StringIO(text), delimiter=max("\t;,|", key=partial(_regularity, text[:_BEGINNING])))
    return _joined([("", rows)])._replace(guessed=guessed)


def _regularity(text: str, delimiter: str) -> tuple[int, int]:
    """The most rows of one width above 1, and that width."""
    widths = Counter(map(len, csv.reader(io.StringIO(text), delimiter=delimiter)))
    return max(((count, width) for width, count in widths.items() if width > 1), default=(0, 0))


def parse_xlsx(data: bytes, encoding: str | None = None) -> Parsed:
    """The sheets of a workbook one after the other. Of formulas, the results that were saved with it are read."""
    try:
        import openpyxl  # pyright: ignore[reportMissingImports,reportMissingModuleSource]
    except ImportError as error:
        raise DataError("xlsx needs an extra: pip install 'evoseek[office]'") from error
    with checked_archive(data):
        book: Any = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        sheets = [(f"{sheet.title}, ", _cells(sheet)) for sheet in book.worksheets]
        return _joined(sheets)


def _cells(sheet: Any) -> Iterator[list[str]]:
    sheet.reset_dimensions()  # the file may claim more rows and columns than it has
    return ([_shown(value) for value in row] for row in sheet.iter_rows(values_only=True))


def _shown(value: object) -> str:
    """A cell's value as text; of a day, without its midnight."""
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def _joined(tables: Iterable[tuple[str, Iterable[Sequence[str]]]]) -> Parsed:
    """All rows, each a paragraph with a mark that names it: what stands before the number of the row, and that."""
    texts, marks, start = list[str](), list[Mark](), 0
    for name, table in tables:
        for number, text in _rows(table):
            marks.append(Mark(start, heading=f"{name}row {number}"))
            texts.append(text)
            start += len(text) + 2
    return Parsed("", "\n\n".join(texts), marks=tuple(marks))


def _rows(table: Iterable[Sequence[str]]) -> Iterator[tuple[int, str]]:
    """The rows that are not empty, with their numbers from 1: a line `column heading: value` for each cell. The
    headings are the first row of which more than half of the columns are filled; rows before it have none."""
    rows = [(number, [" ".join(cell.split()) for cell in row]) for number, row in enumerate(table, start=1)]
    rows = [(number, row) for number, row in rows if any(row)]
    filled = [sum(map(bool, row)) for _, row in rows]
    place = next((place for place, count in enumerate(filled) if 2 * count > max(filled)), 0)
    names = rows[place][1] if place + 1 < len(rows) else []
    for at, (number, row) in enumerate(rows):
        if at != place or not names:
            heads = [*(names if at > place else []), *[""] * len(row)]
            yield (
                number,
                "\n".join(f"{head}: {cell}" if head else cell for head, cell in zip(heads, row, strict=False) if cell),
            )
