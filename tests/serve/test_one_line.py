"""Separators of lines within JSON: every reply of every server is one line, and the same JSON."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route
from tests.serve.conftest import PASSAGES
from tests.serve.test_agent import WHO, ask, client, say

from evoseek.search.lexical import LexicalIndex
from evoseek.serve.one_line import OneLineJson, one_line
from evoseek.serve.retrieval import RetrievalServer

SEPARATED = "a\u2028b\u2029c\u0085d \\u2028 \\ \u2027"
TEXT = "The mayor of Kalo\u2028is Meri Tolu.\u2029\u0085"


@pytest.fixture(scope="module")
def separated(serving, tmp_path_factory):
    passages = [replace(PASSAGES[1], text=TEXT, title="Kalo\u2028", heading="People\u0085"), *PASSAGES[2:]]
    library = LexicalIndex.build(tmp_path_factory.mktemp("separated") / "index", passages)
    with serving(library=library) as served:
        yield served


@given(st.text() | st.lists(st.sampled_from([*'\u0085\u2028\u2029\\u\n"', "\\u2028", "é", "東"])).map("".join))
def test_it_is_one_line_and_the_same_json(text):
    written = one_line(json.dumps({text: [text]}, ensure_ascii=False))
    assert len(written.splitlines()) == 1
    assert json.loads(written) == {text: [text]}


def replies(served):
    """The bodies of all kinds of replies that hold texts of documents or clients."""
    url = served.url
    chat = {"model": "evoseek", "messages": [say(WHO)]}
    calling = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    calling["params"] = {"name": "search", "arguments": {"query": "mayor"}}
    accepts = {"Accept": "application/json, text/event-stream"}
    return [
        httpx2.post(f"{url}/v1/chat/completions", json=chat, timeout=30),
        httpx2.post(f"{url}/v1/chat/completions", json={**chat, "model": SEPARATED}),
        httpx2.get(f"{url}/v1/models"),
        httpx2.get(f"{url}/v1/models/{SEPARATED}"),
        httpx2.post(f"{url}/v1/feedback", json={"id": SEPARATED, "verdict": "right"}),
        httpx2.post(f"{url}/mcp", json=calling, headers=accepts),
        httpx2.get(f"{url}/mcp/{SEPARATED}"),
    ]


def test_every_reply_of_the_agent_is_one_line(separated):
    for reply in replies(separated):
        assert len(reply.text.splitlines()) == 1, reply.request.url
        assert int(reply.headers["content-length"]) == len(reply.content)
        assert reply.headers["content-type"].startswith("application/json")
    whole = ask(separated, say(WHO))
    assert whole.evoseek["support"][0]["text"] == TEXT


def test_a_client_that_reads_a_stream_by_lines_gets_whole_events(separated):
    body = {"model": "evoseek", "messages": [say(WHO)], "stream": True}
    with httpx2.stream("POST", f"{separated.url}/v1/chat/completions", json=body, timeout=30) as reply:
        lines = [line for line in reply.read().decode().splitlines() if line]
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line != "data: [DONE]"]
    assert [event["evoseek"]["passages"][0]["text"] for event in events if "passages" in event.get("evoseek", ())] == [
        TEXT
    ]
    streamed = client(separated).chat.completions.create(model="evoseek", messages=[say(WHO)], stream=True)
    assert TEXT in json.dumps([getattr(chunk, "evoseek", None) for chunk in streamed], ensure_ascii=False)


def test_the_retrieval_server_and_the_others_are_of_the_same_kind(tmp_path):
    """Every server is a StoppableServer, which wraps its application."""
    source = Path(__file__).parents[2] / "src" / "evoseek"
    assert [path.name for path in source.rglob("*.py") if "import uvicorn" in path.read_text()] == ["connection.py"]
    LexicalIndex.build(tmp_path / "index", [replace(PASSAGES[1], text=TEXT)])
    from evoseek.search.opening import LiveIndex

    app = OneLineJson(RetrievalServer(LiveIndex(tmp_path / "index")).app)
    reply = posted(app, "/retrieve", {"queries": ["mayor"]})
    assert len(reply.text.splitlines()) == 1
    assert TEXT in json.dumps(reply.json(), ensure_ascii=False)


def test_a_message_by_stdio_is_one_line(tmp_path):
    LexicalIndex.build(tmp_path / "index", [replace(PASSAGES[1], text=TEXT)])
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    sent = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "search", "arguments": {"query": "mayor"}}},
    ]
    command = [
        sys.executable,
        "-c",
        "from evoseek.cli.main import main; main()",
        "serve",
        "mcp",
        str(tmp_path / "index"),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as serving:
        for message in sent:
            serving.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        serving.stdin.flush()
        lines = [serving.stdout.readline().decode() for _ in range(2)]
        serving.stdin.close()
        assert (serving.wait(30), serving.stdout.read()) == (0, b"")
    assert [len(line.splitlines()) for line in lines] == [1, 1]
    assert json.loads(lines[1])["result"]["structuredContent"]["passages"][0]["text"] == TEXT


def posted(app, path, body):
    async def post():
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as asking:
            return await asking.post(path, json=body)

    return asyncio.run(post())


def test_other_bodies_are_left_as_they_are():
    async def parts():
        for part in (b'{"a": "', "\u2028".encode()[:2], "\u2028".encode()[2:], b'"}'):
            yield part

    kinds = {
        "/whole": lambda request: JSONResponse({"a": SEPARATED}),
        "/parts": lambda request: StreamingResponse(parts(), media_type="application/json"),
        "/text": lambda request: PlainTextResponse(SEPARATED),
    }
    app = OneLineJson(Starlette(routes=[Route(path, kind, methods=["POST"]) for path, kind in kinds.items()]))
    assert posted(app, "/whole", None).json() == {"a": SEPARATED}
    assert posted(app, "/parts", None).text == '{"a": "\\u2028"}'
    assert posted(app, "/text", None).text == SEPARATED
