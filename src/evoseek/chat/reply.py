"""What an endpoint replies: the text in it, or why there is none."""

from __future__ import annotations

from evoseek.errors import ReplyError, ToolError
from evoseek.http.said import json_of, quoted
from evoseek.policy.encoding import well_formed


def text_of(body: bytes, *, secret: str) -> str:
    """The text in the body of a success: of the first choice, if the model came to its end.

    Raises TransientError for a body that is not JSON, ReplyError for a reply that was cut, ToolError for any other that
    is none. They say what is wrong, not whose reply it is.
    """
    match json_of(body, secret=secret):
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
