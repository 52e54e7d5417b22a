"""Pictures of the pages of a PDF with a text marked, by pypdfium2 (an extra), in a process that hostile files can only
kill."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from evoseek.documents.parse_process import ParseProcess
from evoseek.errors import DataError

_WIDTH, _HEIGHT = 1_000, 2_000  # at most, in pixels
_MARK = np.array([125, 220, 255]) / 255  # yellow; pypdfium2 gives blue, green, red
_MEMORY = 2 * 2**30
_LEAST = 4  # letters and digits of a line that is marked


def picture_of_page(data: bytes, page: int, text: str) -> bytes:
    """Return a page (from 1) of a PDF as a PNG, with the lines of a text marked. Raises DataError, also if the extra is
    missing, and ToolError if no process can be started."""
    if find_spec("pypdfium2") is None or find_spec("PIL") is None:
        raise DataError("Pictures of pages need packages that are not installed: pip install 'evoseek[pages]'.")
    drawn: Mapping[str, Any] = _process().parse({"page": page, "text": text}, data)
    if problem := drawn.get("problem"):
        raise DataError(f"Page {page} cannot be drawn: {problem}")
    return base64.b64decode(drawn["png"])


@cache
def _process() -> ParseProcess:
    return ParseProcess(f"{__name__}:draw", cpu_s=20, wall_s=60, memory_bytes=_MEMORY)


def draw(header: Mapping[str, Any], data: bytes) -> Mapping[str, object]:
    """Answer a request of `picture_of_page`, in its process."""
    pdfium = import_module("pypdfium2")
    try:
        page = pdfium.PdfDocument(data)[header["page"] - 1]
        scale = min(_WIDTH / page.get_width(), _HEIGHT / page.get_height())
        bitmap = page.render(scale=scale)
        pixels, place = bitmap.to_numpy().copy(), bitmap.get_posconv(page)
        for left, bottom, right, top in _boxes(page.get_textpage(), header["text"]):
            (x0, y0), (x1, y1) = place.to_bitmap(left, top), place.to_bitmap(right, bottom)
            region = pixels[max(0, min(y0, y1)) : max(y0, y1) + 1, max(0, min(x0, x1)) : max(x0, x1) + 1, :3]
            region[:] = region * _MARK
    except (pdfium.PdfiumError, IndexError, ValueError) as error:
        return {"problem": str(error)}
    png = io.BytesIO()
    import_module("PIL.Image").fromarray(pixels[:, :, 2::-1]).save(png, "PNG")
    return {"png": base64.b64encode(png.getvalue()).decode()}


def _boxes(page: Any, text: str) -> Iterator[tuple[float, float, float, float]]:
    """Yield the left, bottom, right and top of each line of a text on a page. Readers differ in spaces, hyphens and the
    order of columns, so that the letters and digits of each line are looked for by themselves."""
    code_of = import_module("pypdfium2.raw").FPDFText_GetUnicode
    signs = [chr(code_of(page, number)).casefold()[:1] for number in range(page.count_chars())]
    kept = [number for number, sign in enumerate(signs) if sign.isalnum()]
    shown = "".join(signs[number] for number in kept)
    for line in text.splitlines():
        wanted = "".join(sign.casefold()[:1] for sign in line if sign.isalnum())
        at = shown.find(wanted) if len(wanted) >= _LEAST else -1
        if at >= 0:
            first, last = kept[at], kept[at + len(wanted) - 1]
            for number in range(page.count_rects(first, last - first + 1)):
                yield page.get_rect(number)
