"""The review of questions by a person beside their passages: the sample, the verdicts, the share of right ones, and the
test set.

    review.jsonl     a line a verdict: id, question, answer, verdict, time; the last line of a question counts
    reviewed.jsonl   the questions that were judged right, as a question file: the test set, which training leaves out

Questions with a hidden document are not judged: the documents may answer them.

Both are written after every verdict, and opening a review rewrites the test set if it does not match the verdicts. So
an interrupted review loses none, and the same command resumes it. Several reviews may write one test set concurrently.
A digest of each question draws the sample, so that it stays the same when questions are added to the file, and a larger
sample contains it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, cast

from evoseek.agent.support import spans
from evoseek.errors import DataError
from evoseek.eval.statistics import wilson_interval
from evoseek.eval.tables import interval_text
from evoseek.protocols import PassageStore
from evoseek.questions.questions import load_questions, missing, names_of, save_questions
from evoseek.storage.jsonl import ResumableJsonl, locked
from evoseek.types import Passage, Question

VERDICTS = ("right", "wrong", "unclear")
UNANSWERABLE = "(The documents do not answer it.)"
_SHOWN = 5  # passages of a question
_LOOKED_AT = 20  # passages searched for a document's by its name

_NOUN = "verdict of a review"
_Content = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RightShare:
    """The numbers of questions with each verdict."""

    right: int
    wrong: int
    unclear: int

    def __str__(self) -> str:
        judged = self.right + self.wrong
        if not judged:
            return f"No share: no question was judged right or wrong ({self.unclear} unclear)."
        interval = wilson_interval(self.right, judged)
        share = interval_text(self.right / judged, interval.low, interval.high)
        return f"True: {share} ({self.right} right, {self.wrong} wrong; {self.unclear} unclear, not counted)"


@dataclass(slots=True)
class Review:
    """A review: the questions in order, and the verdicts so far by the question's number. `log` and `tests` are the two
    files, `store` has the passages (None: they cannot be shown)."""

    questions: Sequence[Question]
    log: ResumableJsonl
    tests: Path
    store: PassageStore | None
    verdicts: dict[int, str]
    _known: Mapping[_Content, Question] = field(repr=False)  # the sample and the others
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    @classmethod
    def open(
        cls, questions: Sequence[Question], log: Path, tests: Path, store: PassageStore | None, *, count: int, seed: int
    ) -> Review:
        """Draw a sample of `count` of the questions, those already judged first. The test set gets verdicts that an
        ended process did not write. Raises DataError for a damaged log, or as `judgeable`."""
        file = ResumableJsonl(log)
        given = dict(file.rows(_verdict, _NOUN))
        first = {_content(question): question for question in reversed(judgeable(questions))}
        judged = [first[content] for content in given if content in first]
        rest = sorted((question for content, question in first.items() if content not in given), key=_place(seed))
        sample = (judged + rest)[:count]
        verdicts = {number: given[_content(one)] for number, one in enumerate(sample) if _content(one) in given}
        known = {_content(question): question for question in reversed(questions)}
        review = cls(sample, file, tests, store, verdicts, known)
        before, judged_right = review._test_set()
        if judged_right != before:
            with locked(tests):
                review._write_tests()
        return review

    @property
    def next(self) -> int | None:
        """The first question without a verdict; None if all have one."""
        return next((number for number in range(len(self.questions)) if number not in self.verdicts), None)

    @property
    def share(self) -> RightShare:
        counts = Counter(self.verdicts.values())
        return RightShare(*(counts[verdict] for verdict in VERDICTS))

    def judge(self, number: int, verdict: str) -> None:
        """Record a verdict, over an earlier one, and write the test set. Raises RunError if the disk refuses them,
        DataError for an unknown question or verdict."""
        if verdict not in VERDICTS or not 0 <= number < len(self.questions):
            raise DataError(
                f"{verdict!r} for question {number} is not valid. Expected {', '.join(VERDICTS)}, for a question "
                f"from 0 to {len(self.questions) - 1}."
            )
        question = self.questions[number]
        row = {
            "id": question.id,
            "question": question.text,
            "answer": list(question.golden_answers),
            "verdict": verdict,
            "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        }
        with self._lock, locked(self.tests):
            self.log.append([row])
            self.verdicts[number] = verdict
            self._write_tests()

    def json(self, number: int) -> dict[str, object]:
        """Return a question as JSON values, with the passages that its metadata names, or else, with a `note`, the
        results of a search for it; `spans` are the answer's character ranges in each."""
        question = self.questions[number]
        passages, note = evidence_passages(question, self.store), ""
        if not passages and self.store is not None:
            passages = self.store.find(question.text, _LOOKED_AT)
            note = "The question names no passage; a search for it finds these." if passages else ""
        return {
            "question": question.text,
            "answers": list(question.golden_answers) or [UNANSWERABLE],
            "note": note,
            "verdict": self.verdicts.get(number),
            "passages": [
                {
                    "title": passage.title,
                    "place": passage.citation if passage.file else "",
                    "text": passage.text,
                    "spans": spans(question.golden_answers, passage.text),
                    "title_spans": spans(question.golden_answers, passage.title),
                }
                for passage in passages[:_SHOWN]
            ],
        }

    def _write_tests(self) -> None:
        before, judged_right = self._test_set()
        if judged_right != before:
            save_questions(self.tests, judged_right)

    def _test_set(self) -> tuple[list[Question], list[Question]]:
        """Return the current test set, and the new one: without questions judged otherwise, and with those judged
        right. One judged right stays, even if it is no longer among the questions."""
        verdicts = dict(self.log.rows(_verdict, _NOUN))
        before = load_questions(self.tests) if self.tests.is_file() and self.tests.stat().st_size else []
        judged = (content for content, verdict in verdicts.items() if verdict == "right")
        right = {content: self._known[content] for content in judged if content in self._known}
        others = {_content(one): one for one in before if _content(one) not in right}
        kept = {content: one for content, one in others.items() if verdicts.get(content, "right") == "right"}
        return before, _with_own_ids({**kept, **right})


def judgeable(questions: Sequence[Question]) -> list[Question]:
    """Return the questions without hidden documents. Raises DataError for none."""
    if not (found := [question for question in questions if not question.hidden]):
        raise DataError(
            f"All {len(questions)} questions have hidden documents, so none can be judged by the documents. Give "
            "questions without `hidden`."
        )
    return found


def evidence_passages(question: Question, store: PassageStore | None) -> list[Passage]:
    """Return the passages of the metadata's `evidence`, each once: named by a passage's id or a document's title or id,
    or given as objects with `title` and `text`. Passages that the store lacks are left out."""
    given = question.metadata.get("evidence")
    found: dict[str, Passage] = {}
    for one in cast("list[object]", given) if isinstance(given, list) else []:
        own = cast("Mapping[str, object]", one) if isinstance(one, Mapping) else {"id": one}
        if own.get("text"):
            passages = [_own_passage(own)]
        else:
            passages = _named_passages(str(own.get("id", own.get("title"))), store) if store is not None else []
        found |= {passage.id: passage for passage in passages}
    return list(found.values())


def _named_passages(name: str, store: PassageStore) -> list[Passage]:
    try:
        return [store.get(name)]
    except DataError:
        return [p for p in store.find(name, _LOOKED_AT) if not missing([name], names_of([p]))]


def _own_passage(given: Mapping[str, object]) -> Passage:
    title, text = str(given.get("title", "")), str(given["text"])
    id = str(given.get("id", f"{title}\n{text}"))
    return Passage(id, title or id, title, text)


def _content(question: Question) -> _Content:
    """Return what identifies a question for verdicts: ids may be reused for other questions."""
    return question.text, question.golden_answers


def _place(seed: int) -> Callable[[Question], str]:
    return lambda question: hashlib.sha256(f"{seed}/{_content(question)}".encode()).hexdigest()


def _verdict(row: Any) -> tuple[_Content, str]:
    if row["verdict"] not in VERDICTS:
        raise ValueError(f"expected a verdict: {', '.join(VERDICTS)}")
    return (str(row["question"]), tuple(map(str, row["answer"]))), str(row["verdict"])


def _with_own_ids(questions: Mapping[_Content, Question]) -> list[Question]:
    """Give each question its own id: several runs may have used the same ids."""
    ids = Counter(question.id for question in questions.values())
    return [
        replace(one, id=f"{one.id}-{hashlib.sha256(repr(content).encode()).hexdigest()[:8]}")
        if ids[one.id] > 1
        else one
        for content, one in questions.items()
    ]
