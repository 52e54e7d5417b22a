"""Scans: text that is recognised (OCR) on pages without text and in pictures, by RapidOCR, whose package has its
models. No page leaves this machine."""

from __future__ import annotations

import io
import resource
import time
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoseek.errors import DataError

PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp")
RECOGNISED = "recognised text (OCR)"
"""The heading of recognised text."""
_DOTS = 200  # per inch of a rendered page
_SMALLEST, _LARGEST = 200, 40_000_000  # pixels: of the shorter side, of a picture
_WIDE, _APART = 1.5, 1.8  # characters between two cells, and line heights between two paragraphs
_LINES, _WORDS = 4, 4  # of a column of prose, and in each line
_ENOUGH_S = 20.0  # of processor time for a page and the rest of its file


class Scan(NamedTuple):
    """A recognised page: its text by rows, the same spaced as on paper, and the mean confidence, from 0 to 1."""

    text: str
    layout: str
    confidence: float


def can_recognise() -> bool:
    """Return whether the extra `ocr` is installed."""
    return all(find_spec(name) for name in ("rapidocr", "onnxruntime", "pypdfium2"))


def recognise_pages(data: bytes, numbers: Iterable[int]) -> dict[int, Scan]:
    """Recognise pages of a PDF, by their numbers from 1, as long as there is time."""
    document, found = import_module("pypdfium2").PdfDocument(data), dict[int, Scan]()
    for number in numbers:
        if not _has_time():
            break
        page = document[number - 1]
        scale = min(_DOTS / 72, (_LARGEST / (page.get_width() * page.get_height())) ** 0.5)
        found[number] = recognise(page.render(scale=scale, grayscale=True).to_numpy())
    return found


def recognise_pictures(data: bytes) -> dict[int, Scan]:
    """Recognise every page of a picture file, as long as there is time. Raises DataError for a file that is none."""
    image, upright = import_module("PIL.Image"), import_module("PIL.ImageOps").exif_transpose
    try:
        with image.open(io.BytesIO(data)) as file:
            frames = import_module("PIL.ImageSequence").Iterator(file) if file.width * file.height <= _LARGEST else ()
            pages = (np.asarray(upright(one).convert("L")) for one in frames if min(one.size) >= _SMALLEST)
            return {number: recognise(page) for number, page in enumerate(pages, start=1) if _has_time()}
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise DataError(f"damaged picture: {error}") from error


def recognise(picture: NDArray[Any]) -> Scan:
    """Recognise a picture in gray."""
    found: Any = _engine()(np.ascontiguousarray(np.repeat(picture.reshape(*picture.shape[:2], 1), 3, axis=2)))
    if not found.txts:
        return Scan("", "", 0.0)
    lengths = [len(text) for text in found.txts]
    return Scan(*laid_out(found.boxes, found.txts), float(np.average(found.scores, weights=lengths)))


@cache
def _engine() -> Any:
    threads = {f"EngineConfig.onnxruntime.{name}_op_num_threads": 1 for name in ("intra", "inter")}
    return import_module("rapidocr").RapidOCR(params={"Global.log_level": "critical", **threads})


def _has_time() -> bool:
    """Return whether the limit of this process on processor time leaves enough for another page."""
    limit, _ = resource.getrlimit(resource.RLIMIT_CPU)
    return limit == resource.RLIM_INFINITY or limit - time.process_time() > _ENOUGH_S


def laid_out(boxes: NDArray[Any], texts: Sequence[str]) -> tuple[str, str]:
    """Return the text in these boxes, a line for each row of the page, and the same spaced as on paper. Columns of
    prose come one after the other."""
    boxes = np.asarray(boxes, np.float64)  # (n, 4, 2): the corners, from the upper left clockwise
    across = boxes[:, 1] - boxes[:, 0]
    is_long = across[:, 0] >= np.median(across[:, 0])
    angle = np.median(np.arctan2(across[is_long, 1], across[is_long, 0]))  # of a skewed page
    boxes = boxes @ np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    letter = float(np.median([np.hypot(*edge) / len(text) for edge, text in zip(across, texts, strict=True)]))
    parts = [_rows(boxes[own], [texts[one] for one in own], letter) for own in _columns(boxes, texts, letter)]
    return "\n\n".join(text for text, _ in parts), "\n\n".join(layout for _, layout in parts)


def _columns(boxes: NDArray[Any], texts: Sequence[str], letter: float) -> list[list[int]]:
    """Return the boxes of each column of prose, with nothing between two columns; all in one if there are none."""
    columns, reach = list[list[int]](), float("-inf")
    for one in np.argsort(boxes[:, 0, 0]).tolist():
        if boxes[one, 0, 0] > reach + letter:
            columns.append([])
        columns[-1].append(one)
        reach = max(reach, boxes[one, 1, 0])
    words = [[len(texts[one].split()) for one in own] for own in columns]
    is_prose = all(len(own) >= _LINES and sum(own) >= _WORDS * len(own) for own in words)
    return columns if is_prose else [list(range(len(texts)))]


def _rows(boxes: NDArray[Any], texts: Sequence[str], letter: float) -> tuple[str, str]:
    height = float(np.median(np.hypot(*(boxes[:, 3] - boxes[:, 0]).T)))
    places, left = boxes.mean(axis=1)[:, 1], boxes[:, :, 0].min()
    rows = list[list[int]]()
    for one in np.argsort(places, kind="stable").tolist():
        is_beside = rows and places[one] - np.mean(places[rows[-1]]) <= height / 2
        rows = [*rows[:-1], [*rows[-1], one]] if is_beside else [*rows, [one]]
    lines, layout, above = list[str](), list[str](), rows[0]
    for row in rows:
        line, end = "", 0.0
        for one in sorted(row, key=lambda one: boxes[one, 0, 0]):
            start = (boxes[one, 0, 0] - left) / letter
            is_cell = not line or start - end > _WIDE
            line += " " * (max(round(start) - len(line), 2 * bool(line)) if is_cell else 1) + texts[one]
            end = (boxes[one, 1, 0] - left) / letter
        is_apart = np.mean(places[row]) - np.mean(places[above]) > _APART * height
        gap = [""] if is_apart and min(len(above), len(row)) == 1 else []  # rows of a table stay together
        lines += [*gap, " ".join(line.split())]
        layout += [*gap, line]
        above = row
    return "\n".join(lines), "\n".join(layout)
