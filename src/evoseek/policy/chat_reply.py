"""What an endpoint replies: the text in it, or why there is none."""

from __future__ import annotations

import json
from typing import Any

from evoseek.errors import ReplyError, ToolError
from evoseek.policy.chat_waits import PassingError
from evoseek.policy.encoding import well_formed

_SHOWN = 300  # characters of what a server says


def text_of(body: bytes, *, secret: str) -> str:
    """The text in the body of a success: of the first choice, if the model came to its end.

    Raises PassingError for a body that is not JSON, ReplyError for a reply that was cut, ToolError for any other that
    is none. They say what is wrong, not whose reply it is.
    """
    try:
        reply: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise PassingError(f"it replied with what is not JSON: {quoted(body, secret)}") from error
    match reply:
        case {"choices": [{"message": {"refusal": str(refusal)}}, *_]} if refusal:
            raise ToolError(f"the model refused: {quoted(refusal, secret)}. Change the prompt, or the model.")
        case {"choices": [{"finish_reason": "length"}, *_]}:
            raise ReplyError("it was cut at its limit of tokens. Raise max_tokens, or ask for less in the prompt.")
        case {"choices": [{"finish_reason": "content_filter"}, *_]}:
            raise ToolError("the server's content filter held it back. Change the prompt, or the endpoint.")
        case {"choices": [{"finish_reason": "stop", "message": {"content": str(content)}}, *_]} if content.strip():
            return well_formed(content)
        case _:
            raise ToolError(
                "expected a first choice with the finish_reason 'stop' and a message with text as content, but got "
                f"{quoted(body, secret)}. Check that base_url is that of a chat endpoint, and model the name of a "
                "model that replies with text."
            )


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
