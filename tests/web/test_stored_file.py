"""The file under the cache and the records: whole whatever happens, shared, and not mistaken for another."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys

from tests.raising import raises

from evoseek.types import Page, Passage
from evoseek.web.stored import Store, StoredWeb, seal, unseal

SCHEMA = "CREATE TABLE IF NOT EXISTS things (number INTEGER PRIMARY KEY, text TEXT)"
WRITER = f"""
import sys
from pathlib import Path
from evoseek.web.stored import Store
store = Store(Path(sys.argv[1]), "test", {SCHEMA!r})
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    store.change("INSERT INTO things VALUES (?, ?)", number, "x" * 5000)
    print(number, flush=True)
"""


def writer(path, first, last):
    command = [sys.executable, "-c", WRITER, str(path), str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_process_that_is_killed_while_it_writes_leaves_all_that_it_wrote_before(tmp_path):
    process = writer(tmp_path / "file", 0, 10**9)
    lines = [process.stdout.readline() for _ in range(50)]
    os.kill(process.pid, signal.SIGKILL)
    told = int([*lines, *process.stdout.readlines()][-1])  # each line is written as a whole
    process.wait()
    store = Store(tmp_path / "file", "test", SCHEMA)
    assert store.rows("PRAGMA integrity_check") == [("ok",)]
    ((count, last, shortest),) = store.rows("SELECT count(*), max(number), min(length(text)) FROM things")
    assert count == last + 1
    assert last in (told, told + 1)
    assert shortest == 5000
    assert store.change("INSERT INTO things VALUES (-1, '')") == 1


def test_several_processes_open_and_write_a_new_file_at_once(tmp_path):
    processes = [writer(tmp_path / "file", 100 * n, 100 * n + 20) for n in range(4)]
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * 4
    store = Store(tmp_path / "file", "test", SCHEMA)
    assert store.rows("SELECT count(*) FROM things") == [(80,)]
    assert store.rows("PRAGMA journal_mode") == [("wal",)]


def test_a_sealed_text_comes_back_only_as_it_was_and_where_it_was():
    sealed = seal("Kalo é", "key", 3, None)
    assert unseal(sealed, "key", 3, None) == "Kalo é"
    for other in (sealed[:-1], "0" + sealed[1:], sealed + "s", "", None, 5, b"Kalo"):
        assert unseal(other, "key", 3, None) is None
    assert unseal(sealed, "key", 4, None) is None
    assert unseal(sealed, "kez", 3, None) is None


def test_when_it_is_closed_it_is_one_file(tmp_path):
    store = Store(tmp_path / "new" / "file", "test", SCHEMA)
    store.change("INSERT INTO things VALUES (1, 'x')")
    store.close()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]
    assert Store(tmp_path / "new" / "file", "test", SCHEMA).rows("SELECT text FROM things") == [("x",)]


def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "file"
    Store(path, "test", SCHEMA).close()
    with raises("web.foreign_file"):
        Store(path, "else", SCHEMA)
    foreign = sqlite3.connect(tmp_path / "foreign")
    foreign.execute("CREATE TABLE mine (a)")
    with raises("web.foreign_file"):
        Store(tmp_path / "foreign", "test", SCHEMA)
    (tmp_path / "text").write_text("a text that is long enough to be no empty SQLite file" * 9)
    for name in ("text", "."):
        with raises("web.broken_file"):
            Store(tmp_path / name, "test", SCHEMA)
    assert (tmp_path / "text").read_text().startswith("a text")


def test_a_transaction_that_fails_changes_nothing(tmp_path):
    store = Store(tmp_path / "file", "test", SCHEMA)

    def write_twice():
        with store.transaction():
            for _ in range(2):
                store.change("INSERT INTO things VALUES (1, 'x')")

    with raises("web.broken_file", match="UNIQUE"):
        write_twice()
    with store.transaction():
        store.change("INSERT INTO things VALUES (2, 'x')")
    assert store.rows("SELECT number FROM things") == [(2,)]


def test_passages_pages_and_notes_come_back_as_they_were():
    passages = [Passage("u", "u", "Kalo \ud800", "it's\x00", 1, 5, 0.5), Passage("v", "v", "", "")]
    page = Page("u", "Kalo \ud800", "it's\x00")

    class Web:
        is_local = True

        async def search(self, queries, k):
            return [passages[:k] for _ in queries]

        async def fetch(self, url):
            return page

        async def read(self, page, *, task, key):
            return "\ud800"

    class Kept:
        async def answer(self, key, call):
            (answer := await call()).encode("utf-8", "surrogatepass")
            return answer

    async def calls(web):
        return await web.search(["a", "b"], 1), await web.fetch("u"), await web.read(page, task="t", key="k")

    web = Web()
    assert asyncio.run(calls(StoredWeb(Kept(), web, web, web))) == ([passages[:1]] * 2, page, "\ud800")
