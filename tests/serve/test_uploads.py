"""Uploads as a client sends them: what is taken, what is refused, and what the index has afterwards."""

import http.client
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from urllib.parse import quote

import httpx2
import pytest
from rich.console import Console

from evoseek.errors import ConfigError
from evoseek.search.indexing import IndexPlan, build_index
from evoseek.search.opening import LiveIndex
from evoseek.serve import uploads as module
from evoseek.serve.uploads import MAX_AT_ONCE, MAX_BYTES, Uploads


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uploads")
    (folder / "corpus" / "new").mkdir(parents=True)
    (folder / "corpus" / "kalo.md").write_text("The mayor of Kalo is Meri Tolu.")
    (folder / "outside.md").write_text("Not in the corpus.")
    (folder / "corpus" / "new" / "linked.md").symlink_to(folder / "outside.md")
    build_index(folder / "corpus", folder / "index", IndexPlan(), console=Console(quiet=True))
    return folder


@pytest.fixture(scope="module")
def served(serving, corpus):
    index = LiveIndex(corpus / "index")
    with serving(engine=index, uploads=Uploads(corpus / "corpus" / "new", corpus / "index")) as served:
        served.index = index
        yield served


def put(served, name, data=b"# Vesu\n\nVesu is old.", **options):
    address = f"{served.url}/v1/uploads/{quote(name, safe='')}"
    return httpx2.put(address, content=data, timeout=60, **options)


def reported(served, count):
    """The reports, once this number of files is read or skipped."""
    deadline = time.monotonic() + 300
    while True:
        told = httpx2.get(f"{served.url}/v1/uploads").json()
        done = {file["file"]: file for file in told["files"] if file["state"] != "waiting"}
        if len(done) >= count:
            return done
        assert time.monotonic() < deadline, told
        time.sleep(0.3)


def zipped(**files):
    data = BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in files.items():
            made.writestr(name, text)
    return data.getvalue()


def names(corpus):
    return {path.name for path in (corpus / "corpus" / "new").iterdir()}


def test_files_are_read_into_the_index_and_the_others_are_explained(served, corpus):
    bomb = zipped(**{"word/document.xml": b"<x/>" * 50_000_000})
    script = b"<title>Vesu</title><body><p>Vesu has a harbour.</p><script>alert(1)</script></body>"
    sent = {"vesu.md": b"# Vesu\n\nVesu is very old.", "page.html": script, "bomb.docx": bomb, "empty.txt": b""}
    assert len(bomb) < 1_000_000
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda one: put(served, *one), sent.items()))
    assert [(reply.status_code, reply.json()) for reply in replies] == [(201, {"file": f"new/{n}"}) for n in sent]
    found = reported(served, 4)
    assert found["new/vesu.md"] | {"warnings": []} == {
        "file": "new/vesu.md",
        "state": "read",
        "passages": 1,
        "skipped": [],
        "warnings": [],
    }
    assert [found[f"new/{name}"]["state"] for name in ("page.html", "bomb.docx", "empty.txt")] == [
        "read",
        "skipped",
        "skipped",
    ]
    assert found["new/empty.txt"]["skipped"] == ["empty"]
    assert "bytes" in found["new/bomb.docx"]["skipped"][0] or "memory" in found["new/bomb.docx"]["skipped"][0]
    served.index.look()
    assert [passage.file for passage in served.index.find("harbour", 1)] == ["new/page.html"]
    page = httpx2.get(f"{served.url}/v1/files/new/page.html")
    assert page.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert names(corpus) == {*sent, "linked.md"}
    again = put(served, "vesu.md", b"another text")
    assert (again.status_code, "already" in again.text) == (409, True)
    assert (corpus / "corpus" / "new" / "vesu.md").read_bytes() == sent["vesu.md"]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("../out.md", 400),
        ("..", 404),  # the client asks for /v1
        ("a/b.md", 400),
        ("/etc/out.md", 400),
        (".hidden.md", 400),
        ("~$lock.md", 400),
        ("two\nlines.md", 404),
        ("nul\0.md", 400),
        ("n" * 300 + ".md", 400),
        ("virus.exe", 415),
        ("none", 415),
        ("linked.md", 409),
    ],
)
def test_what_is_refused_leaves_nothing(served, corpus, name, status):
    before = sorted(corpus.rglob("*"))
    reply = put(served, name)
    assert (reply.status_code, "error" in reply.json()) == (status, True)
    assert sorted(corpus.rglob("*")) == before
    assert (corpus / "outside.md").read_text() == "Not in the corpus."


def test_a_file_that_is_too_large_or_not_whole_leaves_nothing(served, corpus, monkeypatch):
    before = names(corpus)
    connection = http.client.HTTPConnection(served.url.removeprefix("http://"))
    connection.putrequest("PUT", "/v1/uploads/large.md")
    connection.putheader("Content-Length", str(2 * 2**30))
    connection.endheaders(b"begin")
    assert connection.getresponse().status == 413  # before the rest came
    connection.close()
    monkeypatch.setattr(module, "MAX_BYTES", 1_000)
    assert put(served, "chunked.md", iter([b"x" * 600] * 2)).status_code == 413
    monkeypatch.setattr(module, "MAX_BYTES", MAX_BYTES)
    connection = http.client.HTTPConnection(served.url.removeprefix("http://"))
    connection.putrequest("PUT", "/v1/uploads/half.md")
    connection.putheader("Content-Length", "1000")
    connection.endheaders(b"half")
    connection.close()
    assert put(served, "n.exe").status_code == 415  # the server is there
    assert names(corpus) == before


def test_the_number_of_files_is_bounded(served, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILES", 1)
    assert put(served, "more.md").status_code == 507


def test_twenty_at_once_of_one_name_are_one_file(served, corpus):
    with ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(lambda number: put(served, "same.md", b"Text %d." % number * 999), range(20)))
    statuses = [reply.status_code for reply in replies]
    assert statuses.count(201) == 1
    assert set(statuses) <= {201, 409, 429}
    written = (corpus / "corpus" / "new" / "same.md").read_bytes()
    assert written == b"Text %d." % statuses.index(201) * 999
    assert MAX_AT_ONCE < 20


def test_a_file_that_was_removed_meanwhile_is_not_waited_for(serving, corpus):
    uploads = Uploads(corpus / "corpus" / "new", corpus / "index")
    with serving(uploads=uploads) as served:
        assert put(served, "gone.md").status_code == 201
        (corpus / "corpus" / "new" / "gone.md").unlink()
        assert reported(served, 1)["new/gone.md"]["skipped"] == ["it is gone"]


def test_an_index_that_cannot_be_updated_is_told_and_tried_again(serving, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_RETRY_S", 0.1)
    uploads = Uploads(corpus / "corpus" / "new", corpus / "index")
    hidden = (corpus / "index").rename(tmp_path / "hidden")
    with serving(uploads=uploads) as served:
        assert put(served, "later.md").status_code == 201
        deadline = time.monotonic() + 300
        while (told := httpx2.get(f"{served.url}/v1/uploads").json())["error"] is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert "There is no folder" in told["error"]
        hidden.rename(corpus / "index")
        assert reported(served, 1)["new/later.md"]["state"] == "read"
        assert httpx2.get(f"{served.url}/v1/uploads").json()["error"] is None


def test_a_report_that_cannot_be_written_is_told_and_tried_again(serving, corpus, monkeypatch):
    monkeypatch.setattr(module, "_RETRY_S", 0.1)
    uploads, updated, calls = Uploads(corpus / "corpus" / "new", corpus / "index"), Uploads._updated, []

    async def full(self):
        calls.append(self)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        return await updated(self)

    monkeypatch.setattr(Uploads, "_updated", full)
    with serving(uploads=uploads) as served:
        assert put(served, "kept.md").status_code == 201
        assert reported(served, 1)["new/kept.md"]["state"] == "read"
    assert len(calls) == 2


def test_uploads_need_the_key(serving, corpus):
    uploads = Uploads(corpus / "corpus", corpus / "index")
    with serving(keys=["a-key-that-is-long"], uploads=uploads) as served:
        assert put(served, "kept-out.md").status_code == 401
        assert not (corpus / "corpus" / "kept-out.md").exists()
    with serving() as served:
        assert put(served, "kept-out.md").status_code == 404


def test_the_folder_lies_in_the_documents(corpus, tmp_path):
    with pytest.raises(ConfigError, match="no folder of the documents of the index"):
        Uploads(tmp_path, corpus / "index")
    (corpus / "corpus" / "way-out").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="no folder of the documents of the index"):
        Uploads(corpus / "corpus" / "way-out", corpus / "index")
