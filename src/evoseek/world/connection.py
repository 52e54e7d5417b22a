"""The server's side of an HTTP/1.1 connection, by h11, which can also be made to misbehave."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterable
from dataclasses import dataclass

import h11

from evoseek.world.faults import Fault
from evoseek.world.response import Response

IDLE_S = 60.0  # how long a client may be silent, or not accept what it is sent
MAX_BODY = 16 * 1024  # of a request, unless more is allowed
_MISSING = 1000  # bytes that a body of wrong length is short of
_PIECES = 10  # of a slow body
_NO_LINGER = struct.pack("ii", 1, 0)  # closing then resets the connection


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
        head, end = response.head(), h11.EndOfMessage()
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
        return self._h11.send(response.head(("connection", "close"), too_long=too_long)) or b""

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(IDLE_S):
            await self._writer.drain()
