"""Documents that are zip archives of XML, by markitdown (an extra): docx, pptx and epub.

Before anything is unpacked, the archive's own table must keep within bounds: they bound what it unpacks to.
Parts with declarations of entities, which can grow without bound, are refused.
"""

from __future__ import annotations

import io
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from evoseek.corpus.formats import Parsed, joined, markdown_headings, title_of
from evoseek.errors import DataError
from evoseek.types import Mark

MAX_FILES = 10_000
MAX_BYTES = 512 * 2**20  # unpacked, pictures too
MAX_TEXT_BYTES = 64 * 2**20  # of the parts that are text
_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # how encrypted office files, and those of old programs, begin
_BEFORE_MARKUP = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"  # byte order marks, the zeros of UTF-16, white space
_TITLE_PARAGRAPH = "//*[local-name()='p'][*/*[local-name()='pStyle'][@*[local-name()='val']='Title']]"
_ENTITIES = re.compile(rb"<!ENTITY", re.IGNORECASE)
_SLIDE = re.compile(r"^<!-- Slide number: (\d+) -->$", re.MULTILINE)
_PICTURE = re.compile(r"!\[([^\]\n]*)\]\([^()\n]*\)")


def parse_docx(data: bytes, encoding: str | None = None) -> Parsed:
    """A Word document as Markdown, titled by its properties, its paragraph of the style Title or its heading of level
    1."""
    with checked_archive(data) as archive:
        named = title_of(_named(archive)) or _text_of(archive, "word/document.xml", _TITLE_PARAGRAPH)
        _warn_of_what_is_in_it(archive)
        text = _without_pictures(_converted(data, "DocxConverter", ".docx").markdown)
    marks = tuple(markdown_headings(text))
    return Parsed(title_of(named, marks), text, marks=marks)


def parse_pptx(data: bytes, encoding: str | None = None) -> Parsed:
    """The text of a presentation, slide after slide, with its notes; titled by its properties or by its
    first slide."""
    with checked_archive(data) as archive:
        named = _named(archive)
        _warn_of_what_is_in_it(archive)
        converted = _without_pictures(_converted(data, "PptxConverter", ".pptx").markdown)
    pieces = _SLIDE.split(converted)
    slides = zip(map(int, pieces[1::2]), map(str.strip, pieces[2::2]), strict=True)
    parsed = joined("", ((text, _slide_marks(page, text)) for page, text in slides))
    return parsed._replace(title=title_of(named, [mark for mark in parsed.marks if mark.page == 1]))


def _slide_marks(page: int, text: str) -> Iterator[Mark]:
    yield Mark(0, page=page)
    yield from (replace(mark, page=page) for mark in markdown_headings(text))


def _named(archive: zipfile.ZipFile) -> str:
    """The title among an office document's properties."""
    return _text_of(archive, "docProps/core.xml", "//*[local-name()='title']")


def _text_of(archive: zipfile.ZipFile, part: str, path: str) -> str:
    """The text of the first element of a part that there is at a path; "" if there is none."""
    found = _xml(archive, part).xpath(path) if part in archive.namelist() else []
    return "".join(found[0].itertext()) if found else ""


def _converted(data: bytes, converter: str, suffix: str) -> Any:
    """The result of markitdown, with `markdown` and `title`."""
    try:
        import markitdown
        from markitdown import converters
    except ImportError as error:
        raise DataError(f"{suffix[1:]} needs an extra: pip install 'evoseek[office]'") from error
    info = markitdown.StreamInfo(extension=suffix)
    return getattr(converters, converter)().convert(io.BytesIO(data), info)


def _warn_of_what_is_in_it(archive: zipfile.ZipFile) -> None:
    """Warn of the pictures and the embedded files of an office document, which are not read."""
    for folder, what in (("media", "pictures"), ("embeddings", "embedded files")):
        if count := sum(PurePath(name).parent.name == folder for name in archive.namelist()):
            warnings.warn(f"{what} not read: {count:,}", stacklevel=1)


def _without_pictures(markdown: str) -> str:
    """With the description of each picture in its place: what is in pictures is not read."""
    return _PICTURE.sub(r"\1", markdown)


def parse_epub(data: bytes, encoding: str | None = None) -> Parsed:
    """The chapters of a book in their order, as Markdown."""
    with checked_archive(data):
        book = _converted(data, "EpubConverter", ".epub")
    text = _without_pictures(book.markdown.partition("\n\n")[2])  # what it says of itself stands before
    return Parsed(title_of(book.title), text, marks=tuple(markdown_headings(text)))


def checked_archive(data: bytes) -> zipfile.ZipFile:
    """The archive. DataError if it is damaged, or would unpack to too much."""
    if data.startswith(_COMPOUND):
        raise DataError("encrypted, or of an office program before 2007: save it without a password, in today's format")
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        entries = archive.infolist()
        if any(entry.flag_bits & 1 for entry in entries):
            raise DataError("encrypted: it cannot be read without its password")
        if len(entries) > MAX_FILES or sum(entry.file_size for entry in entries) > MAX_BYTES:
            raise DataError(
                f"archive is too large: more than {MAX_FILES:,} files or {MAX_BYTES:,} bytes unpacked; divide it"
            )
        texts = [entry for entry in entries if _is_markup(archive, entry)]
        if (size := sum(entry.file_size for entry in texts)) > MAX_TEXT_BYTES:
            raise DataError(f"archive is too large: {size:,} bytes of text, more than {MAX_TEXT_BYTES:,}; divide it")
        if any(_ENTITIES.search(archive.read(entry).replace(b"\0", b"")) for entry in texts):
            raise DataError("declares XML entities: these can grow without bound")
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"damaged archive: {error}") from error
    return archive


def _is_markup(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    """Whether a part can be XML or HTML, whatever its name."""
    with archive.open(entry) as file:
        begin = file.read(512).lstrip(_BEFORE_MARKUP)
    return begin[:1] in (b"<", b"")


def _xml(archive: zipfile.ZipFile, name: str) -> Any:
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        return etree.fromstring(archive.read(name), parser)
    except (KeyError, etree.XMLSyntaxError) as error:
        raise DataError(f"damaged: {error}") from error
