"""JSON without the characters that some clients take for the end of a line: they are escaped in every reply.

JSON may hold U+0085, U+2028 and U+2029 as they are. A client that reads a stream by `str.splitlines` would cut an event
in two there.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SEPARATORS = {character: f"\\u{ord(character):04x}" for character in "\u0085\u2028\u2029"}
_TABLE = str.maketrans(_SEPARATORS)


def one_line(json: str) -> str:
    """The same JSON with these characters, which only its strings can hold, as escapes."""
    return json.translate(_TABLE)


class OneLineJson:
    """An ASGI application around another one, whose JSON replies it sends by `one_line`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        start: Message = {}
        body = bytearray()

        async def escaped(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_json(message):
                start = message
            elif message["type"] == "http.response.body" and start:
                body.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    await _send(send, start, bytes(body))
            else:
                await send(message)

        await self._app(scope, receive, escaped if scope["type"] == "http" else send)


def _is_json(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith("application/json")


async def _send(send: Send, start: Message, body: bytes) -> None:
    for character, escape in _SEPARATORS.items():
        body = body.replace(character.encode(), escape.encode())
    headers = MutableHeaders(raw=start["headers"])
    if body and "content-length" in headers:  # the reply to HEAD has none
        headers["content-length"] = str(len(body))
    await send({**start, "headers": headers.raw})
    await send({"type": "http.response.body", "body": body})
