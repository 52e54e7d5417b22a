"""A cold start from documents alone, and what reinforcement learning makes of it: what notes/cold-start.md quotes.

FOLDER has `corpus.jsonl` and, for the score alone, `dev.jsonl` (as bench/wiki2_demonstrations.py describes train.jsonl,
with `hops`; bench/demo_real.py writes both about Python's library, in demo-real/data). Of its questions 120 of one hop
are drawn and 80 of two, and 40 that have no answer: those of the file, or else more of one hop whose articles are
hidden from the search.

A seed has one cold start (`demonstrations`), from which each arm trains an adapter; beside them the model as it is
(`untouched`), and both with the passages of one search by the question (`rag`):

    stages      the recipe search-r1/documents: 32 steps in which a sixth of the questions has no answer, then 24 of all
    answerable  in the first 32 steps all have an answer
    short       10 steps of those, then 34 of all
    all         40 steps of all questions

And one in which both roles of Dr. Zero learn demonstrations (`roles`), from which there are 12 steps of the solver in

    self-play   dr-zero/documents, ablations/dr-zero/evidence: the proposer learns in 4 steps, then writes the questions
    frozen      the same, but the proposer does not learn
    rules       no proposer: the solver learns from the questions of the cold start

    python bench/cold_start.py FOLDER OUT --seeds 0               everything
    python bench/cold_start.py FOLDER OUT --only stages           an arm

What is done is not done again, and what was interrupted goes on.
"""

import argparse
import json
import os
import random
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console

from evoseek.run import Run
from evoseek.search.indexing import IndexPlan, build_index
from evoseek.storage.files import write_atomic
from evoseek.training.cold_start import FOLDER, ColdStart

MODEL = "smollm2-135m"
ONE_HOP, TWO_HOPS, HIDDEN = 120, 80, 40
RECIPES = ("search-r1/smollm2", "search-r1/documents")
SELF_PLAY = ("dr-zero/smollm2", "dr-zero/documents", "ablations/dr-zero/evidence")
STARTS = {"demonstrations": RECIPES, "roles": SELF_PLAY}
ADAPTER = "[lora]\nrank = 32\n\n[learner]\nlearning_rate = 3e-4\n\n"  # as in search-r1/smollm2


@dataclass(frozen=True)
class Arm:
    """Recipes, and what is set over them, from one of the STARTS."""

    over: str = ""
    recipes: tuple[str, ...] = RECIPES
    start: str = "demonstrations"


ARMS = {
    "stages": Arm(),
    "answerable": Arm(
        '[[stages]]\nname = "answerable"\nsteps = 32\nquestions.where = {answerable = true}\n\n'
        '[[stages]]\nname = "all"\n'
    ),
    "short": Arm(
        "[run]\nsteps = 44\n\n"
        '[[stages]]\nname = "answerable"\nsteps = 10\nquestions.where = {answerable = true}\n\n'
        '[[stages]]\nname = "all"\n'
    ),
    "all": Arm("stages = []\n"),
    "self-play": Arm(ADAPTER, SELF_PLAY, "roles"),
    "frozen": Arm(ADAPTER + "[proposer]\nfrozen_after = 0\n", SELF_PLAY, "roles"),
    "rules": Arm("stages = []\n\n[run]\nsteps = 12\n", start="roles"),
}


def write_questions(folder: Path, out: Path) -> None:
    """The questions for the score, the same for every seed."""
    lines = (folder / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [{**row.pop("metadata", {}), **row} for row in map(json.loads, lines)]
    documents = [json.loads(line) for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    ids = {document["title"]: document["id"] for document in documents}
    random.Random(7).shuffle(rows)
    one, two = ([row for row in rows if row.get("hops") == hops] for hops in (1, 2))
    hidden = [row for row in rows if not row.get("answerable", True)] or [
        {
            **row,
            "id": f"no-{row['id']}",
            "golden_answers": [],
            "answerable": False,
            "kind": "unanswerable",
            "hidden": [ids[title] for title in row["evidence"]],
            "evidence": [],
        }
        for row in one[ONE_HOP:]
    ]
    chosen = [*one[:ONE_HOP], *two[:TWO_HOPS], *hidden[:HIDDEN]]
    write_atomic(out, "".join(json.dumps(row) + "\n" for row in chosen))


def call(*words: object) -> None:
    command = [sys.executable, "-m", "evoseek", *map(str, words)]
    subprocess.run(command, check=True, env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ})


def examine(out: Path, name: str, *policy: object) -> None:
    """Sampled and greedily; the tables are printed and lie in results.md."""
    searched = ("--index", out / "index", "--questions", out / "questions.jsonl")
    for way, options in {"sampled": (), "greedy": ("--temperature", 0)}.items():
        call("eval", *policy, *searched, *options, "--out", out / "scores" / f"{name}-{way}")


def as_model(model: object) -> tuple[object, ...]:
    return "--model", model, "--config", RECIPES[0]


def cold_start(folder: Path, recipes: tuple[str, ...], settings: dict[str, object]) -> bool:
    return Run(directory=folder, config=recipes, settings=settings).cold_start()


def begin(out: Path, folder: Path, start: str, settings: dict[str, object]) -> ColdStart:
    """The cold start of a seed, made and scored unless it is."""
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:  # whose memory is free for the arms
        is_done = alone.submit(cold_start, folder, STARTS[start], settings).result()
    if not is_done:
        sys.exit("Ended early; the same command resumes.")
    files = ColdStart(folder / FOLDER)
    examine(out, f"{settings['run.seed']}-{start}", *as_model(files.model))
    return files


def run(data: Path, out: Path, seed: int, arms: list[str]) -> None:
    """The cold starts of a seed, and these arms from there."""
    index, folder = out / "index", out / f"seed{seed}"
    settings: dict[str, object] = {"policy.model": MODEL, "search.index": str(index), "run.seed": seed}
    if not index.exists():
        build_index(data / "corpus.jsonl", index, IndexPlan(max_words=40), console=Console())
    write_questions(data, out / "questions.jsonl")
    for start in STARTS:
        chosen = {name: ARMS[name] for name in arms if ARMS[name].start == start}
        if not chosen:
            continue
        files = begin(out, folder if start == "demonstrations" else folder / start, start, settings)
        for name, arm in chosen.items():
            train(index, folder, files, name, arm, seed)
            examine(out, f"{seed}-{name}", "--run-dir", folder / name)
            if start == "demonstrations":
                examine(out, f"{seed}-{name}-rag", "--run-dir", folder / name, "--baseline", "rag")


def train(index: Path, folder: Path, files: ColdStart, name: str, arm: Arm, seed: int) -> None:
    """An arm, from its cold start."""
    over = folder / f"{name}.toml"
    write_atomic(over, arm.over)
    configs = (word for recipe in (*arm.recipes, over) for word in ("--config", recipe))
    is_game = arm.recipes == SELF_PLAY
    sets: dict[str, object] = {"policy.model": files.model, "cold_start.questions": 0}
    if not is_game:
        sets["questions.path"] = files.questions
    system, searched = ("dr-zero", "--corpus") if is_game else ("search-r1", "--index")
    given = (word for key, value in sets.items() for word in ("--set", f"{key}={value}"))
    call("train", system, *configs, searched, index, "--seed", seed, *given, "--run-dir", folder / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", nargs="+", choices=ARMS, default=list(ARMS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        run(options.folder, options.out, seed, options.only)
    if any(ARMS[name].start == "demonstrations" for name in options.only):
        examine(options.out, "untouched", *as_model(MODEL))
        examine(options.out, "untouched-rag", *as_model(MODEL), "--baseline", "rag")


if __name__ == "__main__":
    main()
