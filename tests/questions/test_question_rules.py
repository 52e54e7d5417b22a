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


FULL = RuleFilter(rules="full")


@pytest.mark.parametrize("half", LISTS)
def test_most_of_the_bad_proposals_and_hardly_a_good_one_are_rejected(half: str) -> None:
    rows = [row for row in rows_of(half) if row["language"] in ("en", "de")]
    good = [row for row in rows if row["kind"] == "good"]
    bad = [row for row in rows if row["kind"] != "good"]
    assert (len(good) >= 18, len(bad) >= 38) == (True, True)
    assert rejected(bad, FULL) >= 0.86
    assert rejected(good, FULL) <= 0.06
    assert rejected(bad, RuleFilter()) < 0.5


@pytest.mark.parametrize("half", LISTS)
def test_in_other_languages_hardly_a_good_one_with_a_mark_is_rejected(half: str) -> None:
    rows = [row for row in rows_of(half) if row["language"] not in ("en", "de")]
    good = [row for row in rows if row["kind"] == "good" and row["question"].rstrip()[-1] in "?？؟;"]
    assert len({row["language"] for row in rows}) >= 6
    assert rejected([row for row in rows if row["kind"] != "good"], FULL) >= 0.37
    assert rejected(good, FULL) <= 0.03


def test_the_basic_rules_take_words_of_scripts_without_spaces_for_short_questions() -> None:
    assert all(
        rejected([row for row in rows_of(half) if row["kind"] == "good"], RuleFilter()) > 0.3 for half in LISTS[:2]
    )


def test_the_halves_of_the_third_list_share_no_row() -> None:
    halves = [{(row["kind"], row["question"]) for row in rows_of(half)} for half in LISTS[2:]]
    assert not halves[0] & halves[1]
    assert [len(half) for half in halves] == [228, 228]
