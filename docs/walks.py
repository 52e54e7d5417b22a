"""The walks through the code in docs/architecture.md: those of walks.toml, traced in real runs of the tiny policies.

python docs/walks.py     # runs them, a few minutes, and writes the tables

A walk follows a value through its stops: the functions that hand it over or transform it. The rule is the same for all.
When a stop is first reached, the files of these functions of evoseek are counted, each once:

- those on the call stack from the entry to the stop, also through tasks and threads that were started on the way;
- those that the stop calls itself.

Files without functions are not counted. The upper bound is the number of files of which any function is called between
the entry and the last stop.
"""

import asyncio
import json
import os
import runpy
import shlex
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from inspect import CO_OPTIMIZED
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any
from weakref import WeakKeyDictionary

PAGE = Path(__file__).with_name("architecture.md")
PACKAGE = Path(__file__).parents[1] / "src" / "evoseek"
WALKS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["walk"]
BEGIN, END = "<!-- The walks: written by docs/walks.py. -->\n\n", "<!-- End of the walks. -->\n"
WORLD = (
    "from pathlib import Path; from evoseek.demo import make_world; make_world(Path('world'), 'train', 0, 24, (1, 2))"
)
TOML = "[loss]\nclip_low = 0.15\n"


@cache
def name_of(code: CodeType) -> str:
    """`file.py name` of a function of evoseek, a nested function being part of the outer one; "" for all other code."""
    if not code.co_filename.startswith(f"{PACKAGE}/") or not code.co_flags & CO_OPTIMIZED:
        return ""
    return f"{code.co_filename[len(str(PACKAGE)) + 1 :]} {code.co_qualname.split('.<locals>')[0]}"


class Trace:
    """Follows one walk in this process. `reached` has, for each stop, its stack and the functions that it called."""

    def __init__(self, walk: Mapping[str, Any]) -> None:
        self.entry: str = walk["entry"]
        self.stops = [stop for _, *stops in walk["steps"] for stop in stops if not stop.endswith("*")]
        self.reached: dict[str, dict[str, None]] = {}
        self.ran: set[str] = set()
        self.frames: dict[FrameType, str] = {}  # of the stops, kept so that none is taken for another
        self.above: WeakKeyDictionary[asyncio.Task[Any], list[str]] = WeakKeyDictionary()
        self.thread = threading.local()

    def install(self) -> None:
        """Trace every call of a function from now on."""
        create_task, run_in_executor = asyncio.BaseEventLoop.create_task, asyncio.BaseEventLoop.run_in_executor

        def created(loop: Any, coroutine: Any, **how: Any) -> Any:
            task = create_task(loop, coroutine, **how)
            self.above[task] = self.stack(sys._getframe(1))
            return task

        def run(loop: Any, executor: Any, function: Any, *args: Any) -> Any:
            def call() -> Any:
                self.thread.above = above
                return function(*args)

            above = self.stack(sys._getframe(1))
            return run_in_executor(loop, executor, call)

        asyncio.BaseEventLoop.create_task, asyncio.BaseEventLoop.run_in_executor = created, run
        threading.setprofile(self.on_event)
        sys.setprofile(self.on_event)

    def on_event(self, frame: FrameType, event: str, _: object) -> None:
        """What Python calls at every call of a function."""
        if event != "call" or not (name := name_of(frame.f_code)):
            return
        if len(self.reached) < len(self.stops) and (self.ran or name == self.entry):
            self.ran.add(name.split()[0])
        if self.frames and (stop := self.frames.get(caller(frame))) is not None:
            self.reached[stop][name] = None
        if name in self.stops and name not in self.reached and self.entry in (stack := self.stack(frame)):
            self.reached[name] = dict.fromkeys(stack)
            self.frames[frame] = name

    def stack(self, frame: FrameType | None) -> list[str]:
        """The functions of evoseek on the stack of a frame, from the entry on if it is there."""
        try:
            task = asyncio.current_task()
            above = None if task is None else self.above.get(task)
        except RuntimeError:  # no event loop in this thread
            above = getattr(self.thread, "above", None)
        names: list[str] = []
        while frame is not None and not (above is not None and frame.f_code.co_qualname == "Handle._run"):
            names.append(name_of(frame.f_code))
            frame = frame.f_back
        names = [*(above or ()), *filter(None, reversed(names))]
        return names[names.index(self.entry) :] if self.entry in names else names


def caller(frame: FrameType) -> FrameType | None:
    """The nearest frame of evoseek below one."""
    below = frame.f_back
    while below is not None and not name_of(below.f_code):
        below = below.f_back
    return below


def traced(walk: Mapping[str, Any], words: Sequence[str], folder: str) -> tuple[dict[str, list[str]], int, int]:
    """Runs the command of a walk: the functions of each stop, the upper bound, and the modules of evoseek loaded."""
    trace = Trace(walk)
    os.chdir(folder)
    sys.argv = ["evoseek", *words]
    trace.install()
    try:
        runpy.run_module("evoseek", run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise RuntimeError(f"`evoseek {shlex.join(words)}` ended with {ended.code}.") from ended
    finally:
        sys.setprofile(None)
    if missing := [stop for stop in trace.stops if stop not in trace.reached]:
        raise RuntimeError(f"{walk['title']}: not reached from {walk['entry']}: {', '.join(missing)}.")
    modules = sum(name.split(".")[0] == "evoseek" for name in sys.modules)
    return {stop: list(names) for stop, names in trace.reached.items()}, len(trace.ran), modules


def table(walk: Mapping[str, Any], reached: Mapping[str, Sequence[str]], ran: int, modules: int) -> str:
    """A walk as a table: its steps, each with the files that no earlier step had."""
    seen, rows = set[str](), list[str]()
    for sentence, *stops in walk["steps"]:
        names = [stop.removesuffix(" *") for stop in stops]
        own, way = {name.split()[0] for name in names}, dict[str, list[str]]()
        for file, function in (name.split() for stop in stops for name in reached.get(stop, ())):
            if file not in seen | own and function not in way.setdefault(file, []):
                way[file].append(function)
        seen |= own | way.keys()
        others = "; ".join(f"`{file}` {', '.join(functions)}" for file, functions in way.items())
        rows.append(f"| {sentence} | {', '.join(f'`{name}`' for name in names)} | {others} |")
    return "\n".join(
        [
            f"### {walk['title']}\n",
            f"{len(seen)} files, from `{walk['entry']}`. Functions of {ran} files run meanwhile; {modules} modules of",
            f"evoseek are loaded by `evoseek {walk['command'].split()[0]}`.\n",
            "| Step | Functions | Other files on the way |\n|---|---|---|",
            *rows,
        ]
    )


@contextmanager
def world(folder: Path) -> Iterator[dict[str, str]]:
    """A generated world in a folder, and its web site; what commands name of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    subprocess.run([sys.executable, "-c", WORLD], cwd=folder, check=True)
    (folder / "clip.toml").write_text(TOML, encoding="utf-8")
    first = (folder / "world" / "questions.jsonl").read_text(encoding="utf-8").splitlines()[0]
    serve = ["world", "serve", "--port", port, "--questions", "web.jsonl"]
    with subprocess.Popen([sys.executable, "-m", "evoseek", *serve], cwd=folder, stdout=subprocess.DEVNULL) as site:
        try:
            while site.poll() is None and not _answers(int(port)):
                time.sleep(0.2)
            yield {"host": f"127.0.0.1:{port}", "question": shlex.quote(json.loads(first)["question"])}
        finally:
            site.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def main() -> None:
    """Trace every walk in a process of its own, and write the page."""
    tables: list[str] = []
    with TemporaryDirectory() as folder, world(Path(folder)) as named:
        for walk in WALKS:
            words = shlex.split(walk["command"].format(**named))
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                tables.append(table(walk, *process.submit(traced, walk, words, folder).result()))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text("".join([before, BEGIN, *(f"{one}\n\n" for one in tables), END, after]), encoding="utf-8")


if __name__ == "__main__":
    main()
