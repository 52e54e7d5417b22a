"""Parses documents that may be malicious. Run as a separate process, by parse_process.py:

    python -m evoseek.corpus.parse_worker CPU_SECONDS MEMORY_BYTES

Requests come in on the standard input, each as two frames: a JSON object, and the bytes. The answer is one frame, a
JSON object on the standard output. The process ends with its standard input, when an input needs more processor time
than it may (by SIGXCPU), and when it runs out of memory.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from evoseek.corpus.documents import parse_document
from evoseek.corpus.frames import read_frame, write_frame
from evoseek.errors import DataError

_MAX_REQUEST = 2**31


def serve(answer: Callable[[Any, bytes], Mapping[str, object]], cpu_s: int, memory: int) -> None:
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
        write_frame(replies, json.dumps(answer(json.loads(header), body)).encode())


def _document(header: Mapping[str, Any], body: bytes) -> Mapping[str, object]:
    try:
        parsed = parse_document(header["suffix"], body, header["encoding"])
    except DataError as error:
        return {"problem": str(error)}
    return {**parsed._asdict(), "marks": [asdict(mark) for mark in parsed.marks]}


if __name__ == "__main__":
    serve(_document, int(sys.argv[1]), int(sys.argv[2]))
