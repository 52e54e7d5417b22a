"""Self-play of a real model on real text, on two CPU cores: SmolLM2-135M-Instruct and Dr. Zero, without a question.

The folder is what `bench/wiki2_demonstrations.py` describes. A seed has a warm start of both roles on demonstrations by
patterns (`bench/wiki2_proposals.py`, sft/smollm2) and from it, for each arm, one iteration of dr-zero/smollm2:

    trained   the proposer learns in its phase
    frozen    it does not; all else is the same
    gold      there is none: search-r1/smollm2 has as many steps on the questions of train.jsonl, as many of one hop as
              of two, and searches all articles. Settings given by --set are its own, too, but for those of the game.

No article that a question of dev.jsonl needs is demonstrated or played with: the game has a corpus of its own, of those
passages about films and their directors that state what `bench/wiki2_facts.py` knows. (--whole, with an OUT of its
own, plays on all passages: of these few can begin a question of two hops. The table then says how many questions of
dev.jsonl were written, which is none otherwise.)

Every policy then answers all held-out questions with the index of all articles: sampled at temperature 1, greedily, and
without search. The proposals of the first and the last proposer step and those of the writing steps are judged by what
the articles state, and 50 of an arm are written to ARM-proposals.jsonl, to be judged by hand: put true or false at
`by_hand`, and the table says how often the rules agree.

    python bench/selfplay_real.py FOLDER OUT                          everything (hours)
    python bench/selfplay_real.py FOLDER OUT --only trained --seeds 0
    python bench/selfplay_real.py FOLDER OUT --table                  what there is

What is done is not done again, and a run that was interrupted is resumed.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from evoseek.assembly.context import Context
from evoseek.assembly.inputs import read_questions
from evoseek.assembly.sources import load_settings
from evoseek.cli.learning_demo import measure
from evoseek.eval.statistics import paired_test, wilson_interval
from evoseek.questions.questions import load_questions
from evoseek.rollout.environments import task_of
from evoseek.rollout.record import TrajectoryRecord, read_trajectories
from evoseek.search.lexical import LexicalIndex
from evoseek.selfplay.filters import stated
from evoseek.storage.files import write_atomic
from evoseek.storage.metrics import read_metrics
from evoseek.storage.runs import RunDirectory
from evoseek.types import Scored
from real_learning import call, rows_of, run
from wiki2_facts import Facts, Verdict, key, parse
from wiki2_proposals import evidence, questions

ARMS: Mapping[str, tuple[str, ...]] = {"trained": (), "frozen": ("proposer.frozen_after=0",), "gold": ()}
GAME = ("dr_zero.", "selfplay.", "proposer.", "filters.", "verification.")  # settings without a meaning for gold
VERDICTS: tuple[Verdict, ...] = ("right", "wrong", "unknown", "other")
BY_HAND = 50  # proposals
WORDS = 40  # of a passage
HOPS: Mapping[int | None, str] = {None: "all", 1: "1 hop", 2: "2 hops"}
Scores = Mapping[str, Sequence[Mapping[str, float]]]  # the rows of each way to answer
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Options:
    """Settings over the recipes', and what the smoke test makes smaller."""

    counts: Sequence[str]
    sets: Sequence[str]
    held_out: int | None
    whole: bool


class Bench:
    """The work of a seed in a folder of its own."""

    def __init__(self, data: Path, out: Path, seed: int, options: Options) -> None:
        self.data, self.out, self.folder, self.seed, self.options = data, out, out / f"seed{seed}", seed, options
        self.index = out / "index"

    def warm_start(self) -> Path:
        """The run of supervised fine-tuning, of both roles."""
        if not self.index.exists():
            run("index", self.data / "corpus.jsonl", self.index, "--max-words", WORDS)
        demonstrations = self.folder / "demonstrations.jsonl"
        if not demonstrations.exists():
            counts = [part for count in self.options.counts for part in ("--count", count)]
            given = ("--index", self.index, "--top-k", 2, "--seed", self.seed, *counts)
            call(sys.executable, HERE / "wiki2_proposals.py", self.data, demonstrations, *given)
        long = ("--set", "rollout.max_tokens_per_turn=96")  # as many as a proposal may have
        given = ("--demonstrations", demonstrations, "--index", self.index, "--model", "smollm2-135m", *long)
        return self._train("sft", "sft", "--config", "sft/smollm2", *given)

    def play(self, arm: str) -> Path:
        """The run of an arm."""
        start = self.warm_start()
        if arm == "gold":
            sets = gold_settings(self.options.sets)
            questions = ("--index", self.index, "--questions", self.data / "train.jsonl")
            command = ("search-r1", "--config", "search-r1/smollm2", *questions)
        else:
            sets = [*ARMS[arm], *self.options.sets]
            corpus = self.index if self.options.whole else self._game()
            command = ("dr-zero", "--config", "dr-zero/smollm2", "--corpus", corpus)
        return self._train(arm, "train", *command, "--model", start, *options(sets))

    def _game(self) -> Path:
        """The index of the passages that are played with."""
        index = self.out / "game-index"
        if not index.exists():
            corpus = self.out / "game.jsonl"
            write_game(LexicalIndex.open(self.index), self.facts(), evidence([self.data / "dev.jsonl"]), corpus)
            run("index", corpus, index, "--max-words", WORDS)
        return index

    def facts(self) -> Facts:
        """What the articles state."""
        return Facts.read(self.data / "corpus.jsonl")

    def _train(self, name: str, *command: object) -> Path:
        """Begin a run, or resume it."""
        directory = self.folder / name
        if not (directory / "done").exists():
            begun = (directory / "config.json").exists()
            given = ("train",) if begun else (*command, "--seed", self.seed)
            run(*given, "--run-dir", directory)
            write_atomic(directory / "done", "")
        return directory

    def examine(self, name: str) -> None:
        """Score a policy on the held-out questions and judge its proposals, unless that is done."""
        done = self.folder / f"{name}.json"
        if done.exists():
            return
        directory = self.warm_start() if name == "sft" else self.play(name)
        held_out = read_questions(str(self.data / "dev.jsonl"), setting="dev.jsonl")[: self.options.held_out]
        given = {
            "search.index": str(self.index),
            "questions.path": str(self.data / "dev.jsonl"),
            "policy.model": str(directory),
            "lora.rank": 0,  # an arm may have trained an adapter, which no other goes over
            "run.seed": self.seed,
        }
        with Context(load_settings(Path("search-r1/smollm2"), options=given)) as context:
            scores = measure(context, held_out)
        found: dict[str, object] = {"scores": {kind: rows_of(evaluation) for kind, evaluation in scores.items()}}
        if name not in ("sft", "gold"):
            found |= self._judged(RunDirectory(directory), name)
        seconds = sum(row.get("step/seconds") or 0.0 for row in read_metrics(RunDirectory(directory).timings))
        write_atomic(done, json.dumps({**found, "minutes": seconds / 60}))

    def _judged(self, directory: RunDirectory, name: str) -> dict[str, object]:
        """The proposals by step, what became of them, and the texts of the questions that the solver learnt from."""
        facts, phases = self.facts(), load_settings(directory.config).dr_zero
        proposals = [
            {"phase": phases.place(record.step).phase, **proposal_of(record, facts)}
            for record in read_trajectories(directory.trajectories)
            if record.trajectory.role == "proposer"
        ]
        some = random.Random(self.seed).sample(proposals, min(BY_HAND, len(proposals)))
        lines = (json.dumps({**row, "by_hand": None}, ensure_ascii=False) + "\n" for row in some)
        write_atomic(self.folder / f"{name}-proposals.jsonl", "".join(lines))
        kept = ("phase", "step", "requested", "hops", "rejected", "by_rules")
        few = [{name: row[name] for name in kept} for row in proposals]
        return {"proposals": few, "written": [question.text for question in load_questions(directory.questions)]}


def options(sets: Sequence[str]) -> list[str]:
    """These settings on a command line."""
    return [part for one in sets for part in ("--set", one)]


def gold_settings(sets: Sequence[str]) -> list[str]:
    """Those that are not of the game, and as many steps as the solver has in self-play."""
    phases = load_settings(Path("dr-zero/smollm2"), sets=tuple(sets)).dr_zero
    own = [one for one in sets if not one.startswith(GAME)]
    steps = f"run.steps={phases.iterations * phases.solver_steps}"
    return [*own, steps, "questions.balance_by=hops", "questions.shares={1=1, 2=1}"]


def write_game(index: LexicalIndex, facts: Facts, left_out: set[str], out: Path) -> None:
    """The passages about films whose director has an article, and about these people, that state a known fact."""
    titles = {title for row in questions(facts, left_out) if row["hops"] == 2 for title in row["evidence"]}
    rows: list[dict[str, str]] = []
    for passage in index.passages():
        values = [value for values in facts.by_title.get(passage.title, {}).values() for value in values]
        if passage.title in titles and any(value in passage.text for value in values):
            rows.append({"id": passage.id, "title": passage.title, "text": passage.text})
    write_atomic(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def proposal_of(record: TrajectoryRecord, facts: Facts) -> dict[str, object]:
    """A proposal as a person judges it, and what the rules say: `hops` are those of the question as it is worded (0: in
    other words than the judge's), `rejected` is the game's own reason ("failed" for a failure outside the policies)."""
    proposal, outcome = record.trajectory, record.outcome
    question, answer = stated(proposal)
    asked = parse(question)
    parts = outcome.parts if isinstance(outcome, Scored) else {"rejected/failed": 1.0}
    rejected = next((name.removeprefix("rejected/") for name in parts if name.startswith("rejected/")), "")
    return {
        "step": record.step,
        "requested": task_of(proposal.question).requested,
        "passage": proposal.question.text,
        "searches": [
            {"query": result.call.arguments.get("query"), "found": [passage.contents for passage in result.passages]}
            for result in proposal.tool_results
        ],
        "question": question,
        "answer": answer,
        "rejected": rejected,
        "hops": 0 if asked is None else 2 if asked[0].startswith("director ") else 1,
        "by_rules": facts.judge(question, answer),
    }


def score(rows: Sequence[Mapping[str, float]], hops: int | None = None) -> str:
    """The mean, of all rows with its interval."""
    rewards = [row["reward"] for row in rows if hops in (None, row["hops"])]
    if not rewards:
        return "-"
    interval = wilson_interval(round(sum(rewards)), len(rewards))
    return f"{fmean(rewards):.3f}" + (f" [{interval.low:.3f}, {interval.high:.3f}]" if hops is None else "")


def gain(before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]]) -> str:
    """The paired difference of the same questions."""
    test = paired_test([row["reward"] for row in before], [row["reward"] for row in after])
    return f"{test.difference:+.3f}, p = {test.p_value:.1g}"


def against(before: Scores, after: Scores, kind: str) -> str:
    """The paired differences of two arms, of all questions and by hops."""
    pairs = {
        hops: [[row for row in arm[kind] if hops in (None, row["hops"])] for arm in (before, after)] for hops in HOPS
    }
    return kind + ", " + ", ".join(f"{name} {gain(*pairs[hops])}" for hops, name in HOPS.items() if pairs[hops][0])


def scores_table(files: Mapping[tuple[str, str], Mapping[str, object]]) -> Table:
    """Held-out scores, and the paired difference of the sampled ones to the warm start."""
    names = [f"{kind}, {way}" for kind in ("sampled", "greedy") for way in HOPS.values()]
    table = Table("policy", "seed", *names, "no search", "searches 1 / 2 hops", "gain", "of dev", "min")
    for (seed, name), found in files.items():
        sampled, greedy, alone = found["scores"].values()
        start = files.get((seed, "sft"))
        searches = (
            f"{fmean([row['searches'] for row in sampled if row['hops'] == hops] or [0]):.2f}" for hops in (1, 2)
        )
        written = {key(text) for text in found.get("written", ())}
        table.add_row(
            name,
            seed,
            *(score(rows, hops) for rows in (sampled, greedy) for hops in HOPS),
            score(alone).split()[0],
            " / ".join(searches),
            gain(start["scores"]["sampled"], sampled) if start and name != "sft" else "-",
            str(sum(key(row["question"]) in written for row in sampled)),
            f"{found['minutes']:.0f}",
        )
    return table


def proposals_table(files: Mapping[tuple[str, str], Mapping[str, object]]) -> Table:
    """The proposals of the first and the last step that trains the proposer, and of the writing steps: shares by the
    rules of all proposals, and of those that the game accepted."""
    table = Table("arm", "seed", "step", "n", *VERDICTS, "hops kept", "accepted", "right of these", "most rejected")
    for (seed, name), found in files.items():
        for label, rows in _phases(found.get("proposals", ())).items():
            accepted = [row for row in rows if not row["rejected"]]
            by_rules = Counter(row["by_rules"] for row in rows)
            reasons = Counter(row["rejected"] for row in rows if row["rejected"]).most_common(2)
            table.add_row(
                name,
                seed,
                label,
                str(len(rows)),
                *(f"{by_rules[verdict] / len(rows):.2f}" for verdict in VERDICTS),
                f"{fmean(row['hops'] == row['requested'] for row in rows):.2f}",
                f"{len(accepted) / len(rows):.2f}",
                f"{fmean([row['by_rules'] == 'right' for row in accepted] or [0]):.2f}",
                ", ".join(f"{reason} {count}" for reason, count in reasons),
            )
    return table


def _phases(rows: Sequence[Mapping[str, object]]) -> dict[str, list[Mapping[str, object]]]:
    """The proposals of the first and the last step that trains, and those of all steps that write."""
    training = [int(str(row["step"])) for row in rows if row["phase"] == "propose"]
    phases = {
        "first": [row for row in rows if training and row["step"] == min(training)],
        "last": [row for row in rows if training and row["step"] == max(training)],
        "writing": [row for row in rows if row["phase"] == "write"],
    }
    return {label: found for label, found in phases.items() if found}


def show(out: Path, console: Console) -> None:
    """What there is."""
    files = {
        (folder.name.removeprefix("seed"), name): json.loads((folder / f"{name}.json").read_text())
        for folder in sorted(out.glob("seed*"))
        for name in ("sft", *ARMS)
        if (folder / f"{name}.json").exists()
    }
    console.print(scores_table(files))
    for (seed, name), found in files.items():
        if name not in ("sft", "trained") and (trained := files.get((seed, "trained"))):
            told = (against(found["scores"], trained["scores"], kind) for kind in ("sampled", "greedy"))
            console.print(f"seed {seed}, trained - {name}: {'; '.join(told)}")
    console.print(proposals_table(files))
    for path in sorted(out.glob("seed*/*-proposals.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        judged = [row for row in rows if row["by_hand"] is not None]
        if judged:
            agree = sum((row["by_rules"] == "right") == row["by_hand"] for row in judged)
            right = sum(row["by_hand"] for row in judged)
            console.print(f"{path}: by hand {right} of {len(judged)} right; the rules agree on {agree}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", choices=("sft", *ARMS), default=("sft", *ARMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--whole", action="store_true", help="play on all passages")
    parser.add_argument("--count", action="append", default=[], help="GROUP=NUMBER of wiki2_proposals.py")
    parser.add_argument("--set", action="append", default=[], help="a setting of self-play over the recipe's")
    parser.add_argument("--held-out", type=int, help="only so many held-out questions")
    parser.add_argument("--table", action="store_true", help="only show what there is")
    given = parser.parse_args()
    console = Console(width=200)
    if not given.table:
        for seed in given.seeds:
            bench = Bench(given.folder, given.out, seed, Options(given.count, given.set, given.held_out, given.whole))
            bench.folder.mkdir(parents=True, exist_ok=True)
            for name in ("sft", *(name for name in given.only if name != "sft")):
                bench.examine(name)
    show(given.out, console)


if __name__ == "__main__":
    main()
