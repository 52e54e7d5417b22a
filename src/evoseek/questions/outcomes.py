"""The outcomes of proposals, and what each of them means."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from rich.table import Table

REJECTED = "rejected/"
"""Prefix of the part of a proposer's reward that names the rule by which a proposal was rejected."""


class Rejection(StrEnum):
    """Why a proposal yields no question, with the meaning. The rules up to OTHER_ANSWER are the basic ones, the rules
    up to UNSUPPORTED the full ones, in the order of checking."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """Make a member from its value in records and its meaning for people."""
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    UNFINISHED = "unfinished", "the proposer did not reach an answer"
    NO_QUESTION = "no_question", "no question was stated"
    NO_ANSWER = "no_answer", "no answer was stated, or only punctuation and articles"
    TOO_SHORT = "too_short", "fewer words than filters.min_words, or too few characters"
    TOO_LONG = "too_long", "more characters than a question may have, or more tokens than a rollout of the solver has"
    ANSWER_IN_QUESTION = "answer_in_question", "the question contains its answer"
    NO_SEARCH = "no_search", "too few searches were made"
    REPEATED_QUERY = "repeated_query", "the same search was made twice"
    OTHER_ANSWER = "other_answer", "the answer differs from the one that the task gave"

    ANSWER_TOO_LONG = "answer_too_long", "the answer has more words than a name, a date or a title"
    INSTRUCTIONS = "instructions", "the question addresses a model: instructions, tags of roles or tools, addresses"
    TEMPLATE = "template", "fields, blanks or labels were left in the question, or the answer gives none"
    REFERS = "refers_to_passage", "the question refers to a text that the solver cannot see"
    NOISE = "noise", "symbols, repetition, or letters without a word"
    MIXED = "mixed_languages", "the question mixes languages or scripts, or has another one than the passages"
    NOT_A_QUESTION = "not_a_question", "nothing is asked"
    TWO_QUESTIONS = "two_questions", "more than one thing is asked"
    CUT_OFF = "cut_off", "the question is cut off"
    VAGUE = "vague", "the question names nothing that could be searched for"
    TIME_DEPENDENT = "time_dependent", "the answer changes with the day on which it is asked"
    SENTENCE = "answer_is_sentence", "the answer is a statement"
    MISFIT = "answer_misfits", "the answer does not fit: yes or no to an open question, or not one of the choices"
    UNSUPPORTED = "unsupported", "no passage that the proposer saw contains the answer"

    DUPLICATE = "duplicate", "another question, or one of the test set, is the same or nearly so"
    UNVERIFIED = "unverified", "a reader given the proposer's passages finds a different answer"
    CLOSED_BOOK = "closed_book", "a reader without any passage finds the answer"
    AMBIGUOUS = "ambiguous", "readers give another answer as often"


VALID = "valid"
_FAILED = "failed/"
MEANINGS: Mapping[str, str] = {
    VALID: "a question; those beyond the requested number are kept for later",
    **{rejection: rejection.meaning for rejection in Rejection},
}
"""The meaning of each outcome of a proposal."""


def failed(reason: str) -> str:
    """Return the outcome of a proposal that failed for reasons outside the policies."""
    return _FAILED + reason


def outcomes_table(counts: Mapping[str, int]) -> Table:
    """Make a table of the outcomes of all proposals, most frequent first."""
    table = Table("proposals", "", "share", "what it means", title="Outcomes of the proposals")
    total = sum(counts.values())
    for outcome, count in sorted(counts.items(), key=lambda item: (item[0] != VALID, -item[1], item[0])):
        meaning = "its game could not be finished" if outcome.startswith(_FAILED) else MEANINGS[outcome]
        table.add_row(outcome, str(count), f"{count / total:.1%}", meaning)
    return table


def outcomes_text(counts: Mapping[str, int]) -> str:
    """Describe the number of proposals so far, and the share of valid ones."""
    total = sum(counts.values())
    return f"{total} proposals, valid {counts.get(VALID, 0) / total:.1%}"
