"""What a server says, read with suspicion."""

from __future__ import annotations

import json
from typing import Any

from evoseek.calls.waits import PassingError

_SHOWN = 300  # characters of what a server says


def json_of(body: bytes, *, secret: str) -> Any:
    """The value in a body. Raises PassingError for what is not JSON: a success may have been cut on its way."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise PassingError(f"it replied with what is not JSON: {quoted(body, secret)}") from error


def error_message(body: bytes) -> object:
    """A server's own words for an error, where they are in one of the usual places; else all of the body."""
    try:
        match json.loads(body):
            case {"error": {"message": str(message)}} | {"error": str(message)} | {"message": str(message)}:
                return message
            case _:
                return body
    except (ValueError, RecursionError):
        return body


def quoted(said: object, secret: str) -> str:
    """What a server says, for an error's text: in quotation marks, without the secret, and the beginning only."""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    if secret:
        text = text.replace(secret, "***")
    text = " ".join(text.split())
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
