"""Tables and columns of a PDF, on pages written by hand."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pytest

from evoseek.documents.formats import Parsed, parse_pdf
from evoseek.documents.passages import split_document
from evoseek.types import Document

pytest.importorskip("pypdf")

Words = tuple[int, int, str]  # from the left, from below, text
COLUMNS = (50, 150, 280, 420)
HEADINGS = ("Model", "Maximum pressure", "Maximum temperature", "Repaired at")
ROWS = [(f"PX-{100 + n}", f"{n} bar", f"{20 + n} °C", f"depot {chr(65 + n)}") for n in range(20)]
PROSE = "The pumps of the firm are repaired in the depots that are listed here, and nowhere else."


def pdf(*pages: Sequence[Words]) -> bytes:
    streams = [
        "\n".join(f"BT /F1 10 Tf {x} {y} Td ({text}) Tj ET" for x, y, text in page).encode("cp1252") for page in pages
    ]
    kids = " ".join(f"{5 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<</Type /Catalog /Pages 2 0 R>>",
        f"<</Type /Pages /Kids [{kids}] /Count {len(pages)}>>".encode(),
        b"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding>>",
    ]
    for number, stream in enumerate(streams):
        objects.append(b"<</Length %d>> stream\n%s\nendstream" % (len(stream), stream))
        objects.append(
            f"<</Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {4 + 2 * number} 0 R "
            "/Resources <</Font <</F1 3 0 R>>>>>>".encode()
        )
    data, starts = b"%PDF-1.4\n", list[int]()
    for number, text in enumerate(objects, start=1):
        starts.append(len(data))
        data += b"%d 0 obj %s endobj\n" % (number, text)
    table = b"".join(b"%010d 00000 n \n" % start for start in starts)
    end = f"trailer <</Root 1 0 R /Size {len(objects) + 1}>>\nstartxref\n{len(data)}\n%%EOF".encode()
    return data + b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + table + end


def lines(rows: Sequence[Sequence[str]], *, top: int = 780, columns: Sequence[int] = COLUMNS) -> list[Words]:
    return [
        (x, top - 16 * n, text) for n, row in enumerate(rows) for x, text in zip(columns, row, strict=False) if text
    ]


def read(*pages: Sequence[Words]) -> tuple[Parsed, list[str]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        parsed = parse_pdf(pdf(*pages))
    return parsed, [str(one.message) for one in found if "columns" in str(one.message)]


def test_every_passage_of_a_table_has_its_headings_also_on_the_next_page() -> None:
    parsed, told = read(
        [(50, 810, PROSE), *lines([HEADINGS, *ROWS[:10]])], [*lines(ROWS[10:]), (50, 500, PROSE), (50, 30, "2")]
    )
    assert parsed.text.startswith(f"{PROSE}\n\n| Model | Maximum pressure | Maximum temperature | Repaired at |\n|---")
    found = split_document(Document("d", "Pumps", parsed.text, marks=parsed.marks), max_words=60)
    with_rows = [passage for passage in found if "PX-" in passage.text]
    assert len(with_rows) > 4
    assert all("Maximum pressure" in passage.text for passage in with_rows)
    assert {passage.page for passage in with_rows} == {1, 2}
    rows = [line for passage in found for line in passage.text.split("\n") if line.startswith("| PX-")]
    assert rows == [f"| {' | '.join(row)} |" for row in ROWS]
    assert (parsed.text.endswith(f"\n{PROSE}\n2"), told) == (True, [])


def test_headings_that_the_next_page_repeats_are_no_row() -> None:
    parsed, _ = read(lines([HEADINGS, *ROWS[:5]]), lines([HEADINGS, *ROWS[5:9]]))
    assert parsed.text.count("| Model |") == 2
    assert parsed.text.count("\n|---") == 2


def test_a_table_in_other_columns_is_another_one() -> None:
    parsed, _ = read(lines([HEADINGS, *ROWS[:5]]), lines(ROWS[5:9], columns=(80, 250, 380, 500)))
    assert parsed.text.split("\n\n")[1].split("\n") == [" ".join(row) for row in ROWS[5:9]]


def test_a_cell_of_several_lines_is_one_and_an_empty_one_stays_empty() -> None:
    rows = [
        ("Model", "Note", "Made in", "Repaired at"),
        ("PX-1", "It may run dry", "1958", "depot A"),
        ("", "for a minute", "", ""),
        ("PX-2", "", "1961", "depot B"),
        ("", "Not sold", "1962", "depot C"),
    ]
    assert read(lines(rows))[0].text.split("\n")[2:] == [
        "| PX-1 | It may run dry for a minute | 1958 | depot A |",
        "| PX-2 |  | 1961 | depot B |",
        "|  | Not sold | 1962 | depot C |",
    ]


def test_sums_below_a_row_are_no_part_of_it_and_a_cut_word_of_a_cell_is_whole() -> None:
    rows = [("Pos", "Item", "Qty", "Price"), ("1", "Pump", "2", "40.00"), ("2", "A manufac-", "10", "3.50")]
    more = [("", "tured valve", "", ""), ("", "", "Sum", "115.00")]
    assert read(lines([*rows, *more]))[0].text.split("\n")[2:] == [
        "| 1 | Pump | 2 | 40.00 |",
        "| 2 | A manufactured valve | 10 | 3.50 |",
        "|  |  | Sum | 115.00 |",
    ]


@pytest.mark.parametrize(
    "rows",
    [
        [("1958", "12", "3"), ("1961", "13", "4"), ("1962", "14", "5")],  # no headings
        [("Name:", "Ada Birk"), ("Town:", "Aalby"), ("Role:", "Head")],
        [("dp", "::=", "{"), ("r", "3", "4"), ("s", "5", "6")],  # code
        [("Depot", "Opened", "Manager")],
        [(PROSE,), (PROSE,)],
    ],
)
def test_other_lines_are_as_they_were(rows: Sequence[Sequence[str]]) -> None:
    parsed, told = read(lines(rows))
    assert parsed.text == "\n".join(" ".join(row) for row in rows)
    assert not told


LISBON = (
    "The Lisbon workshop opens at half",
    "past eight and is managed by Ada",
    "Birk, who came from Oslo in 2016",
    "with three of her old friends.",
)
VARGA = (
    "Forklifts of the type Varga 20 are",
    "checked each year by the firm that",
    "made them, which is in Turku now,",
    "and not by any other firm at all.",
)


@pytest.mark.parametrize("columns", [(40, 320), (40, 230, 420)])
def test_columns_of_prose_follow_one_another_and_are_told(columns: Sequence[int]) -> None:
    texts = (LISBON, VARGA, LISBON)[: len(columns)]
    across = lines(list(zip(*texts, strict=True)), columns=columns)
    parsed, told = read([(40, 810, PROSE), *across])
    assert parsed.text.split("\n") == [PROSE, *(line for text in texts for line in text)]
    assert told == ["PDF pages in columns, put one after the other: page 1"]


def test_columns_that_are_written_one_after_the_other_stay_as_they_are() -> None:
    parsed, told = read(
        [word for text, x in ((LISBON, 40), (VARGA, 320)) for word in lines([(line,) for line in text], columns=(x,))]
    )
    assert parsed.text.split("\n") == [*LISBON, *VARGA]
    assert not told


def test_terms_beside_their_explanations_are_no_columns_of_prose() -> None:
    parsed, told = read(lines(list(zip(("a", "b", "c", "d"), LISBON, strict=True)), columns=(40, 120)))
    assert parsed.text.split("\n")[0] == f"a {LISBON[0]}"
    assert not told
