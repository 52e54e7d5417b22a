"""The gateway's address: OpenAI's API on the loopback, one server for all attempts of a process.

    POST {/KEY}/v1/chat/completions    whole, or as a stream that is made from the finished reply
    POST {/KEY}/v1/responses           the same for OpenAI's responses, with the whole input each time
    GET  {/KEY}/v1/models              the policy
    GET  /health                       whether the server lives

An attempt's random key stands in its address, or else in `Authorization: Bearer KEY`. A refusal has the status 400 and
tells clients not to repeat the call. The server has a thread of its own, so that connections are accepted while the
policy computes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from threading import Lock, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from evoseek.errors import ConfigError, DataError
from evoseek.rollout.gateway.attempts import AgentAttempt, CallRefusedError
from evoseek.rollout.gateway.chat_requests import MODEL, completion_of, read_request, stream_of
from evoseek.rollout.gateway.responses import chat_body, response_of, response_stream

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_MOST_BODY = 32 * 2**20  # bytes
_START_S = 30.0


class Gateway:
    """The server, which starts with the first attempt that needs it and ends with the process."""

    def __init__(self) -> None:
        self._attempts: dict[str, AgentAttempt] = {}
        self._starting, self._url = Lock(), ""

    def open(self, attempt: AgentAttempt) -> str:
        """Answer an attempt's calls; return the server's address. Raises ConfigError if it cannot start."""
        self._attempts[attempt.key] = attempt
        with self._starting:
            if not self._url:
                self._url = _started(self._app())
        return self._url

    def close(self, attempt: AgentAttempt) -> None:
        """Forget an attempt that has ended."""
        self._attempts.pop(attempt.key, None)

    def _app(self) -> Any:
        from starlette.applications import Starlette
        from starlette.responses import JSONResponse
        from starlette.routing import Route

        async def health(request: Request) -> Response:
            return JSONResponse({"status": "ok", "attempts": len(self._attempts)})

        async def models(request: Request) -> Response:
            listed = [{"id": MODEL, "object": "model", "created": 0, "owned_by": "evoseek"}]
            return JSONResponse({"object": "list", "data": listed})

        routes = [Route("/health", health)]
        for start in ("/v1", "/{key}/v1"):
            routes += [
                Route(f"{start}/models", models),
                Route(f"{start}/chat/completions", self._chat, methods=["POST"]),
                Route(f"{start}/responses", self._responses, methods=["POST"]),
            ]
        return Starlette(routes=routes)

    async def _chat(self, request: Request) -> Response:
        return await self._answered(request, lambda body: body, completion_of, stream_of)

    async def _responses(self, request: Request) -> Response:
        return await self._answered(request, chat_body, response_of, response_stream)

    async def _answered(
        self,
        request: Request,
        as_chat: Callable[[Any], Any],
        whole: Callable[..., Any],
        stream: Callable[..., Iterable[str]],
    ) -> Response:
        from starlette.responses import JSONResponse, StreamingResponse

        try:
            attempt, wanted = self._attempt(request), read_request(as_chat(await _body(request)))
            retries = request.headers.get("x-stainless-retry-count", "0") != "0"
            asked = asyncio.run_coroutine_threadsafe(attempt.reply(wanted, retries=retries), attempt.loop)
            reply, calls = await asyncio.wrap_future(asked)
        except (DataError, RuntimeError) as error:  # or the attempt's loop is closed
            code = error.api_code if isinstance(error, CallRefusedError) else "invalid_request"
            detail = {"message": str(error), "type": "invalid_request_error", "param": None, "code": code}
            return JSONResponse({"error": detail}, 400, {"x-should-retry": "false"})
        if await request.is_disconnected():  # a retry may still get the reply
            return JSONResponse({}, 400)
        for call in calls:
            call.delivered = True
        if not wanted.stream:
            return JSONResponse(whole(reply, wanted))
        return StreamingResponse(iter([*stream(reply, wanted)]), media_type="text/event-stream")

    def _attempt(self, request: Request) -> AgentAttempt:
        named: str = request.path_params.get("key", "")
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        sent = sent.strip() if scheme.lower() == "bearer" else ""
        attempt = self._attempts.get(named or sent)
        if attempt is None or (sent in self._attempts and self._attempts[sent] is not attempt):
            raise CallRefusedError("The key is of no attempt that is running, or of another one.", "unknown_attempt")
        return attempt


GATEWAY = Gateway()
"""The process's own."""


async def _body(request: Request) -> Any:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BODY:
            raise CallRefusedError(f"The request has more than {_MOST_BODY:,} bytes.", "context_length_exceeded")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CallRefusedError(f"The request is not JSON: {error}.") from error


def _started(app: Any) -> str:
    """Start a server in a thread, on a free port of the loopback; return its address."""
    try:
        import uvicorn
    except ImportError as error:
        raise ConfigError('An agent over HTTP needs the extra serve: `pip install "evoseek[serve]"`.') from error
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="error", access_log=False, lifespan="off", timeout_keep_alive=60)
    )
    Thread(target=server.run, name="gateway", daemon=True).start()
    until = monotonic() + _START_S
    while not server.started:
        if monotonic() > until:
            raise ConfigError("The gateway did not start on 127.0.0.1. Look for what prevents listening there.")
        sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    return f"http://127.0.0.1:{port}"
