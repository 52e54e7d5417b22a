"""Tables: a row is a document with its column headings, titled by the value that names it and cited by its number."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime, time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.documents.reading import read_corpus

from evoseek.documents.passages import split_document
from evoseek.documents.read_report import ReadReport
from evoseek.documents.tables import number_text, parse_csv, parse_xlsx, table_rows


def rows(path: Path) -> list[tuple[str, str | None]]:
    """The passages of a file: text and heading."""
    documents = read_corpus(path, report=ReadReport())
    return [(passage.text, passage.heading) for document in documents for passage in split_document(document)]


def read(text: str | bytes) -> list[tuple[str, str]]:
    """Title and text of each row of a table of texts."""
    found = parse_csv(text if isinstance(text, bytes) else text.encode())
    return [(row.title, row.text) for row in found.rows]


def workbook(fill: Callable[[Any], None]) -> bytes:
    """A workbook of one sheet, Pumps, as `fill` leaves it."""
    openpyxl = pytest.importorskip("openpyxl")
    book, data = openpyxl.Workbook(), io.BytesIO()
    book.active.title = "Pumps"
    fill(book.active)
    book.save(data)
    return data.getvalue()


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_a_row_is_a_passage_with_its_column_headings(tmp_path: Path, name: str, separator: str) -> None:
    lines = (("Pump", "May run dry"), ("B", '"30 s,\nno longer"'), ("", ""), ("C", ""), ("D", "1 s", "extra"))
    (tmp_path / name).write_text("".join(separator.join(line) + "\n" for line in lines))
    assert rows(tmp_path / name) == [
        ("Pump: B\nMay run dry: 30 s, no longer", "row 2"),
        ("Pump: C", "row 4"),
        ("Pump: D\nMay run dry: 1 s\nextra", "row 5"),
    ]


def test_a_line_above_the_column_headings_and_a_table_of_one_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Pumps of Kalo,\nPump,Dry\nB,30 s\n")
    assert rows(tmp_path / "a.csv") == [("Pumps of Kalo", "row 1"), ("Pump: B\nDry: 30 s", "row 3")]
    (tmp_path / "b.csv").write_text("B,30 s\n")
    assert rows(tmp_path / "b.csv") == [("B\n30 s", "row 1")]


@pytest.mark.parametrize("separator", [";", "\t", "|", ","])
def test_the_separator_is_the_one_that_divides_the_rows_whatever_the_first_line_has(
    tmp_path: Path, separator: str
) -> None:
    lines = (("Report of 2020",), (), ("name", "note"), ("Meri", '"in Tartu, by the sea"'), ("Tor", "away"))
    (tmp_path / "a.csv").write_text("".join(separator.join(line) + "\n" for line in lines))
    assert rows(tmp_path / "a.csv") == [
        ("Report of 2020", "row 1"),
        ("name: Meri\nnote: in Tartu, by the sea", "row 4"),
        ("name: Tor\nnote: away", "row 5"),
    ]


def test_each_row_is_a_document_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "pumps.csv").write_text("name,price\nMeri,3\nTor,4\n")
    report = ReadReport()
    found = [(document.id, document.title, document.file) for document in read_corpus(tmp_path, report=report)]
    assert found == [("pumps.csv/row 2", "Meri", "pumps.csv"), ("pumps.csv/row 3", "Tor", "pumps.csv")]
    assert report.read == 2


@pytest.mark.parametrize(
    ("table", "titles"),
    [
        ("id,mail,name,city\n1,a@b.org,Meri,Tartu\n2,c@d.org,Kai,Tartu\n3,e@f.org,Tor,Tartu\n", ["Meri", "Kai", "Tor"]),
        ("sku,kind,price\nSKU-1,pump,3\nSKU-2,pump,4\n", ["SKU-1", "SKU-2"]),  # a code, where there is no name
        ("order,date,who\n1,2024-05-01,Meri\n2,2024-05-02,Meri\n", ["", ""]),  # neither numbers nor dates
        ("price,name\n450 EUR,P100\n35 EUR,P200\n", ["P100", "P200"]),  # nor amounts
        ("text,n\nThe pump may run dry.,1\nIt may not run.,2\n", ["", ""]),  # nor sentences
        (
            "question,answer\nWho repairs it?,Any workshop\nMay it run dry?,No.\n",
            ["Who repairs it?", "May it run dry?"],
        ),
        (f"name,n\n{'w' * 101},1\n{'v' * 101},2\n", ["", ""]),
    ],
)
def test_the_title_is_the_first_value_that_tells_the_rows_apart_in_words(table: str, titles: list[str]) -> None:
    assert [title for title, _ in read(table)] == titles


def test_a_row_without_a_name_is_titled_by_file_and_row(tmp_path: Path) -> None:
    (tmp_path / "orders.tsv").write_text("order\tdate\n1\t2024-05-01\n2\t2024-05-02\n")
    titles = [document.title for document in read_corpus(tmp_path, report=ReadReport())]
    assert titles == ["orders, row 2", "orders, row 3"]


@pytest.mark.parametrize(
    ("table", "first"),
    [
        ("Kalo,30,Meri\nTor,40,Supa\n", "Kalo\n30\nMeri"),  # a number names no column
        ("Meri,Tartu\nKai,Tartu\nTor,Kalo\n", "Meri\nTartu"),  # nor does a value that occurs again
        ("Weight,30 kg\nLength,24 months\n", "Weight\n30 kg"),
        ("Kalo,1990,2001\nTor,1980,2011\n", "Kalo\n1990\n2001"),  # years in each row
        ("The pump may run dry for thirty seconds, no longer.\nIt stops.\n", None),
        ("Name,State\nB,Name\n", "Name: B\nState: Name"),
        ("Country,2019,2020\nKalo,1,2\n", "Country: Kalo\n2019: 1\n2020: 2"),  # years as headings
        ("Name,Price\nPrice,3\n", "Name: Price\nPrice: 3"),  # numbers below a text
        ("Name:,n.d.\nB,-\nC,3\n", "Name: B\nn.d.: -"),
    ],
)
def test_headings_are_the_first_row_unless_it_looks_like_the_others(table: str, first: str | None) -> None:
    assert read(table)[0][1] == (first or table.split("\n")[0])


def test_headings_that_are_repeated_are_no_row() -> None:
    assert read("Name,Price\nPump,3\nName,Price\nTap,4\n") == [
        ("Pump", "Name: Pump\nPrice: 3"),
        ("Tap", "Name: Tap\nPrice: 4"),
    ]


@pytest.mark.parametrize("top", [",2023,,2024,\nRegion,Q1,Q2,Q1,Q2\n", "Region,2023,,2024,\n,Q1,Q2,Q1,Q2\n"])
def test_groups_of_columns_are_part_of_the_headings(top: str) -> None:
    assert read(f"{top}North,1,2,3,4\nSouth,5,6,7,8\n") == [
        ("North", "Region: North\n2023 Q1: 1\n2023 Q2: 2\n2024 Q1: 3\n2024 Q2: 4"),
        ("South", "Region: South\n2023 Q1: 5\n2023 Q2: 6\n2024 Q1: 7\n2024 Q2: 8"),
    ]


def test_groups_of_groups_are_too() -> None:
    top = ",Europe,,Asia,\nRegion,2023,,2024,\n,Q1,Q2,Q1,Q2\n"
    assert read(f"{top}North,1,2,3,4\nSouth,5,6,7,8\n")[0][1] == (
        "Region: North\nEurope 2023 Q1: 1\nEurope 2023 Q2: 2\nAsia 2024 Q1: 3\nAsia 2024 Q2: 4"
    )


CELLS = st.sampled_from(["", "", "Kalo", "Tor", "Meri", "2023", "2024", "3", "7.5", "a b.", "x@y.org"])


@given(st.lists(st.lists(CELLS, max_size=5), max_size=9))
def test_every_row_is_read_but_for_headings(table: list[list[str]]) -> None:
    """Each cell of a row that is read stands in its text; the rows that are not read are headings, above others."""
    found = {row.place: row.text.split("\n") for row in table_rows("", table)}
    rows = {f"row {number}": row for number, row in enumerate(table, start=1) if any(row)}
    assert list(found) == [place for place in rows if place in found]
    for place, lines in found.items():
        values = [line.rpartition(": ")[2] for line in lines]
        assert values == [cell for cell in rows[place] if cell]
    places = list(rows)
    assert not places or places[-1] in found or rows[places[-1]] in list(rows.values())[:-1]


def test_a_second_table_below_an_empty_row_has_its_own_headings() -> None:
    found = read("Name,Price\nPump,3\n\nTap,4\n\nColour,Count\nred,7\nblue,8\n")
    assert [text for _, text in found] == [
        "Name: Pump\nPrice: 3",
        "Name: Tap\nPrice: 4",
        "Colour: red\nCount: 7",
        "Colour: blue\nCount: 8",
    ]
    assert [title for title, _ in found] == ["Pump", "Tap", "red", "blue"]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("sep=;\nName;Price\nA, b;3\n", "Name: A, b\nPrice: 3"),
        ("Name,,Price,,\nA,,3,,\n,,,,\n", "Name: A\nPrice: 3"),
        ('Name, Note\nA, "by the sea, b"\n', "Name: A\nNote: by the sea, b"),
        ('Name\tSize\nA\t"5 inch\nB\t3\nC\t4\n', 'Name: A\nSize: "5 inch'),  # never closed
        ('Name,Size\nA,5" wide\n"B, red",3\n', 'Name: A\nSize: 5" wide'),
        ("Name\tPrice\nÄ\t3\n".encode("utf-16"), "Name: Ä\nPrice: 3"),
        ("Name;Price\nÄ;3\n".encode("utf-8-sig"), "Name: Ä\nPrice: 3"),
        ("Name,Price,Note\nA\nB,3\nC,4,x\n", "Name: A"),
        ("text\nHello, I say, and go.\nIt is, now.\nYes.\nNo, and so on, and on.\n", "text: Hello, I say, and go."),
    ],
)
def test_what_other_programs_write(table: str | bytes, text: str) -> None:
    assert read(table)[0][1] == text


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"name,note\nMeri,{'word ' * 30_000}\nTor,away\n")
    first, second = read_corpus(tmp_path, report=ReadReport())
    assert (first.text.count("word"), second.text[-10:]) == (30_000, "note: away")


def test_a_long_row_is_cut_and_each_part_names_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Name,Text\nB," + "word " * 250 + "\nC,short\n")
    found = [heading for _, heading in rows(tmp_path / "a.csv")]
    assert (set(found), found[-1]) == ({"row 2", "row 3"}, "row 3")
    assert len(found) > 3


def test_a_row_of_300_columns_is_cut_between_them_and_each_part_has_its_title(tmp_path: Path) -> None:
    heads = ",".join(f"column {number}" for number in range(299))
    values = [",".join(str(row * number) for number in range(299)) for row in (7, 8)]
    (tmp_path / "a.csv").write_text(f"name,{heads}\nMeri,{values[0]}\nTor,{values[1]}\n")
    first, _ = read_corpus(tmp_path, report=ReadReport())
    passages = split_document(first, max_words=50)
    assert {passage.title for passage in passages} == {"Meri"}
    lines = [line for passage in passages for line in passage.text.split("\n")]
    assert lines == ["name: Meri", *(f"column {number}: {7 * number}" for number in range(299))]


def test_a_workbook_is_cited_by_sheet_and_row(tmp_path: Path) -> None:
    def fill(sheet: Any) -> None:
        sheet.append(["Pump", "Weight", "Built"])
        sheet.append(["B", 30.0, datetime(2024, 5, 1)])
        sheet.parent.create_sheet("Empty")
        sheet.parent.create_sheet("Valves").append(["Valve", 0.5])
        sheet.cell(2_000, 16_384, "far")  # rows and columns between are not read

    (tmp_path / "a.xlsx").write_bytes(workbook(fill))
    assert rows(tmp_path / "a.xlsx") == [
        ("Pump: B\nWeight: 30\nBuilt: 2024-05-01", "Pumps, row 2"),
        ("far", "Pumps, row 2000"),
        ("Valve\n0.5", "Valves, row 1"),
    ]
    documents = list(read_corpus(tmp_path, report=ReadReport()))
    assert [(document.id, document.title) for document in documents[1:]] == [
        ("a.xlsx/Pumps, row 2000", "a, Pumps, row 2000"),
        ("a.xlsx/Valves, row 1", "Valve"),
    ]


def test_values_of_a_workbook_are_as_they_are_shown() -> None:
    def fill(sheet: Any) -> None:
        sheet.append(["Pump", "Share", "At", "Made", "Is new", "Ratio"])
        sheet.append(["B", 0.125, time(14, 30), datetime(2024, 5, 1, 13, 5), True, "#DIV/0!"])
        sheet["B2"].number_format = "0.0%"

    (row,) = parse_xlsx(workbook(fill)).rows
    assert row.text == "Pump: B\nShare: 12.5%\nAt: 14:30\nMade: 2024-05-01 13:05\nIs new: TRUE"


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (0.1 + 0.2, "General", "0.3"),
        (30.0, "General", "30"),
        (2.5, "0", "3"),  # half up, as spreadsheets round
        (3.5, '#,##0.00 "kg"', "3.50 kg"),
        (1234567.891, "#,##0.00", "1234567.89"),
        (-3, "[$€-407] 0.00;[Red]-0.00", "-€ 3.00"),
        (3.5, "_-* #,##0.00 [$€-407]_-", "3.50 €"),
        (1234, "00000", "01234"),
        (0.5, "0%", "50%"),
        (0.5, "0.0##", "0.5"),
        (2, "0.0##", "2.0"),
        (0.5, "# ?/?", "0.5"),
        (123456789, "000-00-0000", "123456789"),
        (5551234567, "(###) ###-####", "5551234567"),
        (123456789, "00000-0000", "123456789"),
        (1234567, "#,##0,", "1234567"),  # in thousands
        (3.5, '0.0" kg, net"', "3.5 kg, net"),
        (3, '0" of 10"', "3 of 10"),
        (3, '"Q"0" 2024"', "Q3 2024"),
        (3.456, '0.0" per 100k"', "3.5 per 100k"),
        (1e-12, "0.00E+00", "1e-12"),
        (float("inf"), "0.00", "inf"),
        (12345678901234567890, "General", "12345678901234567890"),
    ],
)
def test_a_number_has_its_decimals_and_unit(value: float, form: str, text: str) -> None:
    assert number_text(value, form) == text


def test_merged_cells_hold_their_value_in_each_row_and_column() -> None:
    def fill(sheet: Any) -> None:
        for row in (
            ["Sales of Kalo"],
            ["Region", 2023, None, 2024, None],
            [None, "Q1", "Q2", "Q1", "Q2"],
            ["North", 1, 2, 3, 4],
            [None, 5, 6, 7, 8],
            ["South", 1, "closed"],
        ):
            sheet.append(row)
        for merged in ("A1:E1", "A2:A3", "B2:C2", "D2:E2", "A4:A5", "C6:E6"):
            sheet.merge_cells(merged)

    assert [row.text for row in parse_xlsx(workbook(fill)).rows] == [
        "Sales of Kalo",
        "Region: North\n2023 Q1: 1\n2023 Q2: 2\n2024 Q1: 3\n2024 Q2: 4",
        "Region: North\n2023 Q1: 5\n2023 Q2: 6\n2024 Q1: 7\n2024 Q2: 8",
        "Region: South\n2023 Q1: 1\n2023 Q2: closed\n2024 Q1: closed\n2024 Q2: closed",
    ]


def test_formulas_without_a_saved_result_are_reported(tmp_path: Path) -> None:
    def fill(sheet: Any) -> None:
        sheet.append(["Pump", "Sum", "Twice"])
        sheet.append(["B", "=1+1", "=2*B2"])

    (tmp_path / "a.xlsx").write_bytes(workbook(fill))
    report = ReadReport()
    assert [document.text for document in read_corpus(tmp_path, report=report)] == ["Pump: B"]
    assert [note.text for note in report.warnings] == [
        "formulas without a saved result: 2; save the file in a spreadsheet program"
    ]


def test_a_damaged_workbook_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    (tmp_path / "a.xlsx").write_bytes(b"PK no workbook")
    (tmp_path / "b.csv").write_text("Pump\nB\n")
    report = ReadReport()
    assert [document.id for document in read_corpus(tmp_path, report=report)] == ["b.csv/row 2"]
    assert str(report.skipped[0]).endswith("a.xlsx: damaged archive: File is not a zip file")


def test_an_empty_table_is_reported_as_empty(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",,\n,,\n")
    (tmp_path / "b.csv").write_text("Pump\nB\n")
    report = ReadReport()
    assert len(list(read_corpus(tmp_path, report=report))) == 1
    assert dict(report.skipped.counts) == {"empty": 1}
