"""A corpus as documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evoseek.documents.documents import check_read, find_readable, read_documents
from evoseek.documents.parsing import Reading
from evoseek.documents.read_report import ReadReport
from evoseek.text.duplicates import TextSet
from evoseek.types import Document


def read_corpus(path: Path, *, report: ReadReport, **how: Any) -> Iterator[Document]:
    seen, reading = TextSet(), Reading(**how)
    for file in find_readable(path, report, reading):
        yield from read_documents(file, seen, report, reading)
    check_read(path, report)
