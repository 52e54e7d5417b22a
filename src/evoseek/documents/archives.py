"""Documents that are zip archives of XML, by markitdown (an extra): docx, pptx and epub.

Before unpacking, the sizes in the archive's own table are checked: they bound the unpacked bytes. Parts that declare
entities, which can grow without bound, are refused.
"""

from __future__ import annotations

import io
import posixpath
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, BinaryIO

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from evoseek.documents.formats import (
    HEADING_SIGN,
    Parsed,
    heading_sign,
    joined,
    simplified_page,
    title_of,
    warn_of_hidden,
)
from evoseek.documents.hyphens import without_soft_hyphens
from evoseek.documents.office_xml import simplify_runs, style_properties
from evoseek.errors import DataError
from evoseek.types import Mark

MAX_FILES = 10_000
MAX_BYTES = 512 * 2**20  # unpacked, pictures included
MAX_TEXT_BYTES = 64 * 2**20  # of text parts
_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # the beginning of encrypted or old office files
_BEFORE_MARKUP = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"  # byte order marks, the zeros of UTF-16, white space
_TITLE_PARAGRAPH = "//*[local-name()='p'][*/*[local-name()='pStyle'][@*[local-name()='val']='Title']]"
_ENTITIES = re.compile(rb"<!ENTITY", re.IGNORECASE)
_SLIDE = re.compile(r"^<!-- Slide number: (\d+) -->$", re.MULTILINE)
_SLIDE_PART = re.compile(r"ppt/(?:slides|notesSlides)/[^/]+\.xml")
_TEXTS_OF_WORKBOOK = re.compile(r"xl/(?:sharedStrings|worksheets/[^/]+)\.xml")
_WORDS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
_STYLES = "word/styles.xml"
_HEADING = re.compile(r" {0,3}(#{1,6}) +(.*)")
_NOTES = "### Notes:"
_PICTURE = re.compile(r"!\[([^\]\n]*)\]\([^()\n]*\)")


def parse_docx(data: bytes, encoding: str | None = None) -> Parsed:
    """Convert a Word document to Markdown, titled by its properties, its paragraph of style Title or its level-1
    heading."""
    with checked_archive(data) as archive:
        _warn_of_what_is_in_it(archive)
        styles = style_properties(_xml(archive, _STYLES)) if _STYLES in archive.namelist() else {}
        parts = [name for name in _WORDS if name in archive.namelist()]
        data, hidden = _simplified(archive, parts, styles)
    warn_of_hidden({"part": hidden})
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        named = title_of(_named(archive)) or _text_of(archive, _WORDS[0], _TITLE_PARAGRAPH)
    text, marks = _headed(_converted(data, "DocxConverter", ".docx").markdown)
    return Parsed(title_of(named, marks), text, marks=marks)


def parse_pptx(data: bytes, encoding: str | None = None) -> Parsed:
    """Extract the text of a presentation, slide after slide, with its notes; titled by its properties or its first
    slide."""
    with checked_archive(data) as archive:
        _warn_of_what_is_in_it(archive)
        named, hidden = _named(archive), set(_hidden_slides(archive))
        parts = [name for name in archive.namelist() if _SLIDE_PART.fullmatch(name)]
        data, shapes = _simplified(archive, parts, {})
    pieces = _SLIDE.split(_converted(data, "PptxConverter", ".pptx").markdown)
    texts = {int(page): text.strip() for page, text in zip(pieces[1::2], pieces[2::2], strict=True)}
    warn_of_hidden({"slide": len(hidden), "part": shapes})
    slides = [(page, *_headed(text)) for page, text in texts.items() if page not in hidden]
    parsed = joined("", ((text, _slide_marks(page, marks)) for page, text, marks in slides))
    return parsed._replace(title=title_of(named, [mark for mark in parsed.marks if mark.page == 1]))


def _slide_marks(page: int, marks: Iterable[Mark]) -> Iterator[Mark]:
    yield Mark(0, page=page)
    yield from (replace(mark, page=page) for mark in marks)


def _hidden_slides(archive: zipfile.ZipFile) -> Iterator[int]:
    shown = _xml(archive, "ppt/presentation.xml").iterfind("{*}sldIdLst/{*}sldId")
    links = {link.get("Id"): link.get("Target") for link in _xml(archive, "ppt/_rels/presentation.xml.rels")}
    for number, slide in enumerate(shown, start=1):
        target = next((links.get(value) for key, value in slide.attrib.items() if key.endswith("}id")), None)
        part = posixpath.normpath(posixpath.join("ppt", target or ""))
        if part in archive.namelist() and _xml(archive, part).get("show", "1") in ("0", "false"):
            yield number


def _simplified(archive: zipfile.ZipFile, parts: Sequence[str], styles: Mapping[str, set[str]]) -> tuple[bytes, int]:
    """Return the archive with `parts` simplified, and the number of hidden parts: hidden and struck-out text is
    removed, and slide titles get a heading sign."""
    made, hidden = io.BytesIO(), 0
    with zipfile.ZipFile(made, "w") as copy:
        for entry in archive.infolist():
            part = archive.read(entry)
            if entry.filename in parts:
                root = _xml(archive, entry.filename)
                hidden += simplify_runs(root, styles)
                for kind in root.iterfind(".//{*}nvSpPr/{*}nvPr/{*}ph"):
                    title = kind.getparent().getparent().getparent().find(".//{*}r/{*}t")
                    if kind.get("type") in ("title", "ctrTitle") and title is not None:
                        title.text = f"{heading_sign(1)}{(title.text or '').lstrip()}"
                part = etree.tostring(root, encoding="UTF-8", standalone=True)
            copy.writestr(entry.filename, part)
    return made.getvalue(), hidden


def simplified_strings(archive: zipfile.ZipFile, data: bytes) -> bytes:
    """Return a workbook without struck-out words, and with raised and lowered words written in their line."""
    texts = [name for name in archive.namelist() if _TEXTS_OF_WORKBOOK.fullmatch(name)]
    parts = [name for name in texts if any(sign in archive.read(name) for sign in (b"strike", b"vertAlign"))]
    return _simplified(archive, parts, {})[0] if parts else data


def _named(archive: zipfile.ZipFile) -> str:
    return _text_of(archive, "docProps/core.xml", "//*[local-name()='title']")


def _text_of(archive: zipfile.ZipFile, part: str, path: str) -> str:
    """Return the text of a part's first element at a path; "" if there is none."""
    found = _xml(archive, part).xpath(path) if part in archive.namelist() else []
    return "".join(found[0].itertext()) if found else ""


def _converted(data: bytes, converter: str, suffix: str) -> Any:
    """Convert with markitdown; the result has `markdown`, in which headings have a sign, and `title`."""
    try:
        import markitdown
        from markitdown import converters
    except ImportError as error:
        raise DataError(f"{suffix[1:]} needs an extra: pip install 'evoseek[office]'") from error

    class PageConverter(converters.HtmlConverter):
        """Makes Markdown of pages whose elements were simplified, with words as they are written."""

        def convert(self, file_stream: BinaryIO, stream_info: Any, **options: Any) -> Any:
            page = simplified_page(file_stream.read(), is_book=suffix == ".epub")
            info = markitdown.StreamInfo(mimetype="text/html", extension=".html", charset="utf-8")
            options |= {"escape_asterisks": False, "escape_underscores": False}
            return super().convert(io.BytesIO(page), info, **options)

    reader: Any = getattr(converters, converter)()
    reader._html_converter = PageConverter()
    return reader.convert(io.BytesIO(data), markitdown.StreamInfo(extension=suffix))


def _headed(signed: str) -> tuple[str, tuple[Mark, ...]]:
    """Return a text without heading signs, and its headings. Descriptions replace pictures, whose contents are not
    read."""
    lines, marks, start = list[str](), list[Mark](), 0
    for line in without_soft_hyphens(_PICTURE.sub(r"\1", signed)).split("\n"):
        plain = HEADING_SIGN.sub("", line)
        if (found := _HEADING.match(plain)) and (plain != line or plain == _NOTES):
            marks.append(Mark(start, heading=found[2].strip(), level=len(found[1])))
        lines.append(plain)
        start += len(plain) + 1
    return "\n".join(lines), tuple(marks)


def _warn_of_what_is_in_it(archive: zipfile.ZipFile) -> None:
    """Warn of the pictures and embedded files of an office document, which are not read."""
    for folder, what in (("media", "pictures"), ("embeddings", "embedded files")):
        if count := sum(PurePath(name).parent.name == folder for name in archive.namelist()):
            warnings.warn(f"{what} not read: {count:,}", stacklevel=1)


def parse_epub(data: bytes, encoding: str | None = None) -> Parsed:
    """Convert the chapters of a book to Markdown, in order."""
    with checked_archive(data):
        book = _converted(data, "EpubConverter", ".epub")
    text, marks = _headed(book.markdown.partition("\n\n")[2])  # metadata stand before
    return Parsed(title_of(book.title), text, marks=marks)


def checked_archive(data: bytes) -> zipfile.ZipFile:
    """Open the archive. Raises DataError if it is damaged, or too large when unpacked."""
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
    with archive.open(entry) as file:
        begin = file.read(512).lstrip(_BEFORE_MARKUP)
    return begin[:1] in (b"<", b"")


def _xml(archive: zipfile.ZipFile, name: str) -> Any:
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        return etree.fromstring(archive.read(name), parser)
    except (KeyError, etree.XMLSyntaxError) as error:
        raise DataError(f"damaged: {error}") from error
