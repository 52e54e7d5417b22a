"""Listening at an address until the server is told to stop."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from evoseek.errors import ConfigError


def listen(app: ASGIApp, host: str, port: int, *, started: Callable[[str], None], drain_s: int) -> None:
    """Serve until SIGTERM or Ctrl-C, then accept nothing more, answer what is under way for at most `drain_s` seconds,
    and return. `started` is given the address. Raises ConfigError if the address cannot be had."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=drain_s,
    )
    server = uvicorn.Server(config)

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
