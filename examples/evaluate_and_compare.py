"""Evaluate two models on the same questions, and compare them by a paired test.
Needs nothing: makes a small world with 40 questions. The folders are as `evoseek eval --out` writes them."""

from pathlib import Path

from evoseek import Run, compare_folders, make_world

make_world("world", entities=200)
folders: list[Path] = []
for model in ("tiny", "tiny-weak"):  # or the directories of two runs: Run(directory="runs/first")
    run = Run(settings={"policy.model": model, "search.index": "world/index"})
    folders.append(Path("results", model))
    score = run.evaluate("world/questions.jsonl", temperature=0.0, out=folders[-1]).score
    print(f"{model}: {score.mean:.3f} [{score.interval.low:.3f}, {score.interval.high:.3f}], n = {score.n}")

compared = compare_folders(folders)
for pair in compared.pairs:
    low, high = pair.interval.low, pair.interval.high
    print(f"{pair.second} - {pair.first}: {pair.difference:+.3f} [{low:+.3f}, {high:+.3f}], p = {pair.p_value:.3f}")
print(*compared.notes, sep="\n")
