"""Text formats, mail and PDF: parse the bytes of one file to its title, its text, and the text's pages and headings."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from email import message_from_bytes
from email.message import EmailMessage, MIMEPart
from email.policy import EmailPolicy
from mimetypes import guess_extension
from typing import Any, NamedTuple, cast

import lxml.html
import trafilatura
import yaml
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from evoseek.documents.hyphens import join_cut_words, without_soft_hyphens
from evoseek.documents.markdown import markdown_headings, without_struck_and_hidden
from evoseek.documents.markup import simplify
from evoseek.documents.page_layout import with_tables
from evoseek.documents.scans import RECOGNISED, Scan, can_recognise, recognise_pages, recognise_pictures
from evoseek.errors import ConfigError, DataError
from evoseek.text.decoding import check_encoding, decode
from evoseek.text.scripts import well_formed
from evoseek.types import TERM, Mark

try:
    import pypdf
    import pypdf.errors
except ImportError:
    pypdf = None

_NO_TITLES = ("", "(anonymous)", "anonymous", "untitled", "untitled document", "no title", "powerpoint presentation")
_NAME = re.compile(r"[\w.@-]+")  # of a setting in front matter
_LONGEST_FRONT, _LARGEST_FRONT = 200, 20_000  # lines, characters
_ELEMENT = re.compile(r"<[a-z]\w*[\s/>]", re.IGNORECASE)
_DECLARED = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=[\s\"']{0,9}([\w.:-]{1,40})", re.IGNORECASE)
_LISTED = 10  # pages
_HEAD = 4096  # bytes in which a page declares its encoding
_BOLD = (
    "//p[count(*) = 1 and not(text()[normalize-space()])]/*[(self::b or self::strong)"
    " and contains(normalize-space(), ' ') and string-length(normalize-space()) < 80"
    " and not(contains('.:;!?,', substring(normalize-space(), string-length(normalize-space()))))]"
)
_HTML_HEADINGS = f"//h1|//h2|//h3|//h4|//h5|//h6|//dt|{_BOLD}"
"""Headings in a page. Terms of definition lists, and paragraphs of a few bold words, are headings, too."""
_MAIN = "//main|//article|//*[@role='main']"
HEADING_SIGN = re.compile("\u2e0e([1-7]) ?")  # before a heading's text while a library converts a page to text
_HEADING_LINKS = "//a[normalize-space()='\u00b6' or contains(concat(' ', @class, ' '), ' headerlink ')]"
_VISIBLE_TEXT = "//body//text()[not(ancestor::script or ancestor::style or ancestor::template or ancestor::noscript)]"


class FileRow(NamedTuple):
    """A row of a table, which becomes a document: its place in the file, as in `row 5`, its title (empty if no value
    names it) and text."""

    place: str
    title: str
    text: str


class Parsed(NamedTuple):
    """A parsed file: title (empty if the file names none) and text, the file's encoding if it was guessed, pages and
    headings of the text, and the reading library's warnings. A table has rows in place of a text."""

    title: str
    text: str
    guessed: str = ""
    marks: tuple[Mark, ...] = ()
    warnings: tuple[str, ...] = ()
    rows: tuple[FileRow, ...] = ()


def joined(title: str, pieces: Iterable[tuple[str, Iterable[Mark]]]) -> Parsed:
    """Join texts with an empty line between them, and their marks."""
    texts, marks, start = list[str](), list[Mark](), 0
    for text, own in pieces:
        marks += [replace(mark, start=start + mark.start) for mark in own]
        texts.append(text)
        start += len(text) + 2
    return Parsed(title, "\n\n".join(texts), marks=tuple(marks))


def parse_plain(data: bytes, encoding: str | None = None) -> Parsed:
    """Parse plain text, which has no title. `encoding` is for files that are not UTF-8; None: guess it."""
    text, guessed = decode(data, encoding)
    return Parsed("", join_cut_words([text])[0], guessed)


def parse_markdown(data: bytes, encoding: str | None = None) -> Parsed:
    """Keep Markdown as written, titled by its front matter or else by its level-1 heading. Front matter (YAML settings
    between two lines `---` at the top), struck-out text and comments are left out."""
    text, guessed = decode(data, encoding)
    front, text = _split_front_matter(text)
    named = next((value for key, value in front.items() if key.lower() == "title"), "")
    title = named if isinstance(named, str) and named not in ("null", "~") else ""
    text, hidden = without_struck_and_hidden(without_soft_hyphens(text))
    warn_of_hidden({"comment": hidden})
    marks = tuple(markdown_headings(text))
    return Parsed(title_of(title, marks), text, guessed, marks)


def warn_of_hidden(counts: Mapping[str, int]) -> None:
    """Warn of the number of hidden parts of each kind that were left out of a file, if there are any."""
    found = [f"{count:,} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count]
    if found:
        warnings.warn(f"hidden parts left out: {', '.join(found)}", stacklevel=1)


def title_of(named: str | None, marks: Sequence[Mark] = ()) -> str:
    """Return a document's title: the one it names, unless a program put it there as a placeholder; else its level-1
    heading if there is only one (several are headings of sections). Empty without either."""
    named = " ".join((named or "").split())
    if named.casefold() not in _NO_TITLES and not named.startswith("Microsoft Word - "):
        return named
    highest = [mark.heading for mark in marks if mark.level == 1]
    return (highest[0] or "") if len(highest) == 1 else ""


def _split_front_matter(text: str) -> tuple[Mapping[str, object], str]:
    """Split off the front matter (empty if there is none): settings whose names are single words. Prose, lists or
    slides between two lines `---` are text."""
    first, *lines = text.split("\n")
    end = next((number for number, line in enumerate(lines) if line.rstrip() in ("---", "...")), None)
    if first.strip("\ufeff \t\r") != "---" or end is None or end > _LONGEST_FRONT:
        return {}, text
    if sum(map(len, lines[:end])) > _LARGEST_FRONT:
        return {}, text
    rest = "\n".join(lines[end + 1 :])
    if not "".join(lines[:end]).strip():
        return {}, rest
    try:
        found: Any = yaml.load("\n".join(lines[:end]), yaml.BaseLoader)  # every value is text
    except (yaml.YAMLError, RecursionError):
        return {}, text
    names = cast("Mapping[object, object]", found) if isinstance(found, dict) else {}
    if not names or not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        return {}, text
    return cast("Mapping[str, object]", names), rest


def parse_html(data: bytes, encoding: str | None = None) -> Parsed:
    """Extract the main text of a page with trafilatura, or, if it finds nothing, all visible text.

    A page that is not UTF-8 is read in the encoding that it declares.
    """
    source, guessed = _decode_page(data, encoding)
    tree = trafilatura.load_html(source)
    if tree is None and _ELEMENT.search(source):  # a short piece of HTML, as a mail may have
        tree = trafilatura.load_html(f"<html><body>{source}</body></html>")
    if tree is None:
        raise DataError("no HTML in it")
    warn_of_hidden({"element": simplify(tree)})
    _prepare(tree)
    title = tree.findtext(".//title")
    for piece in tree.xpath("//text()[contains(., '\u00ad')]"):
        setattr(piece.getparent(), "tail" if piece.is_tail else "text", without_soft_hyphens(piece))
    headings = {" ".join("".join(each.itertext()).split()): _level(each) for each in tree.xpath(_HTML_HEADINGS)}
    _sign_headings(tree)
    pieces = [str(piece).strip() for piece in tree.xpath(_VISIBLE_TEXT)]
    text = trafilatura.extract(tree, include_comments=False, favor_recall=True)
    signed = text or "\n".join(piece for piece in pieces if piece)
    marks = tuple(_signed_headings(signed, headings))
    text = HEADING_SIGN.sub("", signed)
    title = title_of(title, [Mark(0, heading=heading, level=level) for heading, level in headings.items()])
    return Parsed(title, text, guessed, marks)


def heading_sign(level: int) -> str:
    """Return the sign that marks a heading while a library converts a page to text."""
    return f"\u2e0e{level}"


def simplified_page(data: bytes, *, is_book: bool) -> bytes:
    """Simplify the elements of a page (from a book, or converted from an office document), and put signs before its
    headings."""
    tree = _book_page(data) if is_book else lxml.html.document_fromstring(data, parser=_page_parser())
    warn_of_hidden({"element": simplify(tree, are_first_rows_headings=not is_book)})
    for piece in tree.xpath("//*[self::td or self::th]//text()[contains(., '|')]"):
        setattr(piece.getparent(), "tail" if piece.is_tail else "text", piece.replace("|", r"\|"))
    for heading in tree.xpath("//h1|//h2|//h3|//h4|//h5|//h6"):
        heading.text = f"{heading_sign(_level(heading))}{(heading.text or '').lstrip()}"
    return cast(bytes, lxml.html.tostring(tree, encoding="utf-8"))


def _page_parser() -> Any:
    return lxml.html.HTMLParser(encoding="utf-8", huge_tree=True)  # pictures may be within it


def _book_page(data: bytes) -> Any:
    """Return the tree of a chapter, parsed as XHTML (with self-closing elements) if it is XHTML."""
    try:
        tree = lxml.html.fromstring(data, parser=lxml.html.XHTMLParser(resolve_entities=False, no_network=True))
    except (etree.XMLSyntaxError, ValueError):
        return lxml.html.document_fromstring(data, parser=_page_parser())
    for element in tree.iter(etree.Element):
        element.tag = etree.QName(element).localname
    return tree


def _prepare(tree: Any) -> None:
    """Change a page so that trafilatura keeps its headings. It drops headings with links, and all headings if the page
    does not mark its main text."""
    for link in tree.xpath(_HEADING_LINKS):
        link.drop_tree()
    for link in tree.xpath(f"({_HTML_HEADINGS})//a"):
        link.drop_tag()
    for items in tree.xpath("//*[(self::ol or self::ul) and li[count(p) > 1]]"):
        items.tag = "div"  # a list would join an item's paragraphs in one line
        for item in items.xpath("li"):
            item.tag = "div"
    for line_end in tree.xpath("//dt//br"):
        line_end.tail = f", {line_end.tail or ''}"
        line_end.drop_tag()
    if (body := tree.find(".//body")) is not None and not tree.xpath(_MAIN):
        main = body.makeelement("main")
        main.text, body.text = body.text, None
        main.extend(list(body))
        body.append(main)


def _level(heading: Any) -> int:
    return int(heading.tag[1]) if heading.tag[0] == "h" else TERM


def _sign_headings(tree: Any) -> None:
    """Put a sign with the level before each heading (a paragraph may have the same text), and before the text after a
    list of definitions."""
    for heading in tree.xpath(_HTML_HEADINGS):
        _sign(heading.xpath(".//text()[normalize-space()]"), _level(heading))
    pieces = tree.xpath("//text()[normalize-space()]")
    places = {(piece.getparent(), piece.is_tail): place for place, piece in enumerate(pieces)}
    for last in tree.xpath("//dl/descendant::text()[normalize-space()][last()]"):
        after = places[last.getparent(), last.is_tail] + 1
        _sign([piece for piece in pieces[after : after + 1] if not HEADING_SIGN.match(piece)], TERM)


def _sign(pieces: list[Any], level: int) -> None:
    for piece in pieces[:1]:
        setattr(piece.getparent(), "tail" if piece.is_tail else "text", f"{heading_sign(level)}{piece.lstrip()}")


def _signed_headings(text: str, headings: Container[str]) -> Iterator[Mark]:
    """Yield a mark for each line that is only a heading, at its place in the text without signs.

    The line after a list of definitions has a mark without a heading, too: the list's last term ends there.
    """
    start = 0
    for line in text.split("\n"):
        sign, plain = HEADING_SIGN.match(line.lstrip("- \t")), HEADING_SIGN.sub("", line)
        heading = " ".join(plain.strip().removeprefix("- ").split())
        if sign and (heading in headings or int(sign[1]) == TERM):
            yield Mark(start, heading=heading if heading in headings else "", level=int(sign[1]))
        start += len(plain) + 1


def _decode_page(data: bytes, encoding: str | None) -> tuple[str, str]:
    if declared := _DECLARED.search(data[:_HEAD]):
        try:
            name = declared[1].decode("ascii")
            check_encoding(name)
            return decode(data, name)
        except (ConfigError, DataError):  # a wrong declaration counts as none
            pass
    return decode(data, encoding)


def parse_pdf(data: bytes, encoding: str | None = None) -> Parsed:
    """Extract the text layer of a PDF, with an empty line between pages. If the extra `ocr` is installed, pages without
    text are recognised. A PDF itself says how its text is encoded."""
    if pypdf is None:
        raise DataError("PDF needs an extra: pip install 'evoseek[pdf]'")
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        title = reader.metadata.title if reader.metadata else None
        texts = [page.extract_text() for page in reader.pages]
    except pypdf.errors.FileNotDecryptedError as error:
        raise DataError(
            "encrypted PDF: it opens with a password only; save a copy without one, as `qpdf --decrypt` does"
        ) from error
    except pypdf.errors.DependencyError as error:
        raise DataError("encrypted PDF: reading it needs another package: pip install 'evoseek[pdf]'") from error
    bare = [number for number, text in enumerate(texts, start=1) if not text.strip()]
    scans = recognise_pages(data, bare) if bare and can_recognise() else {}
    if texts and len(bare) == len(texts) and not any(scan.text for scan in scans.values()):
        raise DataError(
            "PDF without text: its pages are pictures" + ("" if scans else "; to read them: pip install 'evoseek[ocr]'")
        )
    if attached := list(reader.attachments):
        warnings.warn(f"attachments not read: {len(attached):,} ({', '.join(attached[:_LISTED])})", stacklevel=1)
    if empty := [number for number in bare if number not in scans or not scans[number].text]:
        warnings.warn(f"PDF pages without text: {len(empty):,} of {len(texts):,} (page {_few(empty)})", stacklevel=1)
    for number, scan in scans.items():
        texts[number - 1] = scan.text
    spaced = [scans[n].layout if n in scans else _layout(page) for n, page in enumerate(reader.pages, start=1)]
    texts, in_columns = with_tables(texts, spaced)
    if in_columns:
        warnings.warn(f"PDF pages in columns, put one after the other: page {_few(in_columns)}", stacklevel=1)
    return _of_pages(title_of(title), texts, scans)


def parse_picture(data: bytes, encoding: str | None = None) -> Parsed:
    """Recognise the text in a picture, which may have pages. DataError if it has none."""
    scans = recognise_pictures(data)
    if not any(scan.text for scan in scans.values()):
        raise DataError("picture without text")
    pages = range(1, max(scans) + 1)
    texts, spaced = ([getattr(scans.get(page), name, "") for page in pages] for name in ("text", "layout"))
    return _of_pages("", with_tables(texts, spaced)[0], scans)


def _of_pages(title: str, texts: Sequence[str], scans: Mapping[int, Scan]) -> Parsed:
    """Join pages, and mark recognised ones; a warning tells their numbers and the confidence of each."""
    if found := {number: f"{number}: {scan.confidence:.2f}" for number, scan in scans.items() if scan.text}:
        mean = sum(scans[number].confidence for number in found) / len(found)
        what = f"pages recognised (OCR): {len(found):,}, confidence {mean:.2f} (page {_few(found.values())})"
        warnings.warn(what, stacklevel=1)
    pages = enumerate(join_cut_words(texts), start=1)
    marks = ((text, Mark(0, page=page, heading=RECOGNISED if page in scans else None)) for page, text in pages)
    return joined(title, ((text, [mark]) for text, mark in marks))


def _few(values: Iterable[object]) -> str:
    """Return the first values as text."""
    shown = list(map(str, values))
    return ", ".join(shown[:_LISTED]) + (", ..." if len(shown) > _LISTED else "")


def _layout(page: Any) -> str:
    """Return the text of a page with its words spaced as on paper; "" if that fails."""
    try:
        return page.extract_text(extraction_mode="layout", layout_mode_strip_rotated=False)
    except Exception:  # about fonts and similar; the text itself was read
        return ""


_SHOWN = ("From", "To", "Cc", "Date")
_LOWER = (0, 2, 3, 4, 5, 6, 6, TERM)  # the level of a heading of each level, in an attachment
_SIGNATURES = ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature")
_HEADER_CHARACTERS = 10_000


class _Bounded(EmailPolicy):
    """Parses only the beginning of each header, since the time grows with the square of its length."""

    def header_fetch_parse(self, name: str, value: str) -> str:
        return super().header_fetch_parse(name, value[:_HEADER_CHARACTERS])


def parse_message(
    data: bytes, encoding: str | None = None, read: Callable[[str, bytes], Parsed | None] = lambda name, data: None
) -> Parsed:
    """Parse a message, titled by its subject: sender, recipients, date, text and attachments. `read` returns the
    contents of a named attachment. If it returns None or raises DataError, the attachment is only named, with a
    warning."""
    message = cast(EmailMessage, message_from_bytes(data, EmailMessage, policy=_Bounded()))
    if not any(message[name] for name in ("From", "Subject", "Date", "Received")):
        raise DataError("no mail: it has none of the lines From, Subject and Date")
    body = message.get_body(("plain", "html"))
    text, guessed = ("", "") if body is None else _text(body, encoding)
    head = [f"{name}: {' '.join(str(message[name]).split())}" for name in _SHOWN if message[name]]
    attached = list(_attachments(message, body))
    names = [name for name, _ in attached if name]
    listed = f"Attachments: {', '.join(names)}" if names else ""
    pieces: list[tuple[str, Iterable[Mark]]] = [
        ("\n\n".join(filter(None, ("\n".join(head), text.strip(), listed))), ())
    ]
    unread = list[str]()
    for name, part in attached:
        try:
            found = read(name, _payload(part)) if name else Parsed("", _text(part, encoding)[0])
        except DataError as error:
            unread.append(f"{name}: {error}")
            continue
        if found is not None and (found.text.strip() or found.rows):
            pieces.append(_under(name, found))
            guessed = guessed or found.guessed
        elif name:
            unread.append(name)
    if unread:
        shown = ", ".join(unread[:_LISTED]) + (", ..." if len(unread) > _LISTED else "")
        warnings.warn(f"attachments not read: {len(unread):,} ({shown})", stacklevel=1)
    whole = joined(str(message["Subject"] or ""), pieces)
    return whole._replace(guessed=guessed)


def _attachments(message: MIMEPart, body: MIMEPart | None) -> Iterator[tuple[str, MIMEPart]]:
    """Yield the parts of a message beside its body, with their names ("" for further text). Other forms of the body and
    signatures are left out."""
    pending: list[tuple[MIMEPart, bool]] = [(message, False)]
    while pending:
        part, is_form = pending.pop()
        kind, name = part.get_content_type(), " ".join((part.get_filename() or "").split())
        if part.get_content_maintype() == "multipart":
            is_form |= kind == "multipart/alternative"
            pending += [(one, is_form) for one in reversed([*part.iter_parts()])]
        elif part is body or kind in _SIGNATURES:
            continue
        elif kind == "message/rfc822":
            yield name if name.lower().endswith(".eml") else f"{name or 'message'}.eml", part
        elif name or part.get_content_maintype() != "text":
            yield name or f"unnamed{guess_extension(kind) or ''}", part
        elif not is_form:
            yield "", part


def _payload(part: MIMEPart) -> bytes:
    try:
        if part.get_content_type() == "message/rfc822":
            return b"".join(one.as_bytes() for one in cast("list[MIMEPart]", part.get_payload()))
        payload = part.get_payload(decode=True)
    except Exception as error:  # the library's errors for a damaged mail are not documented
        raise DataError(f"damaged: {error}") from error
    return payload if isinstance(payload, bytes) else b""


def _under(name: str, found: Parsed) -> tuple[str, Iterable[Mark]]:
    """Return the contents of an attachment under its name as a heading; of a table, its rows."""
    text = "\n\n".join(row.text for row in found.rows) or found.text
    if not name:
        return text, ()
    title = f"{name}: {found.title}" if found.title else name
    start = len(title) + 2
    lower = (
        replace(mark, start=start + mark.start, heading=mark.heading or name, level=_LOWER[mark.level])
        for mark in found.marks
    )
    return f"{title}\n\n{text}", (Mark(0, heading=name, level=1), *lower)


def _text(body: MIMEPart, encoding: str | None) -> tuple[str, str]:
    """Return the text of a part, and its encoding if it was guessed."""
    payload = body.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return "", ""
    declared = body.get_content_charset() or encoding
    try:
        payload.decode(declared or "utf-8")
    except (LookupError, UnicodeDecodeError):  # declared wrongly: treat it as a file without a declaration
        declared = encoding
    parsed = (parse_html if body.get_content_subtype() == "html" else parse_plain)(
        payload if declared is None else well_formed(payload.decode(declared)).encode(), encoding
    )
    return parsed.text, parsed.guessed
