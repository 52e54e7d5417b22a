"""Pictures of pages: the marked region is where the text stands, and a hostile file only loses its process."""

import io

import numpy as np
import pytest
from tests.documents.test_documents import small_pdf

from evoseek.documents import page_picture
from evoseek.documents.page_picture import picture_of_page
from evoseek.errors import DataError

pytest.importorskip("pypdfium2", reason="needs pypdfium2")
Image = pytest.importorskip("PIL.Image", reason="needs pillow")


def yellow(data, page, text):
    """Where the picture is yellow: the first and last row and column, as shares of its height and width."""
    pixels = np.asarray(Image.open(io.BytesIO(picture_of_page(data, page, text))).convert("RGB")).astype(int)
    rows, columns = np.nonzero(pixels[:, :, 0] - pixels[:, :, 2] > 60)
    height, width = pixels.shape[:2]
    return [min(rows) / height, max(rows) / height, min(columns) / width, max(columns) / width] if len(rows) else None


def test_the_cited_line_is_marked_on_its_page():
    data = small_pdf("First page.", "The mayor is Meri Tolu.")
    top, bottom, left, right = yellow(data, 2, "The mayor\u00ad is  MERI-Tolu.\nA line that is not there.")
    assert 0.35 < top < 0.5 < bottom < 0.6  # the line stands 50 of 100 points above the lower edge
    assert 0.04 < left < 0.07  # and begins at 10 of 200
    assert right < 0.8
    assert yellow(data, 1, "The mayor is Meri Tolu.") is None


@pytest.mark.parametrize(
    ("data", "page"), [(b"%PDF-1.4 broken", 1), (b"", 1), (small_pdf("One."), 2), (small_pdf("One."), 0)]
)
def test_what_cannot_be_drawn(data, page):
    with pytest.raises(DataError, match=f"Page {page} cannot be drawn: "):
        picture_of_page(data, page, "One.")


def test_without_the_extra(monkeypatch):
    monkeypatch.setattr(page_picture, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"evoseek\[pages\]"):
        picture_of_page(small_pdf("One."), 1, "One.")
