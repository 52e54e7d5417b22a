"""Recognised text, and how the lines of a page become rows, tables and columns."""

import numpy as np
import pytest

from evoseek.documents import formats
from evoseek.documents.page_layout import with_tables
from evoseek.documents.scans import RECOGNISED, Scan, laid_out
from evoseek.errors import DataError


def boxes_of(places, turned=0.0):
    """A box of ten units a letter and twenty high for each text, on a page that is turned by an angle in degrees."""
    angle = np.radians(turned)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    corners = [[(x, y), (x + 10 * len(t), y), (x + 10 * len(t), y + 20), (x, y + 20)] for x, y, t in places]
    return np.array(corners) @ turn, [text for *_, text in places]


TABLE = [("Model", "Flow", "Price"), ("Varga 20", "20 l", "125"), ("Varga 40", "40 l", "189"), ("Tolu 7", "7 l", "41")]


@pytest.mark.parametrize("turned", [0, 3, -3])
def test_rows_of_a_table_stay_rows_on_a_skewed_page(turned):
    places = [(300 * column, 40 * row, cell) for row, cells in enumerate(TABLE) for column, cell in enumerate(cells)]
    text, layout = laid_out(*boxes_of(places, turned))
    assert text.split("\n") == [" ".join(row) for row in TABLE]
    (table,), _ = with_tables([text], [layout])
    assert "| Model | Flow | Price |" in table
    assert "| Varga 40 | 40 l | 189 |" in table


def test_columns_of_prose_come_one_after_the_other():
    left = ["the left column has some words", "that go on here and here now", "and they end in its last line", "of it"]
    right = [
        "the right one has other words",
        "which stand beside the others",
        "and do not belong to the left",
        "at all",
    ]
    places = [(600 * side, 30 * row, t) for side, lines in enumerate((left, right)) for row, t in enumerate(lines)]
    text, layout = laid_out(*boxes_of(places))
    assert with_tables([text], [layout]) == (["\n".join([*left, "", *right])], [])


def test_a_line_in_pieces_is_one_and_a_gap_between_lines_is_a_paragraph():
    text, _ = laid_out(*boxes_of([(0, 0, "Kalo lies"), (100, 2, "by the sea."), (0, 30, "It rains."), (0, 90, "So.")]))
    assert text == "Kalo lies by the sea.\nIt rains.\n\nSo."


def test_scanned_pages_are_marked_and_told_with_their_confidence(tmp_path, monkeypatch):
    pypdf = pytest.importorskip("pypdf")
    writer = pypdf.PdfWriter()
    for _ in range(3):
        writer.add_blank_page(200, 200)
    writer.write(tmp_path / "scan.pdf")
    data = (tmp_path / "scan.pdf").read_bytes()
    with pytest.raises(DataError, match=r"pip install 'evoseek\[ocr\]'"):
        formats.parse_pdf(data)
    scans = {1: Scan("Kalo.", "Kalo.", 0.9), 2: Scan("", "", 0.0)}
    monkeypatch.setattr(formats, "can_recognise", lambda: True)
    monkeypatch.setattr(formats, "recognise_pages", lambda data, numbers: {n: scans[n] for n in numbers if n in scans})
    with pytest.warns(UserWarning, match="pages") as warned:
        parsed = formats.parse_pdf(data)
    assert parsed.text.strip() == "Kalo."
    assert [(mark.page, mark.heading) for mark in parsed.marks] == [(1, RECOGNISED), (2, RECOGNISED), (3, None)]
    said = [str(one.message) for one in warned]
    assert "PDF pages without text: 2 of 3 (page 2, 3)" in said
    assert "pages recognised (OCR): 1, confidence 0.90 (page 1: 0.90)" in said
    scans.clear()
    with pytest.raises(DataError, match="PDF without text"):
        formats.parse_pdf(data)


def test_pictures_are_read_if_there_is_text(monkeypatch):
    monkeypatch.setattr(formats, "recognise_pictures", lambda data: {1: Scan("Kalo.", "Kalo.", 0.5)})
    with pytest.warns(UserWarning, match="confidence 0.50"):
        assert formats.parse_picture(b"").text == "Kalo."
    monkeypatch.setattr(formats, "recognise_pictures", lambda data: {})
    with pytest.raises(DataError, match="picture without text"):
        formats.parse_picture(b"")
