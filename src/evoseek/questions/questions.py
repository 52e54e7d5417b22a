"""Question files: JSON lines, one question each; or a JSON array of these (also HotpotQA's own file), or CSV with these
keys as column headings.

    {"id": "q1", "question": "who wrote Dune?", "golden_answers": ["Frank Herbert", "Herbert"], "metadata": {"hops": 1}}

`id` is optional (default: the line number). `answer` may replace `golden_answers` (a text or a list). `hops`, `kind`,
`source`, `evidence`, `answerable`, `hidden` and `support` may stand outside the metadata and are added to it. Other
keys are ignored. `evidence` lists the titles, ids or files of the documents, or the ids of the passages, that contain
the answer; `hidden` the ids of documents that searches for the question never find. An unanswerable question has no
golden answer and is marked: a refusal is the right answer. An answer of sentences may have `support`, the documents'
sentences on which it is based, word for word.

    {"question": "how do I stop it?", "answer": "Press the red key.", "support": ["To stop it, press the red key."]}
    {"question": "who wrote the warranty?", "golden_answers": [], "answerable": false}
    {"question": "who wrote Dune?", "golden_answers": [], "answerable": false, "hidden": ["dune.html"]}
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, cast

from evoseek.errors import DataError
from evoseek.storage.files import write_atomic
from evoseek.text.language import NOT_FOUND
from evoseek.text.rows import read_rows
from evoseek.text.scripts import fold
from evoseek.types import Passage, Question

_ABOUT = ("hops", "kind", "source", "evidence", "answerable", "hidden", "support")
_LISTED = 10  # golden answers that a warning lists one by one


def load_questions(path: Path, *, check: Callable[[Question], Question] | None = None) -> list[Question]:
    """Read every question of a file, in order.

    `check` returns a usable question, possibly with fewer golden answers, which a warning reports; or it refuses the
    question by raising DataError (a metric refuses golden answers that it could never match). Raises DataError, naming
    file and lines, if the file cannot be read, has no question, or has an unusable line: a silently missing question
    would change every score.
    """
    seen: set[str] = set()
    dropped: list[str] = []

    def make(fields: Mapping[str, object], number: int) -> Question:
        question = parse_question(fields, str(number))
        if question.id in seen:
            raise DataError(
                f"The id {question.id!r} occurs twice. Give every question its own id.", code="question.id_twice"
            )
        seen.add(question.id)
        if check is None:
            return question
        usable = check(question)
        kept = set(usable.golden_answers)
        dropped.extend(f"{answer!r} (line {number})" for answer in question.golden_answers if answer not in kept)
        return usable

    questions = read_rows(path, make, noun="question", keys="`question` and `golden_answers`")
    if dropped:
        more = f" and {len(dropped) - _LISTED} more" if len(dropped) > _LISTED else ""
        warnings.warn(
            f"{path}: golden answers that are empty without punctuation and articles are not used: "
            f"{', '.join(dropped[:_LISTED])}{more}. The questions keep their other golden answers.",
            stacklevel=2,
        )
    return questions


def save_questions(path: Path, questions: Iterable[Question]) -> None:
    """Write a file that `load_questions` reads back. Raises RunError if the disk refuses it."""
    write_atomic(path, "".join(json.dumps(question_row(q), ensure_ascii=False) + "\n" for q in questions))


def question_row(question: Question) -> dict[str, Any]:
    """Return a question as a row of a question file."""
    return {
        "id": question.id,
        "question": question.text,
        "golden_answers": list(question.golden_answers),
        "metadata": dict(question.metadata),
    }


def parse_question(fields: Mapping[str, object], default_id: str) -> Question:
    """Parse the question of a line. Raises DataError."""
    text = fields.get("question")
    if not isinstance(text, str) or not text.strip():
        raise DataError("The key `question` is missing, empty or not a text.", code="question.no_text")
    metadata = {} if fields.get("metadata") is None else fields["metadata"]
    if not isinstance(metadata, Mapping):
        raise DataError(f"The key `metadata` must be an object, got {type(metadata).__name__}.")
    metadata = dict(cast(Mapping[str, object], metadata))
    metadata |= {key: fields[key] for key in _ABOUT if key in fields}
    if "hops" in metadata:
        _check_type("hops", metadata["hops"], int)
    if "supporting_facts" in fields:
        metadata.setdefault("evidence", _titles(fields["supporting_facts"]))
    check_hidden(metadata)
    identifier = fields.get("id", fields.get("_id", default_id))
    _check_type("id", identifier, int | str)
    return Question(
        id=str(identifier),
        text=text.strip(),
        golden_answers=_golden_answers(fields, metadata.get("answerable", True)),
        metadata=metadata,
    )


def check_hidden(metadata: Mapping[str, object]) -> None:
    """Raise DataError if hidden documents, or sentences of support, are not a list of texts."""
    for key, what in (("hidden", "the ids of documents"), ("support", "sentences of the documents")):
        given = metadata.get(key, [])
        if not isinstance(given, list) or not all(isinstance(one, str) for one in cast("list[object]", given)):
            raise DataError(f"The key `{key}` must be a list of texts, {what}; got {given!r:.100}.")


def _titles(facts: object) -> list[str]:
    """Return the titles in HotpotQA's supporting facts: pairs of a title and the number of a sentence, or (as in the
    data set of that name) a list of titles and a list of numbers. Raises DataError."""
    if isinstance(facts, Mapping):
        titles: object = cast("Mapping[str, object]", facts).get("title")
    else:
        pairs = cast("list[object]", facts) if isinstance(facts, list) else [None]
        titles = [cast("list[object]", pair)[0] if isinstance(pair, list) and pair else None for pair in pairs]
    found = cast("list[object]", titles) if isinstance(titles, list) else [None]
    if not all(isinstance(title, str) for title in found):
        raise DataError("The key `supporting_facts` must be a list of pairs: a title, and the number of a sentence.")
    return list(dict.fromkeys(cast("list[str]", found)))


def _check_type(key: str, value: object, expected: type[int] | UnionType) -> None:
    if isinstance(value, bool) or not isinstance(value, expected):
        wanted = "an integer" if expected is int else "a text or an integer"
        raise DataError(f"The key `{key}` must be {wanted}, got {value!r}.")


def _golden_answers(fields: Mapping[str, object], answerable: object) -> tuple[str, ...]:
    value = fields.get("golden_answers", fields.get("answer"))
    answers = [value] if isinstance(value, str) and value else value
    if not isinstance(answerable, bool):
        raise DataError(f"The key `answerable` must be true or false, got {answerable!r}.")
    if not answerable:
        if answers:
            raise DataError(f"The question has the golden answer {value!r}, but `answerable` is false. Remove one.")
        return ()
    if not isinstance(answers, Sequence) or not answers:
        raise DataError(
            "The question has no golden answer. Give `golden_answers` (a list of texts) or `answer` (a text): without "
            'one, no answer could ever be right. If the documents do not answer it, say `"answerable": false`.'
        )
    for answer in cast(Sequence[object], answers):
        if not isinstance(answer, str):
            raise DataError(f"A golden answer must be a text, got {answer!r}. Put numbers in quotes.")
    return tuple(cast(Sequence[str], answers))


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer to a question, whether people judged it correct, and the line of this verdict."""

    question: Question
    answer: str
    correct: bool
    line: int


def load_judged_answers(path: Path) -> list[JudgedAnswer]:
    """Read every answer of a file for measuring a judge, in order: `question` and `golden_answers` as above, `answer`
    and `correct`. Raises DataError as `load_questions`."""
    keys = "`question`, `golden_answers`, `answer` and `correct`"
    return read_rows(path, _judged_answer, noun="judged answer", keys=keys)


def _judged_answer(fields: Mapping[str, object], line: int) -> JudgedAnswer:
    answer, correct = fields.get("answer"), fields.get("correct")
    if not isinstance(answer, str):
        raise DataError("The key `answer`, the text that is to be judged, is missing or not a text.")
    if not isinstance(correct, bool):
        raise DataError(f"The key `correct`, true or false, says whether the answer is; got {correct!r}.")
    if "golden_answers" not in fields:
        raise DataError("The key `golden_answers`, a list of the right answers, is missing.")
    return JudgedAnswer(parse_question(fields, str(line)), answer, correct, line)


def evidence_of(question: Question) -> tuple[str, ...]:
    """Return the titles or ids of the documents, or the ids of the passages, that contain the answer, from the
    question's metadata; empty if unknown."""
    given = question.metadata.get("evidence")
    texts = cast("list[object]", given) if isinstance(given, list | tuple) else []
    return tuple(text for text in texts if isinstance(text, str) and text.strip())


def recall(evidence: Sequence[str], passages: Iterable[Passage]) -> float | None:
    """Return the share of the evidence among the passages, by `names_of`; None without evidence."""
    wanted = {folded(text) for text in evidence}
    return len(wanted & names_of(passages)) / len(wanted) if wanted else None


def names_of(passages: Iterable[Passage]) -> set[str]:
    """Return the names by which evidence may refer to passages: titles, ids of documents, files and their own ids, all
    folded."""
    names = ((p.title, p.document_id, p.file or p.document_id, p.id) for p in passages)
    return {folded(name) for own in names for name in own}


def supports(passage: Passage, question: Question) -> bool:
    """Return whether a passage has a sentence of the question's support, or is part of its evidence."""
    evidence = {folded(text) for text in evidence_of(question)}
    text = f" {fold(passage.contents)} "
    has_sentence = any(f" {fold(sentence)} " in text for sentence in question.support if fold(sentence))
    return has_sentence or not evidence.isdisjoint(names_of([passage]))


def cited_share(
    cited: Iterable[int], passages: Sequence[Passage], question: Question, *, uncited: float = 0.0
) -> float | None:
    """Return the share of cited passages (n is the n-th passage) that support the question (`supports`); `uncited` if
    none is cited. None if the question's own passages are unknown."""
    if not question.support and not evidence_of(question):
        return None
    own = [supports(passages[number - 1], question) for number in {*cited} if number <= len(passages)]
    return sum(own) / len(own) if own else uncited


def reference_answer(question: Question, passages: Sequence[Passage]) -> str:
    """The answer that a question has from these passages: its first golden answer, with the number of the passage if it
    is of sentences. A refusal for an unanswerable question, and where none of the passages has the answer."""
    golden = question.golden_answers[0] if question.golden_answers else ""
    is_known = bool(question.support or evidence_of(question))
    for number, passage in enumerate(passages, start=1) if golden else ():
        holds = (question.is_long and is_known) or f" {fold(golden)} " in f" {fold(passage.contents)} "
        if holds and (not is_known or supports(passage, question)):
            return f"{golden} [{number}]" if question.is_long else golden
    return NOT_FOUND


def missing(evidence: Sequence[str], names: set[str]) -> list[str]:
    """Return the evidence that is not among these `names_of` passages."""
    return [text for text in evidence if folded(text) not in names]


def folded(text: str) -> str:
    """Fold letter case and spaces of a text."""
    return " ".join(text.split()).casefold()
