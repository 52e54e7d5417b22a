"""The table of people's questions: untouched models, trained runs and endpoints that answer from documents.

    python bench/people.py DIRECTORY --documents sqlite=FOLDER postgres=FOLDER tv_manual=FOLDER clapnq=FOLDER
        [--model NAME ...] [--run RUN ...] [--endpoint NAME@URL ...] [--limit 30] [--settings KEY=VALUE ...]

Each question is searched and answered as `evoseek ask` does, greedily, in the environment `search_first`. The first
row is the first passage that a search finds, without any model. A RUN is a run directory. It is compared with the model
that it was trained from, if that has a row. Each set has an index of its own in DIRECTORY, of passages of at most 100
words with English stems. Each evaluation is what `evoseek eval --out` writes, so the same command resumes, and `evoseek
compare` takes any two. --limit takes so many questions of each set, spread over it.

The rows are added to DIRECTORY/people.jsonl, and all that are there are printed as a table:

    right      guarded match of short answers; F1 with the reference of answers in sentences
    read       questions whose evidence is among what was read
    cited      of those, the share of the cited passages that are the evidence's; 0 without a citation
    refused    unanswerable questions among what was refused (precision), and refused ones among these (recall)
    wrong      of what the check of evidence lets through, what is not right; unanswerable questions count as wrong
    shown      unanswerable questions that it lets through
    seconds    for a question, with the loading of the model
    against    a run minus its model, on answerable questions (right) and unanswerable ones (refused), paired

All intervals are of 95 %: Wilson's, for graded scores with their dispersion.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from evoseek.assembly.inputs import read_questions
from evoseek.eval.comparison import compare
from evoseek.eval.draw import Sample, content_digest
from evoseek.eval.results import ending_of, score_of, shown_of, value_of
from evoseek.eval.statistics import wilson_interval
from evoseek.models.source import origin
from evoseek.questions.questions import evidence_of, recall
from evoseek.run import Run
from evoseek.search.indexing import IndexPlan, build_index
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.files import write_atomic
from evoseek.text.normalization import METRICS
from evoseek.types import Question

BENCH = Path(__file__).parent
PLAN = IndexPlan(max_words=100, stemming="english")
SHORT, LONG = "guarded_substring_match", "f1"
FIRST_HIT = "first hit"
HEAD = ("set", "row", "n", "right", "exact", "F1", "read", "cited", "refused", "wrong", "shown", "seconds", "against")


@dataclass(frozen=True, slots=True)
class PeopleSet:
    """A set of questions. `questions` is the file; where it lies among the documents, it is relative to their folder.
    `metric` says what is right, `source` how to get the documents."""

    name: str
    questions: str
    documents: str
    metric: str
    source: str

    def files(self, folder: Path) -> tuple[Path, Path]:
        """The file of questions, and the folder of documents."""
        return folder / self.questions, folder / self.documents


SETS = (
    PeopleSet("git", str(BENCH / "git/questions.jsonl"), ".", SHORT, "see bench/git/README.md; chooses prompts"),
    PeopleSet("sqlite", str(BENCH / "sqlite/questions.jsonl"), ".", SHORT, "see bench/sqlite/README.md"),
    PeopleSet("postgres", str(BENCH / "postgres/questions.jsonl"), ".", SHORT, "see bench/postgres/README.md"),
    PeopleSet(
        "tv_manual", "questions.jsonl", "documents", LONG,
        "the manual of https://github.com/abhi1nandy2/EMNLP-2021-Findings, as questions.jsonl and documents/",
    ),
    PeopleSet(
        "clapnq", "questions.jsonl", "documents", LONG,
        "ClapNQ's dev set (https://github.com/primeqa/clapnq), as questions.jsonl and documents/",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answering:
    """What answers: the name of its row, its settings, and the run directory, if it is one."""

    name: str
    settings: Mapping[str, object]
    run: Path | None = None

    @property
    def base(self) -> str | None:
        """The model that a run was trained from."""
        return origin(str(self.run)) if self.run else None

    def evaluate(self, questions: Sequence[Question], index: Path, out: Path) -> tuple[Sample, ...]:
        """The samples of the questions, what `out` lacks of them being drawn."""
        options = {**self.settings, "search.index": str(index), "evaluation.temperature": 0.0}
        config = [self.run / "config.json"] if self.run else []
        # what a run was evaluated on is not what is asked here
        options |= {"evaluation.index": "", "evaluation.path": ""} if self.run else {}
        agent = Run(directory=self.run, config=config, settings=options, console=Console(quiet=True))
        return agent.evaluate(questions, out=out).results.samples


def spread(questions: Sequence[Question], limit: int | None) -> list[Question]:
    """So many of the questions, at equal distances (None: all of them)."""
    number = min(limit or len(questions), len(questions))
    return [questions[(2 * place + 1) * len(questions) // (2 * number)] for place in range(number)]


def first_hits(questions: Iterable[Question], index: LexicalIndex) -> Iterator[Sample]:
    """What a search finds first for each question, as if it were the answer; it holds a golden answer or not."""
    for question in questions:
        found, golden = index.find(question.text, 1), question.golden_answers
        text = found[0].text if found else ""
        scores = {name: metric(text, golden) if golden else 0.0 for name, metric in METRICS.items()}
        scores[SHORT] = scores["substring_match"]
        yield Sample(
            question.id, 0, content_digest(question), scores, "answered", text, answerable=question.is_answerable,
            recall=recall(evidence_of(question), found), supported=bool(found),
            is_long=question.is_answerable and question.is_long,
        )  # fmt: skip


def row(samples: Sequence[Sample], metric: str) -> dict[str, Any]:
    """The numbers of a row, by what is right."""
    answerable = [sample for sample in samples if sample.answerable]
    short = [sample for sample in answerable if not sample.is_long]
    long = [sample for sample in answerable if sample.is_long] or short
    others = [sample for sample in samples if not sample.answerable]
    refused = [sample for sample in samples if ending_of(sample, metric) == "refused"]
    rightly = sum(not sample.answerable for sample in refused)
    shown = [shown_of(sample, SHORT) for sample in short]
    let_through = sum(bool(sample.supported) for sample in others)
    wrong, every = shown.count("shown_wrong") + let_through, let_through + len(shown) - shown.count("not_shown")
    known = [sample for sample in answerable if sample.recall is not None]
    read = [sample for sample in known if sample.recall]
    return {
        "n": len(answerable),
        "unanswerable": len(others),
        **{name: _mean([value_of(one, name) for one in short]) for name in (SHORT, "exact_match")},
        LONG: _mean([value_of(one, LONG) for one in long]),
        "read": _share(len(read), len(known)),
        "cited": _mean([sample.cited for sample in read if sample.cited is not None]),
        "refusals_right": _share(rightly, len(refused)),
        "refused": _share(rightly, len(others)),
        "wrong_shown": _share(wrong, every) if metric == SHORT else None,
        "unanswerable_shown": _share(let_through, len(others)),
    }


def _mean(values: list[float]) -> tuple[float, float, float] | None:
    if not values:
        return None
    scored = score_of(values)
    return scored.mean, scored.interval.low, scored.interval.high


def _share(part: int, whole: int) -> tuple[float, float, float] | None:
    if not whole:
        return None
    interval = wilson_interval(part, whole)
    return part / whole, interval.low, interval.high


def against(before: Sequence[Sample], after: Sequence[Sample], metric: str) -> dict[str, float]:
    """What a run gains on answerable questions over the model that it was trained from, and what on others."""
    found: dict[str, float] = {}
    for name, is_answerable, by in (("answerable", True, metric), ("unanswerable", False, SHORT)):
        pair = {
            side: {
                one.question: value_of(one, by)
                for one in samples
                if one.answerable is is_answerable and one.is_long is (is_answerable and by == LONG)
            }
            for side, samples in (("before", before), ("after", after))
        }
        if pair["before"]:
            [one] = compare(pair, by)
            found |= {name: one.difference, f"{name}_low": one.interval.low, f"{name}_high": one.interval.high}
            found[f"{name}_p"] = one.p_value
    return found


def table(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The rows as lines of Markdown."""
    yield "| " + " | ".join(HEAD) + " |"
    yield "|" + " --- |" * len(HEAD)
    for one in rows:
        numbers = [_shown(one[key]) for key in (one["metric"], "exact_match", LONG, "read", "cited")]
        refused = " / ".join(_shown(one[key], bounds=False) for key in ("refusals_right", "refused"))
        compared, seconds = one.get("against") or {}, one.get("seconds")
        differences = [
            f"{compared[kind]:+.2f} [{compared[f'{kind}_low']:+.2f}, {compared[f'{kind}_high']:+.2f}], "
            f"p = {compared[f'{kind}_p']:.2g}"
            for kind in ("answerable", "unanswerable")
            if kind in compared
        ]
        cells = (
            one["set"], one["row"], f"{one['n']} + {one['unanswerable']}", *numbers, refused,
            *(_shown(one[key]) for key in ("wrong_shown", "unanswerable_shown")),
            "-" if seconds is None else f"{seconds:.1f}", "; ".join(differences),
        )  # fmt: skip
        yield "| " + " | ".join(cells) + " |"


def _shown(value: Sequence[float] | None, *, bounds: bool = True) -> str:
    if value is None:
        return "-"
    return f"{value[0]:.2f} [{value[1]:.2f}, {value[2]:.2f}]" if bounds else f"{value[0]:.2f}"


def wordings(path: Path) -> Mapping[str, str]:
    """Whose words each question uses, of a set that says so."""
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {one["id"]: one["wording"] for one in rows if "wording" in one}


Key = tuple[str, str, int | None]
"""A row: its set, its name and the limit of questions."""


def saved(path: Path) -> dict[Key, dict[str, Any]]:
    """The rows that are there."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {(one["set"], one["row"], one["limit"]): one for one in map(json.loads, lines)}


def rows_of(
    people: PeopleSet, folder: Path, directory: Path, answering: Sequence[Answering], limit: int | None
) -> Iterator[dict[str, Any]]:
    """The rows of a set: of each that answers over all questions, and of one with wordings by these. Without `seconds`
    where nothing was drawn."""
    file, documents = people.files(folder)
    index = directory / "indexes" / people.name
    if not index.exists():
        build_index(documents, index, PLAN, console=Console(stderr=True))
    questions = spread(read_questions(str(file), setting="evaluation.path"), limit)
    kinds, every = wordings(file), dict[str, Sequence[Sample]]()
    for one in (None, *answering):
        name, begun, is_there = one.name if one else FIRST_HIT, time.monotonic(), False
        if one is None:
            samples: Sequence[Sample] = tuple(first_hits(questions, LexicalIndex.open(index)))
        else:
            out = directory / f"{people.name}-{limit or 'all'}" / name.replace("/", "_")
            is_there = (out / "results.json").exists()
            samples = one.evaluate(questions, index, out)
        seconds = (time.monotonic() - begun) / len(questions)
        timed = {} if is_there else {"seconds": seconds}
        every[name] = samples
        about = {"set": people.name, "row": name, "metric": people.metric, "limit": limit}
        base = every.get(one.base or "") if one else None
        compared = against(base, samples, people.metric) if base else None
        yield {**about, **row(samples, people.metric), **timed, "against": compared}
        for wording in dict.fromkeys(kinds.values()):
            part = [sample for sample in samples if kinds.get(sample.question) == wording]
            if part:
                yield {**about, "set": f"{people.name}, {wording}", **row(part, people.metric)}


def answerers(given: argparse.Namespace) -> list[Answering]:
    """What the options name, models first, since runs are compared with them."""
    own: dict[str, object] = dict(text.split("=", 1) for text in given.settings)
    named = [Answering(name, {"policy.model": name, **own}) for name in given.model]
    named += [Answering(str(run), own, run) for run in given.run]
    for text in given.endpoint:
        name, _, url = text.partition("@")
        named.append(Answering(name, {"answerer.model": name, "answerer.base_url": url, **own}))
    return named


def main() -> None:
    """Evaluate what is missing, write the rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--documents", nargs="+", default=[], metavar="SET=FOLDER")
    parser.add_argument("--model", nargs="+", default=[])
    parser.add_argument("--run", nargs="+", type=Path, default=[])
    parser.add_argument("--endpoint", nargs="+", default=[], metavar="NAME@URL")
    parser.add_argument("--settings", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--limit", type=int, default=None)
    given = parser.parse_args()
    folders = dict(text.split("=", 1) for text in given.documents)
    path = given.directory / "people.jsonl"
    found = saved(path)
    for people in SETS:
        folder = folders.get(people.name)
        if folder is None or not all(path.exists() for path in people.files(Path(folder))):
            print(f"{people.name}: no documents ({people.source}). Give --documents {people.name}=FOLDER.")
            continue
        for one in rows_of(people, Path(folder), given.directory, answerers(given), given.limit):
            key = one["set"], one["row"], one["limit"]
            found[key] = {"seconds": found.get(key, {}).get("seconds"), **one}
            write_atomic(path, "".join(json.dumps(every) + "\n" for every in found.values()))
            print(f"{one['set']}, {one['row']}: {_shown(one[people.metric])}", flush=True)
    print("\n".join(table(found.values())))


if __name__ == "__main__":
    main()
