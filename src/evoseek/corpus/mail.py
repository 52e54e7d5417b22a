"""Mail: a message (.eml) or a mailbox (.mbox), by the standard library. Attachments are named, not read.

The time that the standard library takes for a header grows with the square of its length. So no more than the beginning
of a header is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from email import message_from_bytes
from email.message import EmailMessage, MIMEPart
from email.policy import EmailPolicy
from typing import BinaryIO, cast

from evoseek.corpus.decoding import bounded_lines, proper
from evoseek.corpus.formats import Parsed, parse_html, parse_plain
from evoseek.errors import DataError

_SHOWN = ("From", "To", "Cc", "Date")
_LINE_BYTES = 2**20
_HEADER_CHARACTERS = 10_000


class _Bounded(EmailPolicy):
    """Parses the beginning of each header."""

    def header_fetch_parse(self, name: str, value: str) -> str:
        return super().header_fetch_parse(name, value[:_HEADER_CHARACTERS])


def parse_message(data: bytes, encoding: str | None = None) -> Parsed:
    """A message, titled by its subject: who wrote to whom and when, its text, and the names of what is attached."""
    message = cast(EmailMessage, message_from_bytes(data, EmailMessage, policy=_Bounded()))
    if not any(message[name] for name in ("From", "Subject", "Date", "Received")):
        raise DataError("no mail: it has none of the lines From, Subject and Date")
    body = message.get_body(("plain", "html"))
    text, guessed = ("", "") if body is None else _text(body, encoding)
    head = [f"{name}: {' '.join(str(message[name]).split())}" for name in _SHOWN if message[name]]
    names = [str(name) for part in message.iter_attachments() if (name := part.get_filename())]
    attached = [f"Attachments: {', '.join(names)}"] if names else []
    pieces = ("\n".join(head), text.strip(), *attached)
    return Parsed(str(message["Subject"] or ""), "\n\n".join(filter(None, pieces)), guessed)


def _text(body: MIMEPart, encoding: str | None) -> tuple[str, str]:
    """The text of a part, and its encoding if that was guessed."""
    payload = body.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return "", ""
    declared = body.get_content_charset() or encoding
    try:
        payload.decode(declared or "utf-8")
    except (LookupError, UnicodeDecodeError):  # declared wrongly: as a file without a declaration
        declared = encoding
    parsed = (parse_html if body.get_content_subtype() == "html" else parse_plain)(
        payload if declared is None else proper(payload.decode(declared)).encode(), encoding
    )
    return parsed.text, parsed.guessed


def messages(file: BinaryIO, max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """The line at which each message of a mailbox begins, and its bytes; None for one of more than `max_bytes`, of
    which no more than that is held at a time."""
    first, pieces, size, is_after_gap = 0, list[bytes](), 0, True
    for number, line in bounded_lines(file, min(_LINE_BYTES, max_bytes)):
        if line is not None and is_after_gap and line.startswith(b"From "):
            if first:
                yield first, b"".join(pieces) if size <= max_bytes else None
            first, pieces, size = number, [], 0
        elif first:
            size += max_bytes + 1 if line is None else len(line)
            if line is not None and size <= max_bytes:
                pieces.append(line[1:] if line.lstrip(b">").startswith(b"From ") and line[:1] == b">" else line)
        is_after_gap = line is not None and not line.strip()
    if first:
        yield first, b"".join(pieces) if size <= max_bytes else None
