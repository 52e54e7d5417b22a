"""Where the seconds of a step of self-play go, and how much of them is spent in the model.

`propose`, `verify` and `solve` last until the last episode of a batch is through that stage; `train` is the optimizer's
part. `model` is the share of the wall-clock in forward passes for sampling and in the learner: what remains is search,
parsing, rendering, filters and bookkeeping. Medians over the steps of a run after the first.

    python bench/selfplay_speed.py --directory runs/selfplay
"""

import argparse
import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from statistics import median
from time import perf_counter

from rich.console import Console
from rich.table import Table

import evoseek.samplers.torch.sampler as sampler_module
from evoseek.storage.metrics import read_metrics
from evoseek.storage.runs import RunDirectory
from evoseek.training.train import training_loop
from selfplay import QUESTIONS, Arm, make_config

STAGES = ("selfplay/propose_seconds", "selfplay/verify_seconds", "selfplay/solve_seconds", "learner/seconds")


def timed(function: Callable, spent: list[float]) -> Callable:
    def call(*args: object, **kwargs: object) -> object:
        started = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[-1] += perf_counter() - started

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("runs/selfplay"))
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    arms = {
        "dr-zero, proposer's steps": Arm("dr-zero", "", (f"dr_zero.proposer_steps={options.steps}",)),
        "ssp": Arm("ssp"),
    }
    table = Table("system", "propose s", "verify s", "solve s", "train s", "step s", "in the model")
    for name, arm in arms.items():
        config = make_config(options.directory, arm, seed=0, questions=QUESTIONS)
        config = config.model_copy(
            update={
                "run": config.run.model_copy(update={"steps": options.steps}),
                "evaluation": config.evaluation.model_copy(update={"path": ""}),
            }
        )
        run = RunDirectory(options.directory / "speed")
        rmtree(run.path, ignore_errors=True)
        spent: list[float] = [0.0]
        plain = sampler_module.packed_logits
        sampler_module.packed_logits = timed(plain, spent)
        with run.locked(), training_loop(config, run, notify=print) as loop:
            loop.progress = lambda _, spent=spent: spent.append(0.0)
            asyncio.run(loop.run())
        sampler_module.packed_logits = plain
        rows = read_metrics(run.timings)[1:]
        sampled = spent[1 : len(rows) + 1]
        shares = [
            (seconds + (row["learner/seconds"] or 0)) / (row["step/seconds"] or 1)
            for row, seconds in zip(rows, sampled, strict=True)
        ]
        seconds = [median(row[stage] or 0 for row in rows) for stage in STAGES]
        step = median(row["step/seconds"] or 0 for row in rows)
        table.add_row(name, *(f"{value:.2f}" for value in seconds), f"{step:.2f}", f"{median(shares):.0%}")
    Console(width=120).print(table)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
