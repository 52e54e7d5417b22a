"""How many bad proposals the rules reject, and how many good ones: by kind, by rule and by language.

The data are in bench/proposal_rules: proposals in many languages with the passage that their proposer saw. `test` was
written before any rule, the rules were tuned on `dev`, and what `test` shows is no longer held out. `third` was written
later, in eight languages, by one author: the rules were tuned on its rows 1, 3, 5, ... (`third-seen`), and not on the
others (`third-unseen`). The rules know words of English and German; other languages show what marks, scripts and
evidence alone reject. Intervals are Wilson's, 95 %.

    python bench/proposal_rules.py                           all lists, full rules
    python bench/proposal_rules.py --rules basic             the rules that generated worlds keep
    python bench/proposal_rules.py --questions FILE ... [--corpus FILE]     wrongly rejected among real questions
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

from evoseek.questions.outcomes import Rejection
from evoseek.selfplay.filters import RuleFilter
from evoseek.types import Action, Passage, ProposerTask, Question, StopReason, Trajectory

DATA = Path(__file__).parent / "proposal_rules"
LISTS = ("dev", "test", "third-seen", "third-unseen")
GOOD = "good"
Row = dict[str, str]


def proposal(row: Row) -> Trajectory:
    """As a proposer would have ended that was shown the passage."""
    passage = Passage("p#0", "p", row.get("title", ""), row.get("text", ""))
    source = Passage(passage.id, passage.id, passage.title, passage.text) if passage.text else None
    return Trajectory(
        id="p",
        question=Question("t", passage.contents, (), task=ProposerTask(1, source, bool(source))),
        role="proposer",
        segments=(),
        actions=(Action("", answer=row["answer"], question=row["question"]),),
        tool_results=(),
        stop_reason=StopReason.ANSWERED,
        answer=row["answer"],
    )


def share(part: int, whole: int) -> str:
    """A share with its 95 % interval."""
    if not whole:
        return "-"
    low, high = binomtest(part, whole).proportion_ci(method="wilson")
    return f"{part}/{whole} = {part / whole:.1%} [{low:.1%}, {high:.1%}]"


def table(title: str, rows: list[Row], rejections: list[Rejection | None], key: str) -> Table:
    """Shares rejected of the rows with equal `key`, and by which rules."""
    result = Table(key, "rejected", "by rule", title=title)
    for value in dict.fromkeys(row[key] for row in rows):
        reasons = Counter(
            rejection for row, rejection in zip(rows, rejections, strict=True) if row[key] == value and rejection
        )
        whole = sum(row[key] == value for row in rows)
        by_rule = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        result.add_row(value, share(reasons.total(), whole), by_rule)
    return result


def report(console: Console, name: str, rows: list[Row], rules: RuleFilter, show: bool) -> None:
    """Both shares of a half, with their tables."""
    rows = sorted(rows, key=lambda row: row["kind"] == GOOD)
    rejections = [rules(proposal(row)) for row in rows]
    bad = [index for index, row in enumerate(rows) if row["kind"] != GOOD]
    good = [index for index, row in enumerate(rows) if row["kind"] == GOOD]
    console.print(table(f"{name}, by kind", rows, rejections, "kind"))
    for title, part in (("bad", bad), ("good", good)):
        chosen, rejection = [rows[index] for index in part], [rejections[index] for index in part]
        console.print(table(f"{name}, {title}, by language", chosen, rejection, "language"))
        console.print(f"{name}: {title} ones rejected: {share(sum(map(bool, rejection)), len(part))}\n")
    if show:
        for row, rejection in zip(rows, rejections, strict=True):
            if (rejection is None) != (row["kind"] == GOOD):
                print(row["language"], row["kind"], rejection, "|", row["question"], "|", row["answer"])


def rows_of(name: str) -> list[Row]:
    """The rows of a list, or of a half of one."""
    file, _, half = name.partition("-")
    rows = [json.loads(line) for line in (DATA / f"{file}.jsonl").read_text().splitlines()]
    return rows[half == "unseen" :: 2] if half else rows


def real_questions(file: Path, corpus: Path | None) -> list[Row]:
    """Questions of a file in FlashRAG's shape with their first answers; the documents of the corpus that they name as
    `evidence` are the passage."""
    texts = dict[str, str]()
    for line in corpus.read_text().splitlines() if corpus else []:
        document = json.loads(line)
        texts[document["title"]] = document["text"]
    rows = list[Row]()
    for line in map(json.loads, file.read_text().splitlines()):
        text = "\n".join(f"{title}\n{texts[title]}" for title in line.get("evidence", ()) if title in texts)
        kind = line.get("kind", "-")
        rows.append(
            {
                "kind": GOOD,
                "language": kind,
                "text": text,
                "question": line["question"],
                "answer": line["golden_answers"][0],
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", choices=("basic", "full"), default="full")
    parser.add_argument("--half", choices=LISTS, nargs="*", default=LISTS)
    parser.add_argument("--questions", type=Path, nargs="*", default=[])
    parser.add_argument("--corpus", type=Path, help="of those questions, for the rules that need evidence")
    parser.add_argument("--show", action="store_true", help="list the proposals that were judged wrongly")
    arguments = parser.parse_args()
    console, rules = Console(width=150), RuleFilter(rules=arguments.rules)
    for file in arguments.questions:
        report(console, file.name, real_questions(file, arguments.corpus), rules, arguments.show)
    for half in [] if arguments.questions else arguments.half:
        report(console, half, rows_of(half), rules, arguments.show)


if __name__ == "__main__":
    main()
