"""Claims of papers of 2025 and 2026, examined on the tiny policy: for each whether it holds here, with the mean over
seeds and Student's 95 % interval.

search     "Search-R1, Re-examined" (2026): with an engine that finds passages at random training ends searching, with
           one that finds nothing the policy searches more. In place of the real engine stands one that gives random
           passages of the corpus, new ones for every query, or one passage with the words "nothing found": the policy
           reads what an empty result gives it, to the letter, and rollouts are not Invalid as they are where an engine
           finds nothing in a whole step. Held out, all search the real engine.
gate       "Survive or Collapse" (arXiv 2605.22217): a strict gate on the questions keeps self-play stable under every
           reward, and no reward does without the gate. Search Self-play, where the training world's oracle takes the
           place of the verification: `strict` rejects every question that it finds wrong or unanswerable, `none` lets
           all of them through, and a number is the share of those that leak. `majority`: the solver's most frequent
           answer is the label, the self-consistency of the paper.
pay        MASH (arXiv 2510.01152): paying for each search yields abstention. The reward is exact match minus a cost for
           each search.

    python bench/claims.py --directory runs/claims
    python bench/claims.py --only search pay/0.1 --seeds 0 1 2
    python bench/claims.py --table

Results are kept (result.json in each run's folder) and not computed again.
"""

import argparse
import asyncio
import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from rich.console import Console
from scipy.stats import t

from evoseek.assembly.context import Objects
from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import load_settings
from evoseek.cli.learning_demo import EVALUATION_HOPS, TRAINING_HOPS
from evoseek.config.settings_tree import FOLDER
from evoseek.errors import EvoseekError
from evoseek.questions.outcomes import Rejection
from evoseek.search.lexical import LexicalIndex
from evoseek.selfplay.verify import Verification
from evoseek.storage.checkpoints import Checkpoint, latest_checkpoint
from evoseek.storage.files import write_atomic
from evoseek.storage.metrics import read_metrics
from evoseek.storage.runs import RunDirectory
from evoseek.text.normalization import answer_value, exact_match
from evoseek.training.train import training_loop
from evoseek.types import Passage, Question, Scored, Trajectory
from evoseek.world.world import load_world, make_world
from selfplay import SSP_ENTITIES, examine, folder_of

QUESTIONS = 200
ASKED = 600  # training questions, of which a run needs 120
KEPT = (
    *("tools/call_frequency", "rollout/stop/answered", "reward", "frac_reward_zero_std"),
    *("selfplay/true_valid_rate", "selfplay/valid_rate", "selfplay/pass_rate/mean", "solver/tools/call_frequency"),
)


@dataclass(frozen=True)
class Drawing:
    """An engine that gives random passages: that of one rollout."""

    passages: Sequence[Passage]
    rng: random.Random
    is_local = True

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [self.rng.sample(self.passages, k) for _ in queries]


@dataclass(frozen=True)
class RandomPassages:
    """For every rollout an engine of its own."""

    passages: Sequence[Passage]
    seed: int

    def for_question(self, question: Question, trajectory_id: str) -> Drawing:
        return Drawing(self.passages, random.Random(f"{self.seed}/{trajectory_id}"))


class NothingFound:
    """A SearchEngine that shows the words of an empty result."""

    is_local = True

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [[Passage("nothing", "nothing", "", "nothing found")] for _ in queries]


@dataclass(frozen=True)
class Paid:
    """Exact match minus a cost for each search."""

    cost: float
    lowest = -1.0

    def __call__(self, trajectory: Trajectory) -> Scored:
        right = answer_value("exact_match", trajectory)
        return Scored(right - self.cost * len(trajectory.tool_results), {"exact_match": right})


class Gate:
    """In place of a Verifier: rejects what the oracle finds wrong, but for a share that leaks."""

    noise_passages = 0

    def __init__(self, world: Path, leak: float, seed: int) -> None:
        self._oracle, self._leak, self._seed = load_world(world).oracle, leak, seed

    async def __call__(self, question: Question, evidence: object, others: object, key: str) -> Verification:
        truth = self._oracle(question.text)
        is_right = truth is not None and exact_match(truth.answer, question.golden_answers) == 1.0
        leaks = random.Random(f"{self._seed}/gate/{key}").random() < self._leak
        return Verification(None if is_right or leaks else Rejection.UNVERIFIED)


@dataclass(frozen=True)
class Arm:
    """A recipe for the tiny policy with what is set over it, and what stands in place of a part of it."""

    system: str = "search-r1"
    sets: tuple[str, ...] = ()
    engine: str = ""
    reward: Paid | None = None
    leak: float | None = None


SEARCH = ("stages=[]", "questions.per_step=6", "rollout.group_size=6", "run.steps=20")
# The paper's sum over a proposal's tokens: the proposer learns faster, and so does what goes wrong with it.
GAME = ("selfplay.proposals_per_step=12", "proposer.attempts=4", "proposer.loss.aggregate=sequence-sum", "run.steps=24")
REWARDS = {
    "failure": (),
    "uncertainty": ("proposer.difficulty=uncertainty",),
    "majority": ("selfplay.label=majority",),
}
LEAKS = {"strict": 0.0, "none": 1.0, "0.1": 0.1, "0.3": 0.3}
EXPERIMENTS: dict[str, dict[str, Arm]] = {
    "search": {name: Arm(sets=SEARCH, engine=name) for name in ("real", "random", "nothing")},
    "pay": {"0.1": Arm(sets=SEARCH, reward=Paid(0.1))},
    "gate": {
        f"{reward}, {gate}": Arm("ssp", (*GAME, *sets), leak=leak)
        for reward, sets in REWARDS.items()
        for gate, leak in LEAKS.items()
        if reward == "failure" or gate in ("strict", "none")
    },
}


def make_settings(worlds: Path, arm: Arm, seed: int, questions: int) -> tuple[TrainingSettings, TrainingSettings]:
    """The settings to train with, and to examine with: an engine that is given as an object has no held-out index."""
    is_game = arm.system == "ssp"
    train, held_out = worlds / ("train-large" if is_game else "train"), worlds / f"evaluation-{questions}"
    entities = SSP_ENTITIES if is_game else None
    make_world(train, "train", seed, ASKED, TRAINING_HOPS, entities=entities)
    make_world(held_out, "evaluation", seed, questions, EVALUATION_HOPS)
    options: dict[str, object] = {"search.index": str(train / "index"), "run.seed": seed}
    name, value = ("selfplay.world", "world.json") if is_game else ("questions.path", "questions.jsonl")
    options[name] = str(train / value)
    examined = {"evaluation.index": str(held_out / "index"), "evaluation.path": str(held_out / "questions.jsonl")}
    load = partial(load_settings, FOLDER / arm.system / "tiny.toml", sets=arm.sets)
    return load(options=options), load(options=options | examined)


def rollouts(settings: TrainingSettings, checkpoint: Checkpoint | None) -> list[dict[str, object]]:
    """Of every held-out question its hops, whether the answer was right, whether there was one, and the searches."""
    evaluation = examine(settings, checkpoint)
    right, samples = evaluation.rewards(), [drawn.sample for drawn in evaluation.drawn]
    return [
        {"hops": one.hops, "right": right[one.question], "answered": one.answer is not None, "searches": one.searches}
        for one in samples
    ]


def run_arm(directory: Path, folder: Path, arm: Arm, seed: int, questions: int) -> dict[str, object]:
    """Train and examine. A run that cannot continue is a result, too."""
    worlds, run, ended = directory / f"worlds-{seed}", RunDirectory(folder / "run"), ""
    settings, examined = make_settings(worlds, arm, seed, questions)
    index = Path(settings.search.index)
    engine = None
    if arm.engine == "random":
        engine = RandomPassages(list(LexicalIndex.open(index).passages()), seed)
    elif arm.engine == "nothing":
        engine = NothingFound()
    objects = Objects(search=engine, reward=arm.reward)
    with run.locked(), training_loop(settings, run, notify=lambda _: None, objects=objects) as loop:
        if arm.leak is not None:
            loop.system.play = replace(loop.system.play, verifier=Gate(index.parent / "world.json", arm.leak, seed))
        try:
            asyncio.run(loop.run())
        except EvoseekError as error:
            ended = str(error)
    before = worlds / f"before-{arm.system}-{questions}.json"  # the same for every arm of a system
    if not before.exists():
        write_atomic(before, json.dumps(rollouts(examined, None)))
    return {
        "before": json.loads(before.read_text()),
        "after": rollouts(examined, latest_checkpoint(run.path)),
        "rows": [{key: row[key] for key in ("step", *KEPT) if key in row} for row in read_metrics(run.metrics)],
        "seconds": sum(row.get("step/seconds") or 0.0 for row in read_metrics(run.timings)),
        "ended": ended,
    }


MEASURES: dict[str, Callable[[dict], float]] = {
    "right": lambda row: row["right"],
    "searches": lambda row: row["searches"],
    "no answer": lambda row: not row["answered"],
    "from memory": lambda row: row["answered"] and not row["searches"],
}


def held_out(measure: str, result: dict, when: str = "after") -> float:
    return fmean(MEASURES[measure](row) for row in result[when])


def first_and_last(metric: str, result: dict) -> tuple[float, float] | None:
    """The means of the first five steps that have such a number, and of the last five."""
    values = [row[metric] for row in result["rows"] if metric in row]
    return (fmean(values[:5]), fmean(values[-5:])) if values else None


def change(name: str, result: dict) -> float:
    """Of a metric from the first steps to the last, or of a held-out measure by training."""
    if name in MEASURES:
        return held_out(name, result) - held_out(name, result, "before")
    first, last = first_and_last(name, result) or (0.0, 0.0)
    return last - first


# What is claimed, of which arm, what changed in it, less what changed in which other arm, and whether that is above 0.
CLAIMS: list[tuple[str, str, str, str, int]] = [
    ("random passages: fewer searches in training", "search/random", "tools/call_frequency", "", -1),
    ("random passages: fewer searches, held out", "search/random", "searches", "", -1),
    ("nothing found: more searches in training", "search/nothing", "tools/call_frequency", "", 1),
    ("nothing found: more searches, held out", "search/nothing", "searches", "", 1),
    ("paid searches: fewer than unpaid", "pay/0.1", "searches", "search/real", -1),
    ("paid searches: more rollouts without an answer", "pay/0.1", "no answer", "search/real", 1),
    ("paid searches: more answers from memory", "pay/0.1", "from memory", "search/real", 1),
    ("paid searches: lower score", "pay/0.1", "right", "search/real", -1),
]
for reward in REWARDS:
    gated, open_to_all = f"gate/{reward}, strict", f"gate/{reward}, none"
    CLAIMS += [
        (f"{reward}, strict gate: the solver gains", gated, "right", "", 1),
        (f"{reward}, no gate: the solver loses", open_to_all, "right", "", -1),
        (f"{reward}, no gate: below strict", open_to_all, "right", gated, -1),
        (f"{reward}, no gate: fewer true questions", open_to_all, "selfplay/true_valid_rate", "", -1),
        (f"{reward}, no gate: fewer true than strict", open_to_all, "selfplay/true_valid_rate", gated, -1),
    ]
for leak in ("0.1", "0.3"):
    name, what = f"gate/failure, {leak}", f"failure, leaks of {leak}: "
    CLAIMS.append((what + "below strict", name, "right", "gate/failure, strict", -1))
    CLAIMS.append((what + "fewer true than strict", name, "selfplay/true_valid_rate", "gate/failure, strict", -1))


def verdict(values: Sequence[float], sign: int) -> str:
    """The mean with Student's interval, and what it says of a claim that is above 0 or, of sign -1, below."""
    mean = fmean(values)
    if len(values) == 1:
        return f"{mean:+.3f}: undecided, one seed"
    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    word = "holds" if sign * mean > half else "does not hold" if sign * mean <= -half else "undecided"
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]: {word}"


def show(found: dict[str, dict[int, dict]], console: Console) -> None:
    for name, by_seed in found.items():
        results = [by_seed[seed] for seed in sorted(by_seed)]
        console.print(f"{name}, seeds {' '.join(map(str, sorted(by_seed)))}: first five -> last five steps")
        for metric in KEPT:
            if ends := [pair for result in results if (pair := first_and_last(metric, result))]:
                console.print(f"    {metric}: " + "  ".join(f"{first:.3f} -> {last:.3f}" for first, last in ends))
        for measure, value in MEASURES.items():
            both = [(held_out(measure, result, "before"), held_out(measure, result)) for result in results]
            rows = [row for result in results for row in result["after"]]
            by_hops = (fmean(value(row) for row in rows if row["hops"] == hops) for hops in EVALUATION_HOPS)
            words = "  ".join(f"{before:.3f} -> {after:.3f}" for before, after in both)
            console.print(f"    held out, {measure}: {words}; by hops {' '.join(f'{share:.2f}' for share in by_hops)}")
        console.print("".join(f"    ended: {result['ended']}\n" for result in results if result["ended"]), end="")
    for text, arm, name, other, sign in CLAIMS:
        seeds = [seed for seed in sorted(found.get(arm, {})) if not other or seed in found.get(other, {})]
        less = [change(name, found[other][seed]) if other else 0.0 for seed in seeds]
        if values := [change(name, found[arm][seed]) - base for seed, base in zip(seeds, less, strict=True)]:
            console.print(f"{text}: {' '.join(f'{value:+.3f}' for value in values)}, mean {verdict(values, sign)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("runs/claims"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", default=list(EXPERIMENTS), metavar="EXPERIMENT[/ARM]")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="held-out questions of a seed")
    parser.add_argument("--table", action="store_true", help="only print what there is")
    options = parser.parse_args()
    console = Console(width=160, highlight=False)
    chosen = [
        (experiment, name, arm)
        for experiment, arms in EXPERIMENTS.items()
        for name, arm in arms.items()
        if experiment in options.only or f"{experiment}/{name}" in options.only
    ]
    found: dict[str, dict[int, dict]] = {}
    for seed in options.seeds:
        for experiment, name, arm in chosen:
            folder = folder_of(options.directory, experiment, name, seed)
            if not options.table and not (folder / "result.json").exists():
                result = run_arm(options.directory, folder, arm, seed, options.questions)
                write_atomic(folder / "result.json", json.dumps(result))
                console.print(f"{experiment}/{name}, seed {seed}: {result['seconds']:.0f} s {result['ended']}")
            if (folder / "result.json").exists():
                found.setdefault(f"{experiment}/{name}", {})[seed] = json.loads((folder / "result.json").read_text())
    show(found, console)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
