"""Questions from tables and abbreviations: what a folder of a team says in few sentences.

"| Tarnby | 1958 |" below "| Depot | Opened |" gives "When was the depot Tarnby opened?", and "**DMA**: district metered
area" or "district metered area (DMA)" gives "What does DMA stand for?". A cell is asked for only where its row and the
heading of its column are in one passage: a number alone says nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from itertools import takewhile

from evoseek.questions.writers.clozes import Cloze, is_english, opened, subject, words
from evoseek.questions.writers.english import OPEN, SPANS
from evoseek.questions.writers.table_english import (
    ABBREVIATED,
    ATTRIBUTES,
    CODES,
    COMING,
    COUNTED,
    ENGLISH,
    GENERIC,
    HAPPENED,
    MEASURED,
    NAMED,
    NO_ANSWER,
    NO_COLUMN,
    NO_ROWS,
    OF_MONEY,
    OFFICES,
    OVERVIEW,
    SHORTENED,
    VALUES,
    WAS_DONE,
)
from evoseek.types import Passage

_RULE = re.compile(r"\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?$")  # below the headings of the columns
_BETWEEN = re.compile(r"(?<!\\)\|")  # cells
_MARKS = " *_`\t"
_WORDS_OF_NAME, _WORDS_OF_COLUMN, _WORDS_OF_ANSWER = 6, 4, 8


def tabled(passages: Sequence[Passage]) -> Iterator[Cloze]:
    """The questions that the tables and abbreviations of a document give. `passages` are those of one document. What
    two of its tables may say of the same row is not asked for: one may be of another section."""
    if not is_english(passages):
        return
    tables = [(rows, passage) for passage in passages for rows in (*_tables(passage.text), *_record(passage))]
    said = Counter(cell for rows, _ in tables for cell in set(_said(rows)))
    for rows, passage in tables:
        yield from _of_table(rows, passage, {cell for cell, count in said.items() if count > 1})
    for passage in passages:
        yield from _of_abbreviations(passage)


def _said(rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Of each cell the name of its row, and the first word of its column's heading."""
    return ((row[0].lower(), heading.lower().split(" ")[0]) for row in rows[1:] for heading in rows[0][1:])


def _tables(text: str) -> Iterator[list[list[str]]]:
    """The cells of each table, its headings first. Rows of another length, or that are cut, are left out, and those
    that the next row goes on."""
    lines = [line.strip() for line in text.splitlines()]
    for place, line in enumerate(lines):
        if not (place and _RULE.match(line)):
            continue
        heading, rows = lines[place - 1], list[list[str]]()
        for row in takewhile(lambda row: row.startswith("|"), lines[place + 1 :]):
            cells = _cells(row)
            if rows and not cells[0]:
                rows.pop()
            elif len(cells) == len(_cells(heading)) and row.endswith("|") >= heading.endswith("|"):
                rows.append(cells)
        yield [_cells(heading), *rows]


def _record(passage: Passage) -> Iterator[list[list[str]]]:
    """The table of one row that a line of a spreadsheet is, which is titled by its name."""
    pairs = [line.split(": ", 1) for line in passage.text.splitlines()]
    is_record = pairs and all(len(pair) == 2 for pair in pairs) and pairs[0][1] == passage.title
    if is_record and any(ENGLISH.fullmatch(heading) for heading, _ in pairs):
        yield [[heading for heading, _ in pairs], [" ".join(cell.split()) for _, cell in pairs]]


def _cells(line: str) -> list[str]:
    cells = (cell.replace(r"\|", "|") for cell in _BETWEEN.split(line.strip().strip("|")))
    return [" ".join(cell.split()).strip(_MARKS) for cell in cells]


def _of_table(rows: Sequence[Sequence[str]], passage: Passage, twice: Container[tuple[str, str]]) -> Iterator[Cloze]:
    """A question for each cell, by the name of its row, which is the first cell, and the heading of its column. If the
    first column is of attributes, the columns are of what has them, or the page is, if there is but one."""
    headings, *body = rows
    first = headings[0].lower()
    if NO_ROWS.fullmatch(first):
        return
    names = Counter(row[0].lower() for row in body)
    columns = list(zip(*body, strict=True))
    for row in body:
        is_named = NAMED.fullmatch(row[0]) or CODES.fullmatch(f"{first} {row[0]}")
        if names[row[0].lower()] > 1 or not is_named:
            continue
        for heading, answer, column in zip(headings[1:], row[1:], columns[1:], strict=True):
            asked_about = _asked_about(row[0], first, heading, passage, is_only=len(headings) == 2)
            is_said_twice = (row[0].lower(), heading.lower().split(" ")[0]) in twice
            if asked_about is None or is_said_twice or not _fits(answer, column):
                continue
            question = _question(*asked_about, answer)
            if question and not set(words(answer)) <= set(words(question)):
                yield _asked(question, answer, f"{row[0]}'s {heading.lower()} is", passage)


def _asked_about(name: str, first: str, heading: str, passage: Passage, *, is_only: bool) -> tuple[str, str] | None:
    """What is asked about, and which attribute of it."""
    if is_only and (ATTRIBUTES.fullmatch(first) or first == "item") and VALUES.fullmatch(heading.lower()):
        title, section = subject(passage.title), passage.heading or ""
        is_of_page = not section or OVERVIEW.search(section) or set(words(section)) <= set(words(passage.title))
        return (title, name) if is_of_page and not re.search(" [A-Z]", name) else None
    if ATTRIBUTES.fullmatch(first):
        return (heading, name) if NAMED.fullmatch(heading) else None
    return _named(name, first), heading


def _fits(answer: str, column: Sequence[str]) -> bool:
    """Whether a cell is of the kind that most of its column has, which is not `yes` and `no`."""
    kinds = Counter(map(_kind, column))
    most, count = kinds.most_common(1)[0]
    is_other = (
        most in ("date", "year", "number") and 2 * count > len(column) and _kind(answer) not in (most, "date", "year")
    )
    return not is_other and not any(cell.lower() in ("yes", "no") for cell in column)


def _named(name: str, kind: str) -> str:
    """What a row is about: "the depot Tarnby", "Ada Birk", "the log file"."""
    if re.fullmatch("[a-z]+", kind) and not GENERIC.fullmatch(kind) and kind not in words(name):
        return f"the {kind} {name}"
    return f"the {name.lower()}" if re.fullmatch("[A-Z]?[a-z]+(?: [a-z]+)+", name) else name


def _question(thing: str, attribute: str, answer: str) -> str | None:
    """What is asked for, None if that is not clear. The unit of a number, in brackets, is in the question."""
    said = re.sub(r"\s*\([^()]*\)$", "", attribute)
    unit = attribute[len(said) :].strip(" ()")
    said = said if re.search("[a-z][A-Z]|[A-Z]{2}", said) else said.lower()
    kind = _kind(answer)
    is_answer = len(words(answer)) in range(1, _WORDS_OF_ANSWER + 1) and not NO_ANSWER.fullmatch(answer)
    if not is_answer or len(words(thing)) not in range(1, _WORDS_OF_NAME + 1):
        return None
    if kind in ("date", "year") and said in HAPPENED:
        first, verb = HAPPENED[said]
        return f"when {first} {thing} {verb}"
    if kind in ("date", "year") and WAS_DONE.fullmatch(said):
        return f"when was {thing} {said}"
    is_unclear = NO_COLUMN.search(said) or GENERIC.fullmatch(said) or len(words(said)) > _WORDS_OF_COLUMN
    if is_unclear or (re.search("[€£$]", answer) and not OF_MONEY.search(said)):
        return None
    if COUNTED.fullmatch(said):
        is_count = kind == "number" and answer.replace(",", "").isdigit() and not MEASURED.fullmatch(said)
        return f"how many {said} does {thing} have" if is_count else None
    if kind in ("date", "year"):
        return f"when {'is' if COMING.match(said) else 'was'} the {said} of {thing}"
    asked = "who" if OFFICES.fullmatch(said) and kind == "name" else "what"
    return f"{asked} is the {said}{f' in {unit}' if unit and kind == 'number' else ''} of {thing}"


def _kind(answer: str) -> str:
    """The kind of an answer, as the spans of sentences have it."""
    kinds = ("date", "year", "name", "number")
    return next((kind for kind, span in SPANS if kind in kinds and span.fullmatch(answer)), "value")


def _of_abbreviations(passage: Passage) -> Iterator[Cloze]:
    for pattern in (ABBREVIATED, SHORTENED):
        for found in pattern.finditer(passage.text):
            if said := _spelled_out(found["short"], re.findall(r"[\w'’]+|-", found["long"])):
                yield _asked(f"what does {found['short']} stand for", said, found["short"], passage)


def _spelled_out(short: str, said: Sequence[str]) -> str:
    """The last of these words whose first letters are those of an abbreviation, with or without those of words such as
    `and`; "" if there are none."""
    small = OPEN.split()
    for start in range(len(said)):
        whole = [word for word in said[start:] if word != "-"]
        letters = ("".join(word[0] for word in some) for some in (whole, [word for word in whole if word not in small]))
        is_begun = said[start] != "-" and said[start].lower() not in small
        if is_begun and short.lower() in (text.lower() for text in letters):
            return " ".join(said[start:]).replace(" - ", "-")
    return ""


def _asked(question: str, answer: str, before: str, passage: Passage) -> Cloze:
    name = subject(passage.title)
    query = name if name and set(words(name)) <= set(words(question)) else ""
    stated = (query, before, "", passage.document_id, passage.title, (passage.id,))
    return Cloze(f"{opened(question)}?", answer, _kind(answer), *stated)
