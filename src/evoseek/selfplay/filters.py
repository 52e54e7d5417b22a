"""Which proposals are rejected, and why (Search Self-play, arXiv 2510.18821, section on rule-based filtering).

RuleFilter            the rules, which need the proposal alone
NearDuplicates        DUPLICATE, with the other questions
Verifier              UNVERIFIED, CLOSED_BOOK and AMBIGUOUS, with a reader
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evoseek.reward.answer import normalise
from evoseek.reward.format import is_valid_search, stands_in, stated
from evoseek.types import Passage, Question, StopReason, Trajectory


class Rejection(StrEnum):
    """Why a proposal gives no question. Those up to OTHER_ANSWER are the rules, in the order of their checking."""

    UNFINISHED = "unfinished"  # the proposer did not come to an answer
    NO_QUESTION = "no_question"  # none was stated, or an empty one
    NO_ANSWER = "no_answer"  # none was stated, or nothing but punctuation and articles
    TOO_SHORT = "too_short"  # fewer words or characters than asked for
    TOO_LONG = "too_long"  # more characters than allowed
    ANSWER_IN_QUESTION = "answer_in_question"  # the question says its own answer
    NO_SEARCH = "no_search"  # not a single search was made
    REPEATED_QUERY = "repeated_query"  # the same search was made twice
    OTHER_ANSWER = "other_answer"  # it is not the answer that the task gave

    DUPLICATE = "duplicate"  # another question is (nearly) the same
    UNVERIFIED = "unverified"  # a reader of the proposer's passages does not come to the answer
    CLOSED_BOOK = "closed_book"  # a reader without any passage does
    AMBIGUOUS = "ambiguous"  # readers come to another answer as often


@dataclass(frozen=True, slots=True)
class RuleFilter:
    """The rules. Words of a question are what spaces separate (a clitic such as "'s" is one where the policy's text
    sets it apart): for scripts without spaces set `min_words` to 1 and rely on `min_characters`.

    `require_search` and `repeated_queries` switch on NO_SEARCH and REPEATED_QUERY.
    """

    min_words: int = 3
    min_characters: int = 10
    max_characters: int = 1000
    require_search: bool = False
    repeated_queries: bool = False

    def __call__(self, proposal: Trajectory) -> Rejection | None:
        """The first reason to reject the proposal, None if there is none."""
        return next(self._reasons(proposal), None)

    def _reasons(self, proposal: Trajectory) -> Iterator[Rejection]:
        question, answer = stated(proposal)
        right = _right_answers(proposal)
        queries = _queries(proposal)
        if proposal.stop_reason is not StopReason.ANSWERED:
            yield Rejection.UNFINISHED
        if not question:
            yield Rejection.NO_QUESTION
        if not normalise(answer):
            yield Rejection.NO_ANSWER
        if len(question.split()) < self.min_words or len(question) < self.min_characters:
            yield Rejection.TOO_SHORT
        if len(question) > self.max_characters:
            yield Rejection.TOO_LONG
        if any(stands_in(accepted, question) for accepted in right):
            yield Rejection.ANSWER_IN_QUESTION
        if self.require_search and not queries:
            yield Rejection.NO_SEARCH
        if self.repeated_queries and len(set(queries)) < len(queries):
            yield Rejection.REPEATED_QUERY
        if normalise(answer) not in map(normalise, right):
            yield Rejection.OTHER_ANSWER


def proposed_question(proposal: Trajectory, evidence: Sequence[Passage]) -> Question:
    """The question of a proposal that the rules accept, under the id of its task.

    Its golden answers are the task's, if that gave any, else the one that was proposed. The metadata hold the hops or
    searches `requested`, the valid `searches` made, and the ids of the `evidence`.
    """
    metadata = {
        "requested": proposal.question.metadata.get("requested"),
        "searches": len(_queries(proposal)),
        "evidence": [passage.id for passage in evidence],
    }
    return Question(proposal.question.id, stated(proposal)[0], _right_answers(proposal), metadata)


def _right_answers(proposal: Trajectory) -> tuple[str, ...]:
    return proposal.question.golden_answers or (stated(proposal)[1],)


def _queries(proposal: Trajectory) -> list[str]:
    """What was searched for, in normal form."""
    calls = (result.call for result in proposal.tool_results)
    return [normalise(str(call.arguments["query"])) for call in calls if is_valid_search(call)]
