"""An update gives the index of a fresh build, with only what changed being read; and the report of what was read."""

from __future__ import annotations

import errno
import io
import json
import re
import time
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest
from rich.console import Console
from tests.raising import raises
from tests.search.spelling import LetterEncoder
from typer.testing import CliRunner

from evoseek.cli.main import app
from evoseek.config.trust import VARIABLE
from evoseek.documents.parse_process import ParseProcess
from evoseek.documents.read_report import Notes, ReadReport
from evoseek.errors import SearchIndexError, ToolError
from evoseek.search import sources
from evoseek.search.analyser import Analyser
from evoseek.search.indexing import IndexPlan, build_index, update_index, watch_corpus
from evoseek.search.lexical import LexicalIndex, to_stored
from evoseek.search.opening import LiveIndex
from evoseek.search.sources import CorpusPassages, Recorded
from evoseek.storage.files import file_digest
from evoseek.text.decoding import LINK_OUT
from evoseek.types import Passage

DAMAGED_PDF = b"""%PDF-1.4
1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj
2 0 obj <</Type /Pages /Kids [3 0 R] /Count 1>> endobj
3 0 obj <</Type /Page /Parent 2 0 R /Contents 4 0 R /Resources <</Font <</F1 5 0 R>>>>>> endobj
4 0 obj <</Length 25>> stream
BT /F1 12 Tf (Kalo) Tj ET
endstream endobj
5 0 obj <</Type /Font /Subtype /Type1 /BaseFont /Helvetica>> endobj
trailer <</Root 1 0 R /Size 6>>
startxref
0
%%EOF"""


def console() -> Console:
    return Console(file=io.StringIO(), width=300)


def update(folder: Path) -> str:
    """What an update says."""
    told = console()
    update_index(folder / "corpus", folder / "index", device=None, console=told)
    return told.file.getvalue()


def texts(folder: Path) -> dict[str, str]:
    return {passage.document_id: passage.text for passage in LexicalIndex.open(folder / "index").passages()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("Kalo is a city.")
    (corpus / "b.jsonl").write_text(json.dumps({"id": "1", "text": "Meri."}) + "\n{broken\n")
    (corpus / "c.md").write_text("# Supa\n\nA river.")
    build_index(corpus, tmp_path / "index", IndexPlan(), console=console())
    return tmp_path


def test_files_that_are_as_recorded_are_not_read(folder: Path) -> None:
    """A file that is taken for unchanged keeps its passages, whatever is in it now."""
    before = Recorded(LexicalIndex.open(folder / "index"))
    changed = folder / "corpus" / "a.txt"
    changed.write_text("Kalo is a town.")
    (folder / "corpus" / "c.md").write_text("# Supa\n\nA lake.")
    before.sources.files[0].sha256 = file_digest(changed)
    found = CorpusPassages(folder / "corpus", report=ReadReport(), before=before)
    assert [passage.text for passage in found.read()] == ["Kalo is a city.", "Meri.", "# Supa\n\nA lake."]


def test_the_report_of_files_that_are_not_read_again_is_kept(folder: Path) -> None:
    assert "is up to date: no file of" in update(folder)
    (folder / "corpus" / "a.txt").rename(folder / "corpus" / "z.txt")
    (folder / "corpus" / "c.md").write_text("# Supa\n\nA lake.")
    (folder / "corpus" / "d.txt").write_text("Vesu is new.")
    said = update(folder)
    assert "4 documents read, 1 skipped (1 broken JSON)" in said
    assert "b.jsonl:2: broken JSON" in said
    assert "Files: 1 new, 1 changed, 1 renamed, 0 deleted, 1 unchanged" in said
    assert texts(folder) == {
        "1": "Meri.",
        "c.md": "# Supa\n\nA lake.",
        "d.txt": "Vesu is new.",
        "z.txt": "Kalo is a city.",
    }


def test_a_file_that_the_machine_was_too_busy_for_is_read_by_the_next_update(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise ToolError("the machine is busy")

    (folder / "corpus" / "d.html").write_text("<p>Vesu is new.</p>")
    with monkeypatch.context() as patch:
        patch.setattr(ParseProcess, "parse", busy)
        assert "the machine is busy" in update(folder)
    assert "d.html" not in texts(folder)
    (folder / "corpus" / "e.docx").write_bytes(b"broken")  # which stays as it is
    update(folder)
    assert texts(folder)["d.html"] == "Vesu is new."
    assert "is up to date" in update(folder)


def test_a_file_that_a_broken_disk_did_not_give_is_read_by_the_next_update(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    (folder / "corpus" / "d.txt").write_text("Vesu is new.")
    with monkeypatch.context() as patch:
        patch.setattr("evoseek.text.decoding.open_regular", broken)
        update(folder)
    assert "d.txt" not in texts(folder)
    update(folder)
    assert texts(folder)["d.txt"] == "Vesu is new."


@pytest.mark.parametrize("kind", ["link", "permission"])
def test_a_file_that_still_cannot_be_read_is_no_change(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "corpus" / "d.txt"
    if kind == "link":
        path.symlink_to(folder / "corpus" / "gone.txt")
    else:
        open_regular = sources.open_regular
        path.write_text("Vesu is new.")

        def refused(file: Path, within: Path | None = None) -> object:
            if file == path:
                raise PermissionError(errno.EACCES, "Permission denied")
            return open_regular(file, within)

        monkeypatch.setattr("evoseek.text.decoding.open_regular", refused)
        monkeypatch.setattr(sources, "open_regular", refused)
    assert "1 new" in update(folder)
    assert "is up to date" in update(folder)
    monkeypatch.undo()
    path.unlink()
    path.write_text("Vesu is new.")
    assert "1 changed" in update(folder)
    assert texts(folder)["d.txt"] == "Vesu is new."


def test_what_changed_is_said_first(folder: Path) -> None:
    (folder / "corpus" / "d.txt").write_text("Vesu is new.")
    said = [line for line in update(folder).split("\n") if not line.startswith("files read")]
    assert said[0].startswith("Files: 1 new")
    (unchanged, summary, _) = update(folder).split("\n")
    assert "is up to date" in unchanged
    assert "documents read" in summary


def test_a_report_in_the_corpus_is_refused(folder: Path) -> None:
    report = folder / "corpus" / "report.txt"
    with raises("index.report_in_corpus"):
        update_index(folder / "corpus", folder / "index", device=None, console=console(), report_file=report)


def test_the_origins_of_a_corpus_that_may_not_be_seen_are_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LiveIndex(folder / "index").files["a.txt"].opened()
    is_file = Path.is_file

    def refused(path: Path) -> bool:
        if path.name == "corpus":
            raise PermissionError(path)
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    assert LiveIndex(folder / "index").files == {}


def test_reading_shows_its_progress_on_a_terminal_and_in_lines(folder: Path) -> None:
    assert "files read 3/3  3 passages" in update_all(folder, console())
    terminal = Console(file=io.StringIO(), width=100, force_terminal=True, legacy_windows=False)
    said = update_all(folder, terminal)
    assert "files read" in said
    assert "\x1b[" in said  # a bar that is drawn again


def test_of_a_file_of_many_documents_it_shows_how_much_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers of 1 MiB are read at a time, so the position is that of the last one."""
    for module in ("evoseek.documents.documents", "evoseek.search.sources"):
        monkeypatch.setattr(f"{module}._TOLD", 4)
    lines = [json.dumps({"id": f"n{number}", "text": "kalo " * 50_000}) for number in range(12)]
    many = folder / "corpus" / "many.jsonl"
    many.write_text("\n".join(lines))
    told: list[str] = []
    passages = CorpusPassages(many, report=ReadReport(), max_words=50_000)
    assert len(list(passages.read(lambda done, of, text: told.append(f"{done}/{of} {text}")))) == 12
    shares = [f", {position * 2**20 / many.stat().st_size:.0%} of many.jsonl" for position in (1, 2)]
    assert told == ["0/1 0 passages", f"0/1 4 passages{shares[0]}", f"0/1 8 passages{shares[1]}", "1/1 12 passages"]


def test_an_interrupted_build_resumes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After two of four passages, each of which is saved; the index is the one of a build at once."""
    (folder / "corpus" / "d.txt").write_text("Vesu is new.")
    monkeypatch.setattr("evoseek.search.lexical._SAVE_S", 0)
    added: list[int] = []

    def interrupted(passage: Passage, order: int, analyser: Analyser) -> object:
        if order == 2 and not added.count(2):
            added.append(order)
            raise KeyboardInterrupt
        added.append(order)
        return to_stored(passage, order, analyser)

    monkeypatch.setattr("evoseek.search.lexical.to_stored", interrupted)
    with pytest.raises(KeyboardInterrupt):
        update_all(folder, console())
    assert list(texts(folder)) == ["a.txt", "1", "c.md"]
    assert "4 passages of at most 100 words" in update_all(folder, console())
    assert added == [0, 1, 2, 2, 3]
    assert list(texts(folder)) == ["a.txt", "1", "c.md", "d.txt"]
    assert CorpusPassages(folder / "corpus", report=ReadReport(), before=recorded(folder)).is_unchanged


def recorded(folder: Path) -> Recorded:
    return Recorded(LexicalIndex.open(folder / "index"))


def update_all(folder: Path, told: Console) -> str:
    """What is said while the index is built anew."""
    build_index(folder / "corpus", folder / "index", IndexPlan(), console=told)
    return told.file.getvalue()


def test_warnings_of_files_that_are_not_read_again_are_kept(folder: Path) -> None:
    pytest.importorskip("pypdf")
    (folder / "corpus" / "e.pdf").write_bytes(DAMAGED_PDF)
    said = [update(folder)]
    (folder / "corpus" / "f.txt").write_text("Another.")  # else there is nothing to report
    for report in (*said, update(folder)):
        assert "warnings about files that were read:" in report
        assert "e.pdf: pypdf: parsing for Object Streams" in report


def test_a_document_counts_again_when_the_one_with_its_id_is_gone(folder: Path) -> None:
    """Of equal ids the first is read: with the file before it gone, an unchanged file has one document more; with a
    new file before it, one fewer."""
    second = folder / "corpus" / "d.jsonl"
    second.write_text(json.dumps({"id": "1", "text": "Another Meri."}))
    update(folder)
    assert texts(folder)["1"] == "Meri."
    (folder / "corpus" / "b.jsonl").unlink()
    update(folder)
    assert texts(folder)["1"] == "Another Meri."
    (folder / "corpus" / "b.jsonl").write_text(json.dumps({"id": "1", "text": "A third."}))
    assert "duplicate id: 1" in update(folder)
    assert texts(folder)["1"] == "A third."


def test_an_index_without_a_record_of_its_files_is_not_updated(folder: Path) -> None:
    LexicalIndex.build(folder / "index", [Passage("x#0", "x", "", "Added.")])
    with pytest.raises(SearchIndexError, match="does not record the files that it was built from"):
        update(folder)
    assert "x" in texts(folder)


def test_what_another_release_read_is_read_and_embedded_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have embedded other contents of the same text, so its vectors are not taken."""
    monkeypatch.setenv(VARIABLE, str(folder))
    calls = list[str]()
    embed = LetterEncoder.passages
    monkeypatch.setattr(LetterEncoder, "passages", lambda self, some: (calls.extend(some), embed(self, some))[1])
    plan = IndexPlan(engine="dense", encoder=f"{LetterEncoder.__module__}:LetterEncoder")
    build_index(folder / "corpus", folder / "index", plan, console=console())
    whole = list(calls)
    (folder / "corpus" / "d.txt").write_text("Another one.")
    calls.clear()
    update(folder)
    assert calls == ["d\nAnother one."]
    calls.clear()
    monkeypatch.setattr(sources, "_FORMATS", 0)
    assert "of other releases than before, so every file was read again" in update(folder)
    assert sorted(calls) == sorted([*whole, "d\nAnother one."])


def test_an_update_to_nothing_is_refused(folder: Path) -> None:
    before = texts(folder)
    for path in (folder / "corpus").iterdir():
        path.unlink()
    with raises("corpus.empty"):
        update(folder)
    assert texts(folder) == before
    with raises("corpus.missing"):
        update_index(folder / "gone", folder / "index", device=None, console=console())


def test_a_server_searches_the_new_state(folder: Path) -> None:
    live = LiveIndex(folder / "index")
    (folder / "corpus" / "d.txt").write_text("Vesu is new.")
    update(folder)
    assert [passage.document_id for passage in live.find_all(["vesu"], 3)[0]] == ["d.txt"]
    assert live.is_current
    (folder / "index" / "manifest.json").write_text("{}")
    live.look()  # what cannot be opened does not end it
    assert (len(live), live.is_current) == (4, False)


def test_a_passage_that_was_found_can_be_opened_though_an_update_removed_it(folder: Path) -> None:
    live = LiveIndex(folder / "index")
    before = {passage.id: passage for passage in live.passages()}
    for path in (folder / "corpus").iterdir():
        path.write_text("Nothing of before.")
    update(folder)
    assert {id: live.get(id) for id in before} == before  # their files are gone, and stay mapped
    live.look()
    assert {passage.text for passage in live.passages()} == {"Nothing of before."}


def test_watching_updates_whenever_a_file_changes(folder: Path) -> None:
    pytest.importorskip("watchfiles")
    stop, told = Event(), console()
    again = partial(update_index, folder / "corpus", folder / "index", device=None, console=told)
    options = {"console": told, "stop": stop}
    watching = Thread(target=watch_corpus, args=(folder / "corpus", again), kwargs=options, daemon=True)
    watching.start()
    try:
        wait_for(lambda: "Watching" in told.file.getvalue())
        (folder / "corpus" / "d.txt").write_text("Vesu is new.")
        wait_for(lambda: "1 new" in told.file.getvalue())
        assert texts(folder)["d.txt"] == "Vesu is new."
    finally:
        stop.set()
        watching.join(60)
    assert told.file.getvalue().endswith("Ended.\n")


def wait_for(happened: object, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
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


def built(mixed: Path, report: Path | None = None) -> str:
    """What is said."""
    console = Console(file=io.StringIO(), width=200)
    build_index(mixed / "corpus", mixed / "index", IndexPlan(), console=console, report_file=report)
    return console.file.getvalue()


def test_files_documents_passages_and_words_are_counted_by_type(mixed: Path) -> None:
    said = built(mixed)
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


def test_the_report_is_written_as_json_also_by_an_update_that_finds_nothing_changed(mixed: Path) -> None:
    built(mixed, mixed / "first.json")
    found = json.loads((mixed / "first.json").read_text())
    update_index(
        mixed / "corpus",
        mixed / "index",
        device=None,
        console=Console(quiet=True),
        report_file=mixed / "second.json",
    )
    assert json.loads((mixed / "second.json").read_text()) == found
    assert found["types"][".csv"] == {"files": 1, "documents": 2, "passages": 2, "words": 8, "skipped": 0}
    assert found["skipped"] == {"hidden folder": 1, "broken JSON": 1, "empty": 1, "no mail": 1}
    assert (found["other_types"], list(found["guessed_encodings"].values())) == ({".png": 1}, [1])
    assert found["folders"] == [{"folder": str(mixed / "corpus" / ".git"), "reason": "hidden folder"}]
    files = {row["file"]: row for row in found["files"]}
    assert files["a.md"] == {"file": "a.md", "type": ".md", "documents": 1, "passages": 1, "words": 6, "skipped": 0}
    assert files["c.jsonl"]["skipped_for"][0]["line"] == 2
    assert files["d.txt"]["skipped_for"] == [{"line": None, "reason": "empty"}]
    assert files["e.eml"]["type"] == ".eml"
    assert files["g.txt"]["guessed_encodings"] == list(found["guessed_encodings"])


def test_documents_and_archives_that_were_not_read_come_first_and_by_name(mixed: Path) -> None:
    """Pictures and programs are only counted, at the end."""
    corpus = mixed / "corpus"
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
    said = built(mixed, mixed / "report.json")
    kinds = "1 .conf, 1 .doc, 1 .log, 1 .msg, 1 .odt, 1 .ppt, 65 others"
    assert f"71 files of other types ({kinds})" in said
    assert "10 files of other types were not read:" in said
    report = json.loads((mixed / "report.json").read_text())
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
    said = built(tmp_path)
    assert f"{2 * count} documents read" in said
    wrong = (
        r"\b1 (?!(?:empty|skipped|\.|were)\b)\w+s\b"
        if count == 1
        else r"\b[2-9] (?:document|file|passage|warning|other)\b"
    )
    assert re.findall(wrong, re.sub(r"^(?:type|\.|all|folders).*", "", said, flags=re.MULTILINE)) == []


def test_the_command_writes_it_where_the_option_says(mixed: Path) -> None:
    words = ["index", str(mixed / "corpus"), str(mixed / "index"), "--report", str(mixed / "report.json")]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0
    assert f"Report of all files: {mixed / 'report.json'}" in said.stdout.replace("\n", "")
    assert json.loads((mixed / "report.json").read_text())["corpus"] == str(mixed / "corpus")


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
