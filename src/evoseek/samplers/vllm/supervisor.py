"""Runs a server for as long as the process that started it lives:

    python -m evoseek.samplers.vllm.supervisor LOG COMMAND ARGUMENT...

That process holds the other end of standard input. When it ends, in whatever way, the input ends too, and the server
with all processes that it has started is ended. The server's output goes to the end of the file LOG.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from types import FrameType

_GRACE_S = 20.0  # how long a server may take to end
_LOOK_S = 0.2


def main() -> int:
    """Run the command of the command line; its status."""
    log, *command = sys.argv[1:]
    signal.signal(signal.SIGTERM, _leave)
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        while process.poll() is None and not _is_over():
            pass
    finally:
        _end(process)
    return process.returncode


def _is_over() -> bool:
    """Whether standard input has ended; waits a moment for that."""
    ready, _, _ = select.select([0], [], [], _LOOK_S)
    return bool(ready) and not os.read(0, 4096)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server and whatever it has started, by SIGTERM first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
