"""A cold start from documents alone, and what reinforcement learning makes of it: what docs/cold-start.md quotes.

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
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console

from evoseek.cold_start.phase import FOLDER, ColdStart
from evoseek.data.indexing import IndexPlan, build_index
from evoseek.files import write_atomic
from evoseek.run import Run

MODEL = "smollm2-135m"
ONE_HOP, TWO_HOPS, HIDDEN = 120, 80, 40
RECIPES = ("search-r1/smollm2", "search-r1/documents")
ARMS = {
    "stages": "",
    "answerable": '[[stages]]\nname = "answerable"\nsteps = 32\nquestions.where = {answerable = true}\n\n'
    '[[stages]]\nname = "all"\n',
    "short": "[run]\nsteps = 44\n\n"
    '[[stages]]\nname = "answerable"\nsteps = 10\nquestions.where = {answerable = true}\n\n'
    '[[stages]]\nname = "all"\n',
    "all": "stages = []\n",
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


def cold_start(folder: Path, settings: dict[str, object]) -> bool:
    return Run(directory=folder, config=RECIPES, settings=settings).cold_start()


def run(data: Path, out: Path, seed: int, arms: list[str]) -> None:
    """The cold start of a seed, and these arms from there."""
    index, folder = out / "index", out / f"seed{seed}"
    settings = {"policy.model": MODEL, "search.index": str(index), "run.seed": seed}
    if not index.exists():
        build_index(data / "corpus.jsonl", index, IndexPlan(max_words=40), console=Console())
    write_questions(data, out / "questions.jsonl")
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:  # whose memory is free for the arms
        is_done = alone.submit(cold_start, folder, settings).result()
    if not is_done:
        sys.exit("Ended early; the same command resumes.")
    files = ColdStart(folder / FOLDER)
    examine(out, f"{seed}-demonstrations", *as_model(files.model))
    for arm in arms:
        over = folder / f"{arm}.toml"
        write_atomic(over, ARMS[arm])
        configs = (word for name in (*RECIPES, over) for word in ("--config", name))
        sets = {"policy.model": files.model, "questions.path": files.questions, "cold_start.questions": 0}
        given = (word for key, value in sets.items() for word in ("--set", f"{key}={value}"))
        call("train", "search-r1", *configs, "--index", index, "--seed", seed, *given, "--run-dir", folder / arm)
        examine(out, f"{seed}-{arm}", "--run-dir", folder / arm)
        examine(out, f"{seed}-{arm}-rag", "--run-dir", folder / arm, "--baseline", "rag")


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
    examine(options.out, "untouched", *as_model(MODEL))
    examine(options.out, "untouched-rag", *as_model(MODEL), "--baseline", "rag")


if __name__ == "__main__":
    main()
