"""The retrieval server as its clients see it, in a process of its own; and evoseek's engine as one of them."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from tests.raising import raises

from evoseek.config.registry import build
from evoseek.search.lexical import LexicalIndex
from evoseek.search.opening import open_built
from evoseek.search.remote import RemoteEngine, RemoteSettings
from evoseek.types import Passage

PASSAGES = [Passage(f"{n}#0", str(n), f"Town {n}", f"kalo lies at river {n}\nand is old", 0, 30) for n in range(20)]

SLOW = """
import sys, time
from evoseek.search.lexical import LexicalIndex
from evoseek.serve.retrieval import RetrievalServer
class Slow:
    def __init__(self, index): self.index = index
    def __len__(self): return len(self.index)
    def find_all(self, queries, k):
        if "fail" in queries: raise OSError("the disk is gone")
        if "slow" in queries: time.sleep(1.5)
        return self.index.find_all(queries, k)
server = RetrievalServer(Slow(LexicalIndex.open(__import__("pathlib").Path(sys.argv[1]))))
server.run("127.0.0.1", 0, started=lambda url: print(url, flush=True))
print("ended", flush=True)
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> LexicalIndex:
    return LexicalIndex.build(tmp_path_factory.mktemp("served") / "index", PASSAGES)


@contextmanager
def serving(*command: str) -> Generator[tuple[str, subprocess.Popen[str]]]:
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield re.search(r"http://\S+?:\d+", process.stdout.readline())[0], process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def url(index: LexicalIndex) -> Generator[str]:
    with serving("-c", SLOW, str(index.directory)) as (url, _):
        yield url


def engine(url: str, **settings: object) -> RemoteEngine:
    return build("search", RemoteSettings.model_validate({"url": f"{url}/retrieve", "wait_s": 0, **settings}), None)


def search(url: str, queries: Sequence[str], k: int = 3, **settings: object) -> list[list[Passage]]:
    return asyncio.run(engine(url, **settings).search(queries, k))


def test_a_request_of_search_r1s_clients(url: str, index: LexicalIndex) -> None:
    body = {"queries": ["river 7", "nothing like it xyz"], "topk": 1, "return_scores": True}
    result = httpx2.post(f"{url}/retrieve", json=body).json()["result"]
    score = index.find("river 7", 1)[0].score
    document = {"id": "7#0", "document_id": "7", "contents": "Town 7\nkalo lies at river 7\nand is old"}
    assert result == [[{"document": document, "score": score}], []]
    assert httpx2.post(f"{url}/retrieve", json={"queries": ["river 7"]}).json()["result"][0][0] == document
    body = {"queries": ["river"], "topk": None, "return_scores": None, "more": 1}
    assert len(httpx2.post(f"{url}/retrieve", json=body).json()["result"][0]) == 3
    health = httpx2.get(f"{url}/health").json()
    assert (health["status"], health["passages"]) == ("ok", 20)


def test_evoseek_as_a_client_finds_what_is_found_in_process(url: str, index: LexicalIndex) -> None:
    queries = [f"river {number}" for number in range(20)] + ["\ud800 xyz"]
    there = search(url, queries)
    here = index.find_all(queries[:-1], 3)
    assert [[(p.id, p.title, p.text, p.score) for p in found] for found in there[:-1]] == [
        [(p.id, p.title, p.text, p.score) for p in found] for found in here
    ]
    assert there[-1] == []
    assert search(url, []) == search(url, ["a"], 0)[1:] == []
    assert search(url, ["river " * 10_000]) == search(url, ["river"])  # cut to what a server takes


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        ("[]", 400, "valid dictionary"),
        ('{"query": "a"}', 400, "queries: Field required. Expected an object such as"),
        ('{"queries": "a"}', 400, "queries: Input should be a valid list"),
        ('{"queries": ["a", 1]}', 400, "queries.1: Input should be a valid string"),
        (json.dumps({"queries": ["a"] * 1_025}), 400, "queries: List should have at most 1024 items"),
        (json.dumps({"queries": ["a", "b" * 20_001]}), 400, "queries.1: String should have at most 20000 characters"),
        ('{"queries": ["a"], "topk": 0}', 400, "topk: Input should be greater than or equal to 1"),
        ('{"queries": ["a"], "topk": 1001}', 400, "topk: Input should be less than or equal to 1000"),
        ('{"queries": ["a"], "topk": true}', 400, "topk: Input should be a valid integer"),
        ('{"queries": ["a"], "topk": 2.5}', 400, "topk: Input should be a valid integer"),
        ('{"queries": ["a"], "return_scores": "yes"}', 400, "return_scores: Input should be a valid boolean"),
        ('{"queries": ["a"]', 400, "The body is not JSON"),
        ("[" * 1500, 400, "The body is not JSON"),
        (b"\xff\xfe", 400, "The body is not JSON"),
        ("x" * (2**22 + 1), 413, "more than 4,194,304 bytes"),
        ('{"queries": ["fail"]}', 500, "OSError: the disk is gone"),
    ],
)
def test_what_is_wrong_is_told(url: str, content: str | bytes, status: int, message: str) -> None:
    reply = httpx2.post(f"{url}/retrieve", content=content)
    assert (reply.status_code, message in reply.json()["error"]["message"]) == (status, True)


@pytest.mark.parametrize(
    ("headers", "status"), [({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403), ({}, 200)]
)
def test_a_page_of_somebody_else_gets_nothing(url: str, headers: dict[str, str], status: int) -> None:
    reply = httpx2.post(f"{url}/retrieve", json={"queries": ["river 7"]}, headers=headers)
    assert (reply.status_code, "kalo" in reply.text) == (status, status == 200)


def test_other_paths_and_methods(url: str) -> None:
    assert httpx2.get(f"{url}/retrieve").status_code == 405
    assert httpx2.post(f"{url}/search").json()["error"]["message"] == "Not Found"


def test_a_failure_is_never_an_empty_result(url: str) -> None:
    with raises("server.failed", match=r"gave nothing: each of 2 attempts failed.*status 500.*the disk is gone"):
        search(url, ["fail"], attempts=2)
    with raises("retriever.refused", match=r"status 400.*topk: Input"):
        search(url, ["a"], 1_001)
    with raises("retriever.refused", match="status 404"):
        asyncio.run(RemoteEngine(RemoteSettings(url=f"{url}/elsewhere")).search(["a"], 3))
    with raises("server.failed", match="each of 1 attempts failed"):
        search("http://127.0.0.1:1", ["a"], attempts=1)


def test_settings_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Set search.url" in next(RemoteSettings().problems())
    with raises("server.url", match=r"search\.url"):
        RemoteEngine(RemoteSettings(url="localhost:8000"))
    monkeypatch.delenv("NO_KEY", raising=False)
    with raises("server.no_variable", match=r"search\.api_key_env is NO_KEY"):
        RemoteEngine(RemoteSettings(url="http://localhost/retrieve", api_key_env="NO_KEY"))


def test_stopping_answers_what_is_under_way(index: LexicalIndex) -> None:
    async def run(url: str, process: subprocess.Popen[str]) -> list[list[Passage]]:
        asked = asyncio.create_task(engine(url, attempts=1).search(["slow"], 3))
        async with httpx2.AsyncClient() as client:
            while (await client.get(f"{url}/health")).json()["batches"] == 0:
                await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        return await asked

    with serving("-c", SLOW, str(index.directory)) as (url, process):
        assert asyncio.run(run(url, process)) == [[]]
        assert process.stdout is not None
        assert (process.stdout.read(), process.wait(60)) == ("ended\n", 0)
        with raises("server.failed"):
            search(url, ["a"], attempts=1)


def test_the_command(index: LexicalIndex, tmp_path: Path) -> None:
    with serving("-m", "evoseek", "serve", "retrieval", str(index.directory), "--port", "0") as (url, process):
        assert [passage.id for passage in search(url, ["river 3"], 1)[0]] == ["3#0"]
        taken = url.rpartition(":")[2]
        command = [sys.executable, "-m", "evoseek", "serve", "retrieval", str(index.directory), "--port", taken]
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (second.returncode, f"Cannot listen on 127.0.0.1:{taken}" in second.stderr) == (2, True)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_an_index_that_has_no_vectors_is_not_served_as_if_it_had(index: LexicalIndex) -> None:
    with raises("index.no_vectors"):
        open_built(index.directory, "hybrid")
