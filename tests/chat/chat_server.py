"""An HTTP server on the loopback for chats: it replies as an OpenAI-compatible one does, or misbehaves.

It runs in a thread with an event loop of its own, so that a client under test has another one, or several.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from evoseek.errors import ToolError
from evoseek.protocols import Chat
from evoseek.types import Message


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: dict | None
    method: str = "POST"


Behaviour = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


class ChatServer:
    """Answers the n-th request by the n-th behaviour, and all further ones by the last.

    `received` has the requests in order, `peak` the most that were being answered at once, `connections` how many
    there were, `connected` how many there are.
    """

    def __init__(self, *behaviours: Behaviour) -> None:
        self._behaviours = behaviours
        self.received: list[Received] = []
        self.peak = self.connections = self.connected = self._busy = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._up, self._down = threading.Event(), asyncio.Event()

    def __enter__(self) -> ChatServer:
        self._thread.start()
        self._up.wait()
        return self

    def __exit__(self, *raised: object) -> None:
        self._loop.call_soon_threadsafe(self._down.set)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self._up.set()
        await self._down.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.connected += 1
        try:
            while not writer.is_closing():
                self.received.append(await read(reader))
                behave = self._behaviours[min(len(self.received), len(self._behaviours)) - 1]
                self._busy += 1
                self.peak = max(self.peak, self._busy)
                try:
                    await behave(self.received[-1], writer)
                    await writer.drain()
                finally:
                    self._busy -= 1
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or the server is going
        finally:
            self.connected -= 1
            writer.close()


async def read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    method, path, _ = head[0].split()
    return Received(path, headers, json.loads(body) if body else None, method)


def send(writer: asyncio.StreamWriter, status: int, body: bytes, **headers: object) -> None:
    """A whole response; `content_length=...` for a wrong one, `connection="close"` to hang up after it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in ({"content-length": len(body)} | named).items())
    writer.write(f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode() + body)
    if "connection" in named:
        writer.close()


def choice(content: object = "Meri", finish_reason: object = "stop", **message: object) -> bytes:
    said = {"role": "assistant", "content": content, **message}
    return json.dumps({"choices": [{"index": 0, "message": said, "finish_reason": finish_reason}]}).encode()


# Behaviours


def replies(body: bytes, status: int = 200, **headers: object) -> Behaviour:
    """This body, at once."""

    async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
        send(writer, status, body, **headers)

    return behave


def fails(status: int, message: str = "try later", **headers: object) -> Behaviour:
    """An error, as OpenAI's endpoint words it."""
    return replies(json.dumps({"error": {"message": message}}).encode(), status, **headers)


def cuts(count: int) -> Behaviour:
    """So many bytes of a response, and the end of the connection."""

    async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
        body = choice("Meri " * 100)
        writer.write((f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)[:count])
        writer.close()

    return behave


def bomb(size: int) -> Behaviour:
    """A reply of so many bytes, a whole number of MiB, packed to a thousandth: a gzip member for each MiB."""
    return replies(gzip.compress(b" " * 2**20) * (size >> 20), content_encoding="gzip")


async def sleeps(received: Received, writer: asyncio.StreamWriter) -> None:
    """Says nothing."""
    await asyncio.sleep(60)


async def drips(received: Received, writer: asyncio.StreamWriter) -> None:
    """Sends a byte now and then, for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.005)


def asks(chat: Chat) -> Behaviour:
    """What a chat in the server's process replies. The seed that was sent is its key."""

    async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
        messages = [Message(said["role"], said["content"]) for said in received.body["messages"]]
        try:
            reply = await chat.chat(messages, key=str(received.body["seed"]))
        except ToolError as error:
            send(writer, 500, json.dumps({"error": {"message": str(error)}}).encode())
        else:
            send(writer, 200, choice(reply))

    return behave
