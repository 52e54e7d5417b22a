"""A real model in the other roles, on two CPU cores: as a judge of answers, and as a simulated search engine.

    judge       SmolLM2-135M-Instruct as it is judges 300 answers: each held-out question with another spelling of its
                right answer if there is one, and with the right answer of another question of its kind
    simulator   the warm start of bench/real_learning.py searches for the answers to `QUESTIONS` training questions; a
                result is useful if it is of an article that the question needs (its evidence); SmolLM2 is tuned to
                write such results, checked on other searches, and plays the engine for `STEPS` steps of ZeroSearch

    python bench/real_learning.py FOLDER OUT --only grpo --seeds 0      first
    python bench/real_roles.py FOLDER OUT [judge | simulator]

The policy that ZeroSearch trained is examined with the real index, as all policies of bench/real_learning.py are:
`--table` there shows it. What is done is not done again.
"""

import argparse
import json
import random
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from evoseek.storage.files import write_atomic
from evoseek.systems.zerosearch.searches import SearchRecord, load_records, save_records
from real_learning import Bench, run

QUESTIONS = 240  # whose searches are recorded; those of every sixth are held out
TUNING_STEPS = 30
STEPS = 5
# At temperature 1 a model of this size writes words without sense.
SHORT = ("simulator.max_words=60", "simulator.max_tokens=160", "simulator.temperature=0.7")
RECIPE = ("--config", "search-r1/smollm2")
Row = Mapping[str, object]


def judged_answers(rows: Sequence[Row], number: int) -> list[dict[str, object]]:
    """So many answers, half of them right."""
    by_kind: dict[str, list[Row]] = {}
    for row in rows:
        by_kind.setdefault(str(row["kind"]), []).append(row)
    answers: list[dict[str, object]] = []
    for row in rows[: number // 2]:
        golds, others = _golds(row), by_kind[str(row["kind"])]
        wrong = next(gold for other in _after(others, row) if (gold := _golds(other)[0]) not in golds)
        asked = {"question": row["question"], "golden_answers": golds[:1]}
        answers += [{**asked, "answer": golds[-1], "correct": True}, {**asked, "answer": wrong, "correct": False}]
    return answers


def label(records: Sequence[SearchRecord], evidence: Mapping[str, set[str]]) -> list[SearchRecord]:
    """Useful is what is of an article that the question needs."""
    return [
        replace(record, useful=any(passage.title in evidence[record.question.text] for passage in record.passages))
        for record in records
    ]


def judge(data: Path, out: Path) -> None:
    cases = out / "judged.jsonl"
    _write(cases, judged_answers(_rows(data / "dev.jsonl"), 300))
    with suppress(subprocess.CalledProcessError):  # a judge that gives no verdict at all: the command has said so
        run("judge", "check", cases, "--set", "judge.model=smollm2-135m", "--set", "judge.max_tokens=128")


def simulator(data: Path, out: Path) -> None:
    bench = Bench(data, out, 0, Console(width=200))
    start, folder = bench.warm_start(), out / "simulator"
    rows = _rows(data / "train.jsonl")
    random.Random("simulator").shuffle(rows)
    by_hops = [row for hops in (1, 2) for row in [row for row in rows if row["hops"] == hops][: QUESTIONS // 2]]
    folder.mkdir(exist_ok=True)
    _write(folder / "questions.jsonl", by_hops)
    searches = folder / "searches.jsonl"
    if not (folder / "collected").exists():
        asked = ("--questions", folder / "questions.jsonl", "--index", bench.index, "--model", start)
        run("simulator", "collect", searches, *asked, "--pages", 2, *RECIPE)
        write_atomic(folder / "collected", "")
    evidence = {str(row["question"]): set(_texts(row["evidence"])) for row in by_hops}
    labelled = label(load_records(searches), evidence)
    held_out = {str(row["question"]) for row in by_hops[::6]}
    save_records(folder / "train.jsonl", [record for record in labelled if record.question.text not in held_out])
    save_records(folder / "held-out.jsonl", [record for record in labelled if record.question.text in held_out])
    model = folder / "model"
    short = [part for one in SHORT for part in ("--set", one)]
    if not model.exists():
        steps = ("--steps", TUNING_STEPS, "--tokens-per-step", 4096, "--learning-rate", 2e-4, "--set", "lora.rank=0")
        run(
            "simulator",
            "tune",
            folder / "train.jsonl",
            model,
            "--work",
            folder / "work",
            "--model",
            "smollm2-135m",
            *steps,
            *RECIPE,
            *short,
        )
    if not (folder / "check.json").exists():
        number = ("--count", 40, "--output", folder / "check.json")
        run("simulator", "check", folder / "held-out.jsonl", "--model", model, *number, *RECIPE, *short)
    engine = ("--set", f"simulator.model={model}", "--set", "zerosearch.noise_end=0.25")
    given = ("--questions", data / "train.jsonl", "--model", start, "--steps", STEPS)
    bench.examine("zerosearch", bench.train("zerosearch", "train", "zerosearch", *RECIPE, *given, *engine, *short))


def _after(rows: Sequence[Row], row: Row) -> list[Row]:
    place = rows.index(row)
    return [*rows[place + 1 :], *rows[:place]]


def _golds(row: Row) -> list[str]:
    return _texts(row["golden_answers"])


def _texts(value: object) -> list[str]:
    return list(value)  # pyright: ignore[reportArgumentType]


def _rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _write(path: Path, rows: Sequence[Row]) -> None:
    write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("role", nargs="?", choices=("judge", "simulator"), help="default: both")
    options = parser.parse_args()
    for name, play in (("judge", judge), ("simulator", simulator)):
        if options.role in (None, name):
            play(options.folder, options.out)


if __name__ == "__main__":
    main()
