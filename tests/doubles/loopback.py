"""A server on the loopback, which answers in the event loop that it is started in or in one of its own in a thread, and
its connections by h11, which can be made to misbehave."""

from __future__ import annotations

import asyncio
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import h11
from anyio.from_thread import start_blocking_portal
from tests.doubles.faults import Fault

from evoseek.errors import ConfigError
from evoseek.world.server import MAX_BODY, Response

BACKLOG = 4096  # connections that wait to be accepted, as far as the system allows
IDLE_S = 60.0  # how long a client may be silent, or not accept what it is sent
_MISSING = 1000  # bytes that a body of wrong length is short of
_PIECES = 10  # of a slow body
_NO_LINGER = struct.pack("ii", 1, 0)  # closing then resets the connection


class Loopback(ABC):
    """Serves connections; what it answers is up to a class derived from it. A request's body has at most `max_body`
    bytes."""

    def __init__(self, *, max_body: int = MAX_BODY) -> None:
        self.url, self._max_body = "", max_body
        self._tasks = set[asyncio.Task[Any]]()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._tasks)

    @abstractmethod
    async def answer(self, connection: Connection, request: Request) -> bool:
        """Answer a request. False: nothing more can be said on this connection."""

    @abstractmethod
    def refused(self, error: h11.RemoteProtocolError) -> None:
        """Called for what is no request, before it is answered as that."""

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncGenerator[str]:
        """Serve within the block, and give the address, `http://127.0.0.1:<port>`. Raises ConfigError if the port
        is taken; 0 is any that is free."""
        try:
            server = await asyncio.start_server(self._connected, "127.0.0.1", port, backlog=BACKLOG)
        except OSError as error:
            raise ConfigError(
                f"Cannot listen on 127.0.0.1:{port} ({error.strerror or error}). Give another port; 0 is any that is "
                "free."
            ) from error
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self.url
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    @contextmanager
    def in_thread(self, port: int = 0) -> Generator[str]:
        """`listening` in an event loop of its own, for callers that run loops themselves, one after another."""
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(self.listening(port)) as url:
            yield url

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            await self._serve(Connection(reader, writer, max_body=self._max_body))
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()  # the client is gone or too slow, or the server is to end
        finally:
            writer.close()

    async def _serve(self, connection: Connection) -> None:
        try:
            while request := await connection.request():
                if not await self.answer(connection, request):
                    return
        except h11.RemoteProtocolError as error:
            self.refused(error)
            await connection.send(plain_error(error.error_status_hint, str(error), close=True))


def plain_error(status: int, text: str, *, close: bool = False) -> Response:
    """A response that is an error in plain text."""
    headers = (("connection", "close"),) if close else ()
    return Response(status, text.encode(), "text/plain; charset=utf-8", headers)


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request. Names of headers are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Connection:
    """One connection, for one request after the other. Raises OSError (TimeoutError is one) when the client is lost."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, max_body: int = MAX_BODY) -> None:
        self._reader, self._writer, self._max_body = reader, writer, max_body
        self._h11 = h11.Connection(h11.SERVER)
        self._method = b""

    async def request(self) -> Request | None:
        """The next request; None if there is no further one. Raises h11.RemoteProtocolError for what is no request."""
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
        head, body = h11.Request(method="GET", target="/", headers=[("host", "-")]), bytearray()
        async with asyncio.timeout(IDLE_S):
            while self._h11.our_state is h11.IDLE or self._h11.our_state is h11.SEND_RESPONSE:
                event = self._h11.next_event()
                if event is h11.NEED_DATA:
                    self._h11.receive_data(await self._reader.read(65536))
                elif isinstance(event, h11.Request):
                    head, self._method = event, event.method
                elif isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > self._max_body:
                        raise h11.RemoteProtocolError("The body is too long.", error_status_hint=413)
                elif isinstance(event, h11.EndOfMessage):
                    headers = {name.decode("ascii"): value.decode("latin-1") for name, value in head.headers}
                    return Request(head.method.decode("ascii"), head.target.decode("ascii"), headers, bytes(body))
                else:  # the client has closed
                    break
        return None

    async def send(self, response: Response) -> None:
        """Send a response whole."""
        head, end = _head(response), h11.EndOfMessage()
        body = h11.Data(data=b"" if self._method == b"HEAD" else response.body)
        await self._write(b"".join(self._h11.send(event) or b"" for event in (head, body, end)))

    async def stream(self, pieces: AsyncIterable[bytes], content_type: str, *, whole: bool = True) -> None:
        """Send a response whose body comes in pieces; unless it is `whole`, its end is missing."""
        await self._write(
            self._h11.send(h11.Response(status_code=200, headers=[("content-type", content_type)])) or b""
        )
        async for piece in pieces:
            await self._write(self._h11.send(h11.Data(data=piece)) or b"")
        if whole:
            await self._write(self._h11.send(h11.EndOfMessage()) or b"")

    async def left(self) -> None:
        """Wait until the client has closed the connection."""
        while data := await self._reader.read(65536):
            self._h11.receive_data(data)

    async def send_badly(self, response: Response, fault: Fault, slow_s: float) -> None:
        """Send a response with one of the faults that lie in the sending; it is the connection's last."""
        match fault:
            case Fault.RESET:
                self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                self._writer.transport.abort()
            case Fault.HANG:
                await self.left()
            case Fault.SLOW:
                await self._write(self._head(response))
                size = -(-len(response.body) // _PIECES) or 1
                for start in range(0, len(response.body), size):
                    await asyncio.sleep(slow_s / _PIECES)
                    await self._write(response.body[start : start + size])
            case _:
                await self._write(self._head(response, too_long=_MISSING) + response.body)

    def _head(self, response: Response, too_long: int = 0) -> bytes:
        """Of a response whose body goes past h11, which would not let a wrong one through."""
        return self._h11.send(_head(response, ("connection", "close"), too_long=too_long)) or b""

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(IDLE_S):
            await self._writer.drain()


def _head(response: Response, *more: tuple[str, str], too_long: int = 0) -> h11.Response:
    """What a response begins with; `too_long` is by how much the length is wrong."""
    length = ("content-length", str(len(response.body) + too_long))
    headers = [("content-type", response.content_type), length, *response.headers, *more]
    return h11.Response(status_code=response.status, headers=headers)
