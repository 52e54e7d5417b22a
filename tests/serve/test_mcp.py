"""The official client of the Model Context Protocol against the agent server, and against the command by stdio."""

import asyncio
import json
import logging
import socket
import subprocess
import sys
from dataclasses import replace

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from rich.console import Console
from tests.serve.conftest import PASSAGES
from tests.serve.test_agent import until

from evoseek.search.indexing import IndexPlan, build_index
from evoseek.search.lexical import LexicalIndex
from evoseek.serve.mcp import Library, mcp_server
from evoseek.types import Passage

WHO = "who is the mayor of Kalo?"


def using(server, *calls):
    """The names of the tools, and each call's result."""

    async def use():
        async with Client(server) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(use())


def ids(result):
    return [passage["id"] for passage in result.structured_content["passages"]]


def test_search_open_and_ask(served):
    calls = [
        ("search", {"query": "mayor", "k": 1}),
        ("open", {"id": "kalo#1", "neighbours": 1}),
        ("open", {"id": "kalo#2", "neighbours": 5}),
        ("ask", {"question": WHO}),
    ]
    tools, (found, opened, last, answered) = using(f"{served.url}/mcp", *calls)
    assert tools == ["search", "open", "ask"]
    assert found.structured_content["passages"][0]["text"] == "The mayor of Kalo is Meri Tolu."
    assert found.structured_content["passages"][0]["heading"] == "People"
    assert (ids(opened), ids(last)) == (["kalo#0", "kalo#1", "kalo#2"],) * 2
    assert answered.structured_content["answer"] == "Meri Tolu"
    assert answered.structured_content["support"][0]["id"] == "kalo#1"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("open", {"id": "../../etc/passwd"}, "There is no passage with this id"),
        ("open", {"id": "/etc/passwd#0"}, "There is no passage with this id"),
        ("open", {"id": "x" * 2_000}, "at most 1000 characters"),
        ("open", {"id": "kalo#1", "neighbours": 99}, "neighbours"),
        ("search", {"query": " "}, "query"),
        ("search", {"query": "a", "k": 1_000}, "k"),
        ("search", {}, "query"),
        ("ask", {"question": ""}, "question"),
    ],
)
def test_a_wrong_call_is_an_error_that_says_so(served, name, arguments, message):
    _, (result,) = using(f"{served.url}/mcp", (name, arguments))
    assert result.is_error
    assert message in result.content[0].text
    assert "root:" not in result.content[0].text


def test_a_malformed_message(served):
    headers = {"Accept": "application/json, text/event-stream"}
    reply = httpx2.post(f"{served.url}/mcp", content=b"{", headers=headers)
    assert reply.status_code == 400


def test_neighbours_are_of_the_same_document(library):
    opened = asyncio.run(Library(library).open("vesu#0", 3))
    assert [passage["id"] for passage in opened["passages"]] == ["vesu#0"]


def test_an_index_by_stdio(library):
    command = ["-c", "from evoseek.cli.main import main; main()", "serve", "mcp", str(library.directory)]
    tools, (found,) = using(StdioServerParameters(command=sys.executable, args=command), ("search", {"query": "rains"}))
    assert (tools, ids(found)) == (["search", "open", "files", "contents"], ["kalo#2"])


def test_a_message_by_stdio_is_one_line(tmp_path):
    text = "The mayor of Kalo\u2028is Meri Tolu.\u2029\u0085"
    LexicalIndex.build(tmp_path / "index", [replace(PASSAGES[1], text=text)])
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    sent = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "search", "arguments": {"query": "mayor"}}},
    ]
    run = "from evoseek.cli.main import main; main()"
    command = [sys.executable, "-c", run, "serve", "mcp", str(tmp_path / "index")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as serving:
        for message in sent:
            serving.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        serving.stdin.flush()
        lines = [serving.stdout.readline().decode() for _ in range(2)]
        serving.stdin.close()
        assert (serving.wait(30), serving.stdout.read()) == (0, b"")
    assert [len(line.splitlines()) for line in lines] == [1, 1]
    assert json.loads(lines[1])["result"]["structuredContent"]["passages"][0]["text"] == text


def test_a_client_that_leaves_ends_its_rollout(serving):
    call = {"name": "ask", "arguments": {"question": "hang"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode()
    head = (
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with serving() as served:
        places = served.server.queue
        with socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2]))) as connection:
            connection.sendall(head.encode() + body)
            until(lambda: places.running == 1)
        until(lambda: places.taken == 0)


@pytest.mark.parametrize(("method", "size", "status"), [("GET", 0, 405), ("POST", 2**20 + 1, 413)])
def test_no_stream_is_held_open_and_no_body_is_without_end(served, method, size, status):
    """A stream that a client holds open, for messages that never come, would keep the server from stopping."""
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    with httpx2.stream(method, f"{served.url}/mcp", headers=headers, content=b" " * size) as reply:
        assert reply.status_code == status


def test_warnings_are_told_although_the_protocol_tells_errors_alone(monkeypatch):
    """The library sets the level of all messages of the process."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "level", logging.ERROR)
    logging.getLogger("evoseek").setLevel(logging.NOTSET)
    mcp_server(None, None)
    assert logging.getLogger("evoseek.search.opening").getEffectiveLevel() == logging.WARNING


def test_a_library_describes_itself_by_its_number_of_passages_and_places_to_ask_about(library):
    assert Library(library).describe() == {
        "passages": 4,
        "examples": [f"What does Kalo say about {heading}?" for heading in ("Place", "People", "Weather")],
    }
    assert Library(ScriptedEngine()).describe() == {}


def test_questions_that_the_run_held_out_are_suggested_first(library):
    assert Library(library, examples=["Who is it?"]).describe() == {"passages": 4, "examples": ["Who is it?"]}


def test_a_heading_that_asks_gives_no_second_question_mark(tmp_path):
    index = LexicalIndex.build(tmp_path / "index", [Passage("a#0", "a", "Caching", "Much.", heading="What is cached?")])
    assert Library(index).describe()["examples"] == ["What does Caching say about What is cached?"]


def test_a_row_of_a_table_is_asked_about_by_its_title(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "people.csv").write_text("name,age\nMeri,30\nTor,40\n")
    build_index(tmp_path / "docs", tmp_path / "index", IndexPlan(), console=Console(quiet=True))
    assert Library(LexicalIndex.open(tmp_path / "index")).describe() == {
        "passages": 2,
        "examples": ["What is Meri?", "What is Tor?"],
    }


class ScriptedEngine:
    """An engine whose passages cannot be listed."""

    async def search(self, queries, k):
        return [[] for _ in queries]
