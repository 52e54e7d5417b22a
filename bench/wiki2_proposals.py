"""Demonstrations of both roles of Dr. Zero from a corpus alone, by patterns: a proposer's and a solver's.

The folder holds `corpus.jsonl` (`bench/wiki2_demonstrations.py` describes it); what is asked is what
`bench/wiki2_facts.py` finds in it. Question files only say what to leave out: nothing is demonstrated about an article
that is evidence of a question in FOLDER/dev.jsonl or in a file given with --leave-out, nor about a film of the same
director, or that director.

    evoseek index FOLDER/corpus.jsonl INDEX --max-words 40
    python bench/wiki2_proposals.py FOLDER demonstrations.jsonl --index INDEX --top-k 2 --seed 0

    proposer 1   a passage and a question of one hop: a film's director, a person's birth date or birth place
    proposer 2   a film's passage, a search for its director, and a question about that person that names the film
    solver 1     a question of one hop and the search that answers it
    solver 2     one of two hops; a share of them (--stop-early) answers after the first search, mostly wrongly

The kinds of questions of a group are as equal in number as the corpus allows. A demonstration is written only if each
of its searches finds a passage of the right article with what its next thought says; the others are counted.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from evoseek.questions.demonstrations import (
    DemonstratedTurn,
    Demonstration,
    ProposerDemonstration,
    demonstration_row,
)
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.files import write_atomic
from evoseek.types import Passage
from wiki2_demonstrations import SAYS, Demonstrator, Find, NotFoundError, Row
from wiki2_facts import QUESTIONS, Facts, key, plain

COUNTS = {"proposer 1": 150, "proposer 2": 150, "solver 1": 200, "solver 2": 100}
ONE_HOP = ("director", "birth date", "birth place")


def questions(facts: Facts, left_out: set[str]) -> list[Row]:
    """A question of each kind about each article for which it has one answer: no other article has the name."""
    people = _people_left_out(facts, left_out)
    rows: list[Row] = []
    for title, stated in facts.by_title.items():
        name, director = plain(title), stated.get("director", ("",))[0]
        if _title_of(facts, name) != title or key(director or name) in people or title in left_out:
            continue
        rows += [_row(kind, name, stated[kind], title) for kind in ONE_HOP if kind in stated]
        if director and (person := _title_of(facts, director)):
            about = facts.by_title[person].items()
            rows += [
                _row(f"director {kind}", name, golds, title, person) for kind, golds in about if kind != "director"
            ]
    return rows


def _row(kind: str, name: str, golds: Sequence[str], *evidence: str) -> Row:
    question = QUESTIONS[kind].format(name)
    found = {"question": question, "golden_answers": list(golds), "kind": kind, "hops": len(evidence)}
    return {"id": question, **found, "evidence": list(evidence)}


def _title_of(facts: Facts, name: str) -> str | None:
    """The only article of that name."""
    titles = facts.titles.get(key(name), [])
    return titles[0] if len(titles) == 1 else None


def _people_left_out(facts: Facts, left_out: set[str]) -> set[str]:
    """The people among the articles that are left out, and the directors of the films among them."""
    directors = {facts.by_title.get(title, {}).get("director", (title,))[0] for title in left_out}
    return {key(plain(name)) for name in (*left_out, *directors)}


@dataclass(frozen=True)
class Writer:
    """Writes a question down as a demonstration of a role. `find` is the search; `passages` are those of each title."""

    find: Find
    passages: Mapping[str, Sequence[Passage]]
    stop_early: float
    rng: random.Random

    def write(self, role: str, row: Row) -> Demonstration | ProposerDemonstration:
        """Raises NotFoundError."""
        if role == "proposer":
            return self._propose(row)
        return self._demonstrator(row).write(row)[0]

    def _propose(self, row: Row) -> ProposerDemonstration:
        kind, (title, *others) = str(row["kind"]), row["evidence"]
        first = kind if not others else "director"
        values = [plain(others[0])] if others else row["golden_answers"]
        passage, value = self._shown(title, values)
        thought = SAYS[first].format(plain(title), value)
        turns = [DemonstratedTurn(thought, answer=value)]
        if others:
            fact = kind.removeprefix("director ")
            turns = self._demonstrator(row).fact(plain(others[0]), fact, row["golden_answers"], thought)
        turns[-1] = replace(turns[-1], question=str(row["question"]))
        return ProposerDemonstration(str(row["id"]), passage, int(row["hops"]), tuple(turns))

    def _shown(self, title: str, values: Sequence[str]) -> tuple[Passage, str]:
        """A passage of the article with one of these texts, and which it is."""
        for passage in self.passages.get(title, ()):
            if value := next((value for value in values if value in passage.text), None):
                return passage, value
        raise NotFoundError

    def _demonstrator(self, row: Row) -> Demonstrator:
        """For which only the passages of the right articles count as found."""

        def find(query: str) -> list[Passage]:
            return [passage for passage in self.find(query) if passage.title in row["evidence"]]

        return Demonstrator(find, self.stop_early, self.rng)


def write_group(
    name: str, count: int, rows: Sequence[Row], writer: Writer
) -> tuple[list[Demonstration | ProposerDemonstration], Counter[str]]:
    """As many of a group as wanted, its kinds in turn, and how many there are of each kind or were not found."""
    role, hops = name.split()
    written: list[Demonstration | ProposerDemonstration] = []
    told = Counter[str]()
    for row in _in_turn([row for row in rows if row["hops"] == int(hops)], writer.rng):
        if len(written) == count:
            break
        try:
            written.append(writer.write(role, row))
            told[str(row["kind"])] += 1
        except NotFoundError:
            told["not found"] += 1
    return written, told


def _in_turn(rows: Sequence[Row], rng: random.Random) -> Iterator[Row]:
    """The rows in random order, one of each kind after another as long as there are some."""
    kinds: dict[object, list[Row]] = {}
    for row in rng.sample(rows, len(rows)):
        kinds.setdefault(row["kind"], []).append(row)
    return (row for turn in zip_longest(*(kinds[kind] for kind in sorted(kinds, key=str))) for row in turn if row)


def evidence(paths: Sequence[Path]) -> set[str]:
    """The titles of the articles that the questions of these files need."""
    rows = (json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines())
    return {title for row in rows for title in row["evidence"]}


def _count(text: str) -> tuple[str, int]:
    group, _, number = text.partition("=")
    if group not in COUNTS or not number.isdigit():
        raise argparse.ArgumentTypeError(f"expected GROUP=NUMBER with a group of {', '.join(COUNTS)}, got {text!r}")
    return group, int(number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--top-k", type=int, default=2)
    parser.add_argument("--count", type=_count, action="append", default=[], help=f"GROUP=NUMBER; default: {COUNTS}")
    parser.add_argument("--stop-early", type=float, default=0.7)
    parser.add_argument("--leave-out", type=Path, action="append", default=[], help="further files of questions")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    index = LexicalIndex.open(options.index)
    passages: dict[str, list[Passage]] = {}
    for passage in index.passages():
        passages.setdefault(passage.title, []).append(passage)
    left_out = evidence([options.folder / "dev.jsonl", *options.leave_out])
    rows = questions(Facts.read(options.folder / "corpus.jsonl"), left_out)
    written: list[Demonstration | ProposerDemonstration] = []
    for name, count in (COUNTS | dict(options.count)).items():
        rng = random.Random(f"{options.seed}/{name}")
        writer = Writer(lambda query: index.find(query, options.top_k), passages, options.stop_early, rng)
        group, told = write_group(name, count, rows, writer)
        written += group
        print(f"{name}: {len(group)} of {count} ({', '.join(f'{kind}: {number}' for kind, number in told.items())})")
    random.Random(options.seed).shuffle(written)
    write_atomic(options.out, "".join(json.dumps(demonstration_row(one), ensure_ascii=False) + "\n" for one in written))
    print(f"{len(written)} demonstrations are in {options.out}; {len(left_out)} articles were left out.")


if __name__ == "__main__":
    main()
