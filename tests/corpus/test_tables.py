"""Tables: a row is a passage with its column headings, cited by its number."""

from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path

import pytest

from evoseek.corpus.documents import read_corpus
from evoseek.corpus.passages import split_document
from evoseek.corpus.read_report import ReadReport


def rows(path: Path) -> list[tuple[str, str | None]]:
    """The passages of a file: text and heading."""
    (document,) = read_corpus(path, report=ReadReport())
    return [(passage.text, passage.heading) for passage in split_document(document)]


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


def test_the_place_of_every_row_is_that_of_its_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,note\n" + "".join(f"Meri {n},away\n" for n in range(30)))
    (document,) = read_corpus(tmp_path, report=ReadReport())
    places = [(mark.heading, document.text[mark.start :].split("\n")[0]) for mark in document.marks]
    assert places == [(f"row {n + 2}", f"name: Meri {n}") for n in range(30)]


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"name,note\nMeri,{'word ' * 30_000}\nTor,away\n")
    (document,) = read_corpus(tmp_path, report=ReadReport())
    assert (document.text.count("word"), document.text[-10:]) == (30_000, "note: away")


def test_a_long_row_is_cut_and_each_part_names_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Name,Text\nB," + "word " * 250 + "\nC,short\n")
    found = [heading for _, heading in rows(tmp_path / "a.csv")]
    assert (set(found), found[-1]) == ({"row 2", "row 3"}, "row 3")
    assert len(found) > 3


def test_a_workbook_is_cited_by_sheet_and_row(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "Pumps"
    book.active.append(["Pump", "Weight", "Built"])
    book.active.append(["B", 30.0, datetime(2024, 5, 1)])
    book.create_sheet("Empty")
    book.create_sheet("Valves").append(["Valve", 0.5])
    book["Pumps"].cell(2_000, 16_384, "far")  # rows and columns between are not read
    data = io.BytesIO()
    book.save(data)
    (tmp_path / "a.xlsx").write_bytes(data.getvalue())
    assert rows(tmp_path / "a.xlsx") == [
        ("Pump: B\nWeight: 30\nBuilt: 2024-05-01", "Pumps, row 2"),
        ("far", "Pumps, row 2000"),
        ("Valve\n0.5", "Valves, row 1"),
    ]


def test_a_damaged_workbook_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    (tmp_path / "a.xlsx").write_bytes(b"PK no workbook")
    (tmp_path / "b.csv").write_text("Pump\nB\n")
    report = ReadReport()
    assert [document.id for document in read_corpus(tmp_path, report=report)] == ["b.csv"]
    assert str(report.skipped[0]).endswith("a.xlsx: damaged archive: File is not a zip file")
