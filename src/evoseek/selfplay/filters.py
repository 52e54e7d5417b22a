"""Rules that reject proposals (Search Self-play, arXiv 2510.18821, section on rule-based filtering).

RuleFilter            the rules, which need only the proposal; the full ones know words of English and German
NearDuplicates        DUPLICATE, with the other questions
Verifier              UNVERIFIED, CLOSED_BOOK and AMBIGUOUS, with a reader
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from evoseek.questions.answer_rules import is_long, is_sentence, is_supported, misfits, stands_in_question
from evoseek.questions.outcomes import Rejection
from evoseek.questions.question_rules import (
    asks_twice,
    depends_on_now,
    instructs,
    is_cut_off,
    is_noise,
    is_question,
    is_template,
    is_vague,
    mixes_languages,
    refers_to_passage,
)
from evoseek.rollout.environments import task_of
from evoseek.text.normalization import comparable, normalise
from evoseek.text.scripts import length
from evoseek.types import Passage, Question, StopReason, ToolCall, Trajectory

MIN_CHARACTERS, MAX_CHARACTERS = 10, 1000  # of a question
_SHORT = 3  # characters of a phrase


@dataclass(frozen=True, slots=True)
class RuleFilter:
    """The rules.

    `basic` compares normal forms: spaces separate a question's words, and an answer is also found within a word. `full`
    counts words and finds the answer in any script, and also judges the wording, for real corpora and models that write
    freely. With fewer valid searches than `min_searches` NO_SEARCH rejects; above 0 it also switches on REPEATED_QUERY.
    `reserved` questions must not be trained on: proposing one is a DUPLICATE.
    """

    min_words: int = 3
    min_searches: int = 0
    rules: Literal["basic", "full"] = "basic"
    reserved: Container[str] = ()

    def __call__(self, proposal: Trajectory) -> Rejection | None:
        return next(self._reasons(proposal), None)

    def _reasons(self, proposal: Trajectory) -> Iterator[Rejection]:
        question, answer = stated(proposal)
        right = _right_answers(proposal)
        queries = _queries(proposal)
        if proposal.stop_reason is not StopReason.ANSWERED:
            yield Rejection.UNFINISHED
        if not question:
            yield Rejection.NO_QUESTION
        if not comparable(answer):
            yield Rejection.NO_ANSWER
        if self._is_short(question):
            yield Rejection.TOO_SHORT
        if len(question) > MAX_CHARACTERS:
            yield Rejection.TOO_LONG
        if any(self._stands_in(accepted, question) for accepted in right):
            yield Rejection.ANSWER_IN_QUESTION
        if len(queries) < self.min_searches:
            yield Rejection.NO_SEARCH
        if self.min_searches and len(set(queries)) < len(queries):
            yield Rejection.REPEATED_QUERY
        if comparable(answer) not in map(comparable, right):
            yield Rejection.OTHER_ANSWER
        if question in self.reserved:
            yield Rejection.DUPLICATE
        if self.rules == "full":
            yield from _reasons_of_wording(question, right, [seen.contents for seen in seen_passages(proposal)])

    def _is_short(self, question: str) -> bool:
        words, characters = length(question) if self.rules == "full" else (len(question.split()), len(question))
        return words < self.min_words or characters < MIN_CHARACTERS

    def _stands_in(self, answer: str, question: str) -> bool:
        return stands_in_question(answer, question) if self.rules == "full" else stands_in(answer, question)


def _reasons_of_wording(question: str, right: Sequence[str], passages: Sequence[str]) -> Iterator[Rejection]:
    """Yield rejections by the full rules about wording. The first rule bounds the answers' length for the others."""
    if any(map(is_long, right)):
        yield Rejection.ANSWER_TOO_LONG
    if instructs(question) or any(map(instructs, right)):
        yield Rejection.INSTRUCTIONS
    if any(is_template(question, answer) for answer in right):
        yield Rejection.TEMPLATE
    if refers_to_passage(question):
        yield Rejection.REFERS
    if is_noise(question):
        yield Rejection.NOISE
    if mixes_languages(question, passages):
        yield Rejection.MIXED
    if not is_question(question):
        yield Rejection.NOT_A_QUESTION
    if asks_twice(question):
        yield Rejection.TWO_QUESTIONS
    if is_cut_off(question):
        yield Rejection.CUT_OFF
    if is_vague(question):
        yield Rejection.VAGUE
    if depends_on_now(question):
        yield Rejection.TIME_DEPENDENT
    if any(is_sentence(answer, question) for answer in right):
        yield Rejection.SENTENCE
    if all(misfits(answer, question) for answer in right):
        yield Rejection.MISFIT
    if not any(is_supported(answer, question, passages) for answer in right):
        yield Rejection.UNSUPPORTED


def stated(proposal: Trajectory) -> tuple[str, str]:
    """Return the question and the answer in a proposer's last turn; "" if missing.

    In the tool-call format a turn without <answer> is read whole as the answer; a turn with a <question> is none.
    """
    question = (proposal.actions[-1].question or "").strip() if proposal.actions else ""
    answer = (proposal.answer or "").strip()
    return question, "" if "<question>" in answer else answer


def is_valid_search(call: ToolCall) -> bool:
    """Return whether a call is a search, a proposer's only tool, with a text that is not blank."""
    query = call.arguments.get("query")
    return call.name == "search" and isinstance(query, str) and bool(query.strip())


def stands_in(phrase: str, text: str) -> bool:
    """Return whether a phrase occurs in a text, both in normal form, also within words ("Paris" in "Parisian").

    Up to three ASCII characters ("c", "7", "art") would occur in nearly every text, so they count as whole words only.
    A phrase with an empty normal form occurs nowhere.
    """
    wanted, given = normalise(phrase), normalise(text)
    if len(wanted) <= _SHORT and wanted.isascii():
        return bool(wanted) and f" {wanted} " in f" {given} "
    return wanted in given


def proposed_question(proposal: Trajectory, evidence: Sequence[Passage]) -> Question:
    """Return the question of a proposal that the rules accept, under the id of its task.

    Its golden answers are the task's, or else the proposed one. The metadata hold the hops or searches `requested` (if
    any), the valid `searches` made, and the ids of the `evidence`.
    """
    requested = task_of(proposal.question).requested
    metadata = {
        **({"requested": requested} if requested else {}),
        "searches": len(_queries(proposal)),
        "evidence": [passage.id for passage in evidence],
    }
    return Question(proposal.question.id, stated(proposal)[0], _right_answers(proposal), metadata)


def _right_answers(proposal: Trajectory) -> tuple[str, ...]:
    return proposal.question.golden_answers or (stated(proposal)[1],)


def _queries(proposal: Trajectory) -> list[str]:
    calls = (result.call for result in proposal.tool_results)
    return [comparable(str(call.arguments["query"])) for call in calls if is_valid_search(call)]


_TAG = re.compile(r"<[^<>]*>")


def retrieved_passages(proposal: Trajectory) -> tuple[Passage, ...]:
    """Return all passages that the proposer's searches found, each once, in that order."""
    found: dict[str, Passage] = {}
    for result in proposal.tool_results:
        for passage in result.passages:
            found.setdefault(passage.id, passage)
    return tuple(found.values())


def seen_passages(proposal: Trajectory) -> tuple[Passage, ...]:
    """Return the source passage, if the task shows one, and all that the proposer found, each once."""
    passages = (*_source(proposal), *retrieved_passages(proposal))
    return tuple({passage.id: passage for passage in passages}.values())


def supporting_passages(proposal: Trajectory) -> tuple[Passage, ...]:
    """Return the passages that seem to support the question, each once: the source passage, if the task shows one, and
    from every search the passages whose titles the proposer wrote later, or else the best one. If the task gave the
    answer, passages about the answer itself do not count: the proposer began with them."""
    given = [comparable(answer) for answer in proposal.question.golden_answers]
    supporting = {passage.id: passage for passage in _source(proposal)}
    for found, later in _searches(proposal):
        passages = [passage for passage in found if comparable(passage.title) not in given]
        used = [passage for passage in passages if stands_in(passage.title, later)]
        for passage in used or passages[:1]:
            supporting.setdefault(passage.id, passage)
    return tuple(supporting.values())


def _source(proposal: Trajectory) -> Iterator[Passage]:
    task = proposal.question.task
    if task is not None and task.passage is not None and task.shown:
        yield task.passage


def _searches(proposal: Trajectory) -> Iterator[tuple[tuple[Passage, ...], str]]:
    """Yield the passages of each call, and all text written after it, without tags. Calls of one turn belong
    together."""
    results = iter(proposal.tool_results)
    for turn, action in enumerate(proposal.actions, start=1):
        later = _TAG.sub(" ", "\n".join(action.text for action in proposal.actions[turn:]))
        for result in islice(results, len(action.tool_calls)):
            yield result.passages, later
