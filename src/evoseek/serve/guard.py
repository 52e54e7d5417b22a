"""Who may talk to a server: keys, and requests that come from where they say.

A page of somebody else's, open in a browser on this machine, can send requests to 127.0.0.1. Two headers give it away,
since no page can forge them: `Origin` is the page's own, and `Host` is the name that the browser resolved (also where
that name was pointed at 127.0.0.1 meanwhile: DNS rebinding). So `Origin`, if there is one, must be this server's, and
`Host` must be an address or a name of this server.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Collection, Sequence
from ipaddress import ip_address
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from evoseek.errors import ConfigError
from evoseek.serve.connection import error_reply

KEY_VARIABLE = "EVOSEEK_KEY"
_SHORTEST_KEY = 16
_OPEN = frozenset({"/", "/chat.css", "/chat.js", "/health", "/ready"})


class Guard:
    """An ASGI application around another one, which gets only requests that may be answered.

    keys: the valid keys, of which one is required (without any, none is) beyond the chat page, /health and /ready.
    host: the address that the server listens at. names: other names by which clients may call it.
    """

    def __init__(self, app: ASGIApp, *, keys: Sequence[str], host: str, names: Collection[str] = ()) -> None:
        self._app, self._keys = app, [key.encode() for key in keys]
        self._names = {"localhost", host.lower(), *(name.lower() for name in names)}
        self._only_loopback = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_own(host):
            app = error_reply(
                421, f"This server is not {host[:100]!r}. Call it by its address, or start it with that name (--name)."
            )
        elif origin is not None and origin.partition("://")[2] != host:
            app = error_reply(
                403, f"The request is of a page of {origin[:100]!r}. Only this server's own page may send requests."
            )
        elif scope["path"] not in _OPEN and not self._is_key(headers.get("authorization", "")):
            wrong = " The key that was sent is not valid." if "authorization" in headers else ""
            app = error_reply(
                401, f"A key is needed.{wrong} Send it as `Authorization: Bearer KEY`.", {"WWW-Authenticate": "Bearer"}
            )
        else:
            app = self._app
        await app(scope, receive, send)

    def _is_own(self, host: str) -> bool:
        """Whether a Host header is one of the server's names, or an address: of this machine, if only that may ask."""
        name = host.lower().rpartition("]")[0].removeprefix("[") or host.lower().partition(":")[0]
        if name in self._names:
            return True
        try:
            return ip_address(name).is_loopback or not self._only_loopback
        except ValueError:
            return False

    def _is_key(self, authorization: str) -> bool:
        """Whether a header holds one of the keys; every comparison takes the same time, whatever was sent."""
        scheme, _, given = authorization.partition(" ")
        sent = given.strip().encode()
        matches = [hmac.compare_digest(sent, key) for key in self._keys]
        return not self._keys or (scheme.lower() == "bearer" and any(matches))


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def read_keys(file: Path | None, *, host: str) -> list[str]:
    """The keys of a file, one a line, or else that of the environment variable EVOSEEK_KEY; only an address of this
    machine alone needs none. Raises ConfigError."""
    try:
        text = file.read_text(encoding="utf-8") if file else os.environ.get(KEY_VARIABLE, "")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The keys in {file} cannot be read: {error}. Give a text file with one key in each line."
        ) from error
    keys = [line.strip() for line in text.splitlines() if line.strip()]
    source = str(file) if file else KEY_VARIABLE
    if file and not keys:
        raise ConfigError(f"{file} holds no key. Write one in it, such as the output of `openssl rand -hex 24`.")
    if any(len(key) < _SHORTEST_KEY or not key.isascii() or " " in key for key in keys):
        raise ConfigError(
            f"A key of {source} has fewer than {_SHORTEST_KEY} characters, or others than ASCII without spaces. Take a "
            "long random one, such as the output of `openssl rand -hex 24`."
        )
    if not keys and not is_loopback(host):
        raise ConfigError(
            f"The address {host} is reachable from other machines, and there is no key. Give one: --key-file FILE "
            f"with a key in it, or the environment variable {KEY_VARIABLE}; or listen at 127.0.0.1."
        )
    return keys
