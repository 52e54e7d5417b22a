"""Collapses that are provoked on purpose, and which guard saves how many runs.

Every run trains the tiny policy by GRPO on a generated world, 10 questions of 8 rollouts a step, and is examined on
another, whose names occur nowhere in training: 200 questions, 1 to 4 hops in equal shares, answered at the training
temperature. Provoked are:

    sound      nothing, for twice as many steps: what a guard costs where it is not needed
    rate       five times the learning rate
    late       the same, for the policy that `sound` ends with
    stale      the same, in four optimizer steps on each batch of rollouts
    one hop    questions of one hop alone, at three times the rate: what it knows of more is unlearnt

Guards, each alone:

    none
    likelihood the likelihood of right rollouts may not fall (LLDS, arXiv 2512.04220): of every action of a rollout
               whose advantage is not negative, and whose logprobs fell in sum since the batch was rolled out, the fall
               of each token that fell is added to the loss. In the first optimizer step on a batch nothing has fallen.
    kl         a KL to the start whose coefficient is doubled while it is above 1.5 times .05 nats a token, and halved
               while it is below two thirds of that (arXiv 1707.06347, section 4)
    entropy    a bonus of .01 while the mean entropy of a token is below half of that of the first three steps
    rate falls the rate is halved when the mean reward of five steps is surely below the best mean of five
    half       half of the rate from the beginning, the remedy that needs no guard

    python bench/guards.py --directory runs/guards --seeds 0 1 2
    python bench/guards.py --directory runs/guards --signs      which signs come before a collapse, without a guard

A run has collapsed if its held-out score ends more than .1 below its start. Results are kept (result.json in each run's
folder) and not computed again, so that several processes may share the work with --only; --table prints what there is.
"""

import argparse
import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev

import torch
from rich.console import Console
from rich.table import Table
from scipy.stats import t

from algorithms import examine
from evoseek.assembly.context import Objects
from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import load_settings
from evoseek.cli.learning_demo import EVALUATION_HOPS, TRAINING_HOPS, TRAINING_QUESTIONS
from evoseek.errors import EvoseekError
from evoseek.loss.base import Loss, LossInputs, PolicyLoss, Totals, aggregate_tokens
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.terms import kl_k3
from evoseek.rollout.record import read_trajectories
from evoseek.storage.checkpoints import latest_checkpoint
from evoseek.storage.files import write_atomic
from evoseek.storage.metrics import read_metrics
from evoseek.storage.runs import RunDirectory
from evoseek.training import train as training
from evoseek.training.alarms import alarms
from evoseek.training.loop import StepProgress, TrainingLoop
from evoseek.types import Scored, TrainingSample, Trajectory
from evoseek.world.world import make_world

QUESTIONS, STEP_QUESTIONS = 200, 10
LOST = 0.1
LIKELIHOOD, KL_TARGET, KL_START, ENTROPY, WINDOW = 0.1, 0.05, 0.02, 0.01, 5
SWITCHED_ON = 1e-12  # a coefficient of the settings that adds nothing, but has its inputs computed

PROVOKED: Mapping[str, Mapping[str, object]] = {
    "sound": {},
    "rate": {"learner.learning_rate": 1.5e-3},
    "late": {"learner.learning_rate": 1.5e-3},
    "stale": {"learner.learning_rate": 1.5e-3, "algorithm.mini_batches": 4},
    "one hop": {"learner.learning_rate": 9e-4, "questions.where": {"hops": 1}},
}
RIGHT = "probability of a right rollout's tokens"
FACTORS: Mapping[str, tuple[float, float]] = {
    RIGHT: (0.8, math.inf),
    "entropy": (0.25, 3.0),
    "completions/mean_length": (0.5, 2.0),
    "tools/call_frequency": (0.5, 2.0),
    "frac_reward_zero_std": (0.0, 1.5),
    "grad_norm": (0.0, 3.0),
    "rollout/stop/answered": (0.8, math.inf),
}
GUARDS = ("none", "likelihood", "kl", "entropy", "rate falls", "half")


@dataclass
class GuardedLoss(PolicyLoss):
    """The clipped loss with a guard's terms, whose coefficients change from step to step."""

    __slots__ = ("entropy", "kl", "likelihood", "loss")
    loss: ClippedLoss
    likelihood: float
    kl: float
    entropy: float

    def contributes(self, sample: TrainingSample) -> bool:
        return self.likelihood > 0 or self.kl > 0 or self.entropy > 0 or self.loss.contributes(sample)

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        found = self.loss(inputs, totals)
        added, metrics = found.loss, dict(found.metrics)
        if self.likelihood:
            fallen = fall_of_right_actions(inputs)
            added = added + self.likelihood * aggregate_tokens(fallen, inputs.loss_mask, "token-mean", totals)
        if self.kl and inputs.ref_logprobs is not None:
            off = ~inputs.loss_mask
            kl = kl_k3(inputs.logprobs.masked_fill(off, 0.0), inputs.ref_logprobs.masked_fill(off, 0.0))
            mean = aggregate_tokens(kl, inputs.loss_mask, "token-mean", totals)
            added, metrics["kl"] = added + self.kl * mean, mean.detach()
        if self.entropy:
            added = added - self.entropy * aggregate_tokens(inputs.entropies, inputs.loss_mask, "token-mean", totals)
        return Loss(added, metrics)


def fall_of_right_actions(inputs: LossInputs) -> torch.Tensor:
    """[B, T]: how far each token's logprob fell, in the actions of rollouts without a negative advantage that fell in
    sum; 0 elsewhere."""
    mask = inputs.loss_mask & (inputs.advantages >= 0)
    fallen = (inputs.old_logprobs - inputs.logprobs).masked_fill(~mask, 0.0)
    begins = mask & ~torch.nn.functional.pad(mask, (1, 0))[:, :-1]
    action = begins.cumsum(dim=-1)  # the number of each token's action; off the mask the values are 0
    sums = torch.zeros(len(mask), int(action.max()) + 1).scatter_add(1, action, fallen.detach())
    return torch.where(sums.gather(1, action) > 0, fallen.clamp(min=0.0), 0.0)


@dataclass
class Guard:
    """Watches the steps of a loop, and changes what its guard changes."""

    name: str
    loop: TrainingLoop
    loss: GuardedLoss
    rewards: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    best: float = 0.0
    acted: int = 0

    def after(self, progress: StepProgress) -> None:
        metrics = progress.metrics
        if progress.step == 0:
            return
        if self.name == "kl" and "kl" in metrics:
            if metrics["kl"] > 1.5 * KL_TARGET:
                self.loss.kl *= 2
            elif metrics["kl"] < KL_TARGET / 1.5:
                self.loss.kl /= 2
        if self.name == "entropy" and "entropy" in metrics:
            self.entropies.append(metrics["entropy"])
            floor = fmean(self.entropies[:3]) / 2
            self.loss.entropy = ENTROPY if metrics["entropy"] < floor else SWITCHED_ON
        self.rewards.append(metrics["reward"])
        if self.name == "rate falls" and len(self.rewards) >= WINDOW:
            self._watch()

    def _watch(self) -> None:
        lately = self.rewards[-WINDOW:]
        mean, error = fmean(lately), stdev(lately) / math.sqrt(WINDOW)
        self.best = max(self.best, mean)
        if self.best - mean > max(2 * error, 0.05):
            self.acted, self.best, self.rewards = self.acted + 1, 0.0, []
            learner = self.loop.checkpoints.parts["policy"].learner
            learner.base_rates = [rate / 2 for rate in learner.base_rates]


def make_settings(directory: Path, provoked: str, guard: str, seed: int, steps: int) -> TrainingSettings:
    worlds = directory / f"worlds-{seed}"
    make_world(worlds / "train", "train", seed, TRAINING_QUESTIONS, TRAINING_HOPS)
    make_world(worlds / "evaluation", "evaluation", seed, QUESTIONS, EVALUATION_HOPS)
    own = dict(PROVOKED[provoked])
    if guard == "half":
        own["learner.learning_rate"] = float(own.get("learner.learning_rate", 3e-4)) / 2
    if provoked == "late":
        own["policy.model"] = str(directory / f"sound-none-{seed}" / "run")
    if guard == "kl":
        own["algorithm.kl_coefficient"] = SWITCHED_ON
    if guard == "entropy":
        own["algorithm.entropy_coefficient"] = SWITCHED_ON
    options = {
        "search.index": str(worlds / "train" / "index"),
        "questions.path": str(worlds / "train" / "questions.jsonl"),
        "questions.per_step": STEP_QUESTIONS,
        "evaluation.index": str(worlds / "evaluation" / "index"),
        "evaluation.path": str(worlds / "evaluation" / "questions.jsonl"),
        "evaluation.every": 0,
        "run.seed": seed,
        "run.steps": steps,
        "run.checkpoint_every": steps,
        **own,
    }
    return load_settings((), options=options)


def train(settings: TrainingSettings, guard: str, run: RunDirectory) -> dict[str, object]:
    loss = GuardedLoss(
        ClippedLoss(),
        LIKELIHOOD if guard == "likelihood" else 0.0,
        KL_START if guard == "kl" else 0.0,
        SWITCHED_ON if guard == "entropy" else 0.0,
    )
    diverged, acted = "", 0
    with run.locked(), training.training_loop(settings, run, notify=lambda _: None, objects=Objects(loss=loss)) as loop:
        watching = Guard(guard, loop, loss)
        loop.progress = watching.after
        try:
            asyncio.run(loop.run())
        except EvoseekError as error:
            diverged = str(error)
        acted = watching.acted
    return outcome(settings, run, acted, diverged)


def outcome(settings: TrainingSettings, run: RunDirectory, acted: int, diverged: str) -> dict[str, object]:
    rows = read_metrics(run.metrics)
    evaluations = [row["eval/reward"] for row in rows if row.get("eval/reward") is not None]
    checkpoint = latest_checkpoint(run.path)
    evaluation = examine(settings, checkpoint) if checkpoint else None
    return {
        "start": evaluations[0],
        "end": evaluation.score.mean if evaluation else 0.0,
        "by_hops": {str(hops): score.mean for hops, score in evaluation.by_hops().items()} if evaluation else {},
        "acted": acted,
        "diverged": diverged,
        "rows": [
            {name: row.get(name) for name in ("step", "reward", "entropy", "kl", "frac_reward_zero_std")}
            for row in rows
        ],
    }


def show(directory: Path, console: Console) -> None:
    table = Table(
        "provoked", "guard", "runs", "collapsed", "held-out at the end", "by seed", "minus none, paired", "acted"
    )
    found: dict[tuple[str, str], dict[int, dict]] = {}
    for path in sorted(directory.glob("*/result.json")):
        provoked, guard, seed = path.parent.name.rsplit("-", 2)
        found.setdefault((provoked, guard), {})[int(seed)] = json.loads(path.read_text())
    for provoked in PROVOKED:
        for guard in GUARDS:
            runs = found.get((provoked, guard), {})
            if not runs:
                continue
            base = found.get((provoked, "none"), {})
            pairs = [runs[seed]["end"] - base[seed]["end"] for seed in runs if seed in base]
            table.add_row(
                provoked,
                guard,
                str(len(runs)),
                str(sum(run["end"] < run["start"] - LOST for run in runs.values())),
                f"{fmean(run['end'] for run in runs.values()):.3f}",
                " ".join(f"{runs[seed]['end']:.3f}" for seed in sorted(runs)),
                "" if guard == "none" else interval(pairs),
                f"{fmean(run['acted'] for run in runs.values()):.1f}",
            )
    console.print(table)
    starts = [run["start"] for runs in found.values() for run in runs.values()]
    if starts:
        console.print(f"Start: {fmean(starts):.3f}. n = {QUESTIONS} a run. Intervals: Student's, over seeds.")


def signs_of(run: RunDirectory) -> dict[str, int]:
    """The first step at which each sign is seen: the alarms of a run, and a mean of five steps that has
    left that of the first five by the factor of `FACTORS`."""
    rows = [row for row in read_metrics(run.metrics) if row["step"]]
    right: dict[int, list[float]] = {}
    for record in read_trajectories(run.trajectories):
        if isinstance(record.outcome, Scored) and record.outcome.reward > 0:
            right.setdefault(record.step, []).append(probability_of(record.trajectory))
    series = {name: [(int(row["step"]), row[name]) for row in rows if row.get(name) is not None] for name in FACTORS}
    series[RIGHT] = [(step, fmean(values)) for step, values in sorted(right.items())]
    found: dict[str, int] = {}
    for name, (low, high) in FACTORS.items():
        values = [value for _, value in series[name]]
        for place in range(2 * WINDOW, len(values) + 1):
            share = fmean(values[place - WINDOW : place]) / (fmean(values[:WINDOW]) or 1e-9)
            if not low < share < high:
                found[name] = series[name][place - 1][0]
                break
    for count in range(1, len(rows) + 1):
        for about in alarms(rows[:count]):
            found.setdefault(f"alarm: {about.partition('/')[0]}", count)
    return found


def probability_of(trajectory: Trajectory) -> float:
    """The geometric mean of the probabilities of its action tokens."""
    return math.exp(sum(trajectory.rollout_logprobs) / max(1, trajectory.num_action_tokens))


def fell_at(rows: list[Mapping[str, float]]) -> int:
    """The first step at which the mean reward of five steps is below half of the best such mean before."""
    rewards = [row["reward"] for row in rows if row.get("reward") is not None]
    means = [fmean(rewards[place - WINDOW : place]) for place in range(WINDOW, len(rewards) + 1)]
    return next((n + WINDOW for n, mean in enumerate(means) if mean < max(means[: n + 1]) / 2), len(rewards))


def show_signs(directory: Path, console: Console) -> None:
    collapsed: list[dict[str, int]] = []
    sound: list[dict[str, int]] = []
    for path in sorted(directory.glob("*/result.json")):
        if path.parent.name.rsplit("-", 2)[1] != "none":
            continue
        result, found = json.loads(path.read_text()), signs_of(RunDirectory(path.parent / "run"))
        if result["end"] >= result["start"] - LOST:
            sound.append(found)
        else:
            fell = fell_at([row for row in result["rows"] if row["step"]])
            collapsed.append({name: fell - step for name, step in found.items()})
    table = Table(
        "sign",
        f"in collapsed runs (of {len(collapsed)})",
        "before the fall",
        "lead, median",
        f"false (of {len(sound)})",
    )
    for name in sorted({name for found in (*collapsed, *sound) for name in found}):
        leads = [found[name] for found in collapsed if name in found]
        table.add_row(
            name,
            str(len(leads)),
            str(sum(lead > 0 for lead in leads)),
            f"{median(leads):.0f}" if leads else "",
            str(sum(name in found for found in sound)),
        )
    console.print(table)


def interval(values: list[float]) -> str:
    if len(values) < 2:
        return f"{fmean(values):+.3f}" if values else ""
    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return f"{fmean(values):+.3f} [{fmean(values) - half:+.3f}, {fmean(values) + half:+.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("runs/guards"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--provoked", nargs="+", default=list(PROVOKED), choices=list(PROVOKED), metavar="NAME")
    parser.add_argument("--only", nargs="+", default=list(GUARDS), choices=list(GUARDS), metavar="GUARD")
    parser.add_argument("--table", action="store_true", help="only print what there is")
    parser.add_argument("--signs", action="store_true", help="only show what came before collapses")
    options = parser.parse_args()
    console = Console(width=180)
    if options.signs:
        show_signs(options.directory, console)
        return
    for seed in () if options.table else options.seeds:
        for provoked in options.provoked:
            for guard in options.only:
                folder = options.directory / f"{provoked}-{guard}-{seed}"
                if (folder / "result.json").exists():
                    continue
                steps = options.steps * (2 if provoked == "sound" else 1)
                settings = make_settings(options.directory, provoked, guard, seed, steps)
                result = train(settings, guard, RunDirectory(folder / "run"))
                write_atomic(folder / "result.json", json.dumps(result))
                console.print(f"{provoked}, {guard}, seed {seed}: {result['start']:.3f} -> {result['end']:.3f}")
    show(options.directory, console)


if __name__ == "__main__":
    main()
