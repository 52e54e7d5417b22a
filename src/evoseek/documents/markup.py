"""Rewrites elements of a page whose bare text would be misleading: raised and struck-out words, formulas, hidden parts
and spanning cells. It changes the tree of pages, books, and documents that are converted through pages."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Container, Sequence
from copy import deepcopy
from itertools import takewhile
from typing import Any

from evoseek.documents.column_headings import LONGEST_NAME, MOST, is_heading

_ASIDE_ROLES = frozenset({"navigation", "search", "banner", "contentinfo", "menu", "dialog", "alertdialog"})
_STYLE_HIDDEN = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse))\b", re.IGNORECASE)
_STYLE_STRUCK = re.compile(r"(?:^|;)\s*text-decoration(?:-line)?\s*:[^;]*\bline-through\b", re.IGNORECASE)
_STYLE_MOVED = re.compile(r"(?:^|;)\s*vertical-align\s*:\s*(super|sub)\b", re.IGNORECASE)
_CAN_BE_HIDDEN = "//template | //dialog[not(@open)] | //*[@hidden and not(@hidden='until-found')] | //*[@style]"
_NEVER_HIDDEN = ("html", "head", "body", "main", "article")  # until a script shows them
_NOT_READ = ("nav", "header", "footer", "form", "aside", "script", "style", "noscript")
_DRAWN_FORMULA = "//*[@aria-hidden='true'][../*[descendant-or-self::math]]"  # beside the same formula as MathML
_INLINE = (
    *("a", "abbr", "b", "bdi", "big", "cite", "code", "em", "font", "i", "ins", "kbd", "mark", "small", "span"),
    *("strong", "sub", "sup", "tt", "u", "var"),
)
_PLAIN = "//time | //output | //label[not(ancestor::form)]"  # words of a sentence
_BUTTON = "//button[not(ancestor::form)][parent::p or parent::li or parent::td or parent::dd]"
_SUFFIX = re.compile(
    r".*\d(?:st|nd|rd|th|e|er|re|ère|d|de|ème|eme|o|os|a|as)|.*\bM(?:me|mes|lle|lles|gr)|.*\b[Nn]os?", re.IGNORECASE
)
_SIMPLE = re.compile(r"[+\-−–]?\w+(?:[.,]\w+)*")
_LAST_WORD = re.compile(r"\w+\Z")
_MOST_CELLS = 100_000  # of a table; further ones that span are not repeated


def simplify(tree: Any, *, are_first_rows_headings: bool = False) -> int:
    """Change a page so that its bare text says what the page shows, and return the number of hidden parts left out.

    Struck-out text is left out, too. The first row of a table is marked as headings if it looks like headings. In
    tables of two columns this must be certain, or `are_first_rows_headings`, for programs whose users rarely mark
    headings.
    """
    if has_formulas := bool(tree.xpath("boolean(//math)")):
        for drawn in tree.xpath(_DRAWN_FORMULA):
            drawn.drop_tree()
    hidden = _drop_hidden(tree)
    for struck in tree.xpath("//del | //s | //strike | //*[@style]"):
        if struck.tag in ("del", "s", "strike") or _STYLE_STRUCK.search(struck.get("style", "")):
            struck.drop_tree()
    for formula in tree.xpath("//math") if has_formulas else ():
        _become(formula, formula_text(formula))
    for word in tree.xpath(_PLAIN):
        word.drop_tag()
    for button in tree.xpath(_BUTTON):
        if ((button.getparent().text or "") + (button.tail or "")).strip():
            button.drop_tag()
    _simplify_readings(tree)
    for styled in tree.xpath("//span[@style]"):
        if moved := _STYLE_MOVED.search(styled.get("style")):
            styled.tag = "sup" if moved[1].lower() == "super" else "sub"
    for moved in tree.xpath("//sup | //sub"):
        _write_in_line(moved)
    for table in tree.xpath("//table[not(.//table)]"):
        _even_out(table, are_first_rows_headings=are_first_rows_headings)
    return hidden


def _drop_hidden(tree: Any) -> int:
    """Drop the hidden parts of a page, and return the number of those with text, outside menus and similar elements.
    Tab panels are not hidden: a click shows each."""
    gone: dict[Any, bool] = {}  # and whether it counts
    for element in tree.xpath(_CAN_BE_HIDDEN):
        is_hidden = element.tag in ("template", "dialog") or element.get("hidden") is not None
        if not is_hidden and not _STYLE_HIDDEN.search(element.get("style", "")):
            continue
        if element.tag in _NEVER_HIDDEN or element.get("role") == "tabpanel" or element.xpath("boolean(.//math)"):
            continue
        around = set(element.iterancestors())
        if around.isdisjoint(gone):
            is_read = not any(_is_aside(outer) for outer in (element, *around))
            gone[element] = is_read and any(map(str.strip, element.itertext()))
    if gone and not _shows_anything(tree, gone):  # until a script does
        gone = {element: counts for element, counts in gone.items() if element.tag in ("template", "dialog")}
    for element in gone:
        element.drop_tree()
    return sum(gone.values())


def _is_aside(element: Any) -> bool:
    """Return whether an element is a menu, a search field or similar, which is never part of a page's text."""
    return element.tag in _NOT_READ or element.get("role") in _ASIDE_ROLES


def _shows_anything(tree: Any, gone: Container[Any]) -> bool:
    for text in tree.xpath("//text()[normalize-space() and not(ancestor::head)]"):
        parent = text.getparent()
        around = [*parent.iterancestors()] if text.is_tail else [parent, *parent.iterancestors()]
        if not any(element in gone or element.tag in _NOT_READ for element in around):
            return True
    return False


def _become(element: Any, text: str) -> None:
    tail = element.tail
    for child in list(element):
        element.remove(child)
    element.tag, element.text, element.tail = "span", text, tail
    element.drop_tag()


def formula_text(element: Any) -> str:
    """Write a MathML formula in one line, as in `x^2/(y+1)`."""
    name = str(element.tag).rpartition("}")[2]
    if not isinstance(element.tag, str) or name in ("annotation", "annotation-xml"):
        return ""
    parts = [formula_text(child) for child in element]
    grouped = [part if part.isalnum() or len(part) == 1 else f"({part})" for part in parts]
    match name, len(parts):
        case "msup", 2:
            return f"{parts[0]}^{grouped[1]}"
        case "msub" | "munder", 2:
            return f"{parts[0]}_{grouped[1]}"
        case "msubsup" | "munderover", 3:
            return f"{parts[0]}_{grouped[1]}^{grouped[2]}"
        case "mfrac", 2:
            return f"{grouped[0]}/{grouped[1]}"
        case "mroot", 2:
            return f"{grouped[0]}^(1/{parts[1]})"
        case "msqrt", _:
            return f"√({''.join(parts)})"
        case _:
            text = element.text or ""
            return (text if name == "mtext" else text.strip()) + "".join(parts)


def _simplify_readings(tree: Any) -> None:
    """Put quotation marks around quotations within a sentence, and the reading of a word (ruby) in brackets after
    it."""
    for quotation in tree.xpath("//q"):
        _enclose(quotation, "“", "”")
    for bracket in tree.xpath("//rp"):
        bracket.drop_tree()
    for ruby in tree.xpath("//ruby"):
        readings = ruby.xpath(".//rt")
        said = "".join("".join(reading.itertext()) for reading in readings)
        for reading in readings:
            reading.drop_tree()
        if said.strip():
            _enclose(ruby, "", f"({said.strip()})")
        else:
            ruby.drop_tag()


def _enclose(element: Any, opening: str, closing: str) -> None:
    element.text, element.tail = f"{opening}{element.text or ''}", f"{closing}{element.tail or ''}"
    element.drop_tag()


def _write_in_line(element: Any) -> None:
    """Write a raised or lowered element into its line, if its plain text would be misleading."""
    text = "".join(element.itertext())
    before, after = _text_before(element), element.tail or ""
    is_link = bool(element.xpath("boolean(.//a | ancestor::a)"))
    write = raised if element.tag == "sup" else lowered
    written = write(before, text, after, is_note=is_link)
    if written != text:
        _become(element, written)


def _text_before(element: Any) -> str:
    """Return the last piece of text before an element in its line."""
    while True:
        previous, parent = element.getprevious(), element.getparent()
        if previous is not None:
            is_inline = previous.tag in _INLINE
            return previous.tail or ("".join(previous.itertext()) if is_inline else "")
        if parent is None or parent.text or parent.tag not in _INLINE:
            return "" if parent is None else parent.text or ""
        element = parent


def raised(before: str, text: str, after: str = "", *, is_note: bool = False) -> str:
    """Write a raised text between two others in a line: `^6` after `10`, `[1]` for the mark of a note. It stays
    unchanged after white space, at the end of a word (`1st`), or without a letter or digit."""
    bare = " ".join(text.split())
    word = _LAST_WORD.search(before[-20:])
    if not before or before[-1].isspace() or before[-1] in "([" or not bare.strip("*†‡§®™").strip():
        return text
    if bare[0] in "([" or not any(map(str.isalnum, bare)) or _SUFFIX.fullmatch(f"{word[0] if word else ''}{bare}"):
        return text
    if is_note:
        return f"[{bare}]"
    if after[:1] in ("/", "⁄") and before[-1].isdigit() and bare.isdigit():
        return f" {bare}"  # 3 1/2
    return f"^{_grouped(bare, after)}{' ' if text[-1].isspace() else ''}"


def lowered(before: str, text: str, after: str = "", *, is_note: bool = False) -> str:
    """Write a lowered text between two others in a line: `_2` between digits, else unchanged, as in `H2O`."""
    bare = " ".join(text.split())
    is_between = (before[-1:].isdigit() and bare[:1].isdigit()) or (after[:1].isdigit() and bare[-1:].isdigit())
    return f"_{_grouped(bare, after)}" if is_between and before and not before[-1].isspace() else text


def _grouped(text: str, after: str) -> str:
    """Return the text, grouped so that it stays separate from what follows."""
    return text if _SIMPLE.fullmatch(text) and not after[:1].isalnum() else f"({text})"


def _even_out(table: Any, *, are_first_rows_headings: bool) -> None:
    """Give each row of a table a cell in each column, and join several rows of headings to one."""
    for caption in table.xpath("./caption"):
        _move_before(table, caption)
    rows = _spread([row for row in table.iter("tr") if len(row)])
    titles = list(takewhile(_is_title, rows)) if max(map(len, rows), default=0) > 1 else []
    for (cell,) in titles:
        row = cell.getparent()
        _move_before(table, cell)
        row.drop_tree()
    rows = rows[len(titles) :]
    if not rows:
        return
    marked = rows[: 1 + sum(1 for _ in takewhile(_names_columns, rows[1:]))] if _is_marked(rows[0]) else []
    if len(marked) > 1 and len(marked) < len(rows):
        _join(marked)
        rows = rows[len(marked) - 1 :]
    texts = [[_text(cell) for cell in row] for row in rows]
    is_column = not marked and len(rows) > 1 and all(row[0].tag == "th" and row[-1].tag == "td" for row in rows)
    is_first = bool(marked) or (
        not is_column and _is_first_row_heading(rows, texts, surely=not are_first_rows_headings)
    )
    for number, row in enumerate(rows):
        for cell in row:
            cell.tag = "th" if is_first and not number else "td"


def _text(cell: Any) -> str:
    return " ".join("".join(cell.itertext()).split())


def _is_title(row: Sequence[Any]) -> bool:
    return len(row) == 1 and len(_text(row[0])) <= LONGEST_NAME


def _move_before(table: Any, element: Any) -> None:
    paragraph = table.makeelement("p")
    paragraph.text = _text(element)
    table.addprevious(paragraph)
    element.drop_tree()


def _is_marked(row: Sequence[Any]) -> bool:
    return row[0].getparent().getparent().tag == "thead" or all(cell.tag == "th" for cell in row if _text(cell))


def _names_columns(row: Sequence[Any]) -> bool:
    """Return whether a row below headings has more headings, and not just the name of a row or group of rows."""
    return _is_marked(row) and (not _text(row[0]) or any(map(_text, row[1:])))


def _is_first_row_heading(rows: Sequence[Any], texts: list[list[str]], *, surely: bool) -> bool:
    """Return whether the first row looks like headings: it alone is bold, has a marked cell, or reads like headings."""
    is_bare = 2 * sum(map(bool, texts[0])) < len(texts[0])
    if len(texts[0]) < 2 or is_bare or any(text.endswith(":") for text in texts[0]):
        return False
    is_bold = [all(cell.xpath("boolean(.//b | .//strong)") for cell in row if _text(cell)) for row in rows[:3]]
    if any(cell.tag == "th" for cell in rows[0]) or (is_bold[0] and not any(is_bold[1:])):
        return len(rows) > 1
    if len(texts[0]) > 2 or is_heading(texts, surely=True):
        return is_heading(texts)
    return not surely and is_heading(texts) and _are_alike([row[1] for row in texts[1:] if len(row) > 1])


def _are_alike(values: Sequence[str]) -> bool:
    """Return whether nearly all or nearly no values have digits, as in a column; in a form they are mixed."""
    share = sum(any(map(str.isdigit, value)) for value in values) / max(len(values), 1)
    return share >= MOST or share <= 1 - MOST


def _join(rows: Sequence[Sequence[Any]]) -> None:
    """Join several rows of headings in the last one, with the groups of columns before their names."""
    for place, cell in enumerate(rows[-1]):
        names = [_text(row[place]) for row in rows if place < len(row)]
        for child in list(cell):
            cell.remove(child)
        cell.text = " ".join(dict.fromkeys(filter(None, names)))
    for row in rows[:-1]:
        row[0].getparent().drop_tree()


def _spread(rows: Sequence[Any]) -> list[list[Any]]:
    """Return the cells of each row. Copy a spanning cell into each place, unless it is alone in its row."""
    own = [[cell for cell in row if cell.tag in ("td", "th")] for row in rows]
    width = max(map(len, own), default=0)
    room = _MOST_CELLS
    found, below = list[list[Any]](), dict[int, tuple[Any, int]]()
    for number, (row, cells) in enumerate(zip(rows, own, strict=True)):
        line, queue = list[Any](), deque(cells)
        while queue or len(line) in below:
            cell, down = below.pop(len(line), (None, 0))
            across, is_next = 1, cell is None
            if is_next:
                cell = queue.popleft()
                down = _span(cell, "rowspan", len(rows) - number)
                across = 1 if len(cells) == 1 else _span(cell, "colspan", width)
            for copy in range(across if room > 0 else 1):
                room -= 1
                if down > 1 and room > 0:
                    below[len(line)] = (cell, down - 1)
                line.append(cell if is_next and not copy else _copied(row, line, cell))
        found += [line] if line else []
    return found


def _span(cell: Any, name: str, most: int) -> int:
    """Return the number of rows or columns that a cell spans; 0 rows means all following ones."""
    value = str(cell.get(name, "1")).strip()
    number = int(value) if value.isdecimal() and len(value) < 6 else 1
    cell.attrib.pop(name, None)
    return max(1, min(number or most, most))


def _copied(row: Any, line: list[Any], cell: Any) -> Any:
    copy = deepcopy(cell)
    copy.tail = None
    if line:
        line[-1].addnext(copy)
    else:
        row.insert(0, copy)
    return copy
