"""RapidOCR reads a made page, in the process that reads hostile files."""

import io

import pytest

pytest.importorskip("rapidocr")

from PIL import Image, ImageDraw, ImageFont

from evoseek.documents.parsing import Reading
from evoseek.documents.scans import RECOGNISED

TEXT = "The warranty covers two years."


@pytest.mark.parametrize(("suffix", "kind"), [(".png", "PNG"), (".pdf", "PDF")])
def test_a_made_scan_is_read_in_the_bounded_process(suffix, kind):
    page, file = Image.new("RGB", (1200, 600), "white"), io.BytesIO()
    ImageDraw.Draw(page).text((80, 200), TEXT, font=ImageFont.load_default(48), fill="black")
    page.save(file, kind)
    parsed = Reading().parse(suffix, file.getvalue())
    assert parsed.text == TEXT
    assert parsed.marks[0].heading == RECOGNISED
    assert any(one.startswith("pages recognised (OCR): 1, confidence 0.9") for one in parsed.warnings)
