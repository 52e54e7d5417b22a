"""Twenty conversations of four turns: right answers with and without rewriting the questions that continue them.

    python bench/followups.py --model NAME [--index FOLDER] [--settings KEY=VALUE ...]

Documents and conversations are in `bench/followups/`. Turns after the first leave out what they are about. The messages
before a turn are the questions as asked and the golden answers, so all arms continue the same conversation:

    as asked     the question is searched as it stands, and the model gets the conversation
    rewritten    the model rewrites it first, as `evoseek ask` and `serve agent` do (`Answerer.rewriter`)
    alone        the question as a person wrote it to stand alone, without a conversation: what can be reached

For each arm: right answers by the guarded match, those that the check of evidence shows, and turns whose document was
found, of the 60 later turns, with Wilson's intervals, and the same of the 20 first ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from evoseek.agent.answer import Answered, Answerer
from evoseek.eval.statistics import wilson_interval
from evoseek.run import Run
from evoseek.search.indexing import IndexPlan, build_index
from evoseek.text.normalization import METRICS
from evoseek.types import Message

FOLDER = Path(__file__).parent / "followups"
ARMS = ("as asked", "rewritten", "alone")


@dataclass(frozen=True, slots=True)
class Turn:
    """A question inside a conversation, and the same question as one that stands alone."""

    question: str
    alone: str
    golden_answers: Sequence[str]
    evidence: Sequence[str]


def conversations() -> list[list[Turn]]:
    """The turns of each conversation."""
    lines = (FOLDER / "conversations.jsonl").read_text(encoding="utf-8").splitlines()
    return [[Turn(**turn) for turn in json.loads(line)["turns"]] for line in lines]


def index(folder: Path) -> Path:
    """Build the index of the documents there."""
    build_index(FOLDER / "documents", folder, IndexPlan(stemming="english"), console=Console(quiet=True))
    return folder


async def answered(answerer: Answerer, arm: str) -> Mapping[tuple[int, int], tuple[Turn, Answered]]:
    """The answers of an arm, by conversation and turn."""
    found: dict[tuple[int, int], tuple[Turn, Answered]] = {}
    answerer = answerer if arm == "rewritten" else replace(answerer, rewriter=None)
    for number, turns in enumerate(conversations()):
        history: list[Message] = []
        for place, turn in enumerate(turns):
            asked, before = (turn.alone, []) if arm == "alone" else (turn.question, history)
            answer = await answerer.answer(asked, f"{arm}/{number}/{place}", history=before)
            found[number, place] = turn, answer
            history += [Message("user", turn.question), Message("assistant", turn.golden_answers[0])]
    return found


def counted(answers: Sequence[tuple[Turn, Answered]]) -> dict[str, int]:
    """How many answers are right, right and shown, and how many turns found their document."""
    right = [is_right(turn, one) for turn, one in answers]
    shown = [one.answer is not None for _, one in answers]
    found = [{id for p in one.trajectory.passages for id in p.documents} & {*turn.evidence} for turn, one in answers]
    both = sum(map(all, zip(right, shown, strict=True)))
    return {"right": sum(right), "right and shown": both, "found": sum(map(bool, found))}


def is_right(turn: Turn, answer: Answered) -> bool:
    """Whether an answer is right by the guarded match."""
    return METRICS["guarded_substring_match"](answer.trajectory.answer or "", turn.golden_answers) == 1.0


def table(answerer: Answerer) -> Iterator[str]:
    """The rows of all arms."""
    yield "| arm | turns | right | right and shown | found | seconds a turn |\n|" + " --- |" * 6
    for arm in ARMS:
        begun = time.monotonic()
        every = asyncio.run(answered(answerer, arm))
        seconds = (time.monotonic() - begun) / len(every)
        for name, is_first in (("later", False), ("first", True)):
            own = [one for (_, place), one in every.items() if (place == 0) is is_first]
            cells = []
            for count in counted(own).values():
                interval = wilson_interval(count, len(own))
                cells.append(f"{count / len(own):.2f} [{interval.low:.2f}, {interval.high:.2f}]")
            yield f"| {arm} | {name} ({len(own)}) | " + " | ".join(cells) + f" | {seconds:.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--index", type=Path)
    parser.add_argument("--settings", nargs="+", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    own: dict[str, object] = dict(text.split("=", 1) for text in given.settings)
    with tempfile.TemporaryDirectory() as folder:
        searched = given.index or index(Path(folder) / "index")
        run = Run(settings={"policy.model": given.model, "search.index": str(searched), **own})
        with run.context() as context:
            for line in table(Answerer.of(context)):
                print(line, flush=True)


if __name__ == "__main__":
    main()
