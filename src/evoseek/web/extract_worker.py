"""Reads maybe malicious pages in the processes of extract.py. A request has `kind`, and what this kind needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from protego import Protego

from evoseek.documents.formats import Parsed, parse_html, parse_pdf, parse_plain
from evoseek.errors import DataError
from evoseek.text.scripts import well_formed

MAX_TEXT = 2_000_000
"""Maximum number of characters of a page's text; the rest is left out."""

_MAX_TITLE = 300
_PARSERS: Mapping[str, Callable[[bytes], Parsed]] = {
    "text/html": parse_html,
    "application/xhtml+xml": parse_html,
    "text/plain": parse_plain,
    "application/pdf": parse_pdf,
}


def page(header: Mapping[str, str], body: bytes) -> dict[str, object]:
    """Return title and text of a page of the type `kind`, in the server's `charset`, if it fits."""
    charset = header.get("charset")
    if charset and header["kind"] != "application/pdf":
        with suppress(LookupError, ValueError):  # an unknown or wrong encoding is guessed
            body = body.decode(charset).encode()
    title, text = _PARSERS[header["kind"]](body)[:2]
    return {"title": well_formed(" ".join(title.split())[:_MAX_TITLE]), "text": well_formed(text[:MAX_TEXT].strip())}


def robots(header: Mapping[str, str], body: bytes) -> dict[str, object]:
    """Read a robots.txt for `agent`: whether `url` is `allowed`, and the `delay_s` between requests."""
    rules = Protego.parse(body.decode("utf-8-sig", errors="replace"))
    agent = header["agent"]
    return {"allowed": rules.can_fetch(header["url"], agent), "delay_s": rules.crawl_delay(agent) or 0.0}


def answer(header: Mapping[str, str], body: bytes) -> dict[str, object]:
    """Answer a request of a `ParseProcess`."""
    try:
        return robots(header, body) if header["kind"] == "robots" else page(header, body)
    except MemoryError:
        raise
    except DataError as error:
        return {"problem": str(error)}
    except Exception as error:  # a parser may raise anything for content of another type
        return {"problem": f"it is not of the type that it is said to be ({type(error).__name__})"}
