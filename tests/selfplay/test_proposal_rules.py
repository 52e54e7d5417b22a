"""The full rules on the bench's proposals: what bench/proposal_rules.py prints, held to what the rules are for."""

from pathlib import Path
from runpy import run_path

import pytest

from evoseek.selfplay.filters import RuleFilter

BENCH = Path(__file__).parents[2] / "bench"
MODULE = run_path(str(BENCH / "proposal_rules.py"))
proposal, rows_of, LISTS = MODULE["proposal"], MODULE["rows_of"], MODULE["LISTS"]


def rejected(rows: list[dict[str, str]], rules: RuleFilter) -> float:
    return sum(rules(proposal(row)) is not None for row in rows) / len(rows)


@pytest.mark.parametrize("half", LISTS)
def test_most_of_the_bad_proposals_and_hardly_a_good_one_are_rejected(half: str) -> None:
    rows = rows_of(half)
    good = [row for row in rows if row["kind"] == "good"]
    bad = [row for row in rows if row["kind"] != "good"]
    assert (len(good) >= 76, len(bad) >= 150, len({row["language"] for row in rows}) >= 8) == (True, True, True)
    assert rejected(bad, RuleFilter(rules="full")) >= 0.9
    assert rejected(good, RuleFilter(rules="full")) <= 0.03
    assert rejected(bad, RuleFilter()) < 0.5


def test_the_basic_rules_take_words_of_scripts_without_spaces_for_short_questions() -> None:
    assert all(
        rejected([row for row in rows_of(half) if row["kind"] == "good"], RuleFilter()) > 0.3 for half in LISTS[:2]
    )


def test_the_halves_of_the_third_list_share_no_row() -> None:
    halves = [{(row["kind"], row["question"]) for row in rows_of(half)} for half in LISTS[2:]]
    assert not halves[0] & halves[1]
    assert [len(half) for half in halves] == [228, 228]
