"""A server that is told to stop, and clients that never finish what they begin."""

import asyncio
import os
import signal
import socket
import threading
import time
from contextlib import contextmanager

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from evoseek.serve import connection
from evoseek.serve.connection import CancelOnDisconnect, Guard, StoppableServer, listen


@pytest.fixture
def missed():
    """The signals that the server did not take, with the handlers as they were put back in the end."""
    numbers: list[int] = []
    before = {one: signal.signal(one, lambda n, _: numbers.append(n)) for one in (signal.SIGTERM, signal.SIGINT)}
    yield numbers
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_stopped_as_soon_as_it_has_said_where_it_is_ends(missed, number):
    def started(url):
        os.kill(os.getpid(), number)
        assert missed == []

    listen(StoppableServer(Starlette(), drain_s=1), "127.0.0.1", 0, started=started)


HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
BODY_MISSING = POST + b"Content-Length: 100\r\n\r\n" + b"x" * 50
CHUNK_MISSING = POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"


async def echo(request):
    return PlainTextResponse(f"{len(await request.body())} bytes")


async def endless(request):
    async def blocks():
        while True:
            await asyncio.sleep(0)
            yield b"x" * 2**16

    return StreamingResponse(blocks())


@pytest.fixture
def port(monkeypatch):
    """Of a server whose clients have half a second for a request, and half a second to accept some of a reply."""
    monkeypatch.setattr(connection, "_REQUEST_S", 0.5)
    monkeypatch.setattr(connection, "_REPLY_S", 0.5)
    routes = [Route("/", echo, methods=["GET", "POST"]), Route("/endless", endless)]
    app = Guard(CancelOnDisconnect(Starlette(routes=routes), max_body=2**20), keys=(), host="127.0.0.1")
    server = StoppableServer(app, drain_s=1)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        yield bound.getsockname()[1]
        server.should_exit = True
        thread.join()


@contextmanager
def connected(port):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        yield client


def is_sent(client, data):
    try:
        client.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def read(client):
    """What is sent until the connection is closed, in whatever way."""
    received = b""
    try:
        while block := client.recv(2**16):
            received += block
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("sent", [b"", b"G", HEAD, BODY_MISSING, CHUNK_MISSING, HEAD + b"\r\n" + HEAD])
@pytest.mark.parametrize("trickles", [False, True])
def test_a_request_that_is_never_finished_is_closed(port, sent, trickles):
    with connected(port) as client:
        client.sendall(sent)
        begun = time.monotonic()
        while trickles and time.monotonic() < begun + 10 and is_sent(client, b"1"):
            time.sleep(0.05)  # a byte now and then does not make the request younger
        read(client)
        assert time.monotonic() < begun + (8 if sent.endswith(HEAD) and sent != HEAD else 3)


def test_headers_without_end_are_refused_after_64_kib(port):
    with connected(port) as client:
        client.sendall(HEAD)
        sent, line = 0, b"X-0: " + b"b" * 1_000 + b"\r\n"
        while sent < 2**25 and is_sent(client, line):
            sent += len(line)
    assert sent < 2**25


def test_whoever_reads_nothing_of_a_reply_is_closed(port):
    with connected(port) as client:
        client.sendall(HEAD.replace(b"/", b"/endless", 1) + b"\r\n")
        time.sleep(2)
        assert len(read(client)) < 2**26  # what lay in the buffers


def test_two_host_headers_are_a_bad_request(port):
    with connected(port) as client:
        client.sendall(HEAD + b"Host: elsewhere\r\n\r\n")
        assert read(client).startswith(b"HTTP/1.1 400 ")


def test_requests_that_are_finished_in_time_are_answered_however_many_follow(port):
    with connected(port) as client:
        for _ in range(4):  # longer in all than one may take
            for piece in (POST, b"Content-Length: 10\r\n\r\n01234", b"56789"):
                client.sendall(piece)
                time.sleep(0.1)
            assert client.recv(1_000).endswith(b"10 bytes")
