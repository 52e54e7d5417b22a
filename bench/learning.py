"""What `evoseek demo` teaches, over several seeds: the numbers that the README quotes.

For each seed other worlds, other questions and another run. Every score is over 500 questions about the evaluation
world, 1 to 4 hops in equal shares; intervals are 95 %. Each training takes at most --max-minutes on this machine, so a
slower machine makes fewer steps.

    python bench/learning.py --directory runs/learning --picture docs/learning.png
    python bench/learning.py --directory runs/learning --seeds 0 1 2 3 4 5 6 7 --max-minutes 60 --processes 1

The picture is the README's: each seed's curve, and the band from the lowest to the highest of them.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, mean

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

from evoseek.cli.learning_demo import GREEDY, Learnt, learn
from evoseek.eval.held_out import HeldOutScores
from evoseek.eval.tables import score_text
from evoseek.storage.metrics import MetricRow, read_metrics
from evoseek.storage.runs import RunDirectory

REACHED = 0.8
LONG = "greedy, 3 and 4 hops"

PANELS = {"Reward": "reward", "Held-out exact match": "eval/reward", "Searches a rollout": "tools/call_frequency"}


def by_hops(evaluation: HeldOutScores, *hops: int) -> float:
    """Mean over these hops, which all have as many questions."""
    return mean(evaluation.by_hops()[number].mean for number in hops)


def describe(seed: int, learnt: Learnt) -> None:
    for name, before in learnt.before.items():
        after = learnt.after[name]
        hops = " ".join(f"{number}: {score.mean:.2f}" for number, score in after.by_hops().items())
        print(f"seed {seed}  {name:24}  {score_text(before.score)} -> {score_text(after.score)}   {hops}", flush=True)
    long = [by_hops(evaluations[GREEDY], 3, 4) for evaluations in (learnt.before, learnt.after)]
    print(f"seed {seed}  {LONG}  {long[0]:.3f} -> {long[1]:.3f}", flush=True)


def describe_steps(seed: int, directory: Path) -> None:
    """How many steps had no signal at all, and what share of all groups had none; and when the held-out score reached
    .80, in minutes of steps, held-out questions included."""
    run = RunDirectory(directory / "run")
    _, shares = curve(read_metrics(run.metrics), "frac_reward_zero_std")
    without = sum(share == 1.0 for share in shares)
    print(
        f"seed {seed}  {without} of {len(shares)} steps without a signal; of the groups {mean(shares):.2f}", flush=True
    )
    steps, seconds = curve(read_metrics(run.timings), "step/seconds")
    scores = zip(*curve(read_metrics(run.metrics), "eval/reward"), strict=True)
    reached = next((step for step, score in scores if score >= REACHED), None)
    spent = sum(own for step, own in zip(steps, seconds, strict=True) if step <= (reached or math.inf)) / 60
    what = (
        f"{REACHED:.2f} held out at step {reached}" if reached else f"not {REACHED:.2f} held out in {len(steps)} steps"
    )
    print(f"seed {seed}  {what}, {spent:.1f} minutes", flush=True)


def curve(rows: Sequence[MetricRow], name: str) -> tuple[list[float], list[float]]:
    """Steps and values of one metric, where it has a value."""
    points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    return [step for step, _ in points], [value for _, value in points]


def smoothed(values: Sequence[float]) -> list[float]:
    """The mean of each value and its neighbours, a tenth of the curve together; empty for a curve of fewer than 20."""
    if len(values) < 20:
        return []
    half = len(values) // 20
    return [fmean(values[max(0, place - half) : place + half + 1]) for place in range(len(values))]


def draw(directories: Sequence[Path], file: Path) -> None:
    """The curves of these runs, over the steps that all of them made; smoothed where every step has a value."""
    rows = [read_metrics(RunDirectory(directory / "run").metrics) for directory in directories]
    figure = Figure(figsize=(12, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (title, name) in enumerate(PANELS.items(), start=1):
        axes = figure.add_subplot(1, len(PANELS), place)
        curves = [curve(of_run, name) for of_run in rows]
        steps = sorted(set.intersection(*(set(of_run) for of_run, _ in curves)))
        known = [dict(zip(of_run, smoothed(values) or values, strict=True)) for of_run, values in curves]
        seeds = [[of_run[step] for step in steps] for of_run in known]
        axes.fill_between(
            steps, [min(at) for at in zip(*seeds, strict=True)], [max(at) for at in zip(*seeds, strict=True)], alpha=0.2
        )
        for values in seeds:
            axes.plot(steps, values, color="C0", linewidth=0.8, alpha=0.6)
        axes.plot(steps, [mean(at) for at in zip(*seeds, strict=True)], color="C0", linewidth=2)
        axes.set_title(title)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    figure.savefig(file, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--directory", type=Path, default=Path("runs/learning"))
    parser.add_argument("--max-minutes", type=float, default=5.0)
    parser.add_argument(
        "--processes", type=int, help="processes of a training; default: two, where there are two cores"
    )
    parser.add_argument("--picture", type=Path, help="draw the curves of all seeds into this PNG")
    options = parser.parse_args()
    console = Console(force_terminal=False, width=160)
    found: list[Learnt] = []
    for seed in options.seeds:
        directory = options.directory / f"seed-{seed}"
        limits = {"max_minutes": options.max_minutes, "processes": options.processes}
        learnt = learn(directory, seed=seed, **limits, console=console)
        if learnt is None:
            return
        describe(seed, learnt)
        describe_steps(seed, directory)
        found.append(learnt)
    for name in found[0].before:
        before = [learnt.before[name].score.mean for learnt in found]
        after = [learnt.after[name].score.mean for learnt in found]
        print(f"{name}: mean {mean(before):.3f} -> {mean(after):.3f}, lowest {min(after):.3f}, {len(found)} seeds")
    before = [by_hops(learnt.before[GREEDY], 3, 4) for learnt in found]
    after = [by_hops(learnt.after[GREEDY], 3, 4) for learnt in found]
    print(f"{LONG}: mean {mean(before):.3f} -> {mean(after):.3f}, lowest {min(after):.3f}, {len(found)} seeds")
    if options.picture:
        draw([options.directory / f"seed-{seed}" for seed in options.seeds], options.picture)


if __name__ == "__main__":
    main()
