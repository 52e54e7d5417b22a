"""Listening at an address until the server is told to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from evoseek.errors import ConfigError

_CLOSING_S = 5  # seconds in which those who are told that their answer was cancelled may read it


class StoppableServer(uvicorn.Server):
    """A server that, told to stop, accepts nothing more and answers what is under way for at most `drain_s` seconds.
    `end` is then called in its loop to cancel the rest; without `end`, connections are closed."""

    def __init__(self, app: ASGIApp, *, drain_s: int, end: Callable[[], None] | None = None) -> None:
        self._drain_s, self._end = drain_s, end
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=drain_s + (_CLOSING_S if end else 0),
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn."""
        timer = asyncio.get_running_loop().call_later(self._drain_s, self._end or (lambda: None))
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


def listen(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    started: Callable[[str], None],
    drain_s: int,
    end: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then end as `StoppableServer` says, and return. `started` is given the address.
    Raises ConfigError if the address cannot be had."""
    server = StoppableServer(app, drain_s=drain_s, end=end)

    def stop(number: int, frame: object) -> None:
        server.should_exit = True

    with _bound(host, port) as bound:
        for number in (signal.SIGTERM, signal.SIGINT):  # before uvicorn listens to them, and when it raises them again
            signal.signal(number, stop)
        started(f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}")
        server.run(sockets=[bound])


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2_048)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"The address {host}:{port} cannot be had ({error}). Another server may use it: give another --port, or 0 "
            "for any free one."
        ) from error
