"""Reading a corpus: what is read, what is skipped and why, and that nothing makes it crash or fill the memory."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.documents.reading import read_corpus
from tests.raising import raises

from evoseek.documents import formats
from evoseek.documents.documents import ReadReport, find_files, read_documents
from evoseek.documents.parse_process import ParseProcess
from evoseek.documents.parsing import Reading
from evoseek.documents.passages import split_document
from evoseek.errors import DataError
from evoseek.text.decoding import decode
from evoseek.text.duplicates import TextSet
from evoseek.types import TERM, Document


def read(path: Path, **limits: int) -> tuple[dict[str, Document], ReadReport]:
    report = ReadReport()
    documents = list(read_corpus(path, report=report, **limits))
    assert report.read == len(documents)
    return {document.id: document for document in documents}, report


def write(folder: Path, **files: str | bytes) -> Path:
    """Files by name; `__` stands for a dot and `_in_` for a slash."""
    for name, content in files.items():
        path = folder / name.replace("_in_", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def reasons(report: ReadReport) -> dict[str, str]:
    return {skipped.path.name: skipped.text for skipped in report.skipped}


def test_an_error_while_finding_the_files_is_one_of_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "exists", failing)
    with raises("corpus.unreadable", match="cannot be read: Input/output error"):
        read(tmp_path)


def test_a_folder_gives_sorted_documents_with_relative_ids_and_titles(tmp_path: Path) -> None:
    write(
        tmp_path,
        sub_in_page__HTML="<html><head><title>A  page</title></head><body><p>Kalo is a city.</p></body></html>",
        b__md="```sh\n# a comment\n```\n# The *Kalo* guide ##\nText.",
        underlined__md="Guide\n=====\nText.",
        a__txt="  Plain text.\r\nSecond line.\n",
        other__css="p {}",
    )
    documents, report = read(tmp_path)
    assert [(document.id, document.title) for document in documents.values()] == [
        ("a.txt", "a"),
        ("b.md", "The *Kalo* guide"),
        ("underlined.md", "Guide"),
        ("sub/page.HTML", "A page"),
    ]
    assert documents["a.txt"].text == "Plain text.\nSecond line."
    assert documents["sub/page.HTML"].text == "Kalo is a city."
    assert not report.skipped
    assert report.other_types == {".css": 1}


LEFTOVERS = (
    *(
        "~$budget.xlsx",
        "~$note.docx",
        ".~lock.note.docx#",
        ".#note.md",
        "#note.md#",
        "note.md~",
        ".note.md.swp",
        ".swp",
    ),
    *("._note.md", ".DS_Store", "Thumbs.db", "desktop.ini"),
)


@pytest.mark.parametrize("name", LEFTOVERS)
def test_what_programs_leave_behind_is_passed_over_silently(tmp_path: Path, name: str) -> None:
    write(tmp_path, note__md="Kalo.")
    (tmp_path / name).write_bytes(b"\x00\x01left")
    documents, report = read(tmp_path)
    assert list(documents) == ["note.md"]
    assert (report.skipped_count, report.other_types) == (0, {})


@pytest.mark.parametrize("name", ["$5.md", "~note.md", "note~1.md", "#1.md", "lock.md", ".note.md", "a.swap.md"])
def test_other_names_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("Kalo.")
    assert list(read(tmp_path)[0]) == [name]


def test_html_keeps_the_main_text_and_drops_scripts(tmp_path: Path) -> None:
    body = "".join(f"<p>Paragraph number {n} tells at some length about the city of Kalo.</p>" for n in range(9))
    write(tmp_path, long__html=f"<html><body><script>var x = 1;</script><article>{body}</article></body></html>")
    write(tmp_path, bare__html="<html><body><script>var x = 1;</script><b>12</b><i>34</i></body></html>")
    documents, _ = read(tmp_path)
    assert "Paragraph number 8 tells" in documents["long.html"].text
    assert "12" in documents["bare.html"].text
    assert not any("var x" in document.text for document in documents.values())


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8-sig", "Größe über alles"),
        ("utf-16", "Größe über alles"),
        ("utf-32", "Größe über alles"),
        ("cp1252", "Die Größe des Hügels wäre schön für die Bürger der Stadt. " * 5),
        ("shift_jis", "東京は日本の首都であり、世界最大の都市の一つです。" * 5),
    ],
)
def test_other_encodings_are_read(tmp_path: Path, encoding: str, text: str) -> None:
    documents, _ = read(write(tmp_path, a__txt=text.encode(encoding)))
    assert documents["a.txt"].text == text.strip()


@pytest.mark.parametrize("before", ["", "a", "ab", "abc", "Title one\n"])
@pytest.mark.parametrize("between", ["\n", "。"])  # the latter without any white space
@pytest.mark.parametrize(
    ("encoding", "line"),
    [
        ("shift_jis", "東京は日本の首都であり、世界最大の都市の一つです。"),
        ("euc_kr", "서울은 대한민국의 수도이자 최대 도시이다."),
        ("gb18030", "北京是中华人民共和国的首都，也是全国的政治中心。"),
    ],
)
def test_the_encoding_of_a_long_file_is_guessed_wherever_its_sample_ends(
    monkeypatch: pytest.MonkeyPatch, encoding: str, line: str, between: str, before: str
) -> None:
    monkeypatch.setattr("evoseek.text.decoding._SAMPLE", 2_000)
    text = before + between.join([line] * 60)
    assert decode(text.encode(encoding))[0] == text


def test_a_large_file_with_little_text_is_read_and_the_limits_are_told_with_the_option(tmp_path: Path) -> None:
    pypdf = pytest.importorskip("pypdf")
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(small_pdf("Kalo is a city")))
    writer.add_attachment("picture.png", os.urandom(20 * 2**20))
    writer.write(tmp_path / "a.pdf")
    page = f"<html><body><p>Kalo is a city.</p><img src='data:{'A' * 2**20}'></body></html>"
    write(tmp_path, b__html=page, c__html=f"<html><body><p>{'Kalo is a city. ' * 100}</p></body></html>")
    documents, report = read(tmp_path, max_text=1_000)
    assert {name: document.text for name, document in documents.items()} == {
        "a.pdf": "Kalo is a city",
        "b.html": "Kalo is a city.",
    }
    assert reasons(report) == {"c.html": "text is too long: 1,599 characters, more than 1,000: raise --max-text"}
    assert list(read(tmp_path, max_text=2_000)[0]) == ["a.pdf", "b.html", "c.html"]


def test_what_cannot_be_read_is_skipped_with_its_reason(tmp_path: Path) -> None:
    write(
        tmp_path,
        good__txt="good",
        binary__txt=b"abc\0def",
        wrong_mark__txt=b"\xff\xfe\x00\xd8\x00\xd8a",
        empty__txt="",
        blank__md=" \n\t\n",
        nothing__html="",
        large__txt="x" * 101,
        broken__pdf="%PDF-1.4 nothing else",
    )
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "dangling.txt").symlink_to(tmp_path / "gone.txt")
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / ".git").mkdir()
    documents, report = read(tmp_path, max_text=25)
    assert list(documents) == ["good.txt"]
    found = reasons(report)
    assert found.pop("broken.pdf").startswith("cannot be parsed: ")
    assert found == {
        ".git": "hidden folder",
        "binary.txt": "binary: holds NUL bytes",
        "wrong_mark.txt": "encoding not recognised: begins as utf-16 but is not",
        "empty.txt": "empty",
        "blank.md": "empty",
        "nothing.html": "no HTML in it",
        "large.txt": "file is too large: more than 100 bytes: divide it, or raise --max-text for a text",
        "pipe.txt": "not a regular file",
        "dangling.txt": "cannot be read: No such file or directory",
        "loop.txt": "cannot be read: Too many levels of symbolic links",
    }
    assert report.skipped_count == 11
    assert "1 document read, 11 skipped (2 cannot be read, 2 empty, " in report.summary()
    assert report.table(1).endswith("\n... and 1 more: cannot be read\n... and 9 more of other kinds")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_and_folders_without_permission_are_skipped(tmp_path: Path) -> None:
    write(tmp_path, good__txt="good", secret__txt="x", closed_in_a__txt="x")
    (tmp_path / "secret.txt").chmod(0)
    (tmp_path / "closed").chmod(0)
    documents, report = read(tmp_path)
    assert list(documents) == ["good.txt"]
    assert set(reasons(report)) == {"secret.txt", "closed"}


def test_linked_folders_are_read_once_and_loops_are_not_followed(tmp_path: Path) -> None:
    corpus, outside = tmp_path / "corpus", tmp_path / "outside"
    write(corpus, a_in_one__txt="one")
    write(outside, two__txt="two", deep_in_three__txt="three")
    (corpus / "a" / "up").symlink_to(corpus)
    (corpus / "around").symlink_to(tmp_path)
    (corpus / "x").symlink_to(outside)
    (corpus / "y").symlink_to(outside)
    (outside / "back").symlink_to(corpus / "a")
    (outside / "self").symlink_to(outside)
    documents, report = read(corpus, follow_links=True)
    assert list(documents) == ["a/one.txt", "x/two.txt", "x/deep/three.txt"]
    assert set(reasons(report)) == {"up", "around", "y", "back", "self"}


@pytest.mark.parametrize("named_by_a_link", [False, True])
def test_nothing_outside_of_the_corpus_is_read(tmp_path: Path, named_by_a_link: bool) -> None:
    corpus, outside = tmp_path / "corpus", tmp_path / "outside"
    write(corpus, a_in_one__txt="one", b_in_two__txt="two")
    write(outside, secret__txt="secret", deep_in_more__txt="secret")
    (corpus / "secret.txt").symlink_to(outside / "secret.txt")
    (corpus / "chain.txt").symlink_to(corpus / "secret.txt")
    (corpus / "relative.txt").symlink_to("../outside/secret.txt")
    (corpus / "rows.jsonl").symlink_to(outside / "secret.txt")
    (corpus / "folder").symlink_to(outside)
    (corpus / "a" / "up.txt").symlink_to("../../outside/deep/more.txt")
    (corpus / "device.txt").symlink_to("/dev/zero")
    (corpus / "other.txt").symlink_to("a/one.txt")
    root = tmp_path / "corpus"
    if named_by_a_link:
        root = tmp_path / "link"
        root.symlink_to(corpus)
    documents, report = read(root)
    assert {name: document.text for name, document in documents.items()} == {
        "a/one.txt": "one",
        "b/two.txt": "two",
        "other.txt": "one",
    }
    left_out = {"secret.txt", "chain.txt", "relative.txt", "rows.jsonl", "folder", "up.txt"}
    assert set(reasons(report)) == left_out | {"device.txt"}
    assert set(report.skipped.counts) == {"link that leads out of the corpus"}


@pytest.mark.parametrize("part", ["file", "folder"])
def test_a_link_that_takes_a_place_before_the_file_is_read_leads_nowhere(tmp_path: Path, part: str) -> None:
    corpus, outside = tmp_path / "corpus", tmp_path / "outside"
    write(corpus, a_in_one__txt="one", a_in_rows__jsonl='{"id": 1, "text": "one"}')
    write(outside, one__txt="secret", rows__jsonl='{"id": 1, "text": "secret"}')
    report = ReadReport()
    found = list(find_files(corpus, report))
    for name in ("one.txt", "rows.jsonl"):
        (corpus / "a" / name).unlink()
        if part == "file":
            (corpus / "a" / name).symlink_to(outside / name)
    if part == "folder":
        (corpus / "a").rmdir()
        (corpus / "a").symlink_to(outside)
    seen, how = TextSet(), Reading()
    assert [document for file in found for document in read_documents(file, seen, report, how)] == []
    assert report.skipped.counts == {"link that leads out of the corpus": 2}


@pytest.mark.parametrize("name", ["abc", "n" * 200])
def test_a_folder_with_too_long_a_path_is_skipped(tmp_path: Path, name: str) -> None:
    """A path has 4,096 bytes at most; the folders were made from within."""
    write(tmp_path, good__txt="good")
    parent = os.open(tmp_path, os.O_RDONLY)
    for _ in range(4_500 // (len(name) + 1)):
        os.mkdir(name, dir_fd=parent)
        child = os.open(name, os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = child
    os.close(parent)
    documents, report = read(tmp_path)
    subprocess.run(["rm", "-r", tmp_path / name], check=True)  # pytest cannot
    assert list(documents) == ["good.txt"]
    assert [note.text for note in report.skipped] == ["cannot be read: File name too long"]


def test_both_json_shapes(tmp_path: Path) -> None:
    lines = [
        {"id": "1", "contents": '"Kalo"\nKalo is a city.\nBy a river.'},
        {"id": 2, "title": "Meri", "text": "Meri is a film."},
        {"id": "3", "contents": "one line alone"},
        {"id": "4", "text": "no title", "more": [1]},
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text("\ufeff" + "\n\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    documents, report = read(path)
    assert [(d.id, d.title, d.text) for d in documents.values()] == [
        ("1", "Kalo", "Kalo is a city.\nBy a river."),
        ("2", "Meri", "Meri is a film."),
        ("3", "", "one line alone"),
        ("4", "", "no title"),
    ]
    assert not report.skipped


def test_bad_json_lines_are_skipped_with_line_and_reason(tmp_path: Path) -> None:
    good = b'{"id": "1", "text": "good"}'
    bad = {
        good: "duplicate id: 1",
        b"{": "broken JSON",
        b"[" * 100_000: "broken JSON",
        b"[1]": "wrong type: a JSON object was expected, not list",
        b'{"text": "x"}': "no `id`",
        b'{"id": true, "text": "x"}': "wrong type: `id` must be a text or a whole number",
        b'{"id": "a"}': "neither `contents` nor `text`",
        b'{"id": "a", "contents": null}': "wrong type: `contents` is null",
        b'{"id": "a", "contents": 5}': "wrong type: `contents` must be a text, not int",
        b'{"id": "a", "title": [], "text": "x"}': "wrong type: `title` must be a text, not list",
        b'{"id": "a", "text": " "}': "empty",
        b'{"id": "a", "text": "x\0"}': "binary: holds NUL bytes",
        b'{"id": "a", "text": "x\\u0000"}': "binary: holds NUL characters",
        b'{"id": "a", "text": "\xff"}': "encoding not recognised: JSON lines are UTF-8",
        b'{"id": "%s", "text": "x"}' % (b"a" * 1001): "`id` is too long: more than 1,000 characters",
        b" " * 200_001: "line is too large: more than 200,000 bytes",
    }
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([good, *bad, b'{"id": "last", "text": "\\ud800 x"}']))
    documents, report = read(path, max_text=50_000)
    assert {document.id: document.text for document in documents.values()} == {"1": "good", "last": "\ufffd x"}
    assert [skipped.line for skipped in report.skipped] == list(range(2, 2 + len(bad)))
    for skipped, expected in zip(report.skipped, bad.values(), strict=True):
        assert skipped.text.startswith(expected)


def test_a_line_of_a_hundred_megabytes_is_never_held(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(b'{"id": "1", "text": "first"}\n')
        file.seek(100 * 2**20, os.SEEK_CUR)  # a hole: takes no room on the disk
        file.write(b'\n{"id": "2", "text": "second"}\n')
    tracemalloc.start()
    documents, report = read(path, max_text=25_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert list(documents) == ["1", "2"]
    assert [(skipped.line, skipped.text) for skipped in report.skipped] == [
        (2, "line is too large: more than 100,000 bytes: divide it, or raise --max-text for a text")
    ]
    assert peak < 2_000_000


def test_the_report_stays_small_however_many_lines_are_bad(tmp_path: Path) -> None:
    path = write(tmp_path, a__jsonl='{"id": "1", "text": "x"}\n' + "{\n" * 5_000) / "a.jsonl"
    _, report = read(path)
    assert (len(report.skipped), report.skipped_count) == (100, 5_000)


def test_a_single_file_of_text(tmp_path: Path) -> None:
    documents, _ = read(write(tmp_path, note__txt="text") / "note.txt")
    assert list(documents) == ["note.txt"]


def test_an_empty_corpus_is_an_error_that_says_what_was_found(tmp_path: Path) -> None:
    write(tmp_path, a__txt="", b__xyz="x")
    with raises("corpus.empty", match=r"1 file of other types \(1 .xyz\)(?s:.*)a.txt: empty"):
        read(tmp_path)
    with raises("corpus.missing"):
        read(tmp_path / "gone")


def test_pdf(tmp_path: Path) -> None:
    pypdf = pytest.importorskip("pypdf")
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    writer.write(tmp_path / "scan.pdf")
    write(tmp_path, a__txt="text", b__pdf=small_pdf("Kalo is a city"))
    documents, report = read(tmp_path)
    assert reasons(report)["scan.pdf"].startswith("PDF without text: its pages are pictures")
    assert (documents["b.pdf"].title, documents["b.pdf"].text) == ("b", "Kalo is a city")


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-256"])
def test_an_encrypted_pdf_is_skipped_with_the_remedy_unless_it_opens_without_a_password(
    tmp_path: Path, algorithm: str
) -> None:
    pypdf = pytest.importorskip("pypdf")
    (tmp_path / "a.txt").write_text("text")
    for name, password in (("locked", "secret"), ("open", "")):
        writer = pypdf.PdfWriter(clone_from=io.BytesIO(small_pdf("Kalo is a city")))
        writer.encrypt(password, owner_password="owner", algorithm=algorithm)
        writer.write(tmp_path / f"{name}.pdf")
    documents, report = read(tmp_path)
    assert documents["open.pdf"].text == "Kalo is a city"
    (reason,) = reasons(report).values()
    assert reason.startswith("encrypted PDF: it opens with a password only; save a copy without one, as `qpdf")
    assert "locked.pdf: encrypted PDF" in report.table()


def test_pdf_without_the_extra_is_refused_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "pypdf", None)
    with pytest.raises(DataError, match=re.escape("PDF needs an extra: pip install 'evoseek[pdf]'")):
        formats.parse_pdf(b"%PDF")


def read_in(process: ParseProcess, folder: Path) -> tuple[list[str], ReadReport]:
    """The ids of the documents of a folder, parsed by this process."""
    report, seen, how = ReadReport(), TextSet(), Reading(process=process)
    ids = [document.id for file in find_files(folder, report) for document in read_documents(file, seen, report, how)]
    return ids, report


@pytest.fixture
def process() -> Iterator[ParseProcess]:
    process = ParseProcess("evoseek.documents.parsing:answer", cpu_s=1, wall_s=60, memory_bytes=2**30)
    yield process
    process.close()


def test_a_file_that_takes_too_long_is_skipped_and_the_next_one_is_read(tmp_path: Path, process: ParseProcess) -> None:
    slow = f"<html><body><p {' '.join(f'a{i}=1' for i in range(150_000))}>x</p>"
    ids, report = read_in(process, write(tmp_path, a__html=slow, b__html="<html><body><p>Kalo is a city."))
    assert ids == ["b.html"]
    assert reasons(report) == {"a.html": "reading it takes more than 1 seconds of processor time: raise --max-seconds"}


def test_a_file_that_fills_the_memory_is_skipped(tmp_path: Path) -> None:
    process = ParseProcess("evoseek.documents.parsing:answer", cpu_s=5, wall_s=60, memory_bytes=120 * 2**20)
    _, report = read_in(process, write(tmp_path, a__eml=b"From: a@b\n\n" + b"\xe9" * 12_000_000))
    assert reasons(report) == {"a.eml": "reading it takes too much memory, or breaks the reader"}


def test_one_process_parses_all_files_and_plain_text_and_markdown_take_none(
    tmp_path: Path, process: ParseProcess
) -> None:
    write(tmp_path, a__txt="Kalo.", b__md="# Kalo", c__jsonl='{"id": "1", "text": "Kalo"}')
    assert read_in(process, tmp_path)[0] == ["a.txt", "b.md", "1"]
    assert process.pids == ()
    read_in(process, write(tmp_path, d__html="<html><body><p>Kalo is a city."))
    (started,) = process.pids
    ids, _ = read_in(process, write(tmp_path, e__html="<html><body><p>Meri is its mayor."))
    assert ids == ["a.txt", "b.md", "1", "d.html", "e.html"]
    assert process.pids == (started,)


@pytest.mark.parametrize("front", ["a: " + "[" * 19_000, "a: b\n" * 150 + "c: " + "d" * 30_000])
def test_front_matter_that_is_too_deep_or_too_large_is_text(tmp_path: Path, front: str) -> None:
    documents, _ = read(write(tmp_path, a__md=f"---\n{front}\n---\nKalo."))
    assert documents["a.md"].text.startswith("---\na: ")


def test_half_a_surrogate_pair_becomes_the_replacement_character(tmp_path: Path) -> None:
    """An escape in a declared encoding, or in YAML, can spell one, which no index could store."""
    page = (
        b"<html><head><meta charset=unicode_escape></head><body><h1>a\\ud800</h1><p>Kalo \\ud800 \xe9</p></body></html>"
    )
    documents, report = read(write(tmp_path, a__html=page, b__md='---\ntitle: "x\\ud800"\n---\nKalo'))
    assert not report.skipped
    assert "Kalo \ufffd é" in documents["a.html"].text
    assert documents["b.md"].title == "x\ufffd"
    for document in documents.values():
        "".join((document.title, document.text, *(mark.heading or "" for mark in document.marks))).encode()


def cited(folder: Path, name: str, max_words: int) -> list[tuple[str, int | None, str | None]]:
    """The passages of a file: text, page and heading. The range of each is that of its text."""
    document = read(folder)[0][name]
    passages = split_document(document, max_words=max_words)
    assert all(document.text[passage.start : passage.end] == passage.text for passage in passages)
    assert all(passage.file == name for passage in passages)
    return [(passage.text, passage.page, passage.heading) for passage in passages]


def test_passages_of_a_pdf_name_the_page_on_which_they_begin(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    write(tmp_path, sub_in_b__pdf=small_pdf("Kalo is a city", "", "Its mayor is Meri"))
    assert cited(tmp_path, "sub/b.pdf", 4) == [("Kalo is a city", 1, None), ("Its mayor is Meri", 3, None)]


def test_pages_of_a_pdf_without_text_are_reported(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    write(
        tmp_path,
        a__pdf=small_pdf("Kalo", "", "Meri", ""),
        b__pdf=small_pdf("Kalo"),
        c__pdf=small_pdf("Kalo", *[""] * 11),
    )
    _, report = read(tmp_path)
    found = [(note.path.name, note.text) for note in report.warnings]
    assert [(file, text) for file, text in found if not text.startswith("pypdf")] == [
        ("a.pdf", "PDF pages without text: 2 of 4 (page 2, 4)"),
        ("c.pdf", "PDF pages without text: 11 of 12 (page 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...)"),
    ]


def test_the_passages_of_a_pdf_do_not_cross_its_pages(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    write(tmp_path, b__pdf=small_pdf("Kalo is a city", "Its mayor is Meri", "The river is the Supa"))
    assert cited(tmp_path, "b.pdf", 100) == [
        ("Kalo is a city", 1, None),
        ("Its mayor is Meri", 2, None),
        ("The river is the Supa", 3, None),
    ]


@pytest.mark.parametrize(
    ("own", "title"),
    [
        ("All of Kalo", "All of Kalo"),
        ("(anonymous)", "b"),
        ("Untitled", "b"),
        (" ", "b"),
        ("Microsoft Word - b.doc", "b"),
    ],
)
def test_the_title_of_a_pdf_is_its_own_unless_a_program_put_it_there(tmp_path: Path, own: str, title: str) -> None:
    pypdf = pytest.importorskip("pypdf")
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(small_pdf("Kalo is a city")))
    writer.add_metadata({"/Title": own})
    writer.write(tmp_path / "b.pdf")
    assert read(tmp_path)[0]["b.pdf"].title == title


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("railways.md", "## Trains\nx\n\n# Railways of Kalo\nx\n\n## Buses\nx", "Railways of Kalo"),
        ("railways.md", "# Trains\nx\n\n# Buses\nx", "railways"),
        ("railways.md", "## Trains\nx", "railways"),
        ("railways.html", "<title>Railways of Kalo</title><h1>Trains</h1><p>x</p>", "Railways of Kalo"),
        ("railways.html", "<h1>Railways <a class='headerlink' href='#x'>#</a></h1><h2>Trains</h2><p>x</p>", "Railways"),
        ("railways.html", "<title>Untitled Document</title><h1>Trains</h1><p>x</p><h1>Buses</h1><p>x</p>", "railways"),
        ("railways.html", "<title>No title</title><h1>Trains</h1><p>x</p>", "Trains"),
    ],
)
def test_a_document_is_titled_by_itself_or_its_file_and_never_by_a_section(
    tmp_path: Path, name: str, text: str, title: str
) -> None:
    (tmp_path / name).write_text(text)
    assert read(tmp_path)[0][name].title == title


def test_signs_that_link_to_a_heading_are_no_part_of_it(tmp_path: Path) -> None:
    text = "Kalo is a city at the river Supa. " * 5
    write(tmp_path, a__html=f"<body><h2>The city<a href='#c'>\u00b6</a></h2><p>{text}</p></body>")
    ((found, _, heading),) = cited(tmp_path, "a.html", 100)
    assert (heading, "\u00b6" in found) == ("The city", False)


def test_passages_of_markdown_name_the_heading_that_they_are_under(tmp_path: Path) -> None:
    text = "\n\n  Before all of it.\n\n# Kalo #\nIs a city.\n\n```\n# no heading\n```\n\nMayor\n-----\nIt is Meri."
    assert cited(write(tmp_path, a__md=text), "a.md", 6) == [
        ("Before all of it.", None, None),
        ("# Kalo #\nIs a city.", None, "Kalo"),
        ("```\n# no heading\n```", None, "Kalo"),
        ("Mayor\n-----\nIt is Meri.", None, "Mayor"),
    ]


@pytest.mark.parametrize(
    ("front", "title"),
    [
        ("---\ntitle: All of Kalo\ntags:\n- city\n- sea\n# a remark\n\n---\n", "All of Kalo"),
        ("---\r\ntitle: 'Kalo: the city'\r\nnested: {\r\n}\r\n---\r\n", "Kalo: the city"),
        ('\ufeff---  \nlayout: "page"\n...\n', "Place"),
        ("---\ntitle: >\n  of two lines\n---\n", "of two lines"),
        ("---\ntitle: 'It''s Kalo' # c\n---\n", "It's Kalo"),
        ("---\ntitle: null\ndate: 2024-01-01\n---\n", "Place"),
        ("---\ntitle: [A, B]\n---\n", "Place"),
        ("---\n---\n", "Place"),
    ],
)
def test_front_matter_is_no_text_and_no_heading(tmp_path: Path, front: str, title: str) -> None:
    text = "# Place\nKalo is a city.\n\n---\n\nbelow: a line"
    (tmp_path / "a.md").write_text(front + text, newline="")
    assert read(tmp_path)[0]["a.md"].title == title
    assert cited(tmp_path, "a.md", 40) == [(text, None, "Place")]


@pytest.mark.parametrize(
    "text",
    [
        "---\nThis is prose.\n---\nmore",
        "---\nNote: this is one setting,\nand this is prose.\n\n---\nmore",
        "---\nkey: a front that does not end",
        "---\n# Changelog\n\n- Kalo was founded by Meri.\n---\nmore",
        "---\n\n# Slide 1\n\n- a\n\n---\n\n# Slide 2",
        "---\nThe mayor said: no.\n---\nmore",
        "---\n    code = 1\n---\nmore",
        "---\nkey: &a [*a\n---\nmore",
        "text\n---\nkey: value\n---",
    ],
)
def test_other_lines_between_rules_are_text(tmp_path: Path, text: str) -> None:
    assert read(write(tmp_path, a__md=text))[0]["a.md"].text == text


def test_passages_of_a_page_name_the_heading_that_they_are_under(tmp_path: Path) -> None:
    first, second = "Kalo is a city at the river Supa. " * 5, "The mayor of the city is called Meri. " * 5
    page = f"<html><body><h1>The <i>city</i></h1><p>{first}</p><h2>Its mayor</h2><p>{second}</p></body></html>"
    places = {heading: text for text, _, heading in cited(write(tmp_path, a__html=page), "a.html", 30)}
    assert set(places) == {"The city", "Its mayor"}
    assert "Meri" in places["Its mayor"]


def test_a_paragraph_with_the_text_of_another_heading_is_no_heading(tmp_path: Path) -> None:
    text = "<p>Kalo is a city at the river Supa, and Meri has been its mayor for many years.</p>"
    page = f"<h1>Kalo</h1>{text}<h2><em>Its</em> river</h2>{text}<p>Care</p>{text}<h3><br>Care</h3>{text}"
    (document,) = read_corpus(write(tmp_path, a__html=f"<html><body>{page}</body></html>"), report=ReadReport())
    places = [(mark.heading, mark.level) for mark in document.marks]
    assert places == [("Kalo", 1), ("Its river", 2), ("Care", 3)]
    assert [document.text[mark.start :].partition("\n")[0] for mark in document.marks] == ["Kalo", "Its river", "Care"]
    assert document.marks[2].start == document.text.rindex("Care")


def test_a_term_is_the_heading_of_its_definition_and_of_nothing_after_the_list(tmp_path: Path) -> None:
    size, age = "The log is begun anew at this size. " * 4, "The log is begun anew after this time. " * 4
    terms = f"<dt>log_<br>size</dt><dd>{size}</dd><dt>log_age</dt><dd><p>{age}</p></dd>"
    page = f"<h1>Logs</h1><p>All of them.</p><dl>{terms}</dl><p>{'Of the page. ' * 8}</p><h2>More</h2><p>It ends.</p>"
    (document,) = read_corpus(write(tmp_path, a__html=f"<html><body>{page}</body></html>"), report=ReadReport())
    assert [(mark.heading, mark.level) for mark in document.marks] == [
        ("Logs", 1),
        ("log_, size", TERM),
        ("log_age", TERM),
        ("", TERM),
        ("More", 2),
    ]
    found = split_document(document, max_words=8)
    assert {p.label for p in found if p.text == "The log is begun anew at this size."} == {"Logs: log_, size"}
    assert {p.label for p in found if p.text == "The log is begun anew after this time."} == {"Logs: log_age"}
    assert {p.label for p in found if p.text.startswith("Of the page.")} == {"Logs"}


def test_paragraphs_of_a_list_stay_apart_and_one_of_a_few_words_in_bold_is_a_heading(tmp_path: Path) -> None:
    """Not one word, a sentence, or a part of a paragraph."""
    bold = ("Largest size", "Note", "It may grow a lot.", "Longest <i>name</i>")
    items = "".join(f"<li><p><b>{one}</b></p><p>{'All parts of it are small. ' * 4}</p></li>" for one in bold)
    inner = "<li>One item.</li><li><p>Another item.</p></li>"
    page = f"<h1>Limits</h1><ol>{items}</ol><p><b>Some parts</b> are bold. {'So it is. ' * 9}</p><ul>{inner}</ul>"
    (document,) = read_corpus(write(tmp_path, a__html=f"<html><body>{page}</body></html>"), report=ReadReport())
    assert [(mark.heading, mark.level) for mark in document.marks] == [
        ("Limits", 1),
        ("Largest size", TERM),
        ("Longest name", TERM),
    ]
    lines = document.text.split("\n")
    assert [line for line in lines if not line.startswith(("All parts", "Some parts"))] == [
        *("Limits", "Largest size", "Note", "It may grow a lot.", "Longest name", "- One item.", "- Another item.")
    ]


def test_steps_stay_in_their_order_where_one_has_several_paragraphs(tmp_path: Path) -> None:
    steps = [
        "<li>Switch it off.</li>",
        "<li><p>Open it.</p><p>Turn it.</p></li>",
        "<li>Drain it.</li>",
        "<li>Close it.</li>",
    ]
    page = f"<h1>Steps</h1><p>{'It is easy to do. ' * 9}</p><ol>{''.join(steps)}</ol>"
    (document,) = read_corpus(write(tmp_path, a__html=f"<html><body>{page}</body></html>"), report=ReadReport())
    assert document.text.split("\n")[2:] == ["Switch it off.", "Open it.", "Turn it.", "Drain it.", "Close it."]


def test_a_term_of_a_list_within_a_definition_is_a_heading_up_to_the_end_of_that_list(tmp_path: Path) -> None:
    """As in pages of Sphinx: a class, and its methods."""
    inner = f"<dl><dt>submit(fn)</dt><dd><p>{'It calls fn soon. ' * 5}</p></dd></dl><p>{'It ends. ' * 9}</p>"
    page = f"<h1>Pools</h1><dl><dt>class Pool</dt><dd><p>{'It holds threads. ' * 5}</p>{inner}</dd></dl>"
    (document,) = read_corpus(write(tmp_path, a__html=f"<html><body>{page}</body></html>"), report=ReadReport())
    assert [mark.heading for mark in document.marks] == ["Pools", "class Pool", "submit(fn)", ""]


PARAGRAPH = f"<p>{' '.join(f'Part {part} of the pump may run dry.' for part in range(40))}</p>"


@pytest.mark.parametrize(
    "part",
    [
        f"<h1>Pumps</h1>{PARAGRAPH}<h2>Valves</h2>{PARAGRAPH}",
        f"<div class=fancy><h1>Pumps</h1>{PARAGRAPH}<h2>Valves</h2>{PARAGRAPH}</div>",
        f"<div><div><h1><a name=p></a>Pumps</h1></div></div>{PARAGRAPH}"
        f"<div><h2><a href='#v'>Valves</a></h2></div>{PARAGRAPH}",
    ],
)
def test_a_page_keeps_its_headings_wherever_they_stand_and_leaves_out_the_menu(tmp_path: Path, part: str) -> None:
    menu = "".join(f"<li><a href='{n}.html'>Page {n}</a></li>" for n in range(12))
    write(tmp_path, a__html=f"<html><body><div class=menu><ul>{menu}</ul></div>{part}</body></html>")
    (document,) = read_corpus(tmp_path, report=ReadReport())
    assert [(mark.heading, mark.level) for mark in document.marks] == [("Pumps", 1), ("Valves", 2)]
    assert (document.title, document.text.startswith("Pumps\nPart 0 of"), "Page" in document.text) == (
        "Pumps",
        True,
        False,
    )


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("guide.rst", "convert it to Markdown (`pandoc FILE -o FILE.md`), or name it .txt to read it as it is"),
        ("guide.org", "convert it to Markdown (`pandoc FILE -o FILE.md`), or name it .txt to read it as it is"),
        ("mail.mbox", "save each message as a file .eml"),
        ("lines.jsonl.gz", "unpack it (`gunzip FILE`)"),
    ],
)
def test_what_can_be_converted_is_named_with_its_remedy(tmp_path: Path, name: str, remedy: str) -> None:
    write(tmp_path, a__txt="Kalo.")
    (tmp_path / name).write_bytes(b"x")
    documents, report = read(tmp_path)
    (path, kind) = tmp_path / name, Path(name).suffix
    assert (list(documents), report.other_types) == (["a.txt"], {kind: 1})
    assert f"{path}: {kind}: there is no reader for this type: {remedy}" in report.missed_table()


def test_a_corpus_of_one_file_of_another_type_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "guide.rst").write_text("Guide\n=====\n")
    with raises("corpus.empty", match=r"guide\.rst: \.rst: .* convert it to Markdown"):
        read(tmp_path / "guide.rst")


def test_warnings_of_libraries_name_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pypdf")
    write(tmp_path, b__pdf=small_pdf("Kalo is a city"))  # without a table of its objects
    documents, report = read(tmp_path)
    assert documents["b.pdf"].text == "Kalo is a city"
    assert report.warnings.counts.total() == len(report.warnings) > 0
    assert f"{tmp_path / 'b.pdf'}: pypdf: parsing for Object Streams" in report.warnings_table().split("\n")
    assert capsys.readouterr().err == ""


def test_documents_of_json_lines_name_their_file(tmp_path: Path) -> None:
    write(tmp_path, sub_in_a__jsonl=json.dumps({"id": "7", "contents": "Kalo\n  A city."}))
    assert read(tmp_path)[0]["7"].file == "sub/a.jsonl"


def small_pdf(*texts: str) -> bytes:
    """Pages with one line of text each, written by hand (readers rebuild the missing table of offsets)."""
    streams = [f"BT /F1 12 Tf 10 50 Td ({text}) Tj ET" for text in texts]
    pages = "".join(
        f"{10 + 2 * number} 0 obj <</Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Contents {11 + 2 * number} 0 R "
        "/Resources <</Font <</F1 5 0 R>>>>>> endobj\n"
        f"{11 + 2 * number} 0 obj <</Length {len(stream)}>> stream\n{stream}\nendstream endobj\n"
        for number, stream in enumerate(streams)
    )
    kids = " ".join(f"{10 + 2 * number} 0 R" for number in range(len(streams)))
    return (
        "%PDF-1.4\n1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj\n"
        f"2 0 obj <</Type /Pages /Kids [{kids}] /Count {len(streams)}>> endobj\n{pages}"
        "5 0 obj <</Type /Font /Subtype /Type1 /BaseFont /Helvetica>> endobj\n"
        "trailer <</Root 1 0 R /Size 6>>\nstartxref\n0\n%%EOF"
    ).encode()


def test_real_text_files_of_the_standard_library() -> None:
    root = Path(os.__file__).parent
    report = ReadReport()
    documents = []
    try:
        for document in read_corpus(root / "lib2to3", report=report):
            documents.append(document)
    except DataError:
        pytest.skip("this Python comes without text files")
    assert all(document.text and document.title for document in documents)
