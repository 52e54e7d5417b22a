"""Pages to text, in processes that hostile pages can only kill."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import zlib
from contextlib import suppress

import pytest

from evoseek.errors import PageError, ToolError
from evoseek.web import extract
from evoseek.web.extract import TYPES, Extractor

HTML = """<html><head><title> Kalo
 town</title></head><body><nav>Home</nav><article><p>Kalo is a town whose mayor is Meri, who was chosen last year by all
who live there.</p><table><tr><td>Mayor</td><td>Meri</td></tr></table></article></body></html>"""


def read(extractor, body, kind="text/html", charset=""):
    return asyncio.run(extractor.page(body if isinstance(body, bytes) else body.encode(), kind, charset))


def pdf(content):
    """A PDF of one page with a packed content stream."""
    packed = zlib.compress(content)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    data, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    entries = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    table = b"xref\n0 6\n0000000000 65535 f \n" + entries
    return data + table + b"trailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % len(data)


def test_a_page_has_its_title_and_its_text_without_markup(extractor):
    title, text = read(extractor, HTML)
    assert title == "Kalo town"
    assert "mayor is Meri" in text
    assert "<" not in text


def test_types_and_charsets(extractor):
    assert read(extractor, "Meri", "text/plain") == ("", "Meri")
    assert read(extractor, "M\xe9ri".encode("cp1252"), "text/plain", "windows-1252") == ("", "Méri")
    assert read(extractor, "Méri", "text/plain", "no-such-charset") == ("", "Méri")
    assert read(extractor, '<?xml version="1.0" encoding="utf-8"?>' + HTML, "application/xhtml+xml")[0] == "Kalo town"
    assert "application/pdf" in TYPES
    assert read(extractor, pdf(b"BT /F 12 Tf 50 700 Td (Kalo has a mayor) Tj ET"), "application/pdf") == (
        "",
        "Kalo has a mayor",
    )
    page = pdf(b"BT /F 12 Tf 50 700 Td (Kalo has a mayor) Tj ET % \x93")
    assert read(extractor, page, "application/pdf", "windows-1252") == ("", "Kalo has a mayor")


@pytest.mark.parametrize(
    "body", ["<html><body><script>render()</script></body></html>", "<html><body><img src=x></body>"]
)
def test_a_page_that_shows_nothing_has_no_text(extractor, body):
    assert read(extractor, body)[1] == ""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "text/html"),
        (b"\0\1\2", "text/html"),
        (b"\0", "text/plain"),
        (b"%PDF-1.4 no", "application/pdf"),
        (b"x", "application/pdf"),
    ],
)
def test_what_is_not_of_its_type_cannot_be_read(extractor, body, kind):
    with pytest.raises(PageError, match=r"cannot be read: .*Choose another"):
        read(extractor, body, kind)


ENTITIES = "<!DOCTYPE x [<!ENTITY a 'lol'>" + "".join(
    f"<!ENTITY {chr(98 + i)} '{f'&{chr(97 + i)};' * 10}'>" for i in range(9)
)
HOSTILE = {  # what stands in <html><body>
    "deep nesting": "<div>" * 300_000 + "x",
    "deep tables": "<table><tr><td>" * 100_000 + "x",
    "deep formatting": "<b><i><font>" * 100_000 + "x",
    "attributes": "<p " + " ".join(f"a{i}=1" for i in range(150_000)) + ">x</p>",
    "one attribute": f"<p class='{'a ' * 300_000}'>x</p>",
    "entities": ENTITIES + "]><html><body><p>&j;</p></body></html>",
    "links": "<a href='x'>y</a>" * 8_000,
    "open comments": "<!--" * 450_000,
    "paragraphs": "<p>x y z w</p>" * 8_000,
    "references": "&#x41;" * 300_000,
    "spaces": "<p>" + " \n" * 900_000 + "</p>",
    "dates": "<time datetime='2020-01-01'>2020</time>" * 8_000,
}


def test_hostile_pages_end_within_their_limits():
    extractor = Extractor(1, cpu_s=1, wall_s=60)
    for body in (body for name, body in HOSTILE.items() if name != "attributes"):
        with suppress(PageError):
            read(extractor, f"<html><body>{body}")
    with pytest.raises(PageError, match="more than 1 seconds of processor time"):
        read(extractor, f"<html><body>{HOSTILE['attributes']}")
    assert read(extractor, HTML)[0] == "Kalo town"
    agents = "".join(f"User-agent: a{i}\n" for i in range(15_000))
    with pytest.raises(PageError, match="processor time"):
        asyncio.run(extractor.robots((agents + "Disallow: /x\n" * 15_000).encode(), "evoseek", "http://example.org/"))
    extractor.close()


def test_a_bomb_in_a_pdf_is_not_unpacked(extractor):
    with pytest.raises(PageError, match="LimitReachedError"):
        read(extractor, pdf(b"BT (" + b"A" * 90_000_000 + b") Tj ET"), "application/pdf")


def test_memory_has_a_limit():
    extractor = Extractor(1, memory_bytes=400 * 2**20)
    with pytest.raises(PageError, match="too much memory"):
        read(extractor, b"\xe9" * 60_000_000, "text/plain", "latin-1")
    assert read(extractor, HTML)[0] == "Kalo town"
    extractor.close()


def test_a_worker_that_was_killed_is_replaced(extractor):
    read(extractor, HTML)
    (worker,) = extractor._processes[0].pids
    os.kill(worker, signal.SIGKILL)
    assert read(extractor, HTML)[0] == "Kalo town"
    assert len(extractor._processes[0].pids) == 1


def test_a_worker_ends_with_its_input():
    command = [sys.executable, "-m", "evoseek.documents.parse_process", extract._READER, "1", str(2**30)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert done.stdout == b"\0\0\0\2{}"


@pytest.fixture
def parsing(tmp_path, monkeypatch):
    """Makes an extractor whose processes are real but for how they parse plain text: by a line of Python."""

    def make(line):
        (tmp_path / "parsing_worker.py").write_text(
            "import sys, time\nfrom evoseek.web import extract_worker\n\n"
            f"def parse(body):\n    {line}\n    return '', body.decode()\n\n"
            "extract_worker._PARSERS = {'text/plain': parse}\nanswer = extract_worker.answer\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(extract, "_READER", "parsing_worker:answer")
        made.append(Extractor(1, cpu_s=1))
        return made[-1]

    made = []
    yield make
    for extractor in made:
        extractor.close()


def test_a_page_fills_no_disk(parsing, tmp_path):
    extractor = parsing(f"open({str(tmp_path / 'filled')!r}, 'wb', 0).write(body)")
    with pytest.raises(PageError, match="OSError"):
        read(extractor, "x", "text/plain")
    assert (tmp_path / "filled").read_bytes() == b""


def test_the_limit_of_processor_time_is_for_each_page_however_many_a_process_has_read(parsing):
    extractor = parsing("end = time.process_time() + 0.6\n    while time.process_time() < end: pass")
    workers = set()
    for page in "abcd":
        assert read(extractor, page, "text/plain")[1] == page
        workers.update(extractor._processes[0].pids)
    assert len(workers) == 1


@pytest.fixture
def scripted(tmp_path, monkeypatch):
    """Extractors whose processes, once started, run a line of Python for each page."""

    def make(line, ready="", **settings):
        (tmp_path / "scripted_worker.py").write_text(
            f"import os, signal, sys, time\n{ready}\ndef answer(header, body):\n    {line}\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(extract, "_READER", "scripted_worker:answer")
        extractor = Extractor(1, **settings)
        made.append(extractor)
        return extractor

    made = []
    yield make
    for extractor in made:
        extractor.close()


def test_closing_ends_pages_that_are_being_read_and_starts_no_process(scripted):
    extractor = scripted("time.sleep(30)")

    async def close_while_reading():
        reading = asyncio.create_task(extractor.page(b"x", "text/html"))
        while not extractor._processes[0].pids:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        extractor.close()
        await reading

    with pytest.raises(ToolError, match="closed"):
        asyncio.run(asyncio.wait_for(close_while_reading(), 20))
    assert not extractor._processes[0].pids


@pytest.mark.parametrize(
    ("line", "error", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", ToolError, "killed twice"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", PageError, "breaks the reader"),
        ("sys.exit(1)", PageError, "breaks the reader"),
        ("os.kill(os.getpid(), signal.SIGXCPU)", PageError, "processor time"),
        ("time.sleep(60)", ToolError, "not parsed within 0.3 seconds"),
        (r"os.write(3, b'\xff' * 99)", PageError, "breaks the reader"),
    ],
)
def test_how_workers_fail(scripted, line, error, said):
    with pytest.raises(error, match=said):
        read(scripted(line, wall_s=0.3), "x")


def test_a_worker_that_does_not_start_says_how_to_see_why(scripted):
    with pytest.raises(ToolError, match=r"See why: .*python.* -m evoseek\.documents\.parse_process scripted_worker"):
        read(scripted("pass", ready="raise SystemExit(3)"), "x")


def test_a_worker_knows_nothing_of_the_environment(scripted, monkeypatch):
    monkeypatch.setenv("SERPER_API_KEY", "sk-secret")
    answer = "return {'title': '', 'text': str(dict(os.environ))}"
    assert "secret" not in read(scripted(answer), "x")[1]


def test_whoever_gives_up_is_let_go_at_once(scripted):
    async def give_up():
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow.page(b"x", "text/html"), 0.1)
        return time.monotonic() - start

    slow = scripted("time.sleep(2)", wall_s=2)
    assert asyncio.run(give_up()) < 1
