"""The walks in docs/architecture.md name functions that exist, and their numbers of files are those of their tables."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = run_path(str(DOCS / "walks.py"))
TABLES = SCRIPT["PAGE"].read_text().partition(SCRIPT["BEGIN"])[2].partition(SCRIPT["END"])[0]
PAGE = dict(re.findall(r"^### (.+)\n\n([^#]+)", TABLES, re.M))

# `entry` starts a task and a thread in which the stops are reached; `before` has returned by then.
TRACED = """
import asyncio

def before(): pass
def called(): pass
def stop_in_task(): called()
def stop_in_thread(): pass
def not_counted(): pass

async def task():
    before()
    stop_in_task()
    not_counted()
    await asyncio.to_thread(thread)

def thread():
    stop_in_thread()

async def entry():
    await asyncio.gather(task())

async def main():
    stop_in_task()
    await entry()
"""
CALL = """
import json, sys, walks
trace = walks.Trace({"entry": "code.py entry", "steps": [["", "code.py stop_in_task", "code.py stop_in_thread"]]})
trace.install()
from evoseek.code import main, asyncio
asyncio.run(main())
sys.setprofile(None)
print(json.dumps({stop: list(names) for stop, names in trace.reached.items()}))
"""


def functions(file):
    """The qualified names of a file's functions, without those inside of others."""

    def within(body, prefix):
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from within(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + node.name

    return set(within(ast.parse((SCRIPT["PACKAGE"] / file).read_text()).body, ""))


def rows(walk):
    """The cells of a walk's table."""
    lines = [line for line in PAGE[walk["title"]].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


walks = pytest.mark.parametrize("walk", SCRIPT["WALKS"], ids=lambda walk: walk["title"])


def test_the_page_has_every_walk():
    assert list(PAGE) == [walk["title"] for walk in SCRIPT["WALKS"]], "run `python docs/walks.py`"


@walks
def test_a_table_has_the_steps_of_its_walk(walk):
    stops = [", ".join(f"`{stop.removesuffix(' *')}`" for stop in stops) for _, *stops in walk["steps"]]
    assert [row[:2] for row in rows(walk)] == [
        [sentence, names] for (sentence, *_), names in zip(walk["steps"], stops, strict=True)
    ], "run `python docs/walks.py`"
    assert f"from `{walk['entry']}`" in PAGE[walk["title"]]


@walks
def test_functions_that_a_walk_names_exist(walk):
    named = re.findall(r"`([\w/]+\.py)`? ([\w.]+(?:, [\w.]+)*)", PAGE[walk["title"]])
    for file, names in named:
        assert set(names.split(", ")) <= functions(file), f"{file}: run `python docs/walks.py`"


@walks
def test_a_number_of_files_is_that_of_the_table(walk):
    files = {file for row in rows(walk) for file in re.findall(r"[\w/]+\.py", " ".join(row))}
    assert int(PAGE[walk["title"]].split()[0]) == len(files)


def test_a_trace_has_the_stack_through_tasks_and_threads_and_the_calls_of_a_stop(tmp_path):
    (tmp_path / "src" / "evoseek").mkdir(parents=True)
    (tmp_path / "src" / "evoseek" / "__init__.py").touch()
    (tmp_path / "src" / "evoseek" / "code.py").write_text(TRACED)
    (tmp_path / "docs").mkdir()
    for name in ("walks.py", "walks.toml"):
        shutil.copy(DOCS / name, tmp_path / "docs")
    paths = f"import sys; sys.path[:0] = {[str(tmp_path / name) for name in ('docs', 'src')]}\n"
    made = subprocess.run([sys.executable, "-c", paths + CALL], capture_output=True, text=True, check=True)
    assert json.loads(made.stdout) == {
        "code.py stop_in_task": [f"code.py {name}" for name in ("entry", "task", "stop_in_task", "called")],
        "code.py stop_in_thread": [f"code.py {name}" for name in ("entry", "task", "thread", "stop_in_thread")],
    }
