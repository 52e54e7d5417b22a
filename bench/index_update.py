"""Random changes of a folder, each followed by `evoseek index --update`: is the index the one of a fresh build?

    python bench/index_update.py --changes 1000 --seed 0
    python bench/index_update.py --kills 50

A change adds, edits, deletes, renames or moves a file of tiny documents (text, Markdown, HTML, JSON lines with ids that
may come twice, and files that cannot be read). With --kills, updates are killed at random moments: the index is then
the old one or the new one.
"""

import argparse
import io
import os
import random
import signal
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console

from evoseek.errors import EmptyCorpusError
from evoseek.search.indexing import IndexPlan, build_index, update_index
from evoseek.search.opening import open_built
from evoseek.search.vectors import VectorFiles

WORDS = (
    "kalo",
    "meri",
    "supa",
    "vesu",
    "tor",
    "lian",
    "mayor",
    "river",
    "city",
    "old",
    "new",
    "bridge",
    "film",
    "hill",
)
FOLDERS = ("", "a", "a/b", "c")
SUFFIXES = (".txt", ".md", ".html", ".jsonl", ".pdf", ".css")


class Folder:
    """A corpus that changes at random."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root, self._random, self._made = root, random.Random(seed), 0
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        self.counts = dict.fromkeys(("add", "edit", "delete", "rename", "move"), 0)
        for _ in range(8):
            self._add()

    def change(self) -> str:
        """Make one change and give its name."""
        files = sorted(path for path in self._root.rglob("*") if path.is_file())
        kinds = ("add", "edit", "delete", "rename", "move") if len(files) > 4 else ("add",)
        kind = self._random.choice(kinds if len(files) < 20 else kinds[1:])
        self.counts[kind] += 1
        if kind == "add":
            self._add()
            return kind
        file = self._random.choice(files)
        if kind == "edit":
            file.write_bytes(self._contents(file.suffix))
        elif kind == "delete":
            file.unlink()
        else:
            folder = file.parent if kind == "rename" else self._root / self._random.choice(FOLDERS)
            self._made += 1
            file.rename(folder / (f"{self._name()}{file.suffix}" if kind == "rename" else file.name))
        return kind

    def _add(self) -> None:
        suffix = self._random.choice(SUFFIXES)
        path = self._root / self._random.choice(FOLDERS) / f"{self._name()}{suffix}"
        path.write_bytes(self._contents(suffix))

    def _name(self) -> str:
        self._made += 1
        return f"{self._random.choice(WORDS)}{self._made}"

    def _contents(self, suffix: str) -> bytes:
        if self._random.random() < 0.1:
            return self._random.choice((b"", b"\0\1", "\u65e5\u672c\u9152".encode("shift_jis")))
        lines = [" ".join(self._random.choices(WORDS, k=self._random.randint(1, 30))) for _ in range(3)]
        match suffix:
            case ".md":
                text = f"# {lines[0]}\n\n{lines[1]}\n\n## {WORDS[0]}\n\n{lines[2]}"
            case ".html":
                text = f"<html><body><h1>{lines[0]}</h1><p>{lines[1]}</p></body></html>"
            case ".jsonl":
                ids = (self._random.randint(0, 9) for _ in lines)
                text = "\n".join(f'{{"id": "{n}", "text": "{line}"}}' for n, line in zip(ids, lines, strict=True))
            case _:
                text = "\n".join(lines)
        return text.encode()


def contents(directory: Path) -> list[object]:
    """Everything that an index holds and answers, and what its manifest says of it."""
    index = open_built(directory)
    manifest = index.manifest.model_dump(exclude={"data", "files", "sha256"})
    found = [list(index.passages()), index.find_all([*WORDS, " ".join(WORDS)], 10), manifest]
    if manifest["vectors"]:
        vectors = VectorFiles(directory / index.manifest.data, index.manifest.vectors)
        found.append(vectors.rows(np.arange(len(vectors))).tobytes())
    return found


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def said(text: Console) -> list[str]:
    """The report, without the progress of reading and embedding."""
    progress = ("passages embedded", "files read")
    return [line for line in text.file.getvalue().splitlines() if not line.startswith(progress)]


def compare(corpus: Path, updated: Path, fresh: Path, plan: IndexPlan) -> None:
    """Update one index, build another. AssertionError if they differ, in contents or in the report of reading."""
    told = console(), console()
    try:
        build_index(corpus, fresh, plan, console=told[0])
    except EmptyCorpusError:
        return
    update_index(corpus, updated, device=None, console=told[1])
    report, again = said(told[0])[:-1], said(told[1])  # without the line of the index itself
    counts, *again = again  # of files that changed; or that none did, before the summary alone
    told_again = report if counts.startswith("Files: ") else report[:1]
    assert again[: len(told_again)] == told_again, (report, again)
    assert contents(updated) == contents(fresh)


def changes(root: Path, count: int, seed: int, plan: IndexPlan) -> Folder:
    """`count` changes, one to four at a time, each time compared with a fresh build."""
    folder, rng, done = Folder(root / "corpus", seed), random.Random(seed + 1), 0
    build_index(root / "corpus", root / "updated", plan, console=console())
    while done < count:
        many = min(rng.randint(1, 4), count - done)
        for _ in range(many):
            folder.change()
        done += many
        compare(root / "corpus", root / "updated", root / "fresh", plan)
    return folder


def kills(root: Path, count: int, seed: int, plan: IndexPlan) -> dict[str, int]:
    """Kill `count` updates at random moments. Gives how often the index was then the old one and the new one."""
    folder, rng, seen = Folder(root / "corpus", seed), random.Random(seed + 1), {"old": 0, "new": 0}
    build_index(root / "corpus", root / "updated", plan, console=console())
    longest = 0.3
    for _ in range(count):
        before = contents(root / "updated")
        folder.change()
        build_index(root / "corpus", root / "fresh", plan, console=console())
        after = contents(root / "fresh")
        started = time.monotonic()
        child = os.fork()
        if not child:
            update_index(root / "corpus", root / "updated", device=None, console=console())
            os._exit(0)
        time.sleep(rng.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        longest = max(longest, time.monotonic() - started)
        now = contents(root / "updated")
        assert now in (before, after)
        seen["new" if now == after else "old"] += 1
        compare(root / "corpus", root / "updated", root / "fresh", plan)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=0)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", default="lexical", choices=("lexical", "hybrid"))
    options = parser.parse_args()
    plan = IndexPlan(engine=options.engine, max_words=12)
    for what, count in ((changes, options.changes), (kills, options.kills)):
        if count:
            with TemporaryDirectory() as folder:
                started = time.monotonic()
                found = what(Path(folder), count, options.seed, plan)
                print(what.__name__, count, getattr(found, "counts", found), f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
