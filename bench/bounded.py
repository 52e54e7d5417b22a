"""Wrong answers promised and held: a bound is set on some sets of people's questions, and tried on another.

    python bench/bounded.py DIRECTORY [--at-most 0.05 0.1 0.2 0.3] [--confidence 0.95] [--metric NAME]

DIRECTORY is what `bench/people.py` wrote. For every row that answered at least two sets, each set in turn is held out:
the bound (`eval/risk.py`) is set on each of the others, and on all others together. A row of the table:

    set on     the sets, their supported answers, and the wrong ones among these
    shown      the certainty above which answers are shown; `-` where nothing is promised
    held       of what is then shown on the held-out set, the share that is wrong, with Wilson's interval
    at a price of the held-out set's questions, the share that gets an answer, and the share without a bound

Short answers are right by the guarded match, and answers of sentences from an F1 of 0.7; --metric replaces both.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from evoseek.agent.bound import Bound
from evoseek.eval.draw import Sample
from evoseek.eval.folder import EvaluationFolder
from evoseek.eval.risk import Judged, bound, judged
from evoseek.eval.statistics import wilson_interval
from people import LONG, SHORT

HEAD = ("row", "held out", "set on", "at most", "shown", "held", "at a price of")


def evaluations(directory: Path) -> dict[str, dict[str, list[Sample]]]:
    """The samples of every finished evaluation, by row and set."""
    found: dict[str, dict[str, list[Sample]]] = {}
    for results in sorted(directory.glob("*/*/results.json")):
        name = results.parent.parent.name.rpartition("-")[0]
        found.setdefault(results.parent.name, {})[name] = list(EvaluationFolder(results.parent).samples().values())
    return {row: sets for row, sets in found.items() if len(sets) > 1}


def answers(samples: Sequence[Sample], metric: str | None) -> list[Judged]:
    """The supported answers, each right or wrong by the metric of its kind."""
    return [one for sample in samples for one in judged([sample], metric or (LONG if sample.is_long else SHORT))]


def tries(
    sets: Mapping[str, Sequence[Sample]], at_most: Sequence[float], confidence: float, metric: str | None
) -> Iterator[tuple[str, ...]]:
    """The rows of one answerer, without its name."""
    every = {name: answers(samples, metric) for name, samples in sets.items()}
    for out in sets:
        others = [name for name in sets if name != out]
        for chosen in ([name] for name in others) if len(others) == 1 else (*([one] for one in others), others):
            own = [one for name in chosen for one in every[name]]
            for share in at_most:
                made = bound(own, share, sum(len(sets[name]) for name in chosen), confidence)
                wrong = sum(one.is_wrong for one in own)
                about = f"{' + '.join(chosen)} ({len(own)}, {wrong} wrong)"
                yield out, about, f"{share:.0%}", *held(made, every[out], len(sets[out]))


def held(made: Bound | None, every: Sequence[Judged], questions: int) -> tuple[str, str, str]:
    """What a bound shows of the answers, how much of that is wrong, and at which price."""
    shown = [one for one in every if made is not None and made.shows(one.certainty)]
    price = f"{len(shown) / questions:.2f}, without {len(every) / questions:.2f}"
    if made is None:
        return "-", "", price
    wrong = sum(one.is_wrong for one in shown)
    interval = wilson_interval(wrong, len(shown))
    said = f"{wrong} of {len(shown)} [{interval.low:.2f}, {interval.high:.2f}]"
    return "all" if made.above is None else f"> {made.above:.3f}", said, price


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--at-most", nargs="+", type=float, default=[0.05, 0.1, 0.2, 0.3])
    parser.add_argument("--confidence", type=float, default=0.95)
    parser.add_argument("--metric")
    given = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |\n" + "|" + " --- |" * len(HEAD))
    for row, sets in evaluations(given.directory).items():
        for cells in tries(sets, given.at_most, given.confidence, given.metric):
            print("| " + " | ".join((row, *cells)) + " |")


if __name__ == "__main__":
    main()
