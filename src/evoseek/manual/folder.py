"""The manual as files: corpus.jsonl, train.jsonl and dev.jsonl with questions, and demonstrations.jsonl."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from evoseek.corpus.demonstrations import demonstration_row
from evoseek.corpus.questions import question_row
from evoseek.files import replace_directory
from evoseek.manual.demonstrations import demonstrate
from evoseek.manual.library import Library
from evoseek.manual.pages import pages
from evoseek.manual.questions import Asked, ask

HELD_OUT = 5  # one class in so many
DEV_QUESTIONS = 300
DEMONSTRATIONS = {1: 220, 2: 60}
"""How many demonstrations there are of questions with so many hops: one hop is taught, two are hinted at."""


def write_manual(folder: Path, library: Library, *, seed: int = 0) -> None:
    """Write the four files: all of them or, on an error, none.

    Questions are split by class: whatever is asked about one class is on one side. `dev.jsonl` has as many questions
    of one hop as of two. Demonstrations are of questions in `train.jsonl`. The same library and seed give the same
    files. OSError if the disk does not take them.
    """
    asked = ask(library)
    random.Random(seed).shuffle(asked)
    train = [one for one in asked if not _is_held_out(one)]
    held_out = [one for one in asked if _is_held_out(one)]
    half = DEV_QUESTIONS // 2
    with replace_directory(folder) as unfinished:
        documents = ({"id": page.id, "title": page.title, "text": page.text} for page in pages(library))
        _write(unfinished / "corpus.jsonl", documents)
        _write(unfinished / "train.jsonl", (question_row(one.question) for one in train))
        shown = (demonstration_row(demonstrate(one)) for one in _take(train, DEMONSTRATIONS))
        _write(unfinished / "demonstrations.jsonl", shown)
        _write(unfinished / "dev.jsonl", (question_row(one.question) for one in _take(held_out, {1: half, 2: half})))


def _take(asked: Sequence[Asked], numbers: Mapping[int, int]) -> list[Asked]:
    """The first so many of each number of hops, in their order."""
    left = dict(numbers)
    taken: list[Asked] = []
    for one in asked:
        if left.get(len(one.hops), 0) > 0:
            left[len(one.hops)] -= 1
            taken.append(one)
    return taken


def _is_held_out(asked: Asked) -> bool:
    return sha256(asked.about.encode()).digest()[0] % HELD_OUT == 0


def _write(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
