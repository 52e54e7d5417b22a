"""Simplifies parts of office documents: no hidden or struck-out text, raised and lowered words in their line.

Word, PowerPoint and Excel write a run of words and its properties alike: an element `r` with `rPr` in it, each in a
separate namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from copy import deepcopy
from typing import Any

from evoseek.documents.markup import lowered, raised

_OFF = ("0", "false", "off", "none")
_HIDDEN, _FLAGS = "vanish", ("vanish", "strike", "dstrike")
_WRITERS = {"superscript": raised, "subscript": lowered}


def simplify_runs(root: Any, styles: Mapping[str, Container[str]]) -> int:
    """Remove hidden or struck-out runs, shapes and rows of a part, and write raised and lowered runs into their line.
    Return the number of hidden parts; consecutive runs count as one.

    `styles` are the properties that each style of the document switches on.
    """
    hidden = 0
    for mark in [*root.iterfind(".//{*}cNvPr[@hidden]"), *root.iterfind(".//{*}trPr/{*}hidden")]:
        if mark.get("hidden", "").lower() not in _OFF and _is_on(mark):
            hidden += _remove(mark.getparent().getparent())
    was_hidden, paragraph = False, None
    for run in list(root.iter("{*}r", "{*}fld")):
        on = _switched_on(run, styles)
        is_hidden, before, paragraph = _HIDDEN in on, paragraph, run.getparent()
        hidden += is_hidden and not (was_hidden and before is paragraph)
        was_hidden = is_hidden
        for switch in [each for name in _FLAGS for each in run.iterfind(f"{{*}}rPr/{{*}}{name}")]:
            switch.getparent().remove(switch)  # some programs read a property that is off as on
        if on:
            _remove(run)
        elif write := _WRITERS.get(_position(run, styles)):
            _join_alike(run, styles)
            _write_in_line(run, write)
    _repeat_merged(root)
    return hidden


def style_properties(styles: Any) -> dict[str, set[str]]:
    """Return which properties each style of a Word document turns on: hidden, struck out, raised, lowered."""
    own: dict[str, dict[str, bool]] = {}
    based: dict[str, str] = {}
    for style in styles.iterfind("{*}style"):
        name = _attribute(style, "styleId")
        properties, base = style.find("{*}rPr"), style.find("{*}basedOn")
        own[name] = {} if properties is None else _flags(properties) | _positions(properties)
        based[name] = "" if base is None else _attribute(base, "val")
    found: dict[str, set[str]] = {}
    for name in own:
        flags, at, seen = dict[str, bool](), name, set[str]()
        while at in own and at not in seen:
            seen.add(at)
            flags = own[at] | flags
            at = based[at]
        found[name] = {flag for flag, is_on in flags.items() if is_on}
    return found


def _switched_on(run: Any, styles: Mapping[str, Container[str]]) -> set[str]:
    """Return which of the properties hidden and struck out apply to a run, by itself or by its styles."""
    properties = run.find("{*}rPr")
    own = {} if properties is None else _flags(properties)
    if properties is not None and properties.get("strike") in ("sngStrike", "dblStrike"):
        own["strike"] = True
    paragraph = next(run.iterancestors("{*}p"), None) if styles else None
    marks = [*run.iterfind("{*}rPr/{*}rStyle"), *(() if paragraph is None else paragraph.iterfind("{*}pPr/{*}pStyle"))]
    names = [_attribute(mark, "val") for mark in marks]
    inherited = {flag for flag in _FLAGS if any(flag in styles.get(name, ()) for name in names)}
    return {flag for flag, is_on in own.items() if is_on} | {flag for flag in inherited if own.get(flag, True)}


def _flags(properties: Any) -> dict[str, bool]:
    names = ((child, str(child.tag).rpartition("}")[2]) for child in properties)
    return {name: _is_on(child) for child, name in names if name in _FLAGS}


def _is_on(switch: Any) -> bool:
    return _attribute(switch, "val").lower() not in _OFF


def _attribute(element: Any, name: str) -> str:
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


def _remove(element: Any) -> int:
    """Remove an element, and return 1 if it had text."""
    parent = element.getparent()
    if parent is not None:
        parent.remove(element)
    return int(any(map(str.strip, element.itertext())))


def _repeat_merged(root: Any) -> None:
    """Repeat the text of merged cells of a slide's table in each of their rows and columns. In a row with a single
    cell, such as a title, the text stays once."""
    for table in root.iter("{*}tbl"):
        above = list[Any]()
        for row in table.iterfind("{*}tr"):
            cells = list(row.iterfind("{*}tc"))
            for place, cell in enumerate(cells):
                is_across = cell.get("hMerge", "0") not in _OFF and cells[0].get("gridSpan") != str(len(cells))
                is_down = cell.get("vMerge", "0") not in _OFF and place < len(above)
                source = above[place] if is_down else cells[place - 1] if is_across and place else None
                body = None if source is None else source.find("{*}txBody")
                if body is not None and (empty := cell.find("{*}txBody")) is not None:
                    cell.replace(empty, deepcopy(body))
            above = cells


def _position(run: Any, styles: Mapping[str, Container[str]]) -> str:
    """Return `superscript` or `subscript` if a run has this position, by itself or by its style; else ""."""
    properties = run.find("{*}rPr")
    if properties is None:
        return ""
    baseline = properties.get("baseline", "0")
    if baseline.lstrip("-").rstrip("%").isdecimal() and int(baseline.rstrip("%")):
        return "subscript" if baseline.startswith("-") else "superscript"
    own, style = _positions(properties), properties.find("{*}rStyle")
    inherited = () if style is None else styles.get(_attribute(style, "val"), ())
    return next((name for name in _WRITERS if own.get(name, name in inherited)), "")


def _positions(properties: Any) -> dict[str, bool]:
    align = properties.find("{*}vertAlign")
    return {} if align is None else {name: _attribute(align, "val") == name for name in _WRITERS}


def _join_alike(run: Any, styles: Mapping[str, Container[str]]) -> None:
    """Merge a run with following runs in the same position: a program may divide `-3` into two."""
    texts, position = list(run.iterfind("{*}t")), _position(run, styles)
    for other in list(run.itersiblings("{*}r", "{*}fld")) if texts else ():
        if _position(other, styles) != position or other.find("{*}t") is None or _switched_on(other, styles):
            break
        texts[-1].text = f"{texts[-1].text or ''}{_text(other)}"
        other.getparent().remove(other)


def _write_in_line(run: Any, write: Callable[[str, str, str], str]) -> None:
    """Write a raised or lowered run into its line, at normal position."""
    properties = run.find("{*}rPr")
    properties.attrib.pop("baseline", None)
    for align in properties.findall("{*}vertAlign"):
        properties.remove(align)
    texts = list(run.iterfind("{*}t"))
    before = next(filter(None, map(_text, run.itersiblings(preceding=True))), "")
    after = next(filter(None, map(_text, run.itersiblings())), "")
    for place, text in enumerate(texts):
        text.text = "" if place else write(before, _text(run), after)


def _text(run: Any) -> str:
    return "".join(text.text or "" for text in run.iterfind("{*}t"))
