"""Every kind of file that evoseek reads back, damaged in many ways by a fixed seed: is it refused, or does it change
what is read without a word?

    EVOSEEK_RING=night python -m tests.test_damage    # the counts of every kind
"""

import ast
import asyncio
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tests.rings import sized

from evoseek.errors import EvoseekError, PageError, ToolError
from evoseek.learner.checkpoint import CheckpointPart, save_checkpoint
from evoseek.questions.questions import load_questions, question_row, save_questions
from evoseek.rollout.record import TrajectoryWriter, read_trajectories
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.checkpoints import load_checkpoint
from evoseek.storage.files import file_digest
from evoseek.storage.jsonl import open_growing_file
from evoseek.storage.metrics import JsonlMetrics, read_metrics
from evoseek.storage.runs import Input, RunDirectory
from evoseek.training.loop import cut_logs, log_positions
from evoseek.types import Action, Passage, Question, Scored, Segment, StopReason, Trajectory, TrajectoryGroup
from evoseek.web.stored import Cache, Recording, Replay, StoredWeb

QUESTIONS = [
    Question(f"q{n}", f"which city is number {n} on the wide sea ?", (f"Kalo {n}", "Kalo"), {"hops": 1 + n % 3})
    for n in range(12)
]
PASSAGES = [Passage(f"{n}#0", f"{n}", f"Title {n}", f"Kalo {n} is a city with a harbour .", 0, 34) for n in range(12)]
ENDS_OF_A_CALL = (ToolError, PageError)


@dataclass(frozen=True)
class Kind:
    """How files of a kind are made in a folder, which of them are damaged, and what is read back from the folder.

    `may_be` is what else than before may be read: what nobody would call wrong.
    """

    make: Callable[[Path], None]
    pattern: str
    read: Callable[[Path], object]
    times: int = sized(check=50, test=150, night=500)
    may_be: tuple[object, ...] = ()


class Engine:
    """Finds a passage that says which engine found it; the first call for "down" fails."""

    is_local = True

    def __init__(self, name, failed=False):
        self.name, self.failed = name, failed

    async def search(self, queries, k):
        if queries == ["down"] and not self.failed:
            self.failed = True
            raise ToolError("the engine is down")
        return [[Passage(query, query, "", f"{self.name} found {query} on the coast", 0, 9)] for query in queries]


QUERIES = [*(f"query {n}" for n in range(12)), "down", "down"]


def ask(engine):
    async def one(query):
        try:
            return (await engine.search([query], 1))[0]
        except ENDS_OF_A_CALL as error:
            return None if "engine is down" in str(error) else "refused"

    async def all_of_them():
        return [await one(query) for query in QUERIES]

    return asyncio.run(all_of_them())


def make_cache(folder):
    cache = Cache(folder / "cache", provider="made")
    ask(StoredWeb(cache, Engine("old", failed=True)))
    cache.close()


def read_cache(folder):
    """Per query: what was kept, or what the engine finds now."""
    cache = Cache(folder / "cache", provider="made")
    try:
        return ask(StoredWeb(cache, Engine("old", failed=True)))
    finally:
        cache.close()


def make_record(folder):
    recording = Recording(folder / "record", {"web.provider": "made"})
    ask(StoredWeb(recording, Engine("old")))
    recording.close()


def read_record(folder):
    replay = Replay(folder / "record")
    try:
        answers = ask(StoredWeb(replay))
    finally:
        replay.close()
    if "refused" in answers:
        raise ToolError("no answer, or a damaged one")
    return answers


class Learner:
    model = torch.nn.Linear(3, 2)

    def state_dict(self):
        return {"weight/step": torch.ones(2, 3)}, {"updates": 3}


def make_checkpoint(folder):
    def save(directory):
        directory.mkdir()
        (directory / "model.safetensors").write_bytes(bytes(range(256)) * 4)

    save_checkpoint(
        folder, step=3, parts={"policy": CheckpointPart(save, Learner())}, position={"logs": {"metrics.jsonl": 9}}
    )


def read_checkpoint(folder):
    found = load_checkpoint(folder / "checkpoints" / "step-000003")
    kept = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    kept = {name: data for name, data in kept.items() if not name.endswith("state.json")}
    return found.step, found.position, found.learner_values, kept


def read_index(folder):
    index = LexicalIndex.open(folder / "index")
    return list(index.passages()), [index.find(query, 3) for query in ("kalo 3", "title 5", "cities")]


def write_questions(folder):
    with open_growing_file(folder / "q.jsonl", {"seed": 1}) as file:
        for number, question in enumerate(QUESTIONS, start=1):
            file.append_batch([question_row(question)], {"batches": number, "counts": {"valid": number}})


def resume_questions(folder):
    with open_growing_file(folder / "q.jsonl", {"seed": 1}) as file:
        return load_questions(file.path), file.reached


def make_trajectories(folder):
    writer = TrajectoryWriter(folder / "trajectories.jsonl", lambda ids: f"text of {list(ids)}")
    for step in range(6):
        segments = (Segment("prompt", (1, 2, 3)), Segment("action", (4, 5), (-0.5, -0.25)))
        made = Trajectory(
            f"t{step}",
            QUESTIONS[step],
            "solver",
            segments,
            (Action("Kalo"),),
            (),
            StopReason.ANSWERED,
            answer=f"Kalo {step}",
        )
        writer.write(step, [TrajectoryGroup(f"g{step}", (made,), (Scored(1.0, {"exact_match": 1.0}),))])


def make_metrics(folder):
    metrics = JsonlMetrics(folder / "metrics.jsonl")
    for step in range(12):
        metrics.write(step, {"reward": step / 8, "entropy": 0.5})


def make_run(folder):
    run = RunDirectory(folder / "run")
    with run.locked():
        save_questions(folder / "q.jsonl", QUESTIONS)
        claim(run, folder)
        (run.path / "checkpoints" / "step-000001").mkdir(parents=True)
        make_metrics(run.path)
        save_questions(run.questions, QUESTIONS)
        (folder / "positions").write_text(repr(log_positions(run)))


def claim(run, folder):
    inputs = {"questions.path": Input(str(folder / "q.jsonl"), file_digest(folder / "q.jsonl"))}
    run.claim({"questions": {"path": "q.jsonl"}, "run": {"seed": 3}}, inputs)


def resume_run(folder):
    run = RunDirectory(folder / "run")
    with run.locked():
        cut_logs(run, ast.literal_eval((folder / "positions").read_text()))
        claim(run, folder)
        return load_questions(folder / "q.jsonl"), run.metrics.read_bytes(), run.questions.read_bytes()


KINDS = {
    "manifest": Kind(lambda at: LexicalIndex.build(at / "index", PASSAGES), "index/manifest.json", read_index),
    "index": Kind(lambda at: LexicalIndex.build(at / "index", PASSAGES), "index/data-*/*[!k]", read_index),
    "checkpoint": Kind(make_checkpoint, "checkpoints/*/**/*.*", read_checkpoint),
    "cache": Kind(make_cache, "cache", read_cache),
    "record": Kind(make_record, "record", read_record),
    "growing": Kind(write_questions, "q.jsonl", resume_questions),
    "growing state": Kind(write_questions, "q.jsonl.state.json", resume_questions),
    "input of a run": Kind(make_run, "q.jsonl", resume_run),
    "config of a run": Kind(make_run, "run/*.json", resume_run),
    "metrics of a run": Kind(make_run, "run/metrics.jsonl", resume_run),
    "questions of a run": Kind(make_run, "run/questions.jsonl", resume_run),
    "questions": Kind(
        lambda at: save_questions(at / "q.jsonl", QUESTIONS), "q.jsonl", lambda at: load_questions(at / "q.jsonl")
    ),
    "trajectories": Kind(
        make_trajectories, "trajectories.jsonl", lambda at: list(read_trajectories(at / "trajectories.jsonl"))
    ),
    "metrics": Kind(make_metrics, "metrics.jsonl", lambda at: read_metrics(at / "metrics.jsonl")),
}
WITHOUT_DIGEST = {"questions", "trajectories", "metrics"}


def damaged(data: bytes, rng: random.Random) -> bytes:
    """One bit or byte changed, the end cut off, a line or a piece written twice, a piece left out, or zeros."""
    place = rng.randrange(len(data))
    end = min(len(data), place + rng.randint(1, 64))
    match rng.randrange(7):
        case 0:
            return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
        case 1:
            return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
        case 2:
            return data[:place]
        case 3:
            return data[:end] + data[place:end] + data[end:]
        case 4:
            lines = data.splitlines(keepends=True)
            number = rng.randrange(len(lines))
            return b"".join([*lines[: number + 1], *lines[number:]])
        case 5:
            return data[:place] + data[end:]
        case _:
            return data[:place] + bytes(end - place) + data[end:]


def measure(kind: Kind, folder: Path, seed: int = 0) -> Counter[str]:
    """How often damage is refused, harmless, unclear (an error that no user should see) or silently different."""
    rng = random.Random(seed)
    whole, copy = folder / "whole", folder / "copy"
    whole.mkdir()
    kind.make(whole)
    shutil.copytree(whole, copy)
    expected = kind.read(copy)
    counts: Counter[str] = Counter()
    for _ in range(kind.times):
        shutil.rmtree(copy)
        shutil.copytree(whole, copy)
        path = rng.choice(sorted(path for path in copy.glob(kind.pattern) if path.is_file() and path.stat().st_size))
        before = path.read_bytes()
        while (after := damaged(before, rng)) == before:
            pass
        path.write_bytes(after)
        counts[outcome(kind, copy, expected)] += 1
    return counts


def outcome(kind: Kind, folder: Path, expected: object) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = kind.read(folder)
    except EvoseekError:
        return "refused"
    except Exception as error:
        return f"unclear {type(error).__name__}"
    return "harmless" if found == expected else "different"


@pytest.mark.parametrize("name", KINDS)
def test_damage_is_refused_or_harmless(name, tmp_path):
    counts = measure(KINDS[name], tmp_path)
    assert not [outcome for outcome in counts if outcome.startswith("unclear")], counts
    if name not in WITHOUT_DIGEST:
        assert counts["different"] == 0, counts


if __name__ == "__main__":
    for name in sys.argv[1:] or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name:20}", dict(measure(KINDS[name], Path(folder))), flush=True)
