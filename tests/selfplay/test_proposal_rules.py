"""The full rules on the bench's proposals: what bench/proposal_rules.py prints, held to what the rules are for."""

import json
from pathlib import Path
from runpy import run_path

import pytest

from evoseek.selfplay.filters import RuleFilter

BENCH = Path(__file__).parents[2] / "bench"
proposal = run_path(str(BENCH / "proposal_rules.py"))["proposal"]


def rejected(rows: list[dict[str, str]], rules: RuleFilter) -> float:
    return sum(rules(proposal(row)) is not None for row in rows) / len(rows)


@pytest.mark.parametrize("half", ["dev", "test"])
def test_most_of_the_bad_proposals_and_hardly_a_good_one_are_rejected(half: str) -> None:
    rows = [json.loads(line) for line in (BENCH / "proposal_rules" / f"{half}.jsonl").read_text().splitlines()]
    good = [row for row in rows if row["kind"] == "good"]
    bad = [row for row in rows if row["kind"] != "good"]
    assert (len(good) >= 100, len(bad) >= 250, len({row["language"] for row in rows}) >= 11) == (True, True, True)
    assert rejected(bad, RuleFilter(rules="full")) >= 0.9
    assert rejected(good, RuleFilter(rules="full")) <= 0.03
    assert rejected(bad, RuleFilter()) < 0.5
    assert rejected(good, RuleFilter()) > 0.3
