"""What an index was built from, by type of file and file by file."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from evoseek.cli.main import app
from evoseek.documents.read_report import Notes
from evoseek.search.indexing import IndexPlan, build_index, update_index
from evoseek.text.decoding import LINK_OUT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus = tmp_path / "corpus"
    (corpus / ".git").mkdir(parents=True)
    (corpus / "a.md").write_text("# Kalo\n\nKalo is a city.")
    (corpus / "b.csv").write_text("name,age\nMeri,30\nTor,40\n")
    (corpus / "c.jsonl").write_text('{"id": "1", "text": "Supa is a river."}\n{broken\n')
    (corpus / "d.txt").write_text("")
    (corpus / "e.eml").write_bytes(b"no mail")
    (corpus / "f.png").write_bytes(b"")
    (corpus / "g.txt").write_bytes("Über die größte Brücke der Stadt führt ein Weg.".encode("latin-1"))
    return tmp_path


def build(folder: Path, report: Path | None = None) -> str:
    """What is said."""
    console = Console(file=io.StringIO(), width=200)
    build_index(folder / "corpus", folder / "index", IndexPlan(), console=console, report_file=report)
    return console.file.getvalue()


def test_files_documents_passages_and_words_are_counted_by_type(folder: Path) -> None:
    said = build(folder)
    table = [line.split() for line in said.split("\n") if line.startswith(("type", ".", "all"))]
    assert table == [
        ["type", "files", "documents", "passages", "words", "skipped"],
        [".csv", "1", "2", "2", "8", "0"],
        [".jsonl", "1", "1", "1", "4", "1"],
        [".md", "1", "1", "1", "6", "0"],
        [".txt", "2", "1", "1", "9", "1"],
        [".eml", "1", "0", "0", "0", "1"],
        ["all", "6", "5", "5", "27", "4"],
    ]
    assert re.search(r"^folders and links .* 1$", said, re.MULTILINE)
    assert "5 documents read, 4 skipped (1 broken JSON, 1 empty, 1 hidden folder, 1 no mail), 1 file of" in said


def test_the_report_is_written_as_json_also_by_an_update_that_finds_nothing_changed(folder: Path) -> None:
    build(folder, folder / "first.json")
    found = json.loads((folder / "first.json").read_text())
    update_index(
        folder / "corpus",
        folder / "index",
        device=None,
        console=Console(quiet=True),
        report_file=folder / "second.json",
    )
    assert json.loads((folder / "second.json").read_text()) == found
    assert found["types"][".csv"] == {"files": 1, "documents": 2, "passages": 2, "words": 8, "skipped": 0}
    assert found["skipped"] == {"hidden folder": 1, "broken JSON": 1, "empty": 1, "no mail": 1}
    assert (found["other_types"], list(found["guessed_encodings"].values())) == ({".png": 1}, [1])
    assert found["folders"] == [{"folder": str(folder / "corpus" / ".git"), "reason": "hidden folder"}]
    files = {row["file"]: row for row in found["files"]}
    assert files["a.md"] == {"file": "a.md", "type": ".md", "documents": 1, "passages": 1, "words": 6, "skipped": 0}
    assert files["c.jsonl"]["skipped_for"][0]["line"] == 2
    assert files["d.txt"]["skipped_for"] == [{"line": None, "reason": "empty"}]
    assert files["e.eml"]["type"] == ".eml"
    assert files["g.txt"]["guessed_encodings"] == list(found["guessed_encodings"])


def test_documents_and_archives_that_were_not_read_come_first_and_by_name(folder: Path) -> None:
    """Pictures and programs are only counted, at the end."""
    corpus = folder / "corpus"
    names = (
        "old.doc",
        "sum.xls",
        "talk.ppt",
        "a.odt",
        "b.rtf",
        "c.msg",
        "contract.zip",
        "big.log",
        "made.conf",
        "README",
    )
    for name in (*names, *(f"{n}.js" for n in range(30)), *(f"{n}.JPG" for n in range(30))):
        (corpus / name).write_bytes(b"x")
    for name in ("~$plan.docx", ".~lock.plan.odt#", "notes.txt~", "Thumbs.db", ".DS_Store"):
        (corpus / name).write_bytes(b"x")
    (corpus / "link.txt").symlink_to("/etc/hostname")
    said = build(folder, folder / "report.json")
    kinds = "1 .conf, 1 .doc, 1 .log, 1 .msg, 1 .odt, 1 .ppt, 65 others"
    assert f"71 files of other types ({kinds})" in said
    assert "10 files of other types were not read:" in said
    report = json.loads((folder / "report.json").read_text())
    assert {Path(row["file"]).name for row in report["other_files"]} == {*names}
    assert {"folder": str(corpus / "link.txt"), "reason": LINK_OUT} in report["folders"]
    for name in names:
        assert str(corpus / name) in said


@pytest.mark.parametrize("count", [1, 2])
def test_counts_agree_with_their_nouns(tmp_path: Path, count: int) -> None:
    """In every line of a report, with one or two of everything that it counts."""
    (tmp_path / "corpus").mkdir()
    for n in range(count):
        (tmp_path / "corpus" / f"{n}.txt").write_bytes("größe".encode("cp1252"))
        (tmp_path / "corpus" / f"{n}.zip").write_bytes(b"x")
        (tmp_path / "corpus" / f"empty{n}.md").write_bytes(b"")
        (tmp_path / "corpus" / f"{n}.eml").write_bytes(
            b"From: a\nSubject: b\nContent-Type: multipart/mixed; boundary=x\n\n--x\n\nText\n--x\n"
            b'Content-Disposition: attachment; filename="a.xls"\n\nx\n--x--\n'
        )
    for kind in "abcdefg":
        (tmp_path / "corpus" / f"x.{kind}{kind}{kind}").write_bytes(b"x")
    said = build(tmp_path)
    assert f"{2 * count} documents read" in said
    wrong = (
        r"\b1 (?!(?:empty|skipped|\.|were)\b)\w+s\b"
        if count == 1
        else r"\b[2-9] (?:document|file|passage|warning|other)\b"
    )
    assert re.findall(wrong, re.sub(r"^(?:type|\.|all|folders).*", "", said, flags=re.MULTILINE)) == []


def test_the_command_writes_it_where_the_option_says(folder: Path) -> None:
    words = ["index", str(folder / "corpus"), str(folder / "index"), "--report", str(folder / "report.json")]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0
    assert f"Report of all files: {folder / 'report.json'}" in said.stdout.replace("\n", "")
    assert json.loads((folder / "report.json").read_text())["corpus"] == str(folder / "corpus")


def test_what_is_skipped_for_a_rare_reason_is_shown_among_ten_thousand(tmp_path: Path) -> None:
    notes = Notes()
    for number in range(10_000):
        notes.add(tmp_path / f"{number}.txt", "empty")
    notes.add(tmp_path / "scan.pdf", "PDF without text: its pages are pictures")
    lines = list(notes.lines(20))
    assert (len(notes), len(lines)) == (101, 12)
    assert lines[0] == f"{tmp_path / '0.txt'}: empty"
    assert lines[10:] == [
        "... and 9,990 more: empty",
        f"{tmp_path / 'scan.pdf'}: PDF without text: its pages are pictures",
    ]
