"""A fork server of commands: `python command_child.py`, which loads the settings, as most do, and reads orders.

    ["--version"]                                                         an order: a line of JSON on stdin
    {"status": 0, "out": "evoseek 0.1.0\n", "err": "loaded: no torch\n"}  the answer

Each command is a child of its own, which ends like a process that was started for it, and says whether torch is loaded.
"""

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

from evoseek.cli.main import main


def run(words: list[str], folder: Path) -> None:
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o644), descriptor)
    sys.argv = ["evoseek", *words]
    status = 1
    try:
        main()
    except SystemExit as ended:
        status = ended.code
    finally:
        print("loaded: torch" if "torch" in sys.modules else "loaded: no torch", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    for module in ("search_r1", "zerosearch"):
        importlib.import_module(f"evoseek.systems.{module}")
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            child = os.fork()
            if child == 0:
                run(json.loads(line), folder)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said = {name: (folder / name).read_text() for name in ("out", "err")}
        print(json.dumps({"status": status, **said}), flush=True)


if __name__ == "__main__":
    serve()
