"""Learning with a real model on real text, on two CPU cores: SmolLM2-135M-Instruct, held-out questions, three seeds.

A seed has its own demonstrations (350, of which most of those of two hops stop too early), its own warm start
(sft/smollm2) and its own reinforcement learning of `STEPS` steps from there (search-r1/smollm2 with
search-r1/hops, whose rule of stages was fixed before). The arms of a seed begin with the same warm start:

    grpo        group-relative advantages, all weights
    reinforce   the reward itself as advantage
    dspo        the sequence ratio, on groups with a signal
    grpo-lora, reinforce-lora, dspo-lora
                the same with an adapter of rank 32 over the warm start, which is the recipe's way
    rejection   no reinforcement learning: twice, 8 rollouts of each of `COLLECTED` questions, those that were right
                learnt as demonstrations; as many rollouts as the other arms have

Every policy answers 300 held-out questions of dev.jsonl (192 of one hop and all 108 of two) sampled at temperature 1,
and `sft`, `grpo` and `grpo-lora` also greedily and without search; nothing is chosen by these scores. The folder is
what `bench/wiki2_demonstrations.py` describes.

    python bench/real_learning.py FOLDER OUT                          everything (hours)
    python bench/real_learning.py FOLDER OUT --only grpo --seeds 0    the warm start and an arm
    python bench/real_learning.py FOLDER OUT --table                  what there is
    python bench/real_learning.py FOLDER OUT --rollouts               how often two hops were searched twice, and right

What is done is not done again, and a run that was interrupted goes on. Times are this machine's, by the clock, with
whatever else it did; seconds of a process (CPU) are beside them.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import perf_counter, process_time
from typing import Any

from rich.console import Console
from rich.table import Table

from demo_real import held_out
from evoseek.assembly.context import Context
from evoseek.assembly.inputs import read_questions
from evoseek.assembly.sources import load_settings
from evoseek.cli.learning_demo import SAMPLED, measure
from evoseek.eval.held_out import HeldOutScores, held_out_scores
from evoseek.eval.statistics import paired_test, wilson_interval
from evoseek.storage.checkpoints import latest_checkpoint
from evoseek.storage.files import write_atomic
from evoseek.storage.metrics import read_metrics
from evoseek.storage.runs import RunDirectory
from evoseek.types import Question

STEPS = 40
COLLECTED = 120  # questions a round: 2 rounds x 120 x 8 rollouts are 40 steps x 6 x 8
DEMONSTRATIONS = {
    "director": 100,
    "birth date": 90,
    "birth place": 30,
    "director birth date": 50,
    "director nationality": 40,
    "director birth place": 10,
    "comparison": 30,
}
STOP_EARLY = 0.7
SLOTS = 96  # of an examination: there are more rollouts than in a step


@dataclass(frozen=True)
class Arm:
    """Recipes and settings over those of search-r1/smollm2 and its stages."""

    system: str = "search-r1"
    recipes: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()


RECIPES = ("search-r1/smollm2", "search-r1/hops")
ALL_WEIGHTS = ("lora.rank=0", "learner.learning_rate=1.5e-5")
REINFORCE = "algorithms/reinforce"
DSPO = ("reward.name=exact_match", "dspo.limit=2")
ARMS: Mapping[str, Arm] = {
    "grpo": Arm(sets=ALL_WEIGHTS),
    "reinforce": Arm(recipes=(REINFORCE,), sets=ALL_WEIGHTS),
    "dspo": Arm("dspo", sets=(*DSPO, *ALL_WEIGHTS)),
    "grpo-lora": Arm(),
    "reinforce-lora": Arm(recipes=(REINFORCE,)),
    "dspo-lora": Arm("dspo", sets=DSPO),
}
GRPO, ADAPTER, REJECTION = "grpo", "grpo-lora", "rejection"
FULLY = ("sft", "grpo", "grpo-lora")
ONE_HOP = 192
HERE = Path(__file__).parent


class Bench:
    """The work of a seed in a folder of its own."""

    def __init__(self, data: Path, out: Path, seed: int, console: Console) -> None:
        self.data, self.index, self.folder, self.seed = data, out / "index", out / f"seed{seed}", seed
        self.console = console
        self.folder.mkdir(parents=True, exist_ok=True)

    def warm_start(self) -> Path:
        """The run of supervised fine-tuning."""
        if not self.index.exists():
            run("index", self.data / "corpus.jsonl", self.index, "--max-words", 40)
        demonstrations = self.folder / "demonstrations.jsonl"
        if not demonstrations.exists():
            counts = [part for kind, count in DEMONSTRATIONS.items() for part in ("--count", f"{kind}={count}")]
            options = ["--index", self.index, "--top-k", 2, "--stop-early", STOP_EARLY, "--seed", self.seed, *counts]
            call(sys.executable, HERE / "wiki2_demonstrations.py", self.data, demonstrations, *options)
        return self.fine_tune("sft", demonstrations, "smollm2-135m")

    def fine_tune(self, name: str, demonstrations: Path, model: object, *others: object) -> Path:
        """A run of supervised fine-tuning on a file."""
        given = ("--config", "sft/smollm2", "--demonstrations", demonstrations, "--index", self.index)
        return self.train(name, "sft", *given, "--model", model, *others)

    def reinforce(self, name: str) -> Path:
        """A run of reinforcement learning from the warm start."""
        arm, start = ARMS[name], self.warm_start()
        configs = [part for recipe in (*RECIPES, *arm.recipes) for part in ("--config", recipe)]
        sets = [part for one in arm.sets for part in ("--set", one)]
        given = ("--index", self.index, "--questions", self.data / "train.jsonl", "--steps", STEPS)
        return self.train(name, "train", arm.system, *configs, *given, "--model", start, *sets)

    def reject(self) -> Path:
        """Rejection sampling: rollouts of the policy, the right ones learnt, and once more."""
        policy = self.warm_start()
        rows = [json.loads(line) for line in (self.data / "train.jsonl").read_text(encoding="utf-8").splitlines()]
        random.Random(f"{self.seed}/rejection").shuffle(rows)
        by_hops = [[row for row in rows if row["hops"] == hops] for hops in (1, 2)]
        for number in (1, 2):
            questions = self.folder / f"rejection{number}-questions.jsonl"
            chosen = [row for part in by_hops for row in part[(number - 1) * COLLECTED // 2 : number * COLLECTED // 2]]
            write_atomic(questions, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in chosen))
            kept = self.folder / f"rejection{number}.jsonl"
            if not kept.with_suffix(".done").exists():
                started = perf_counter()
                settings = ("--config", "search-r1/smollm2", "--model", policy, "--index", self.index)
                few = ("--attempts", 8, "--per-question", 4, "--set", f"run.seed={self.seed}")
                run("collect", kept, "--questions", questions, *settings, *few)
                write_atomic(kept.with_suffix(".done"), json.dumps(perf_counter() - started))
            # as gentle as reinforcement learning: its rate, and three times over what was kept
            policy = self.fine_tune(
                f"rejection{number}", kept, policy, "--epochs", 3, "--set", "learner.learning_rate=3e-5"
            )
        return policy

    def train(self, name: str, *command: object) -> Path:
        """Begin a run, or go on with it."""
        directory = self.folder / name
        if (directory / "done").exists():
            return directory
        begun = (directory / "config.json").exists()
        run(*(("train",) if begun else command), "--run-dir", directory, *(() if begun else ("--seed", self.seed)))
        write_atomic(directory / "done", "")
        return directory

    def policy(self, name: str) -> Path:
        """The directory of a trained policy, which is trained unless it is."""
        return self.warm_start() if name == "sft" else self.reject() if name == REJECTION else self.reinforce(name)

    def examine(self, name: str, directory: Path) -> None:
        """Score a policy on all held-out questions, unless that is done."""
        done = self.folder / f"{name}.json"
        if done.exists():
            return
        started, cpu = perf_counter(), process_time()
        with self._opened(name, directory) as context:
            questions = held_out(read_questions(str(self.data / "dev.jsonl"), setting="dev.jsonl"), 2 * ONE_HOP)
            scores = measure(context, questions) if name in FULLY else sampled_only(context, questions)
        found = {
            "scores": {kind: rows_of(evaluation) for kind, evaluation in scores.items()},
            "evaluation": {"seconds": perf_counter() - started, "cpu_seconds": process_time() - cpu},
            "training": self._cost(directory, name),
        }
        write_atomic(done, json.dumps(found))
        self.console.print(f"seed {self.seed}, {name}: " + describe_scores(found["scores"]))

    def _opened(self, name: str, directory: Path) -> AbstractContextManager[Context]:
        if name in ARMS:
            settings = load_settings(RunDirectory(directory).config, options={"sampler.slots": SLOTS})
            return Context(settings, checkpoint=latest_checkpoint(directory))
        options = {
            "search.index": str(self.index),
            "questions.path": str(self.data / "train.jsonl"),
            "policy.model": str(directory),
            "lora.rank": 0,  # if it is an adapter, none is put on it
            "sampler.slots": SLOTS,
            "run.seed": self.seed,
        }
        return Context(load_settings(Path("search-r1/smollm2"), options=options))

    def _cost(self, directory: Path, name: str) -> dict[str, object]:
        logs = (
            [RunDirectory(self.folder / f"rejection{n}") for n in (1, 2)]
            if name == REJECTION
            else [RunDirectory(directory)]
        )
        rows = [row for log in logs for row in read_metrics(log.timings)]
        spent = sum(row.get("step/seconds") or 0.0 for row in rows)
        if name == REJECTION:
            spent += sum(json.loads((self.folder / f"rejection{n}.done").read_text()) for n in (1, 2))
        return {
            "minutes": spent / 60,
            "steps": len(rows),
            "rows": [dict(row) for log in logs for row in read_metrics(log.metrics)],
        }


def sampled_only(context: Context, questions: Sequence[Question]) -> dict[str, HeldOutScores]:
    roller = context.solver(context.held_out_engine)
    return {
        SAMPLED: asyncio.run(held_out_scores(questions, roller=roller, metric=context.metric, reward=context.reward))
    }


def rows_of(evaluation: HeldOutScores) -> list[dict[str, object]]:
    """What is kept of each answer."""
    rewards = evaluation.rewards()
    return [
        {
            "id": rollout.question.id,
            "question": rollout.question.text,
            "hops": rollout.question.metadata["hops"],
            "reward": rewards[rollout.question.id],
            "searches": len(rollout.tool_results),
        }
        for _, rollout, _ in evaluation.drawn
    ]


def run(*command: object) -> None:
    call(sys.executable, "-m", "evoseek", *command)


def call(*command: object) -> None:
    words = list(map(str, command))
    print("$", *words[1:], flush=True)
    subprocess.run(words, check=True, env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ})


def score(rows: Sequence[Mapping[str, float]], hops: int | None = None) -> tuple[float, str]:
    """The mean, and with its interval as text."""
    rewards = [row["reward"] for row in rows if hops in (None, row["hops"])]
    interval = wilson_interval(round(sum(rewards)), len(rewards))
    return fmean(rewards), f"{fmean(rewards):.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def describe_scores(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    return "; ".join(
        f"{kind} {score(rows)[1]}, one hop {score(rows, 1)[0]:.3f}, two {score(rows, 2)[0]:.3f}"
        for kind, rows in scores.items()
    )


def show_differences(scores: Mapping[tuple[int, str], Sequence[Mapping[str, Any]]], console: Console) -> None:
    """Every arm against GRPO, of an adapter against that of an adapter, this one against that of all weights, and
    rejection sampling against both: sampled, on the same questions of all seeds that have both."""
    against = [(name, ADAPTER if name.endswith("-lora") and name != ADAPTER else GRPO) for name in ARMS]
    for name, base in (*against, (REJECTION, GRPO), (REJECTION, ADAPTER)):
        seeds = [seed for seed, arm in scores if arm == name and (seed, base) in scores]
        if name == base or not seeds:
            continue
        pairs = [
            (row["reward"], {row["id"]: row["reward"] for row in scores[seed, name]}[row["id"]])
            for seed in seeds
            for row in scores[seed, base]
        ]
        test = paired_test([before for before, _ in pairs], [after for _, after in pairs])
        told = f"{test.difference:+.3f}, p = {test.p_value:.1g}, n = {test.n}"
        console.print(f"{name} - {base}, sampled, seeds {', '.join(map(str, seeds))}: {told}")


def show(out: Path, console: Console) -> None:
    """A row for each policy that is there, and the paired differences to its warm start and to GRPO."""
    table = Table(
        "policy",
        "seed",
        "sampled",
        "1 hop",
        "2 hops",
        "greedy",
        "1 hop",
        "2 hops",
        "no search",
        "searches",
        "gain",
        "min",
    )
    drawn: dict[tuple[int, str], Sequence[Mapping[str, Any]]] = {}
    for folder in sorted(out.glob("seed*")):
        found = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
        files = {name: rows for name, rows in found.items() if "scores" in rows}  # not the state of a collection
        start = files.get("sft")
        for name, found in sorted(files.items(), key=lambda item: (item[0] != "sft", item[0])):
            sampled, *others = found["scores"].values()
            drawn[int(folder.name.removeprefix("seed")), name] = sampled
            gain = "-"
            if start and name != "sft":
                old = {row["id"]: row["reward"] for row in start["scores"][SAMPLED]}
                test = paired_test([old[row["id"]] for row in sampled], [row["reward"] for row in sampled])
                gain = f"{test.difference:+.3f}, p = {test.p_value:.1g}"
            searches = " / ".join(
                f"{fmean(row['searches'] for row in sampled if row['hops'] == hops):.2f}" for hops in (1, 2)
            )
            scores = [
                (score(rows)[1], *(f"{score(rows, hops)[0]:.3f}" for hops in (1, 2))) for rows in (sampled, *others[:1])
            ]
            table.add_row(
                *(name, folder.name.removeprefix("seed"), *scores[0]),
                *(scores[1] if others else ("-",) * 3),
                f"{score(others[1])[0]:.3f}" if others else "-",
                *(searches, gain, f"{found['training']['minutes']:.0f}"),
            )
    console.print(table)
    show_differences(drawn, console)


def show_rollouts(out: Path, console: Console) -> None:
    """Of the questions of two hops in training, every five steps: the share of rollouts that searched twice or more,
    of these those that were right or gave no answer, and of the others those that were right."""
    table = Table("run", "questions", "steps", "rollouts", "searched twice", "right", "no answer", "right after one")
    for log in sorted(out.glob("seed*/*/trajectories.jsonl")):
        found: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
        for line in log.read_text(encoding="utf-8").splitlines():
            about = (row := json.loads(line))["question"]["metadata"]
            if about.get("hops") == 2 and "reward" in row["outcome"]:
                kind = "comparison" if about["kind"] == "comparison" else "director"
                found.setdefault((kind, (row["step"] - 1) // 5), []).append(row)
        for (kind, part), rows in sorted(found.items()):
            two, one = ([row for row in rows if (len(row["tool_results"]) > 1) is is_two] for is_two in (True, False))
            right = [share(row["outcome"]["parts"]["exact_match"] for row in some) for some in (two, one)]
            named = (f"{log.parent.parent.name}/{log.parent.name}", kind, f"{5 * part + 1}-{5 * part + 5}")
            none = share(row["answer"] is None for row in two)
            table.add_row(*named, str(len(rows)), f"{len(two) / len(rows):.2f}", right[0], none, right[1])
    console.print(table)


def share(values: Iterable[float]) -> str:
    return f"{fmean(numbers):.2f}" if (numbers := [float(value) for value in values]) else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", choices=("sft", *ARMS, REJECTION), default=("sft", *ARMS, REJECTION))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--table", action="store_true", help="only show what there is")
    parser.add_argument("--rollouts", action="store_true", help="only show what the rollouts of training were")
    options = parser.parse_args()
    console = Console(width=200)
    if options.rollouts:
        show_rollouts(options.out, console)
        return
    if not options.table:
        for seed in options.seeds:
            bench = Bench(options.folder, options.out, seed, console)
            for name in options.only:
                bench.examine(name, bench.policy(name))
    show(options.out, console)


if __name__ == "__main__":
    main()
