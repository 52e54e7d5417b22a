"""Demonstrations for `evoseek sft` from a folder of real text with questions, by patterns.

The folder holds `corpus.jsonl` (id, title, text: the first paragraphs of Wikipedia articles) and `train.jsonl`
(question, golden_answers, kind, evidence: the titles of the articles needed), as can be made from the public data of
2WikiMultihopQA (Ho et al. 2020). Kinds of one hop: director, birth date, birth place; of two: director birth date,
director birth place, director nationality, comparison (which of two films came first).

    evoseek index FOLDER/corpus.jsonl INDEX --max-words 40
    python bench/wiki2_demonstrations.py FOLDER demonstrations.jsonl --index INDEX --top-k 2 \\
        --count director=110 --count "birth date=110" --count "director birth date=130" --stop-early 0.7

A demonstration is written only if each of its searches finds a passage with what its next thought says; the others are
counted. With --stop-early a share of those of two hops answers after the first search, mostly wrongly: to go on is then
left to reinforcement learning.
"""

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evoseek.questions.demonstrations import DemonstratedTurn, Demonstration, demonstration_row
from evoseek.questions.questions import parse_question
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.files import write_atomic
from evoseek.types import Passage

Find = Callable[[str], Sequence[Passage]]
Row = Mapping[str, object]

FILM_QUERIES = ("{0}", "{0} film", "{0} director")
FACTS = {  # of a person: the queries for it
    "birth date": ("{0}", "{0} born"),
    "birth place": ("{0}", "{0} born"),
    "nationality": ("{0}", "{0} nationality"),
}
SAYS = {  # how a thought says a fact
    "director": "The director is {1}.",
    "birth date": "{0} was born on {1}.",
    "birth place": "{0} was born in {1}.",
    "nationality": "{0} is {1}.",
}
KINDS = ("director", "birth date", "birth place", *(f"director {fact}" for fact in FACTS), "comparison")
_FILM = re.compile(r"^Who directed the film (.+)\?$|the director of the film (.+?)(?: born)?\?$")
_PERSON = re.compile(r"^(?:When|Where) was (.+) born\?$")
_FILMS = re.compile(r"^Which film came out first, .+\?$")
_YEAR = re.compile(r"\b(?:18|19|20)\d\d\b")


class NotFoundError(Exception):
    """A search finds no passage with what is needed."""


class Demonstrator:
    """Writes demonstrations of questions; `find` gives the passages of a query as the policy will see them."""

    def __init__(self, find: Find, stop_early: float, rng: random.Random) -> None:
        self.find, self.stop_early, self.rng = find, stop_early, rng

    def write(self, row: Row) -> tuple[Demonstration, bool]:
        """The demonstration of a question, and whether it stops early. Raises NotFoundError."""
        kind = str(row["kind"])
        if kind == "comparison":
            turns, stops = self._comparison(row)
        elif kind == "director":
            turns, stops = self._director(row), False
        elif kind.startswith("director "):
            turns, stops = self._of_director(row, kind.removeprefix("director "))
        else:
            turns, stops = self.fact(_name(_PERSON, row), kind, _golds(row), ""), False
        return Demonstration(parse_question(row, "1"), tuple(turns)), stops

    def _director(self, row: Row) -> list[DemonstratedTurn]:
        film = _name(_FILM, row)
        query, director = self._found(FILM_QUERIES, film, _golds(row))
        return [
            DemonstratedTurn(query=query),
            DemonstratedTurn(SAYS["director"].format(film, director), answer=director),
        ]

    def _of_director(self, row: Row, fact: str) -> tuple[list[DemonstratedTurn], bool]:
        film, director = _name(_FILM, row), _plain(_evidence(row)[1])
        query, _ = self._found(FILM_QUERIES, film, [director])
        first, thought = DemonstratedTurn(query=query), SAYS["director"].format(film, director)
        later = self.fact(director, fact, _golds(row), thought)
        if self.rng.random() < self.stop_early:
            return [first, DemonstratedTurn(thought, answer=director)], True
        return [first, *later], False

    def fact(self, person: str, fact: str, golds: Sequence[str], thought: str) -> list[DemonstratedTurn]:
        """A thought and the search for a fact, then the answer. Raises NotFoundError."""
        query, value = self._found(FACTS[fact], person, golds)
        said = SAYS[fact].format(person, value)
        return [DemonstratedTurn(thought, query=query), DemonstratedTurn(said, answer=value)]

    def _comparison(self, row: Row) -> tuple[list[DemonstratedTurn], bool]:
        if not _FILMS.match(str(row["question"])):
            raise NotFoundError
        films = sorted(_evidence(row), key=lambda film: str(row["question"]).find(_plain(film)))
        searched = [(self._year(film), _plain(film)) for film in films]
        (query, year), name = searched[0]
        turns, thought = [DemonstratedTurn(query=query)], f"{name} came out in {year}."
        if self.rng.random() < self.stop_early:
            return [*turns, DemonstratedTurn(thought, answer=name)], True
        (query, year), name = searched[1]
        turns.append(DemonstratedTurn(thought, query=query))
        return [*turns, DemonstratedTurn(f"{name} came out in {year}.", answer=_golds(row)[0])], False

    def _year(self, film: str) -> tuple[str, str]:
        """A query, and the year in the passage of that title that it finds."""
        query = self.rng.choice(FILM_QUERIES[:2]).format(_plain(film))
        for passage in self.find(query):
            if passage.title == film and (year := _YEAR.search(passage.text)):
                return query, year[0]
        raise NotFoundError

    def _found(self, queries: Sequence[str], name: str, wanted: Sequence[str]) -> tuple[str, str]:
        """A query, and which of the wanted texts a passage holds that it finds."""
        query = self.rng.choice(queries).format(name)
        texts = [passage.text for passage in self.find(query)]
        value = next((value for value in wanted if any(value in text for text in texts)), None)
        if value is None:
            raise NotFoundError
        return query, value


def write_demonstrations(
    rows: Sequence[Row], counts: Mapping[str, int], demonstrator: Demonstrator
) -> tuple[list[Demonstration], Mapping[str, Counter[str]]]:
    """As many of each kind as wanted, in the order of the rows, and by kind what became of them."""
    written: list[Demonstration] = []
    told = {kind: Counter[str]() for kind in counts}
    for row in rows:
        kind = str(row["kind"])
        if kind not in counts or told[kind]["written"] >= counts[kind]:
            continue
        try:
            demonstration, stops = demonstrator.write(row)
        except NotFoundError:
            told[kind]["not found"] += 1
            continue
        written.append(demonstration)
        told[kind].update({"written": 1, "stop early": int(stops)})
    return written, told


def _golds(row: Row) -> list[str]:
    return list(parse_question(row, "1").golden_answers)


def _evidence(row: Row) -> list[str]:
    return list(row["evidence"])  # pyright: ignore[reportArgumentType]


def _plain(title: str) -> str:
    """A title without what tells it from others of the same name."""
    return re.sub(r" \([^()]*\)$", "", title)


def _name(pattern: re.Pattern[str], row: Row) -> str:
    found = pattern.search(str(row["question"]))
    if found is None:
        raise NotFoundError
    return next(group for group in found.groups() if group)


def _count(text: str) -> tuple[str, int]:
    kind, _, number = text.partition("=")
    if kind not in KINDS or not number.isdigit():
        raise argparse.ArgumentTypeError(f"expected KIND=NUMBER with a kind of {', '.join(KINDS)}, got {text!r}")
    return kind, int(number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--top-k", type=int, default=3)
    parser.add_argument("--count", type=_count, action="append", help="KIND=NUMBER; default: 50 of each kind")
    parser.add_argument("--stop-early", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    index, rng = LexicalIndex.open(options.index), random.Random(options.seed)
    rows = [json.loads(line) for line in (options.folder / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    rng.shuffle(rows)
    counts = dict(options.count or [(kind, 50) for kind in KINDS])
    demonstrator = Demonstrator(lambda query: index.find(query, options.top_k), options.stop_early, rng)
    written, told = write_demonstrations(rows, counts, demonstrator)
    rng.shuffle(written)
    lines = (json.dumps(demonstration_row(one), ensure_ascii=False) + "\n" for one in written)
    write_atomic(options.out, "".join(lines))
    for kind, found in told.items():
        print(
            f"{kind}: {found['written']} of {counts[kind]} written, {found['stop early']} of them stop early; left out "
            f"because the index did not find the passage: {found['not found']}"
        )
    print(f"{len(written)} demonstrations are in {options.out}.")


if __name__ == "__main__":
    main()
