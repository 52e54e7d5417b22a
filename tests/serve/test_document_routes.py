"""Documents as the page and agents see them: what stands around a passage, pictures of pages, files and contents."""

import asyncio
import io
import os
from urllib.parse import quote

import httpx2
import pytest
from rich.console import Console
from tests.documents.test_documents import small_pdf
from tests.serve.test_mcp import using

from evoseek.documents import page_picture
from evoseek.errors import DataError
from evoseek.search.indexing import IndexPlan, build_index
from evoseek.search.opening import LiveIndex
from evoseek.serve.mcp import Library, mcp_server


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    (folder / "corpus" / "old").mkdir(parents=True)
    parts = "\n\n".join(f"## Part {number}\n\nText {number}." for number in range(9))
    (folder / "corpus" / "guide #1.md").write_text(f"# Guide\n\n{parts}")
    (folder / "corpus" / "old" / "towns.csv").write_text("town,people\nKalo,7\nVesu,9\nIru,4\n")
    (folder / "corpus" / "pages.pdf").write_bytes(small_pdf("First page.", "The mayor is Meri Tolu."))
    for day, name in enumerate(("old/towns.csv", "pages.pdf", "guide #1.md"), start=1):
        os.utime(folder / "corpus" / name, (day * 86_400, day * 86_400))
    build_index(folder / "corpus", folder / "index", IndexPlan(max_words=5), console=Console(quiet=True))
    return LiveIndex(folder / "index")


@pytest.fixture(scope="module")
def served(serving, index):
    with serving(engine=index) as served:
        yield served


def around(served, id, neighbours):
    reply = httpx2.get(f"{served.url}/v1/passages/{quote(id)}?neighbours={neighbours}", timeout=30)
    return [passage["id"] for passage in reply.json()["passages"]] if reply.status_code == 200 else reply.status_code


def test_a_passage_between_others_of_its_document(served):
    assert around(served, "guide #1.md#4", 1) == [f"guide #1.md#{number}" for number in (3, 4, 5)]
    assert around(served, "guide #1.md#0", 2) == [f"guide #1.md#{number}" for number in (0, 1, 2)]
    rows = [f"old/towns.csv/row {number}#0" for number in (2, 3, 4)]
    assert around(served, rows[1], 9) == rows
    assert around(served, "pages.pdf#1", "x") == ["pages.pdf#1"]
    assert len(around(served, "guide #1.md#4", "9" * 5_000)) == 10
    assert around(served, "guide #1.md#99", 1) == 404
    assert around(served, "../secret#0", 1) == 404
    reply = httpx2.get(f"{served.url}/v1/passages/pages.pdf%231").json()
    own = {"text": "The mayor is Meri Tolu.", "file": "pages.pdf", "page": 2, "link": "v1/files/pages.pdf#page=2"}
    assert reply["passages"][1] == {"id": "pages.pdf#1", **own}


def test_a_picture_of_a_page(served, index, monkeypatch):
    def picture(id):
        return httpx2.get(f"{served.url}/v1/pictures/{quote(id)}", timeout=60)

    for other in ("guide #1.md#0", "old/towns.csv/row 2#0", "pages.pdf#9"):
        assert picture(other).status_code == 404
    monkeypatch.setattr(page_picture, "find_spec", lambda name: None)
    assert "evoseek[pages]" in picture("pages.pdf#1").json()["error"]["message"]
    monkeypatch.undo()
    pytest.importorskip("pypdfium2", reason="needs pypdfium2")
    image = pytest.importorskip("PIL.Image", reason="needs pillow").open(io.BytesIO(picture("pages.pdf#1").content))
    assert image.size == (1000, 500)


def test_files_and_contents_for_agents(index):
    library = Library(index)
    calls = [("files", {}), ("files", {"folder": "old/"}), ("contents", {"file": "guide #1.md"})]
    tools, (files, old, contents) = using(mcp_server(library, None), *calls)
    assert tools == ["search", "open", "files", "contents"]
    assert files.structured_content == {
        "count": 3,
        "files": [
            {"file": "guide #1.md", "changed": "1970-01-04"},
            {"file": "pages.pdf", "changed": "1970-01-03"},
            {"file": "old/towns.csv", "changed": "1970-01-02"},
        ],
    }
    assert [file["file"] for file in old.structured_content["files"]] == ["old/towns.csv"]
    assert asyncio.run(library.files("/"))["count"] == 3
    assert asyncio.run(library.files("ol")) == {"count": 0, "files": []}
    parts = contents.structured_content["contents"]
    assert [part["heading"] for part in parts][-2:] == ["Part 7", "Part 8"]
    assert index.get(parts[-1]["id"]).text.endswith("Text 8.")
    with pytest.raises(DataError, match="There is no document of this path"):
        asyncio.run(library.contents("old/towns.csv"))
