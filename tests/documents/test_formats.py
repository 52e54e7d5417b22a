"""Mail as documents: messages, their attachments, and what is no mail."""

from __future__ import annotations

import time
from email.message import EmailMessage
from pathlib import Path

import pytest
from tests.documents.reading import read_corpus

from evoseek.documents.formats import parse_message
from evoseek.documents.parsing import parse_document
from evoseek.documents.passages import split_document
from evoseek.documents.read_report import ReadReport
from evoseek.types import Document


def message(subject: str, text: str, *, html: str = "", attached: str = "") -> bytes:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "Meri <meri@kalo.example>", "Tor <tor@kalo.example>", subject
    mail["Date"] = "Sun, 22 Nov 2026 10:00:00 +0000"
    if text:
        mail.set_content(text)
    if html:
        mail.set_content(html, subtype="html")
    if attached:
        mail.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename=attached)
    return mail.as_bytes()


def read(path: Path, **limits: int) -> tuple[list[Document], dict[int | None, str]]:
    report = ReadReport()
    documents = list(read_corpus(path, report=report, **limits))
    return documents, {skipped.line: skipped.text for skipped in report.skipped}


def test_a_message_is_titled_by_its_subject_and_names_what_is_attached(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(message("Der Fluß", "Supa is high.\n", attached="map.pdf"))
    [document], _ = read(tmp_path)
    assert (document.id, document.title) == ("a.eml", "Der Fluß")
    assert document.text == (
        "From: Meri <meri@kalo.example>\nTo: Tor <tor@kalo.example>\nDate: Sun, 22 Nov 2026 10:00:00 +0000\n\n"
        "Supa is high.\n\nAttachments: map.pdf"
    )


def test_a_page_as_a_message_is_read_as_a_page() -> None:
    html = (
        "<html><head><script>var x</script></head><body><p>The bridge is <b>closed</b> for two weeks.</p></body></html>"
    )
    text = parse_message(message("Bridge", "", html=html)).text
    assert "closed for two weeks." in text
    assert "var x" not in text


def test_a_text_in_another_encoding_than_it_declares_is_guessed() -> None:
    data = (
        message("x", "abc").replace(b'charset="utf-8"', b'charset="nonsense"').replace(b"abc", "é è à".encode("cp1252"))
    )
    assert parse_message(data).guessed


def test_large_messages_and_other_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(message("Big", "word\n" * 2_000))
    (tmp_path / "b.eml").write_bytes(message("Small", "Kalo."))
    (tmp_path / "c.eml").write_bytes(b"no header\n")
    report = ReadReport()
    documents = list(read_corpus(tmp_path, report=report, max_text=5_000))
    assert [(document.id, document.title) for document in documents] == [("b.eml", "Small")]
    large, other = (note.text for note in report.skipped)
    assert large.startswith("text is too long: 10,")
    assert large.endswith(" characters, more than 5,000: raise --max-text")
    assert other.startswith("no mail: ")


def test_endless_nesting_is_reported(tmp_path: Path) -> None:
    nested = b"From: a@b\nSubject: x\n"
    for number in range(3_000):
        nested += b'Content-Type: multipart/mixed; boundary="%d"\n\n--%d\n' % (number, number)
    (tmp_path / "a.eml").write_bytes(nested)
    (tmp_path / "b.txt").write_text("Kalo.")
    documents, skipped = read(tmp_path)
    assert [document.id for document in documents] == ["b.txt"]
    assert skipped == {None: "cannot be parsed: it is nested too deeply"}


HEADERS = {
    "dots": b"From: " + b"a." * 100_000,
    "addresses": b"To: " + b"a@b.c, " * 30_000,
    "parameters": b"Content-Type: text/plain; " + b"; ".join(b"p%d=1" % number for number in range(20_000)),
    "words": b"Subject: " + b"=?utf-8?q?x?= " * 14_000,
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_of_a_long_header_the_beginning_is_read(header: bytes) -> None:
    """The parser's time grows with the square of the length: a minute for the first of these, as a whole."""
    start = time.process_time()
    parsed = parse_message(header + b"\nDate: Sun, 22 Nov 2026 10:00:00 +0000\n\nSupa is high.")
    assert "Supa is high." in parsed.text
    assert len(parsed.text) < 20_000
    assert time.process_time() - start < 8


@pytest.mark.parametrize("kind", ["plain", "html"])
def test_half_a_surrogate_pair_in_a_declared_encoding_becomes_the_replacement_character(kind: str) -> None:
    mail = (
        f"From: a@b\nContent-Type: text/{kind}; charset=utf-7\n\n<html><body><p>Supa +2AA- is high.</p></body></html>"
    )
    parsed = parse_message(mail.encode())
    assert "Supa \ufffd is high." in parsed.text


def test_a_short_message_of_html_alone_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(message("Supa", "", html='<div dir="ltr">It is high.</div>'))
    [document], skipped = read(tmp_path)
    assert (" ".join(document.text.split()).endswith("It is high."), skipped) == (True, {})


def with_attachments(*attached: tuple[str, bytes | EmailMessage]) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "meri@kalo.example", "Safety meeting"
    mail.set_content("The minutes are attached.\n")
    mail.add_alternative("<p>The minutes are attached.</p>", subtype="html")
    for name, data in attached:
        if isinstance(data, EmailMessage):
            mail.add_attachment(data, filename=name or None)
        else:
            mail.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return mail


FORWARDED = with_attachments(("note.md", b"# Drill\n\nThe drill is on 3 May."), ("old.doc", b"x"))
ATTACHED = with_attachments(
    ("minutes.txt", b"The fire drill is on Monday."),
    ("prices.csv", b"part,price\npump,40\nseal,5\n"),
    ("GUIDE.HTML", b"<html><body><h1>Guide</h1><p>Close the tap before the drill begins.</p></body></html>"),
    ("", FORWARDED),
    ("levels.xls", b"\xd0\xcf"),
    ("logo.png", b"\x89PNG"),
    ("broken.docx", b"PK"),
    ("signature.asc", b"x"),
)


def test_attachments_are_read_where_their_type_is_known_and_else_counted(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(ATTACHED.as_bytes())
    report = ReadReport()
    [document] = read_corpus(tmp_path, report=report)
    for text in ("fire drill is on Monday", "price: 40", "Close the tap", "on 3 May."):
        assert document.text.count(text) == 1, text
    places = {passage.heading for passage in split_document(document, max_words=12)}
    assert {"minutes.txt", "prices.csv", "Guide", "Drill"} <= places
    warned = [note.text for note in report.warnings if note.kind == "attachments not read"]
    assert len(warned) == 2  # of the message and of the one in it
    assert any("attachments not read: 1 (old.doc)" in text for text in warned)
    assert any(all(name in text for name in ("4 (levels.xls", "logo.png", "broken.docx", ".asc")) for text in warned)


def test_the_encoding_of_an_attachment_is_reported_if_it_was_guessed() -> None:
    mail = with_attachments(("kunden.csv", "Name;Ort\nMüller;Köln\n".encode("cp1252")))
    parsed = parse_document(".eml", mail.as_bytes(), None)
    assert ("Name: Müller" in parsed.text, parsed.guessed) == (True, "cp1252")


def test_a_message_that_is_an_attachment_alone_is_read() -> None:
    mail = EmailMessage()
    mail["Subject"] = "Minutes"
    mail.set_content(b"name,age\nMeri,30\nTor,31", maintype="application", subtype="octet-stream", filename="a.csv")
    assert "age: 30" in parse_document(".eml", mail.as_bytes(), None).text


def test_text_after_an_attachment_is_text() -> None:
    mail = EmailMessage()
    mail["Subject"] = "Minutes"
    mail.set_content("Before.")
    mail.add_attachment(b"x", maintype="image", subtype="png", filename="a.png")
    second = EmailMessage()
    second.set_content("After the picture.")
    mail.attach(second)
    text = parse_document(".eml", mail.as_bytes(), None).text
    assert "Before." in text
    assert "After the picture." in text


def test_messages_in_messages_end_somewhere() -> None:
    mail = with_attachments(("in.txt", b"innermost"))
    for _ in range(8):
        mail = with_attachments(("", mail))
    parsed = parse_document(".eml", mail.as_bytes(), None)
    assert "The minutes are attached." in parsed.text
    assert any("attachments not read: 1 (message.eml)" in text for text in parsed.warnings)
