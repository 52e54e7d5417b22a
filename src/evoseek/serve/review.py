"""The page of `evoseek review`: questions beside their passages, judged by one key each.

    GET  /TOKEN/         the page
    GET  /TOKEN/state    the number of questions, their verdicts and the share so far
    GET  /TOKEN/N        question N with its passages, from `Review.json`
    POST /TOKEN/N        {"verdict": "right"}; answers with the state
    POST /TOKEN/end      the review is finished: the server ends

The token is random, so that other users of the machine cannot open the page; `Guard` refuses requests of other sites'
pages.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from evoseek.curation.reviewing import Review
from evoseek.errors import DataError, EvoseekError
from evoseek.serve.connection import CancelOnDisconnect, Guard, StoppableServer, listen, page_of, refused

_HOST = "127.0.0.1"
_MAX_BODY = 1_000  # bytes of a verdict
_DRAIN_S = 2


class ReviewServer:
    """A server of a review, with the ASGI application `app` at `path`."""

    def __init__(self, review: Review) -> None:
        self._review = review
        self.path = f"/{secrets.token_urlsafe(16)}/"
        routes = [
            Route("/", page_of("review.html")),
            Route("/review.js", page_of("review.js")),
            Route("/review.css", page_of("review.css")),
            Route("/chat.css", page_of("chat.css")),
            Route("/state", self._state),
            Route("/end", self._end, methods=["POST"]),
            Route("/{number:int}", self._question),
            Route("/{number:int}", self._judge, methods=["POST"]),
        ]
        mounted = [Mount(self.path[:-1], routes=routes), Route("/{path:path}", _moved, methods=["GET", "POST"])]
        app = Starlette(routes=mounted, exception_handlers={HTTPException: refused})
        self.app = Guard(CancelOnDisconnect(app, max_body=_MAX_BODY), keys=(), host=_HOST)
        self.http = StoppableServer(self.app, drain_s=_DRAIN_S)

    def run(self, port: int, *, started: Callable[[str], None] = lambda url: None) -> None:
        """Serve until the page ends the review, or as `listen` does; `started` is called with the page's address."""
        listen(self.http, _HOST, port, started=lambda url: started(url + self.path))

    async def _state(self, request: Request) -> Response:
        review = self._review
        verdicts = [review.verdicts.get(number) for number in range(len(review.questions))]
        return JSONResponse({"verdicts": verdicts, "share": str(review.share), "tests": str(review.tests)})

    async def _question(self, request: Request) -> Response:
        number: int = request.path_params["number"]
        if number >= len(self._review.questions):
            raise HTTPException(404, f"There is no question {number}: there are {len(self._review.questions)}.")
        return JSONResponse(await asyncio.to_thread(self._review.json, number))

    async def _judge(self, request: Request) -> Response:
        try:
            body: Any = json.loads(await request.body())
            verdict = str(body["verdict"])
        except (ValueError, LookupError, TypeError) as error:
            raise HTTPException(400, 'Expected a JSON object such as {"verdict": "right"}.') from error
        try:
            await asyncio.to_thread(self._review.judge, request.path_params["number"], verdict)
        except EvoseekError as error:
            raise HTTPException(400 if isinstance(error, DataError) else 507, str(error)) from error
        return await self._state(request)

    async def _end(self, request: Request) -> Response:
        self.http.should_exit = True
        return await self._state(request)


async def _moved(request: Request) -> Response:
    """Answer a page of an earlier start of the command that a browser still shows."""
    text = "This is not the page of this review. Open the address that the command prints now; no verdict is lost."
    raise HTTPException(404, text)
