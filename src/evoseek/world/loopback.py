"""A server on the loopback that answers in the event loop that it is started in, or in one of its own in a thread."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import h11
from anyio.from_thread import start_blocking_portal

from evoseek.errors import ConfigError
from evoseek.world.connection import MAX_BODY, Connection, Request
from evoseek.world.response import Response

BACKLOG = 4096  # connections that wait to be accepted, as far as the system allows


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
        cannot be had; 0 is any that is free."""
        try:
            server = await asyncio.start_server(self._connected, "127.0.0.1", port, backlog=BACKLOG)
        except OSError as error:
            raise ConfigError(
                f"The port {port} of 127.0.0.1 cannot be had ({error.strerror or error}). Give another one; 0 is "
                "any that is free."
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
