"""Baselines and trained agents side by side, on the same questions, with intervals and paired tests.

    python bench/baselines.py world DIRECTORY --run RUN [--questions 1000] [--seeds 0 1 2]
    python bench/baselines.py text DIRECTORY --data FOLDER [--model smollm2-135m] [--run RUN] [--questions 100]

`world` generates an evaluation world for each seed, with names that no policy was trained on, and asks the tiny policy
by every baseline and as an agent, and each RUN (of `evoseek demo`, say: DEMO/run). `text` does the same with a real
model on a folder of real text: corpus.jsonl and dev.jsonl, as bench/demo_real.py takes it, and RUN one of its runs
(DEMO-REAL/run). Sampling is greedy, k is 3, and the limits of calls and tokens are the same for all.

Each evaluation is what `evoseek eval --out DIRECTORY/seed-S/ARM` writes, so `evoseek compare` takes any two of them.
If interrupted, the same command draws only what is missing. --arms picks some of the arms. The table is of exact match
over all seeds: the mean with its interval, by seed, the difference of the last arm minus each (p after Holm over all of
these differences), and means of searches and tokens for a question.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from demo_real import PASSAGE_WORDS, held_out
from evoseek.assembly.inputs import read_questions
from evoseek.assembly.model_defaults import apply_model_defaults
from evoseek.assembly.sources import gather
from evoseek.cli.learning_demo import EVALUATION_HOPS
from evoseek.config.registry import KINDS, find
from evoseek.eval.comparison import compare, holm, values_of
from evoseek.eval.draw import Sample
from evoseek.eval.results import Results, score_of
from evoseek.models.machine import find_machine
from evoseek.run import Run
from evoseek.search.indexing import IndexPlan, build_index
from evoseek.types import Question
from evoseek.world.world import make_world

METRIC, AGENT = "exact_match", "agent"
Seeds = Mapping[int, tuple[Path, Sequence[Question]]]


def worlds(directory: Path, seeds: Sequence[int], number: int) -> dict[int, tuple[Path, Sequence[Question]]]:
    """The index and the questions of each seed's world."""
    found: dict[int, tuple[Path, Sequence[Question]]] = {}
    for seed in seeds:
        world = directory / f"seed-{seed}" / "world"
        make_world(world, "evaluation", seed, number, EVALUATION_HOPS)
        found[seed] = world / "index", read_questions(str(world / "questions.jsonl"), setting="questions")[:number]
    return found


def text(directory: Path, data: Path, number: int, console: Console) -> dict[int, tuple[Path, Sequence[Question]]]:
    """The index and the questions of a folder of real text."""
    build_index(data / "corpus.jsonl", directory / "index", IndexPlan(max_words=PASSAGE_WORDS), console=console)
    questions = read_questions(str(data / "dev.jsonl"), setting="dev.jsonl")
    return {0: (directory / "index", held_out(questions, number))}


def draw(arm: str, model: str, run: Path | None, index: Path, questions: Sequence[Question], out: Path) -> Results:
    """The results of an arm, resumed if some are there: a baseline, or an agent (of a run)."""
    options = {"search.index": str(index), "evaluation.temperature": 0.0, "reward.name": METRIC}
    if run is None:
        settings = gather([], options={"policy.model": model, **options}).read()
    else:
        settings = gather([run / "config.json"], options=options).read()
    settings, _ = apply_model_defaults(settings, find_machine)
    settings = settings.model_copy(
        update={"evaluation": settings.evaluation.model_copy(update={"index": "", "path": ""})}
    )
    baseline = arm if arm in KINDS["baseline"].parts else None
    search = find("baseline", baseline).searches if baseline else True
    agent = Run(directory=run, settings=settings, console=Console(quiet=True))
    return agent.evaluate(questions, search=search, baseline=baseline, out=out).results


def rows(found: Mapping[str, Mapping[int, Results]]) -> Iterator[tuple[str, ...]]:
    """The table, one row an arm; differences are those of the last arm."""
    pooled = {arm: [_of_seed(sample, seed) for seed, one in own.items() for sample in one.samples]
              for arm, own in found.items()}  # fmt: skip
    values = {arm: values_of(samples, METRIC) for arm, samples in pooled.items()}
    *others, last = values
    pairs = {arm: compare({arm: values[arm], last: values[last]}, METRIC)[0] for arm in others}
    adjusted = dict(zip(others, holm([pair.p_value for pair in pairs.values()]), strict=True))
    yield "arm", "exact match", "by seed", f"{last} minus it", "p (Holm)", "searches", "written", "read", "invalid"
    for arm, samples in pooled.items():
        score = score_of(list(values[arm].values()))
        whole = Results(METRIC, len(samples), 1, tuple(samples))
        costs, pair = whole.costs(), pairs.get(arm)
        yield (
            arm,
            f"{score.mean:.3f} [{score.interval.low:.3f}, {score.interval.high:.3f}]",
            " ".join(f"{one.score(METRIC).mean:.3f}" for one in found[arm].values()),
            f"{pair.difference:+.3f} [{pair.interval.low:+.3f}, {pair.interval.high:+.3f}]" if pair else "",
            (f"{adjusted[arm]:.2g}" if adjusted[arm] else "< 1e-300") if pair else "",
            *(f"{costs[name].mean:.1f}" for name in ("searches", "written", "read")),
            str(len(whole.invalid)),
        )


def _of_seed(sample: Sample, seed: int) -> Sample:
    return replace(sample, question=f"{seed}/{sample.question}")


def main() -> None:
    """Evaluate what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("world", "text"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--data", type=Path, help="a folder of real text")
    parser.add_argument("--model", default=None)
    parser.add_argument("--run", type=Path, action="append", default=[])
    parser.add_argument("--questions", type=int, default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", default=[*KINDS["baseline"].parts, AGENT])
    given = parser.parse_args()
    console = Console()
    if given.kind == "world":
        model, seeds = given.model or "tiny", worlds(given.directory, given.seeds, given.questions or 1000)
    else:
        model = given.model or "smollm2-135m"
        seeds = text(given.directory, given.data, given.questions or 100, console)
    found: dict[str, dict[int, Results]] = {}
    for arm, run in [*((arm, None) for arm in given.arms), *((str(run), run) for run in given.run)]:
        name = f"trained-{given.run.index(run)}" if run else arm
        for seed, (index, questions) in seeds.items():
            out = given.directory / f"seed-{seed}" / name
            found.setdefault(name, {})[seed] = draw(arm, model, run, index, questions, out)
            console.print(f"{out}: {found[name][seed].score(METRIC).mean:.3f}", highlight=False)
    for row in rows(found):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
