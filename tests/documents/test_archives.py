"""Office documents and books: their text, slides and headings; and that hostile archives are reported, one by one."""

from __future__ import annotations

import io
import struct
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.documents.reading import read_corpus

from evoseek.documents.archives import parse_docx, parse_epub, parse_pptx
from evoseek.documents.passages import split_document
from evoseek.documents.read_report import ReadReport
from evoseek.errors import DataError

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
CONTAINER = '<container><rootfiles><rootfile full-path="in/book.opf"/></rootfiles></container>'
BOOK = (
    '<package><metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The book</dc:title></metadata><manifest>'
    '<item id="b" href="second%20part.xhtml"/><item id="a" href="first.xhtml"/><item id="c" href="gone.xhtml"/>'
    '</manifest><spine><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/></spine></package>'
)
KALO = "Kalo is a city at the river Supa, and it is old. " * 4
FIRST = f"<h1>One <i>more</i></h1>\n<p><b>Kalo</b>{KALO[4:]}<script>no</script></p>"
MERI = "The mayor of the city is called Meri, who was born there. " * 4


def archive(parts: Mapping[str, str | bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        for name, part in parts.items():
            file.writestr(name, part)
    return data.getvalue()


def docx(*paragraphs: tuple[str, str], more: Mapping[str, str | bytes] | None = None) -> bytes:
    """A Word document of paragraphs: style and text."""
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{name.replace(" ", "")}"><w:name w:val="{name}"/></w:style>'
        for name in ("heading 1", "heading 2")
    )
    return archive(
        {
            "[Content_Types].xml": (
                '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
                '<Default Extension="xml" ContentType="application/vnd.openxmlformats-officedocument.'
                'wordprocessingml.document.main+xml"/></Types>'
            ),
            "_rels/.rels": (
                '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
                f'<Relationship Id="r" Type="{OFFICE}" Target="word/document.xml"/></Relationships>'
            ),
            "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
            "word/styles.xml": f'<w:styles xmlns:w="{WORD}">{styles}</w:styles>',
            **(more or {}),
        }
    )


def epub(chapters: Mapping[str, str]) -> bytes:
    pages = {
        f"in/{name}": f"<html><head><title>No</title></head><body>{body}</body></html>"
        for name, body in chapters.items()
    }
    return archive({"META-INF/container.xml": CONTAINER, "in/book.opf": BOOK, **pages})


def pptx() -> bytes:
    """Three slides: a title and text, text alone with notes, and nothing."""
    presentation = pytest.importorskip("pptx").Presentation()
    first = presentation.slides.add_slide(presentation.slide_layouts[1])
    first.shapes.title.text, first.placeholders[1].text = "Kalo", "A city."
    second = presentation.slides.add_slide(presentation.slide_layouts[6])
    second.shapes.add_textbox(0, 0, 100, 100).text_frame.text = "The mayor is Meri."
    second.notes_slide.notes_text_frame.text = "She is old."
    data = io.BytesIO()
    presentation.save(data)
    return data.getvalue()


def cited(folder: Path, name: str) -> list[tuple[str, int | None, str | None]]:
    """The passages of a file: text, page and heading; the range of each is that of its text."""
    (document,) = read_corpus(folder / name, report=ReadReport())
    passages = split_document(document, max_words=60)
    assert all(document.text[passage.start : passage.end] == passage.text for passage in passages)
    return [(passage.text, passage.page, passage.heading) for passage in passages]


def test_a_word_document_is_cited_by_its_headings(tmp_path: Path) -> None:
    pytest.importorskip("markitdown")
    paragraphs = (("heading1", "The city"), ("", KALO), ("heading2", "Its mayor"), ("", MERI))
    (tmp_path / "a.docx").write_bytes(docx(*paragraphs))
    (first, second) = cited(tmp_path, "a.docx")
    assert first[0].startswith("# The city\n\nKalo is a city")
    assert second[0].startswith("## Its mayor\n\nThe mayor")
    assert [first[1:], second[1:]] == [(None, "The city"), (None, "Its mayor")]
    assert parse_docx(docx(*paragraphs)).title == "The city"


def core(title: str) -> dict[str, str]:
    """The part of an office document that holds its title."""
    return {"docProps/core.xml": f'<a xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title></a>'}


@pytest.mark.parametrize(
    ("paragraphs", "properties", "title"),
    [
        ((("heading1", "Trains"), ("", "x"), ("heading1", "Buses"), ("", "x")), {}, ""),
        ((("", "x"), ("Title", "Railways of Kalo"), ("heading1", "Trains"), ("", "x")), {}, "Railways of Kalo"),
        ((("Title", "Railways"), ("heading1", "Trains")), core("Railways of Kalo"), "Railways of Kalo"),
        ((("heading1", "Trains"), ("", "x")), core("Untitled"), "Trains"),
        ((("heading2", "Trains"), ("", "x")), core("  "), ""),
    ],
)
def test_a_word_document_has_its_own_title_and_not_that_of_a_section(
    paragraphs: tuple[tuple[str, str], ...], properties: dict[str, str], title: str
) -> None:
    pytest.importorskip("markitdown")
    assert parse_docx(docx(*paragraphs, more=properties)).title == title


def test_a_presentation_is_cited_by_its_slides(tmp_path: Path) -> None:
    parsed = parse_pptx(pptx())
    assert parsed.text == "# Kalo\nA city.\n\nThe mayor is Meri.\n\n### Notes:\nShe is old."
    assert [(mark.page, mark.heading, parsed.text[mark.start :][:9]) for mark in parsed.marks] == [
        (1, None, "# Kalo\nA "),
        (1, "Kalo", "# Kalo\nA "),
        (2, None, "The mayor"),
        (2, "Notes:", "### Notes"),
    ]
    assert parsed.title == "Kalo"


def test_a_book_is_read_in_the_order_of_its_spine(tmp_path: Path) -> None:
    pytest.importorskip("markitdown")
    book = epub({"second part.xhtml": f"<h1>Two</h1><p>{MERI}</p>", "first.xhtml": FIRST})
    (tmp_path / "a.epub").write_bytes(book)
    found = cited(tmp_path, "a.epub")
    assert [heading for _, _, heading in found] == ["One *more*", "Two"]
    assert found[0][0].startswith("# One *more*\n\n**Kalo** is a city at")
    assert parse_epub(book).title == "The book"


def lying(data: bytes) -> bytes:
    """An archive whose table says that everything unpacks to 10 bytes."""
    changed = bytearray(data)
    place = changed.find(b"PK\x01\x02")
    while place >= 0:
        struct.pack_into("<I", changed, place + 24, 10)
        place = changed.find(b"PK\x01\x02", place + 4)
    return bytes(changed)


HOSTILE = {
    "bomb.docx": (lambda: docx(("", "x"), more={"word/more.xml": b"<" + b" " * 2**27}), "archive is too large"),
    "hidden.docx": (lambda: docx(("", "x"), more={"word/a.png": b" " * 600 + b"<" * 2**27}), "archive is too large"),
    "many.docx": (lambda: docx(("", "x"), more={f"{n}": b"" for n in range(10_001)}), "archive is too large"),
    "lying.docx": (lambda: lying(docx(("", "x" * 5_000))), "damaged archive"),
    "cut.docx": (lambda: docx(("", "x" * 5_000))[:-100], "damaged archive"),
    "entities.docx": (
        lambda: docx(("", "x"), more={"word/a.xml": '<!DOCTYPE a [<!ENTITY b "cc">]><a>&b;</a>'.encode("utf-16")}),
        "declares XML entities",
    ),
    "deep.docx": (lambda: docx(("", "<w:r>" * 20_000 + "</w:r>" * 20_000)), "damaged"),
    "nothing.epub": (lambda: archive({"a": "b"}), "cannot be parsed"),
    "locked.docx": (lambda: bytes.fromhex("d0cf11e0a1b11ae1") + bytes(504), "encrypted, or of an office program"),
    "no.pptx": (lambda: b"PK no archive", "damaged archive"),
}


def test_hostile_files_are_reported_and_the_others_read(tmp_path: Path) -> None:
    pytest.importorskip("markitdown")
    (tmp_path / "a.txt").write_text("Kalo.")
    for name, (make, _) in HOSTILE.items():
        (tmp_path / name).write_bytes(make())
    report = ReadReport()
    assert [document.id for document in read_corpus(tmp_path, report=report)] == ["a.txt"]
    found = {skipped.path.name: skipped.text for skipped in report.skipped}
    assert {name: found[name][: len(begin)] for name, (_, begin) in HOSTILE.items()} == {
        name: begin for name, (_, begin) in HOSTILE.items()
    }


def test_without_the_extra_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "markitdown", None)
    with pytest.raises(DataError, match=r"docx needs an extra: pip install 'evoseek\[office\]'"):
        parse_docx(docx(("", "x")))
