"""The outcomes of proposals, and what each of them means."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from evoseek.selfplay.filters import Rejection

VALID = "valid"
_FAILED = "failed/"
MEANINGS: Mapping[str, str] = {
    VALID: "a question; those beyond the requested number are kept for later",
    **{rejection: rejection.meaning for rejection in Rejection},
}
"""What each outcome of a proposal means."""


def failed(reason: str) -> str:
    """The outcome of a proposal that failed for reasons outside the policies."""
    return _FAILED + reason


def outcomes_table(counts: Mapping[str, int]) -> Table:
    """The outcomes of all proposals, the most frequent first."""
    table = Table("proposals", "", "share", "what it means", title="Outcomes of the proposals")
    total = sum(counts.values())
    for outcome, count in sorted(counts.items(), key=lambda item: (item[0] != VALID, -item[1], item[0])):
        meaning = "its game could not be finished" if outcome.startswith(_FAILED) else MEANINGS[outcome]
        table.add_row(outcome, str(count), f"{count / total:.1%}", meaning)
    return table


def outcomes_text(counts: Mapping[str, int]) -> str:
    """The number of proposals so far, and the share of valid ones."""
    total = sum(counts.values())
    return f"{total} proposals, valid {counts.get(VALID, 0) / total:.1%}"
