"""Tables (CSV, TSV; with an extra xlsx): each row becomes a document, each cell a line `column heading: value`."""

from __future__ import annotations

import io
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, time
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Any, NamedTuple

from evoseek.documents.archives import checked_archive, simplified_strings
from evoseek.documents.column_headings import LONGEST_NAME, MOST, is_heading
from evoseek.documents.formats import FileRow, Parsed, warn_of_hidden
from evoseek.documents.hyphens import without_soft_hyphens
from evoseek.errors import DataError
from evoseek.text.decoding import decode
from evoseek.text.rows import csv_rows

_AMOUNT = re.compile(r"[\d.,]+ \S{1,4}|[A-Z]{3} [\d.,]+")  # "450 EUR", "35 kg"
_WITHOUT_RESULT = re.compile(rb"(?:</f>|<f[^>]*/>)\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>")
_MERGED = re.compile(rb"<(?:\w+:)?mergeCell\s[^>]*\bref=[\"']([A-Z]{1,3}[1-9]\d*:[A-Z]{1,3}[1-9]\d*)[\"']")
_ROW, _COLUMN = re.compile(rb"<(?:\w+:)?row\s[^>]*>"), re.compile(rb"<(?:\w+:)?col\s[^>]*>")
_CURRENCY = re.compile(r"\[\$([^\]-]*)[^\]]*\]")
_FILLING = re.compile(r'_.|\*.|\[[^\]]*\]|["\\]')  # white space, colours, quotes
_DIGITS = re.compile(r"[#0?,]*[#0?](?:\.[#0?]{1,10})?")
_LITERAL = re.compile(r'"[^"]*"|\\.')
_MORE_DIGITS = re.compile(r"[#0?]|(?<=[#0?]),")  # further groups, as of a telephone number; omitted thousands
_EXACT = 1e12  # above it not every decimal is kept

_Cells = list[str]


def parse_csv(data: bytes, encoding: str | None = None) -> Parsed:
    """Parse a table with separators; if no separator divides the lines alike, it has one column."""
    text, guessed = decode(data, encoding)
    reader = csv_rows(text)
    rows = list(reader)
    widths = Counter(len(row) for row in rows if any(row))
    is_divided = max((count for width, count in widths.items() if width > 1), default=0) * 2 > widths.total()
    if not is_divided and reader.dialect.delimiter == "," and 2 * text.count(", ") > text.count(","):  # it is prose
        rows = [[line] for line in text.split("\n")]
    return Parsed("", "", guessed, rows=tuple(table_rows("", rows)))


def parse_xlsx(data: bytes, encoding: str | None = None) -> Parsed:
    """Parse the sheets of a workbook one after the other, with the values as shown. Of formulas, the saved results are
    read."""
    try:
        import openpyxl  # pyright: ignore[reportMissingImports,reportMissingModuleSource]
        from openpyxl.utils.cell import range_boundaries  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise DataError("xlsx needs an extra: pip install 'evoseek[office]'") from error
    rows, missing, hidden = list[FileRow](), 0, Counter[str]()
    with checked_archive(data) as archive:
        book: Any = openpyxl.load_workbook(
            io.BytesIO(simplified_strings(archive, data)), read_only=True, data_only=True
        )
        has_struck = any(font.strike for font in book._fonts)
        for sheet in book.worksheets:
            if sheet.sheet_state != "visible":
                hidden["sheet"] += 1
                continue
            source = archive.read(sheet._worksheet_path)
            missing += len(_WITHOUT_RESULT.findall(source))
            merges: Any = [range_boundaries(match.decode()) for match in _MERGED.findall(source)]
            cells = _merged(_cells(sheet, has_struck), merges)
            hidden += _hide(cells, source)
            rows += table_rows(f"{sheet.title}, ", cells)
    warn_of_hidden(hidden)
    if missing:
        warnings.warn(
            f"formulas without a saved result: {missing:,}; save the file in a spreadsheet program", stacklevel=1
        )
    return Parsed("", "", rows=tuple(rows))


def _cells(sheet: Any, has_struck: bool) -> list[_Cells]:
    """Return the values of all cells, without struck-out ones if the workbook has any."""
    sheet.reset_dimensions()  # the file may claim more rows and columns than it has
    return [
        ["" if has_struck and cell.value is not None and cell.font.strike else _shown(cell) for cell in row]
        for row in sheet.iter_rows()
    ]


def _hide(rows: list[_Cells], source: bytes) -> Counter[str]:
    """Empty the hidden rows and columns of a sheet, and count the ones that were not empty."""
    hidden = Counter[str]()
    for row in filter(_is_hidden, _ROW.findall(source)):
        number = _number(row, b"r")
        if 0 < number <= len(rows):
            hidden["row"] += any(rows[number - 1])
            rows[number - 1] = []
    width = max(map(len, rows), default=0)
    for columns in filter(_is_hidden, _COLUMN.findall(source)):
        for place in range(_number(columns, b"min") - 1, min(_number(columns, b"max"), width)):
            filled = [cells for cells in rows if place < len(cells) and cells[place]]
            hidden["column"] += bool(filled)
            for cells in filled:
                cells[place] = ""
    return hidden


def _is_hidden(element: bytes) -> bool:
    return re.search(rb"\shidden=[\"'](?:1|true)[\"']", element) is not None


def _number(element: bytes, name: bytes) -> int:
    found = re.search(rb"\s" + name + rb"=[\"'](\d{1,7})[\"']", element)
    return int(found[1]) if found else 0


def _shown(cell: Any) -> str:
    """Return a cell's value as text: a day without midnight, "" for an error."""
    value = cell.value
    if value is None or cell.data_type == "e":
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, datetime | time):
        return str(value).removesuffix(":00")
    if isinstance(value, int | float):
        return number_text(value, cell.number_format or "General")
    return str(value)


def number_text(value: float, form: str) -> str:
    """Write a number in a spreadsheet's format: decimals, leading zeros, per cent and unit. Thousands are not
    separated, so that a search for the number finds it. The rest of the format is ignored."""
    plain = format(value, ".15g") if isinstance(value, float) else str(value)
    form = form.partition(";")[0]
    bare = _FILLING.sub("", _LITERAL.sub("", form))
    form = _FILLING.sub("", _CURRENCY.sub(r"\1", form))
    digits = _DIGITS.search(form)
    if digits is None or form == "General" or "E" in form or "/" in form or not abs(value) < _EXACT:
        return plain
    if (own := _DIGITS.search(bare)) is None or _MORE_DIGITS.search(bare, own.end()):
        return plain
    whole, _, decimals = digits[0].partition(".")
    scaled = Decimal(plain) * (100 if "%" in form else 1)
    rounded = scaled.quantize(Decimal(1).scaleb(-len(decimals)), ROUND_HALF_UP)
    before, _, after = f"{abs(rounded):f}".partition(".")
    least = decimals.count("0")
    shown = ".".join(filter(None, (before.zfill(whole.count("0")), after[:least] + after[least:].rstrip("0"))))
    return f"{'-' if rounded < 0 else ''}{form[: digits.start()]}{shown}{form[digits.end() :]}".strip()


def _merged(rows: list[_Cells], merges: Sequence[tuple[int, int, int, int]]) -> list[_Cells]:
    """Copy the value of merged cells (first column and row, last column and row) into each of them, except in rows of
    nothing else, such as a title."""
    width = max(map(len, rows), default=0)
    for left, top, right, bottom in merges:
        value = rows[top - 1][left - 1] if top <= len(rows) and left <= len(rows[top - 1]) else ""
        for cells in rows[top - 1 : bottom] if value else []:
            if any(cell not in ("", value) for cell in cells):
                cells += [""] * (min(right, width) - len(cells))
                cells[left - 1 : right] = [value] * len(cells[left - 1 : right])
    return rows


def table_rows(sheet: str, table: Sequence[_Cells]) -> Iterator[FileRow]:
    """Yield the rows that are not empty, with their numbers from 1: a line `column heading: value` for each cell. The
    title is the value that names the row, "" if none does."""
    texts = ([" ".join(without_soft_hyphens(cell).split()) for cell in row] for row in table)
    rows = list(enumerate(texts, start=1))
    for block in _tables([_Numbered(number, cells) for number, cells in rows if any(cells)]):
        naming = _naming_column([row.cells for row in block.rows])
        for number, cells in block.rows:
            heads = [*block.names, *[""] * len(cells)]
            lines = (f"{head}: {cell}" if head else cell for head, cell in zip(heads, cells, strict=False) if cell)
            title = cells[naming] if naming is not None and naming < len(cells) else ""
            yield FileRow(f"{sheet}row {number}", title if len(title) <= LONGEST_NAME else "", "\n".join(lines))


class _Numbered(NamedTuple):
    number: int
    cells: _Cells


class _CellTable(NamedTuple):
    """Rows with their column headings, if any were found."""

    names: _Cells
    rows: list[_Numbered]


def _tables(rows: list[_Numbered]) -> Iterator[_CellTable]:
    """Yield the rows above the column headings, the rows below, and further tables below an empty row, if numbers in
    them show where their headings are.

    The headings are the first row with more than half of its columns filled, unless it looks like the other rows.
    """
    filled = [sum(map(bool, row.cells)) for row in rows]
    place = next((place for place, count in enumerate(filled) if 2 * count > max(filled)), 0)
    names, begin = _headings(rows, place)
    if place:
        yield _CellTable([], rows[: place - 1 if names and _is_group(rows, place) else place])
    for at in range(begin + 1, len(rows) + 1):
        is_end = at == len(rows)
        is_apart = not is_end and rows[at].number > rows[at - 1].number + 1
        if is_end or (is_apart and filled[at] > 1 and is_heading([row.cells for row in rows[at:]], surely=True)):
            headings = rows[begin - 1].cells if names else []
            yield _CellTable(names, [row for row in rows[begin:at] if row.cells != headings])
            names, begin = ([], at) if is_end else _headings(rows, at)


def _headings(rows: list[_Numbered], place: int) -> tuple[_Cells, int]:
    """Return the headings at a place, and where the rows below begin; no headings if the row looks like the rows below.
    A row of groups of columns adds its names to its columns."""
    cells = [row.cells for row in rows[place:]]
    if len(cells) > 2 and _has_groups(cells[0]) and is_heading(cells[1:], surely=True):
        names, end = _joined(cells[0], cells[1]), place + 2
    elif cells and is_heading(cells):
        names, end = cells[0], place + 1
    else:
        return [], place
    return _joined(rows[place - 1].cells if _is_group(rows, place) else [], names), end


def _is_group(rows: list[_Numbered], place: int) -> bool:
    """Return whether the row above the column headings names groups. A title stands only in the first column."""
    if not place or rows[place - 1].number + 1 < rows[place].number:
        return False
    return sum(map(bool, rows[place - 1].cells[1:])) > 1


def _has_groups(cells: _Cells) -> bool:
    """Return whether a name spans several columns: it is repeated, as merged cells are, or gaps follow."""
    return any(left and right in ("", left) for left, right in pairwise(cells))


def _joined(groups: _Cells, names: _Cells) -> _Cells:
    """Return the columns' names, each after its group's. A group extends to the next one unless it is repeated."""
    is_repeated = any(left and left == right for left, right in pairwise(groups))
    above, found = "", list[str]()
    for group, name in zip([*groups, *[""] * len(names)], [*names, *[""] * (len(groups) - len(names))], strict=False):
        above = group if group or is_repeated else above
        found.append(" ".join(dict.fromkeys(filter(None, (above, name)))).rstrip(": "))
    return found


def _naming_column(rows: list[_Cells]) -> int | None:
    """Return the first column of names that distinguish the rows, else the first such column of codes."""
    least = MOST * len(rows)
    for is_name in (_is_name, _is_code):
        for column in range(max(map(len, rows), default=0)):
            cells = [row[column] for row in rows if column < len(row) and row[column]]
            if len(set(cells)) >= least and sum(map(is_name, cells)) >= least:
                return column
    return None


def _is_name(cell: str) -> bool:
    """Return whether a value is mostly letters, and no sentence, amount or address."""
    is_mostly_letters = 2 * sum(map(str.isalpha, cell)) >= len(cell.replace(" ", ""))
    return _is_code(cell) and is_mostly_letters and "://" not in cell and "@" not in cell


def _is_code(cell: str) -> bool:
    is_sentence = cell.endswith((".", "!")) and " " in cell
    is_long = len(cell) > LONGEST_NAME
    return any(map(str.isalpha, cell)) and not (is_sentence or is_long or _AMOUNT.fullmatch(cell))
