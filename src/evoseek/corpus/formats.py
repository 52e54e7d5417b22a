"""The text formats of a folder: bytes of one file to its title and text."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import trafilatura

from evoseek.corpus.decoding import Decoded, check_encoding, decode
from evoseek.errors import ConfigError, DataError

try:
    import pypdf
except ImportError:
    pypdf = None

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_DECLARED = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=[\s\"']{0,9}([\w.:-]{1,40})", re.IGNORECASE)
_HEAD = 4096  # bytes in which a page declares its encoding
_VISIBLE_TEXT = "//body//text()[not(ancestor::script or ancestor::style or ancestor::template or ancestor::noscript)]"


class Parsed(NamedTuple):
    """Title (empty if the file names none) and text, and the name of the file's encoding if that was guessed."""

    title: str
    text: str
    guessed: str = ""


def parse_plain(data: bytes, encoding: str | None = None) -> Parsed:
    """Plain text: it has no title of its own. `encoding` is that of files that are not UTF-8; None: it is guessed."""
    return Parsed("", *decode(data, encoding))


def parse_markdown(data: bytes, encoding: str | None = None) -> Parsed:
    """Markdown as it is written, titled by its first heading."""
    text, guessed = decode(data, encoding)
    return Parsed(_first_heading(text), text, guessed)


def _first_heading(text: str) -> str:
    fenced, previous = False, ""
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            match = _HEADING.match(line)
            if match and (heading := match[1].rstrip(" \t").rstrip("#").rstrip(" \t")):
                return heading
            if previous and _UNDERLINE.match(line):
                return previous
        previous = "" if fenced else line.strip()
    return ""


def parse_html(data: bytes, encoding: str | None = None) -> Parsed:
    """The main text of a page, by trafilatura; of a page in which that finds nothing, all text that is shown.

    A page that is not UTF-8 is in the encoding that it declares.
    """
    source, guessed = _decode_page(data, encoding)
    tree = trafilatura.load_html(source)
    if tree is None:
        raise DataError("no HTML in it")
    title = tree.findtext(".//title") or ""
    pieces = [str(piece).strip() for piece in tree.xpath(_VISIBLE_TEXT)]
    text = trafilatura.extract(tree, include_comments=False, favor_recall=True)
    return Parsed(title, text or "\n".join(piece for piece in pieces if piece), guessed)


def _decode_page(data: bytes, encoding: str | None) -> Decoded:
    if declared := _DECLARED.search(data[:_HEAD]):
        try:
            name = declared[1].decode("ascii")
            check_encoding(name)
            return decode(data, name)
        except (ConfigError, DataError):  # a wrong declaration is as none
            pass
    return decode(data, encoding)


def parse_pdf(data: bytes, encoding: str | None = None) -> Parsed:
    """The text layer of a PDF, pages apart by an empty line. Scanned pages without one have no text. A PDF says itself
    how its text is encoded."""
    if pypdf is None:
        raise DataError("PDF needs an extra: pip install 'evoseek[pdf]'")
    reader = pypdf.PdfReader(io.BytesIO(data))
    title = reader.metadata.title if reader.metadata else None
    return Parsed(title or "", "\n\n".join(page.extract_text() for page in reader.pages))


PARSERS: Mapping[str, Callable[[bytes, str | None], Parsed]] = MappingProxyType(
    {
        ".txt": parse_plain,
        ".md": parse_markdown,
        ".html": parse_html,
        ".htm": parse_html,
        ".pdf": parse_pdf,
    }
)
