"""Reads pages that may be malicious. Run as a separate process, by extract.py:

    python -m evoseek.search.browse.extract_worker CPU_SECONDS MEMORY_BYTES

Requests come in on the standard input, each as two frames: a JSON object with `kind` and what that needs, and the
bytes. The answer is one frame, a JSON object on the standard output. The process ends with its standard input, when a
page needs more processor time than it may (by SIGXCPU), and when it runs out of memory.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from protego import Protego

from evoseek.corpus.formats import Parsed, parse_html, parse_pdf, parse_plain
from evoseek.errors import DataError
from evoseek.search.browse.frames import read_frame, write_frame

MAX_TEXT = 2_000_000
"""Characters of a page's text at most; the rest is left out."""

_MAX_REQUEST = 2**26
_MAX_TITLE = 300
_PARSERS: Mapping[str, Callable[[bytes], Parsed]] = {
    "text/html": parse_html,
    "application/xhtml+xml": parse_html,
    "text/plain": parse_plain,
    "application/pdf": parse_pdf,
}


def page(header: Mapping[str, str], body: bytes) -> dict[str, object]:
    """Title and text of a page of the type `kind`, in the `charset` that its server named, if that fits."""
    if charset := header.get("charset"):
        with suppress(LookupError, ValueError):  # unknown or wrong encoding: it is guessed
            body = body.decode(charset).encode()
    title, text = _PARSERS[header["kind"]](body)[:2]
    return {"title": _clean(" ".join(title.split())[:_MAX_TITLE]), "text": _clean(text[:MAX_TEXT].strip())}


def robots(header: Mapping[str, str], body: bytes) -> dict[str, object]:
    """What a robots.txt says to `agent`: whether `url` is `allowed`, and the `delay_s` between requests."""
    rules = Protego.parse(body.decode("utf-8-sig", errors="replace"))
    agent = header["agent"]
    return {"allowed": rules.can_fetch(header["url"], agent), "delay_s": rules.crawl_delay(agent) or 0.0}


def _clean(text: str) -> str:
    """Without lone surrogates, which no file takes."""
    return text.encode(errors="replace").decode()


def _answer(header: Mapping[str, str], body: bytes) -> dict[str, object]:
    try:
        return robots(header, body) if header["kind"] == "robots" else page(header, body)
    except MemoryError:
        raise
    except DataError as error:
        return {"problem": str(error)}
    except Exception as error:  # whatever a parser raises for what is not of its type
        return {"problem": f"it is not of the type that it is said to be ({type(error).__name__})"}


def main(cpu_s: int, memory: int) -> None:
    """Answer until there are no more requests."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the output of a parser is no answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    write_frame(replies, b"{}")
    while (header := read_frame(requests, _MAX_REQUEST)) is not None:
        body = read_frame(requests, _MAX_REQUEST)
        if body is None:
            break
        spent = resource.getrusage(resource.RUSAGE_SELF)
        allowance = int(spent.ru_utime + spent.ru_stime) + 1 + cpu_s
        resource.setrlimit(resource.RLIMIT_CPU, (allowance, resource.RLIM_INFINITY))
        write_frame(replies, json.dumps(_answer(json.loads(header), body)).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
