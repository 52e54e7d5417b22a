"""The outcomes of proposals, and what each of them means."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from evoseek.selfplay.filters import Rejection

VALID = "valid"
_FAILED = "failed/"
MEANINGS: Mapping[str, str] = {
    VALID: "a question; those beyond the requested number are kept for later",
    Rejection.UNFINISHED: "the proposer did not come to an answer",
    Rejection.NO_QUESTION: "no question was stated",
    Rejection.NO_ANSWER: "no answer was stated",
    Rejection.TOO_SHORT: "fewer words than filters.min_words, or too few characters",
    Rejection.TOO_LONG: "more characters than a question may have",
    Rejection.ANSWER_IN_QUESTION: "the question contains its answer",
    Rejection.NO_SEARCH: "no search was made",
    Rejection.REPEATED_QUERY: "the same search was made twice",
    Rejection.OTHER_ANSWER: "the answer is not the required one",
    Rejection.ANSWER_TOO_LONG: "the answer has more words than a name, a date or a title",
    Rejection.INSTRUCTIONS: "orders to a model, tags of roles or tools, or addresses to call",
    Rejection.TEMPLATE: "fields, blanks or labels were left in the question, or the answer gives none",
    Rejection.REFERS: "the question refers to a text that is not shown with it",
    Rejection.NOISE: "symbols, repetition, or letters without a word",
    Rejection.MIXED: "the question mixes languages, or has another one than the passages",
    Rejection.NOT_A_QUESTION: "nothing is asked",
    Rejection.TWO_QUESTIONS: "more than one thing is asked",
    Rejection.CUT_OFF: "the question ends before its end",
    Rejection.VAGUE: "the question names nothing that could be looked for",
    Rejection.TIME_DEPENDENT: "the answer changes with the day on which it is asked",
    Rejection.SENTENCE: "the answer is a statement",
    Rejection.MISFIT: "yes or no to more than that, or none of the alternatives that were offered",
    Rejection.UNSUPPORTED: "no passage that the proposer saw contains the answer",
    Rejection.DUPLICATE: "another question is the same, or too much like it",
    Rejection.UNVERIFIED: "a reader of the proposer's passages does not come to the answer",
    Rejection.CLOSED_BOOK: "a reader without any passage comes to the answer",
    Rejection.AMBIGUOUS: "readers come to another answer as often",
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
