"""Questions from tables and abbreviations: what a folder of a team says in few sentences.

"| Tarnby | 1958 |" below "| Depot | Opened |" gives "When was the depot Tarnby opened?", and "**DMA**: district metered
area" or "district metered area (DMA)" gives "What does DMA stand for?". A cell is asked for only where its row and the
heading of its column are in one passage: a number alone says nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from evoseek.cold_start.clozes import Cloze, is_english, opened, subject, words
from evoseek.cold_start.english import OPEN, SPANS
from evoseek.cold_start.table_english import (
    ABBREVIATED,
    ATTRIBUTES,
    CODES,
    COUNTED,
    ENGLISH,
    GENERIC,
    HAPPENED,
    MEASURED,
    NAMED,
    NO_ANSWER,
    NO_COLUMN,
    NO_ROWS,
    OFFICES,
    SHORTENED,
    WAS_DONE,
)
from evoseek.types import Passage

_RULE = re.compile(r"\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?$")  # below the headings of the columns
_MARKS = " *_`\t"
_WORDS_OF_NAME, _WORDS_OF_COLUMN, _WORDS_OF_ANSWER = 6, 4, 8


def tabled(passages: Sequence[Passage]) -> Iterator[Cloze]:
    """The questions that the tables and abbreviations of a document give. `passages` are those of one document."""
    for passage in passages if is_english(passages) else ():
        for rows in (*_tables(passage.text), *_record(passage)):
            yield from _of_table(rows, passage)
        yield from _of_abbreviations(passage)


def _tables(text: str) -> Iterator[list[list[str]]]:
    """The cells of each table, its headings first. Rows of another length are left out."""
    lines = text.splitlines()
    for place, line in enumerate(lines):
        if not (place and _RULE.match(line.strip())):
            continue
        rows = [_cells(lines[place - 1])]
        for row in lines[place + 1 :]:
            if not row.strip().startswith("|"):
                break
            rows.append(_cells(row))
        yield [row for row in rows if len(row) == len(rows[0])]


def _record(passage: Passage) -> Iterator[list[list[str]]]:
    """The table of one row that a line of a spreadsheet is, which is titled by its name."""
    pairs = [line.split(": ", 1) for line in passage.text.splitlines()]
    is_record = pairs and all(len(pair) == 2 for pair in pairs) and pairs[0][1] == passage.title
    if is_record and any(ENGLISH.fullmatch(heading) for heading, _ in pairs):
        yield [[heading for heading, _ in pairs], [" ".join(cell.split()) for _, cell in pairs]]


def _cells(line: str) -> list[str]:
    return [" ".join(cell.split()).strip(_MARKS) for cell in line.strip().strip("|").split("|")]


def _of_table(rows: Sequence[Sequence[str]], passage: Passage) -> Iterator[Cloze]:
    """A question for each cell, by the name of its row, which is the first cell, and the heading of its column. If the
    first column is of attributes, the columns are of what has them, or the page is, if there is but one."""
    headings, *body = rows
    first = headings[0].lower()
    if NO_ROWS.fullmatch(first):
        return
    is_only = len(headings) == 2 and GENERIC.fullmatch(headings[1].lower())  # "Item", "Value"
    has_attributes = ATTRIBUTES.fullmatch(first) or (is_only and GENERIC.fullmatch(first))
    names = Counter(row[0].lower() for row in body)
    for row in body:
        is_named = NAMED.fullmatch(row[0]) or CODES.fullmatch(f"{first} {row[0]}")
        if names[row[0].lower()] > 1 or not is_named:
            continue
        for heading, answer in zip(headings[1:], row[1:], strict=True):
            if not has_attributes:
                question = _question(_named(row[0], first), heading, answer)
            elif GENERIC.fullmatch(heading.lower()):
                question = _question(subject(passage.title), row[0], answer)
            else:
                question = _question(heading, row[0], answer) if NAMED.fullmatch(heading) else None
            if question and not set(words(answer)) <= set(words(question)):
                yield _asked(question, answer, f"{row[0]}'s {heading.lower()} is", passage)


def _named(name: str, kind: str) -> str:
    """What a row is about: "the depot Tarnby", "Ada Birk", "the log file"."""
    if re.fullmatch("[a-z]+", kind) and not GENERIC.fullmatch(kind):
        return f"the {kind} {name}"
    return f"the {name.lower()}" if re.fullmatch("[A-Z]?[a-z]+(?: [a-z]+)+", name) else name


def _question(thing: str, attribute: str, answer: str) -> str | None:
    """What is asked for, None if that is not clear. A number's unit, in brackets, stays."""
    said = re.sub(r"\s*\([^()]*\)$", "", attribute)
    unit = attribute[len(said) :]
    said = said if re.search("[a-z][A-Z]|[A-Z]{2}", said) else said.lower()
    kind = _kind(answer)
    is_answer = len(words(answer)) in range(1, _WORDS_OF_ANSWER + 1) and not NO_ANSWER.fullmatch(answer)
    if not is_answer or len(words(thing)) not in range(1, _WORDS_OF_NAME + 1):
        return None
    if kind in ("date", "year") and said in HAPPENED:
        return f"when did {thing} {HAPPENED[said]}"
    if kind in ("date", "year") and WAS_DONE.fullmatch(said):
        return f"when was {thing} {said}"
    if len(words(said)) > _WORDS_OF_COLUMN or NO_COLUMN.search(said) or GENERIC.fullmatch(said):
        return None
    if COUNTED.fullmatch(said):
        is_number = re.fullmatch(r"\d+(?:,\d{3})*", answer) and not MEASURED.fullmatch(said)
        return f"how many {said} does {thing} have" if is_number else None
    if kind == "date" and (found := re.match("last |next ", said)):
        return f"when {'was' if found[0] == 'last ' else 'is'} the {said} of {thing}"
    asked = "who" if OFFICES.fullmatch(said) and kind == "name" else "what"
    return f"{asked} is the {said}{unit if kind == 'number' else ''} of {thing}"


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
