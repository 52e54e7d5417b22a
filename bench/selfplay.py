"""Self-play on the generated world: what the recipes of dr-zero and ssp quote.

Every run trains a tiny policy on one generated world and is examined on another, whose names occur nowhere in training:
500 questions (`--questions`), 1 to 4 hops in equal shares, answered at the training temperature; intervals are 95 %. No
run but `gold` is given a question or an answer. Validity and true hops are judged by the training world's oracle, which
no run sees.

    python bench/selfplay.py --directory runs/selfplay                       everything (hours)
    python bench/selfplay.py --only dr-zero ssp --seeds 0 1 2                some experiments
    python bench/selfplay.py --table                                         what there is
    python bench/selfplay.py --only long --questions 2000 --picture FILE.png    ... and its curves over solver rollouts

Results are kept (result.json in each run's folder) and not computed again, so several processes may share the work.
"""

import argparse
import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean, median, stdev

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from scipy.stats import t

from evoseek.assembly.context import Context
from evoseek.assembly.inputs import read_questions
from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import load_settings
from evoseek.cli.learning_demo import ENTITIES, EVALUATION_HOPS, TRAINING_HOPS, TRAINING_QUESTIONS
from evoseek.config.settings_tree import find_recipe
from evoseek.errors import EvoseekError
from evoseek.eval.held_out import HeldOutScores, held_out_scores
from evoseek.eval.statistics import paired_test
from evoseek.storage.checkpoints import Checkpoint, latest_checkpoint
from evoseek.storage.files import write_atomic
from evoseek.storage.metrics import read_metrics
from evoseek.storage.runs import RunDirectory
from evoseek.training.train import training_loop
from evoseek.world.world import make_world

QUESTIONS = 500
SSP_ENTITIES = 3000  # of the training world: few answers lead back by several searches
KEPT = (
    "eval/reward",
    "selfplay/valid_rate",
    "selfplay/true_valid_rate",
    "selfplay/true_hops/mean",
    "selfplay/true_hops/entropy",
    "selfplay/requested_hops/entropy",
    "selfplay/pass_rate/mean",
    "selfplay/trainable",
    "selfplay/agreed_wrong",
    "selfplay/written",
    "selfplay/replayed",
    "selfplay/iteration",
    "selfplay/proposals",
    "proposer/reward",
    "solver/reward",
    "solver/tools/call_frequency",
    "proposer/tools/call_frequency",
    "solver/trained_on",
    "solver/trainable",
    "solver/rollout/num",
    "proposer/rollout/num",
    "rollout/num",
)


@dataclass(frozen=True)
class Arm:
    """A system with its recipe for the tiny policy, another recipe over it, and what else is set."""

    system: str
    over: str = ""
    sets: tuple[str, ...] = ()

    @property
    def recipes(self) -> list[Path]:
        """The config files, those that go over others last."""
        over = [find_recipe(f"ablations/{self.system}/{self.over}")] if self.over else []
        return [find_recipe(f"{self.system}/tiny"), *over]


def dr_zero(over: str = "", *sets: str) -> Arm:
    """One iteration of fewer steps: what the paper's ablations are, too."""
    return Arm("dr-zero", over, ("dr_zero.iterations=1", "dr_zero.proposer_steps=8", "dr_zero.solver_steps=12", *sets))


def weak(*sets: str) -> Arm:
    """From a proposer of which less than half of the questions are right, with larger batches for it to learn from."""
    phases = ("dr_zero.iterations=2", "dr_zero.proposer_steps=12", "dr_zero.solver_steps=12")
    return Arm("dr-zero", "", ("policy.model=tiny-weak", "selfplay.proposals_per_step=64", *phases, *sets))


def few(over: str = "") -> Arm:
    """Search Self-play from few answers a step, so that five questions from each are not too many."""
    return Arm("ssp", over, ("selfplay.proposals_per_step=12", "run.steps=30"))


# Search-R1 on gold questions, with Dr. Zero's settings, a constant rate too, and as many steps as its solver has.
GOLD = ("run.steps=60", "stages=[]", "rollout.temperature=0.7", "learner.learning_rate=2e-4")
VERIFIED = ("verification.readings=1", "verification.passages=supporting")
TABLES = (
    *("no_format", "parabolic", "no_source", "hops_1111", "hops_2111", "hops_4321"),
    *("nested_grpo", "evidence", "r_zero"),
)
SSP_TABLES = (
    *("solver_only", "proposer_only", "no_verification", "dummy", "resample", "replay"),
    *("punitive", "noise_0", "sqlm"),
)
LONG = ("run.steps=200",)
HARD = ("proposer.ratio=[0, 1, 2]",)


def free(*sets: str, over: str = "free_hops") -> Arm:
    """A proposer that chooses the number of hops, and by itself mostly chooses one."""
    phases = ("dr_zero.iterations=6", "dr_zero.proposer_steps=4", "dr_zero.writing_steps=1", "dr_zero.solver_steps=15")
    return Arm("dr-zero", over, ("policy.model=tiny-free", "rollout.temperature=1.0", *phases, *sets))


FREE_GOLD = ("policy.model=tiny-free", *GOLD, "run.steps=90", "rollout.temperature=1.0")
SUMMED = ("proposer.loss.aggregate=sequence-sum", "run.steps=30")  # as in the paper: the proposer learns faster
EXPERIMENTS: dict[str, dict[str, Arm]] = {
    "dr-zero": {
        "self-play": Arm("dr-zero"),
        "gold": Arm("search-r1", "", GOLD),
        "majority": Arm("dr-zero", "majority", ("dr_zero.iterations=1",)),
    },
    "co-evolution": {
        "trained": weak(),
        "frozen": weak("proposer.frozen_after=0"),
        "trained, verified": weak(*VERIFIED),
        "frozen, verified": weak("proposer.frozen_after=0", *VERIFIED),
        "gold": Arm("search-r1", "", (*GOLD, "policy.model=tiny-weak", "run.steps=24")),
    },
    "ablations": {
        "dr-zero": dr_zero(),
        "twice the steps": dr_zero("", "dr_zero.proposer_steps=16", "dr_zero.solver_steps=24"),
        **{name: dr_zero(name) for name in TABLES},
    },
    "ssp": {
        "both": Arm("ssp"),
        **{name: Arm("ssp", name) for name in SSP_TABLES},
        "both, half the rate": Arm("ssp", "", ("learner.learning_rate=1.5e-4",)),
        "both, summed": Arm("ssp", "", SUMMED),
        "punitive, summed": Arm("ssp", "punitive", SUMMED),
    },
    # Are the questions of a proposer that stays as it was exhausted, and does one that learns keep the solver learning?
    # The paper pays a proposer for wrong answers, whoever is wrong; `uncertainty` pays nothing if all of them are.
    "long": {
        "frozen": Arm("ssp", "solver_only", LONG),
        "trained": Arm("ssp", "", LONG),
        "trained, by uncertainty": Arm("ssp", "", (*LONG, "proposer.difficulty=uncertainty")),
    },
    # `ssp` where the game is hard at first: no question is requested that one search answers.
    "hard": {
        "solver alone": Arm("ssp", "solver_only", HARD),
        "both": Arm("ssp", "", HARD),
    },
    # Its lever is the number of hops: it was shown 16 questions of one hop for one of four.
    "free": {
        "frozen": free("proposer.frozen_after=0"),
        "trained": free(),
        "frozen, longer": free("proposer.frozen_after=0", "dr_zero.iterations=8"),
        "trained, then frozen": free("proposer.frozen_after=1"),
        "trained, one policy": free("dr_zero.one_policy=true"),
        "trained, verified": free(*VERIFIED),
        "frozen, hops by hand": free("proposer.frozen_after=0", over=""),
        "gold": Arm("search-r1", "", FREE_GOLD),
    },
    "estimators": {"rf_grpo": few(), **{name: few(name) for name in ("grpo_grpo", "rf_rf", "grpo_rf")}},
}


def make_config(directory: Path, arm: Arm, seed: int, questions: int) -> TrainingSettings:
    worlds = directory / f"worlds-{seed}"
    train = worlds / ("train-large" if arm.system == "ssp" else "train")
    entities = SSP_ENTITIES if arm.system == "ssp" else ENTITIES
    make_world(train, "train", seed, TRAINING_QUESTIONS, TRAINING_HOPS, entities=entities)
    held_out = worlds / ("evaluation" if questions == QUESTIONS else f"evaluation-{questions}")
    make_world(held_out, "evaluation", seed, questions, EVALUATION_HOPS)
    options: dict[str, object] = {
        "search.index": str(train / "index"),
        "evaluation.index": str(held_out / "index"),
        "evaluation.path": str(held_out / "questions.jsonl"),
        "evaluation.limit": 200,
        "evaluation.every": 10,
        "run.seed": seed,
    }
    if arm.system == "search-r1":
        options["questions.path"] = str(train / "questions.jsonl")
    else:
        options["selfplay.world"] = str(train / "world.json")
    return load_settings(arm.recipes, system=arm.system, options=options, sets=arm.sets)


def examine(settings: TrainingSettings, checkpoint: Checkpoint | None) -> HeldOutScores:
    """All of the held-out questions, at the training temperature."""
    questions = read_questions(settings.evaluation.path, setting="evaluation.path")
    with Context(settings, checkpoint=checkpoint) as context:
        roller = context.solver(context.searched_held_out).at(settings.rollout.temperature)
        return asyncio.run(held_out_scores(questions, roller=roller, metric=context.metric, reward=context.reward))


def train(config: TrainingSettings, run: RunDirectory) -> dict[str, object]:
    """Train, examine, and gather what there is to show. A run that cannot continue is a result, too."""
    ended = ""
    with run.locked(), training_loop(config, run, notify=print) as loop:
        try:
            asyncio.run(loop.run())
        except EvoseekError as error:
            ended = str(error)
    checkpoint = latest_checkpoint(run.path)
    evaluation = examine(config, checkpoint)
    rows, timings = read_metrics(run.metrics), read_metrics(run.timings)
    return {
        "em": evaluation.score.mean,
        "n": len(evaluation.drawn),
        "rewards": dict(evaluation.rewards()),
        "interval": [evaluation.score.interval.low, evaluation.score.interval.high],
        "by_hops": {str(hops): score.mean for hops, score in evaluation.by_hops().items()},
        "seconds": sum(row.get("step/seconds") or 0.0 for row in timings),  # those of a run that was resumed, too
        "steps": checkpoint.step if checkpoint else 0,
        "rows": [kept(row) for row in rows],
        "timings": timings,
        "ended": ended,
    }


def kept(row: Mapping[str, float]) -> dict[str, float]:
    """What is kept of a step. `solver/trained_on` are the rollouts that the solver learns from, `solver/trainable` is
    the share of their questions whose attempts are not all worth the same. Kept twice it is the same."""
    numbers = {name: row[name] for name in ("step", *KEPT) if row.get(name) is not None}
    prefix = "solver/" if "solver/rollout/num" in row else ""
    only_proposes = "selfplay/iteration" in row and "selfplay/proposals" in row  # Dr. Zero's proposer learns, or writes
    if only_proposes or f"{prefix}rollout/num" not in row:
        return numbers
    told = {"solver/trained_on": row[f"{prefix}rollout/num"]}
    if (same := row.get(f"{prefix}frac_reward_zero_std")) is not None:
        told["solver/trainable"] = 1 - same
    return numbers | told


def first_and_last(result: dict, name: str) -> tuple[float, float] | None:
    """The mean of the first sixth of the steps that have such a number, and of the last."""
    values = [row[name] for row in result["rows"] if name in row]
    sixth = max(1, len(values) // 6)
    return (fmean(values[:sixth]), fmean(values[-sixth:])) if values else None


def change(results: list[dict], name: str) -> str:
    """First and last, as the mean of the seeds."""
    pairs = [pair for result in results if (pair := first_and_last(result, name))]
    return f"{fmean(a for a, _ in pairs):.2f} -> {fmean(b for _, b in pairs):.2f}" if pairs else "-"


def rollouts(result: dict) -> int:
    names = ("rollout/num", "solver/rollout/num", "proposer/rollout/num")
    return int(sum(row.get(name, 0) for row in result["rows"] for name in names))


CHANGES = (
    "selfplay/pass_rate/mean",
    "solver/trainable",
    *(f"selfplay/{name}" for name in ("valid_rate", "true_valid_rate", "true_hops/mean", "true_hops/entropy")),
)


def step_seconds(result: dict) -> list[float]:
    """Rollouts and learning of each step in which a proposer learns; evaluations are left out."""
    proposing = {r["step"] for r in result["rows"] if "proposer/rollout/num" in r and "selfplay/written" not in r}
    rows = (row for row in result["timings"] if row["step"] in proposing)
    return [(row.get("rollout/seconds") or 0.0) + (row.get("learner/seconds") or 0.0) for row in rows]


def probes(result: Mapping[str, list[dict[str, float]]]) -> list[tuple[int, float, float]]:
    """The held-out questions that are asked while a run goes on: after which step, the seconds of all steps up to it,
    and the score."""
    seconds = list(accumulate(row.get("step/seconds") or 0.0 for row in result["timings"]))
    clock = {row["step"]: after for row, after in zip(result["timings"], seconds, strict=True)}
    rows = (row for row in result["rows"] if "eval/reward" in row)
    return [(int(row["step"]), clock[row["step"]], row["eval/reward"]) for row in rows]


def at_seconds(result: Mapping[str, list[dict[str, float]]], seconds: float) -> float:
    """The last score of a run on the held-out questions, of those asked in its first so many seconds."""
    return [value for _, after, value in probes(result) if after <= seconds + 1e-6][-1]


def show(found: dict[tuple[str, str], dict[int, dict]], console: Console) -> None:
    table = Table("experiment", "arm", "held-out EM", "by seed, with 95 % intervals", "1, 2, 3, 4 hops")
    columns = ("pass rate", "trainable", "accepted", "true valid", "true hops", "entropy")
    for column in (*columns, "rollouts", "seconds", "of proposing", "a step"):
        table.add_column(column, justify="right")
    for (experiment, name), by_seed in found.items():
        results = [by_seed[seed] for seed in sorted(by_seed)]
        proposing = [step_seconds(result) for result in results]
        table.add_row(
            experiment,
            name + " *" * any(result["ended"] for result in results),
            f"{fmean(result['em'] for result in results):.3f}",
            "  ".join(f"{r['em']:.3f} [{r['interval'][0]:.2f}, {r['interval'][1]:.2f}]" for r in results),
            " ".join(f"{fmean(r['by_hops'][str(hops)] for r in results):.2f}" for hops in EVALUATION_HOPS),
            *(change(results, name) for name in CHANGES),
            f"{fmean(rollouts(result) for result in results):.0f}",
            f"{fmean(result['seconds'] for result in results):.0f}",
            f"{fmean(map(sum, proposing)):.0f}" if any(proposing) else "-",
            f"{median(s for steps in proposing for s in steps):.1f}" if any(proposing) else "-",
        )
    console.print(table)
    sizes = {str(result.get("n", QUESTIONS)) for by_seed in found.values() for result in by_seed.values()}
    for (experiment, name), by_seed in found.items():
        for seed, result in sorted(by_seed.items()):
            curve = "  ".join(f"{step} ({seconds:.0f}): {value:.2f}" for step, seconds, value in probes(result))
            console.print(f"{experiment}/{name}, seed {seed}, held-out (n = 200) by step (seconds): {curve}")
            for what in ("true_valid_rate", "true_hops/entropy", "requested_hops/entropy"):
                found_at = [
                    (row["step"], row[f"selfplay/{what}"]) for row in result["rows"] if f"selfplay/{what}" in row
                ]
                if found_at:
                    console.print(f"  {what}: " + "  ".join(f"{step}: {value:.2f}" for step, value in found_at))
            if result["ended"]:
                console.print(f"  * {result['ended']}")
    show_differences(found, console)
    console.print(
        f"n = {' or '.join(sorted(sizes))} a seed. 'pass rate' is the solver's at accepted questions, 'trainable' the "
        "share of the questions it is trained on that some of its attempts answer right and some do not, 'accepted' "
        "and 'true valid' are shares of all proposals: the first sixth of the steps -> the last. 'of proposing' are "
        "the seconds of the steps in which the proposer learns, 'a step' is their median."
    )


def show_differences(found: dict[tuple[str, str], dict[int, dict]], console: Console) -> None:
    """Each arm against the first of its experiment, on the same questions; the interval is Student's over the seeds."""
    for (experiment, name), by_seed in found.items():
        first = next(arm for kind, arm in found if kind == experiment)
        tests = [
            paired_test(*([result["rewards"][key] for key in base["rewards"]] for result in (base, by_seed[seed])))
            for seed, base in sorted(found[experiment, first].items())
            if name != first and seed in by_seed and "rewards" in base and "rewards" in by_seed[seed]
        ]
        if not tests:
            continue
        told = ", ".join(f"{test.difference:+.3f} (p = {test.p_value:.2g})" for test in tests)
        console.print(f"{experiment}: {name} - {first}, by seed: {told}; {over_seeds([t.difference for t in tests])}")
        pairs = [(by_seed[seed], base) for seed, base in sorted(found[experiment, first].items()) if seed in by_seed]
        at_once = [at_seconds(result, base["seconds"]) - at_seconds(base, base["seconds"]) for result, base in pairs]
        told = ", ".join(f"{difference:+.3f}" for difference in at_once)
        console.print(f"  after as many seconds as {first} took, by the probes: {told}; {over_seeds(at_once)}")


def over_seeds(values: Sequence[float]) -> str:
    """The mean, with Student's 95 % interval if there are several."""
    if len(values) == 1:
        return f"mean {values[0]:+.3f}"
    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return f"mean {fmean(values):+.3f} [{fmean(values) - half:+.3f}, {fmean(values) + half:+.3f}]"


PANELS = {
    "held-out exact match": "eval/reward",
    "trainable questions (share of those trained on)": "solver/trainable",
    "true valid questions (share of proposals)": "selfplay/true_valid_rate",
    "true hops (mean of the valid questions)": "selfplay/true_hops/mean",
    "solver's pass rate in the game": "selfplay/pass_rate/mean",
}
SMOOTHED = 10  # steps, where there is a value for each


def draw(found: dict[tuple[str, str], dict[int, dict]], path: Path) -> None:
    """A panel for each of PANELS over the solver's rollouts: an arm a colour, a pale line for each seed, and the mean
    of the seeds where they have values at the same numbers of rollouts."""
    figure = Figure(figsize=(14, 7), layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(2, 3).flat)
    for panel, (title, name) in zip(panels, PANELS.items(), strict=False):
        for (number, (_, arm)), by_seed in zip(enumerate(found), found.values(), strict=True):
            curves = [curve(result["rows"], name) for _, result in sorted(by_seed.items())]
            for x, y in curves:
                panel.plot(x, y, color=f"C{number}", alpha=0.3, linewidth=1)
            x = curves[0][0]
            if all(x == other for other, _ in curves):
                panel.plot(x, [fmean(ys) for ys in zip(*(y for _, y in curves), strict=True)], color=f"C{number}")
            panel.plot([], [], color=f"C{number}", label=arm)
        panel.set(title=title, xlabel="solver rollouts", ylim=(1, 4) if "hops" in name else (0, 1))
        panel.grid(alpha=0.3)
    panels[-1].axis("off")
    panels[-1].legend(*panels[0].get_legend_handles_labels(), loc="center")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def curve(rows: Sequence[Mapping[str, float]], name: str) -> tuple[list[float], list[float]]:
    """A metric over the solver's rollouts so far: the mean of all values at the same number of them, and of SMOOTHED
    steps if most steps have one."""
    so_far = accumulate(row.get("solver/trained_on", 0.0) for row in rows)
    found: dict[float, list[float]] = {}
    for x, row in zip(so_far, rows, strict=True):
        if name in row:
            found.setdefault(x, []).append(row[name])
    points = [(x, fmean(values)) for x, values in found.items()]
    width = SMOOTHED if len(points) > len(rows) / 2 else 1
    batches = [points[start : start + width] for start in range(0, len(points), width)]
    return [fmean(x for x, _ in batch) for batch in batches], [fmean(y for _, y in batch) for batch in batches]


def folder_of(directory: Path, experiment: str, name: str, seed: int) -> Path:
    return directory / f"{experiment}-{name.replace(', ', '-').replace(' ', '-')}-{seed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("runs/selfplay"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", default=list(EXPERIMENTS), metavar="EXPERIMENT[/ARM]")
    parser.add_argument("--table", action="store_true", help="only print what there is")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="held-out questions of a seed")
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="draw the curves of what there is")
    options = parser.parse_args()
    console = Console(width=240)
    chosen = [
        (experiment, name, arm)
        for experiment, arms in EXPERIMENTS.items()
        for name, arm in arms.items()
        if experiment in options.only or f"{experiment}/{name}" in options.only
    ]
    for seed in options.seeds:
        for experiment, name, arm in chosen:
            folder = folder_of(options.directory, experiment, name, seed)
            if options.table or (folder / "result.json").exists():
                continue
            try:
                config = make_config(options.directory, arm, seed, options.questions)
                result = train(config, RunDirectory(folder / "run"))
            except EvoseekError as error:  # another process is at it, or it cannot begin
                console.print(f"{experiment}/{name}, seed {seed}: {error}")
                continue
            write_atomic(folder / "result.json", json.dumps(result))
            console.print(f"{experiment}/{name}, seed {seed}: {result['em']:.3f}, {result['seconds']:.0f} s")
    found: dict[tuple[str, str], dict[int, dict]] = {}
    for experiment, name, _ in chosen:
        for seed in options.seeds:
            path = folder_of(options.directory, experiment, name, seed) / "result.json"
            if path.exists():
                result = json.loads(path.read_text())
                rows = [kept(row) for row in result["rows"]]  # of an older result, too
                found.setdefault((experiment, name), {})[seed] = {**result, "rows": rows}
    show(found, console)
    if options.picture and found:
        draw(found, options.picture)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
