"""Errors as clients of OpenAI's API read them: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

_LOG = logging.getLogger(__name__)
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class StoppedError(Exception):
    """The server was stopped before an answer was there."""

    def __init__(self) -> None:
        super().__init__("The server was stopped before the answer was there. Ask again when it is back.")


def error_body(status: int, message: str) -> dict[str, object]:
    """The JSON values of an error."""
    type = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": type, "param": None, "code": None}}


def error_reply(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as a response."""
    return JSONResponse(error_body(status, message), status, headers)


def unforeseen(error: Exception) -> str:
    """The text about an error that nobody foresaw, which is logged as well."""
    what = f"The answer failed: {type(error).__name__}: {error}"
    _LOG.error(what)
    return what


async def refused(request: Request, error: Any) -> Response:
    """The handler of an HTTPException."""
    return error_reply(error.status_code, error.detail, error.headers)
