"""Quoting the replies of servers, which are not trusted."""

from __future__ import annotations

import base64
import html
import json
import re
from functools import lru_cache
from typing import Any

from evoseek.http.retry import TransientError

_SHOWN = 300  # characters of a reply
_READ = 16 * 1024  # characters in which these, without white space, are looked for
_LONGEST = 8  # characters that stand for one of a secret, at most: \u002f, &#x002f;, %25252f
_WHOLE = 8  # characters of base64 that are no accident


def json_of(body: bytes, *, secret: str) -> Any:
    """The JSON value of a body. Raises TransientError if it is not JSON: the reply may have been cut on its way."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise TransientError(f"it replied with what is not JSON: {redacted(body, secret)}") from error


def error_message(body: bytes) -> object:
    """A server's error message, if it is in one of the usual places; else the whole body."""
    try:
        match json.loads(body):
            case {"error": {"message": str(message)}} | {"error": str(message)} | {"message": str(message)}:
                return message
            case _:
                return body
    except (ValueError, RecursionError):
        return body


def redacted(reply: object, secret: str) -> str:
    """A server's text for use in an error: its beginning, in quotation marks, without the secret in any usual
    spelling."""
    text = reply[: 4 * _READ].decode(errors="replace") if isinstance(reply, bytes) else str(reply)
    if secret:
        is_cut, text = len(text) > _READ, _spellings(secret).sub("***", text[:_READ])
        text = text[: -_LONGEST * len(secret)] if is_cut else text  # where a part of it may stand
    text = " ".join(text[:_READ].split())
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


@lru_cache(maxsize=8)
def _spellings(secret: str) -> re.Pattern[str]:
    """How a server may spell a secret: each character as it is, percent-encoded (also more than once) or escaped as in
    JSON, HTML or Python; or all of it in hexadecimal digits or base64, alone or as a part."""
    digits = secret.encode().hex()
    wholes = [secret, digits, digits.upper(), *filter(None, (_in_base64(secret, before) for before in range(3)))]
    return re.compile("|".join("".join(map(_spelling, whole)) for whole in wholes))


def _spelling(character: str) -> str:
    code = ord(character)
    escapes = rf"%(?:25)*{code:02x}|\\u{code:04x}|\\x{code:02x}|&#0*{code};|&#x0*{code:x};"
    plain = {"+": "[-+]", "/": r"\\?[/_]"}.get(character, rf"\\?{re.escape(character)}")
    named = re.escape(html.escape(character))
    return f"(?:(?i:{escapes})|{named}|{plain})"


def _in_base64(secret: str, before: int) -> str:
    """What stands for the secret alone where it follows so many other bytes, modulo 3; "" if that is too little."""
    coded = base64.b64encode(b"\0" * before + secret.encode()).decode().rstrip("=")
    own = coded[(0, 2, 3)[before] : -1 if (before + len(secret.encode())) % 3 else None]
    return own if len(own) >= _WHOLE else ""
