"""Keys that may see one folder: over every route, and during updates, nothing of another one in content or in count."""

import asyncio
import json
import random
import threading
from dataclasses import replace
from functools import partial

import httpx2
import pytest
from rich.console import Console
from tests.raising import raises
from tests.serve.conftest import PASSAGES

from evoseek.errors import ConfigError
from evoseek.questions.asked import AskedLog
from evoseek.questions.feedback import FeedbackFile
from evoseek.search.indexing import IndexPlan, build_index, update_index
from evoseek.search.lexical import LexicalIndex
from evoseek.search.opening import LiveIndex
from evoseek.serve.keys import EVERYBODY, Key
from evoseek.serve.readers import AnswerSource
from evoseek.serve.uploads import Uploads

FULL, SALES = "the-key-of-everything", "the-key-of-the-sales"
KEYS = [Key.of(FULL), Key(name="sales", sha256=Key.of(SALES).sha256, folders=("sales",))]
WORDS = ["mayor", "pump", "kalo", "warranty", "price", "meri", "tolu", "invoice", "north", "lamp"]
QUIET = Console(quiet=True)


def write(corpus, folder, number, drawn, *, mark=""):
    words = [f"{mark}{word}" for word in drawn.choices(WORDS, k=8)] if mark else []
    path = corpus / folder / f"{mark and 'zqname'}{number}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# {mark}Page {number}\n\n{' '.join([*words, *drawn.choices(WORDS, k=12)])}\n")
    return path


@pytest.fixture
def corpus(tmp_path):
    """Four pages of sales; eight of others, before and after them, whose own words begin with `zqtext`."""
    drawn = random.Random(0)
    for number in range(4):
        write(tmp_path / "corpus", "sales", number, drawn)
    for number in range(8):
        write(tmp_path / "corpus", ("board", "sales2")[number % 2], number, drawn, mark="zqtext")
    build_index(tmp_path / "corpus", tmp_path / "index", IndexPlan(), console=QUIET)
    return tmp_path / "corpus"


@pytest.fixture
def shared(serving, corpus, tmp_path):
    file, asked = FeedbackFile(tmp_path / "feedback.jsonl"), AskedLog(tmp_path / "asked.jsonl")
    with serving(engine=LiveIndex(tmp_path / "index"), keys=KEYS, feedback=file, asked=asked) as served:
        yield served


class Client:
    """Random requests of the key of sales: each is a method, a path and a body."""

    def __init__(self, url, seed):
        self.drawn, self.ids = random.Random(seed), ["chatcmpl-0"]
        self.http = httpx2.Client(base_url=url, timeout=60, headers={"Authorization": f"Bearer {SALES}"})
        full = {"Authorization": f"Bearer {FULL}"}
        body = {"model": "evoseek", "messages": [{"role": "user", "content": "mayor"}]}
        self.foreign = httpx2.post(f"{url}/v1/chat/completions", json=body, headers=full, timeout=60).json()["id"]

    def words(self):
        return " ".join(self.drawn.choices(WORDS, k=self.drawn.randint(1, 6)))

    def document(self):
        folder = self.drawn.choice(["sales", "board", "sales2", "../sales", "sales/../board", ""])
        return f"{folder}/{self.drawn.choice(['', 'zqname'])}{self.drawn.randrange(9)}.md"

    def draw(self):
        def tool(name, arguments):
            params = {"name": name, "arguments": arguments}
            return "POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}

        kind = self.drawn.randrange(12)
        if kind == 0:
            return (
                "GET",
                self.drawn.choice(
                    ["/", "/health", "/ready", "/log", "/x", "/v1", "/metrics", "/v1/log", "/v1/uploads"]
                ),
                None,
            )
        if kind == 1:
            return "GET", self.drawn.choice(["/v1/models", "/v1/models/evoseek", "/v1/models/x"]), None
        if kind == 2:
            return self.drawn.choice(["GET", "HEAD"]), f"/v1/files/{self.document()}", None
        if kind < 5:
            history = [{"role": role, "content": self.words()} for role in ("user", "assistant")]
            asked = {"role": "user", "content": self.words()}
            messages = [*(history if self.drawn.random() < 0.3 else ()), asked]
            body = {"model": "evoseek", "messages": messages, "stream": self.drawn.random() < 0.5}
            folder = {"folder": self.drawn.choice(["sales", "board", "sales2", "", "/", "."])}
            return "POST", "/v1/chat/completions", body | (folder if self.drawn.random() < 0.3 else {})
        if kind == 5:
            id = self.drawn.choice([self.foreign, *self.ids])
            return "POST", "/v1/feedback", {"id": id, "verdict": "right"}
        if kind == 6:
            id = f"{self.document()}#{self.drawn.randrange(2)}"
            return tool("open", {"id": id, "neighbours": self.drawn.randrange(11)})
        if kind == 7:
            return tool("ask", {"question": self.words()})
        if kind == 8:
            route = self.drawn.choice(["passages", "pictures"])
            return "GET", f"/v1/{route}/{self.document()}%23{self.drawn.randrange(2)}?neighbours=50", None
        if kind == 9:
            return tool(*self.drawn.choice([("files", {}), ("contents", {"file": self.document()})]))
        if kind == 10 and self.drawn.random() < 0.2:
            return "POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        return tool("search", {"query": self.words(), "k": self.drawn.choice([1, 5, 50])})

    def send(self):
        method, path, body = self.draw()
        headers = {"Accept": "application/json, text/event-stream"}
        return path, body, self.http.request(method, path, json=body, headers=headers)


def files_in(value):
    """Every value of a key `file` in JSON values."""
    if isinstance(value, dict):
        own = [value["file"]] if isinstance(value.get("file"), str) else []
        return own + [name for one in value.values() for name in files_in(one)]
    return [name for one in value for name in files_in(one)] if isinstance(value, list) else []


def check(client, alone):
    """Send a request, and check that nothing of another folder is in its reply. Return its kind and status."""
    path, body, reply = client.send()
    said, sent = reply.text, f"{path}{json.dumps(body)}"
    assert "zqtext" not in said
    assert "zqname" not in said or "zqname" in sent
    assert reply.status_code < 500, said
    chunks = [line.removeprefix("data: ") for line in said.splitlines() if line.startswith(("data: {", "{"))]
    values = [json.loads(chunk) for chunk in chunks]
    assert all(name.startswith("sales/") for name in files_in(values))
    if path.startswith("/v1/files/"):
        assert reply.status_code == (200 if path in {f"/v1/files/{name}" for name in alone.files} else 404)
    if path in ("/metrics", "/v1/log", "/v1/uploads"):
        assert reply.status_code == 403
    if path == "/v1/models":
        own = values[0]["data"][0]["evoseek"]
        assert (own["passages"], own["files"]) == (len(alone), len(alone.files)) == (4, 4)
    if path == "/v1/feedback":
        assert reply.status_code == (404 if body["id"] in (client.foreign, "chatcmpl-0") else 200)
    if path == "/v1/chat/completions" and reply.status_code == 200:
        client.ids.append(values[0]["id"])
    call = body["params"] if path == "/mcp" and "params" in body else {"name": ""}
    if call["name"] == "search":
        found = {passage["id"] for passage in values[0]["result"]["structuredContent"]["passages"]}
        every = {passage.id for passage in alone.find(call["arguments"]["query"], 50)}
        assert found == every if call["arguments"]["k"] == 50 else found <= every
    if call["name"] == "files" and "structuredContent" in values[0].get("result", ()):  # of a server with this tool
        assert values[0]["result"]["structuredContent"]["count"] == 4
    if call["name"] == "open":
        known = call["arguments"]["id"] in {passage.id for passage in alone.passages()}
        assert values[0]["result"].get("isError", False) is not known
    return call["name"] or path, reply.status_code


@pytest.fixture
def alone(corpus, tmp_path):
    """An index of the folder of sales alone, at the same paths."""
    only = tmp_path / "only"
    only.mkdir()
    (only / "sales").symlink_to(corpus / "sales")
    build_index(only, tmp_path / "alone", IndexPlan(follow_links=True), console=QUIET)
    return LiveIndex(tmp_path / "alone")


@pytest.mark.parametrize("count", [300, pytest.param(5_000, marks=pytest.mark.night)])
def test_random_requests_show_nothing_of_other_folders(shared, alone, count):
    client = Client(shared.url, count)
    seen = {check(client, alone) for _ in range(count)}
    assert {("search", 200), ("open", 200), ("ask", 200), ("/v1/feedback", 200), ("/v1/feedback", 404)} <= seen


@pytest.mark.parametrize("count", [100, pytest.param(5_000, marks=pytest.mark.night)])
def test_so_they_do_while_the_index_is_updated(shared, alone, corpus, tmp_path, count):
    client, ended, changes = Client(shared.url, count + 1), threading.Event(), []

    def change():
        drawn = random.Random(1)
        update = partial(update_index, corpus, tmp_path / "index", device=None, console=QUIET)
        while not ended.is_set():
            path = write(corpus, drawn.choice(["a", "board", "sales2"]), drawn.randrange(99), drawn, mark="zqtext")
            changes.append(path)
            if drawn.random() < 0.5:
                drawn.choice(changes).unlink(missing_ok=True)
            update()

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(count):
            check(client, alone)
    finally:
        ended.set()
        changing.join()
    assert len(changes) > 1


def test_a_key_of_everything_sees_everything(shared):
    headers = {"Authorization": f"Bearer {FULL}"}
    own = httpx2.get(f"{shared.url}/v1/models", headers=headers).json()["data"][0]["evoseek"]
    assert (own["passages"], own["files"]) == (12, 12)
    assert httpx2.get(f"{shared.url}/metrics", headers=headers).status_code == 200


def test_questions_about_every_folder_are_suggested_only_to_keys_that_see_it(serving, tmp_path, corpus):
    def own(key):
        reply = httpx2.get(f"{served.url}/v1/models", headers={"Authorization": f"Bearer {key}"})
        return reply.json()["data"][0]["evoseek"]["examples"]

    with serving(engine=LiveIndex(tmp_path / "index"), keys=KEYS, examples=["who is zqtextmeri?"]) as served:
        assert own(FULL)[0] == "who is zqtextmeri?"
        assert own(SALES)
        assert not any("zq" in question for question in own(SALES))


def test_a_key_of_a_folder_uploads_nothing_and_sees_no_uploads(serving, tmp_path, corpus):
    uploads, headers = Uploads(corpus / "sales", tmp_path / "index"), {"Authorization": f"Bearer {SALES}"}
    with serving(engine=LiveIndex(tmp_path / "index"), keys=KEYS, uploads=uploads) as served:
        assert httpx2.put(f"{served.url}/v1/uploads/new.md", content=b"# New", headers=headers).status_code == 403
        assert httpx2.get(f"{served.url}/v1/uploads", headers=headers).status_code == 403
        described = httpx2.get(f"{served.url}/v1/models", headers=headers).json()["data"][0]["evoseek"]
    assert ("upload" in described, (corpus / "sales" / "new.md").exists()) == (False, False)


def test_keys_with_folders_need_an_index_that_records_its_files(tmp_path, library):
    with pytest.raises(ConfigError, match="does not search an index of `evoseek index`"):
        AnswerSource(lambda engine: None, library).seen_by(KEYS[1])
    LexicalIndex.build(tmp_path / "index", PASSAGES)
    with raises("index.no_files"):
        AnswerSource(lambda engine: None, LiveIndex(tmp_path / "index")).seen_by(KEYS[1])
    assert AnswerSource(lambda engine: None, library).seen_by(EVERYBODY) is library


def test_a_reload_answers_by_another_source_and_closes_the_one_before(serving, corpus, tmp_path):
    """Keys that are no longer in the file are refused from then on; if loading fails, nothing changes."""
    closed, loads = [], []
    with serving(engine=LiveIndex(tmp_path / "index"), keys=KEYS, load=lambda: loads.pop(0)()) as served:
        server, headers = served.server, {"Authorization": f"Bearer {SALES}"}
        before = server.readers.source
        server.readers.source = replace(before, close=lambda: closed.append(True))

        def models():
            return httpx2.get(f"{served.url}/v1/models", headers=headers).status_code

        def fails():
            raise ConfigError("no such file")

        def reload(load):
            loads.append(load)
            asyncio.run_coroutine_threadsafe(server.reload(), server.loop).result(60)

        assert models() == 200
        for load in (fails, lambda: (None, [])):  # without any key, everybody would be let in
            reload(load)
            assert (models(), closed) == (200, [])
            assert httpx2.get(f"{served.url}/v1/models").status_code == 401
        reload(lambda: (None, KEYS))
        assert (models(), closed) == (200, [])
        newer = AnswerSource(before.answerer_for, before.engine)
        more = Key(name="more", sha256=Key.of("another-key-of-more").sha256, folders=("board",))
        reload(lambda: (newer, [KEYS[0], more]))
        assert (models(), closed) == (401, [True])
        assert server.readers.source is newer
        headers["Authorization"] = "Bearer another-key-of-more"
        own = httpx2.get(f"{served.url}/v1/models", headers=headers).json()["data"][0]["evoseek"]
        assert own["files"] == 4
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        call["params"] = {"name": "search", "arguments": {"query": "mayor pump kalo", "k": 50}}
        headers["Accept"] = "application/json, text/event-stream"
        found = httpx2.post(f"{served.url}/mcp", json=call, headers=headers).json()
        assert set(files_in(found)) <= {f"board/zqname{number}.md" for number in range(8)}


def test_a_question_about_a_folder_is_searched_there_alone(shared):
    def found(key, folder):
        body = {"model": "evoseek", "messages": [{"role": "user", "content": "mayor kalo pump"}], "folder": folder}
        headers = {"Authorization": f"Bearer {key}"}
        reply = httpx2.post(f"{shared.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
        if reply.status_code != 200:
            return reply.status_code
        searches = reply.json()["evoseek"]["searches"]
        return {passage["id"].partition("/")[0] for one in searches for passage in one["found"]}

    assert found(FULL, "sales") == {"sales"}
    assert found(FULL, "/board/") == {"board"}
    assert found(SALES, "board") == found(FULL, "sal") == found(FULL, "..") == 400
    assert found(SALES, "sales") == found(SALES, "") == {"sales"}


def test_a_folder_above_the_folders_of_a_key_shows_no_more_than_these(shared):
    readers = shared.server.readers
    key = Key(name="deep", sha256="0" * 64, folders=("sales/0.md", "board"))
    readers.add([key])
    assert set(readers.within(key, "sales").files) == {"sales/0.md"}
    assert set(readers.within(key, "sales/0.md").files) == {"sales/0.md"}
    assert readers.within(key, "board").folders == ["board"]


def test_a_folder_in_a_folder_of_a_key_is_seen_whole(shared):
    readers = shared.server.readers
    key = Key(name="wide", sha256="0" * 64, folders=("sales/0.md", "sales"))
    readers.add([key])
    assert set(readers.within(key, "sales").files) == {f"sales/{number}.md" for number in range(4)}


def test_readers_of_folders_are_bounded_and_follow_a_reload(shared, monkeypatch):
    """A client may name every file. A reader that was made while a source was loaded must not keep the old one."""
    readers, old = shared.server.readers, shared.server.readers.source
    monkeypatch.setattr("evoseek.serve.readers._NARROWED", 2)
    first = readers.within(KEYS[0], "sales/0.md")
    assert readers.within(KEYS[0], "sales/0.md") is first
    for number in range(1, 4):
        readers.within(KEYS[0], f"sales/{number}.md")
    assert len(readers._narrowed) == 2
    assert readers.within(KEYS[0], "sales/0.md") is not first
    loading, go_on, made = threading.Event(), threading.Event(), []

    def answerer_for(engine):
        made.append(old.answerer_for(engine))
        loading.set()
        go_on.wait(30)
        return made[-1]

    async def replaced():
        task = asyncio.create_task(readers.replace(AnswerSource(answerer_for, old.engine)))
        await asyncio.to_thread(loading.wait, 30)
        readers.within(KEYS[0], "board")
        go_on.set()
        await task
        return readers.within(KEYS[0], "board").answerer

    new = asyncio.run(replaced())
    assert any(new is one for one in made)


def test_a_source_that_cannot_be_used_is_closed(serving, tmp_path, corpus):
    closed = []
    with serving(engine=LiveIndex(tmp_path / "index"), keys=KEYS) as served:
        server, before = served.server, served.server.readers.source

        def breaks(engine):
            raise ConfigError("no room")

        assert httpx2.get(f"{served.url}/health").status_code == 200
        server._load = lambda: (AnswerSource(breaks, before.engine, lambda: closed.append(True)), KEYS)
        asyncio.run_coroutine_threadsafe(server.reload(), server.loop).result(60)
        assert (server.readers.source is before, closed) == (True, [True])


def test_a_question_under_way_is_answered_before_its_source_is_closed(serving, tmp_path, corpus):
    at_close = []
    with serving(engine=LiveIndex(tmp_path / "index"), keys=KEYS) as served:
        server, before = served.server, served.server.readers.source
        server.readers.source = replace(before, close=lambda: at_close.append(server.queue.taken))
        server._load = lambda: (AnswerSource(before.answerer_for, before.engine), KEYS)
        body = {"model": "evoseek", "messages": [{"role": "user", "content": "wait mayor"}], "stream": True}
        headers = {"Authorization": f"Bearer {FULL}"}
        with httpx2.stream(
            "POST", f"{served.url}/v1/chat/completions", json=body, headers=headers, timeout=60
        ) as reply:
            reloading = asyncio.run_coroutine_threadsafe(server.reload(), server.loop)
            with pytest.raises(TimeoutError):
                reloading.result(0.5)
            served.sampler.gate.set()
            assert "[DONE]" in "".join(reply.iter_text())
        reloading.result(60)
    assert at_close == [0]
