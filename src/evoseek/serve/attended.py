"""An application that works only as long as its client waits for the reply."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evoseek.serve.body import read_body


class Attended:
    """An ASGI application around another one, for requests with a body of at most `max_body` bytes: if the client
    leaves, what it asked for is cancelled."""

    def __init__(self, app: ASGIApp, *, max_body: int) -> None:
        self._app, self._max_body = app, max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Raises HTTPException 413 for a body that is too large."""
        request = Request(scope, receive)
        body = await read_body(request, self._max_body, remedy="Send a shorter one.")
        gone, unread = asyncio.create_task(left(request)), [body]

        async def replay() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            await asyncio.shield(gone)
            return {"type": "http.disconnect"}

        answering = asyncio.ensure_future(self._app(scope, replay, send))
        try:
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            gone.cancel()
            answering.cancel()
            await asyncio.gather(gone, answering, return_exceptions=True)


async def left(request: Request) -> None:
    """Returns when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
