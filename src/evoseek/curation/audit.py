"""Which questions a corpus can answer at all, and which golden answers say nothing.

    gold          a golden answer is in some passage, as whole words (of a script with spaces) in SQuAD's normal form
    found         it is in the engine's first passages (100) for the question itself
    evidence      every document that the question's evidence names, by title or id, is in the corpus (None: unknown)
    vague         no golden answer says anything: of each nothing is left in the normal form, or stop words alone
    in question   every golden answer stands in the question: a comparison, or a question that gives itself away

A question is answerable if it is not vague, its golden answer is in the corpus (that of a yes-or-no question need not
be) and so is its evidence, if it is known. In the corpora that papers use, the pages of a third of the questions
are missing; scores on those questions measure the corpus, not the policy. (What overlaps with another file, or is known
without searching, `data.contamination` finds.)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, with_config
from rich.console import Console
from rich.table import Table

from evoseek.assembly.context import Context
from evoseek.curation.contamination import runs
from evoseek.errors import ConfigError, DataError, EvoseekError
from evoseek.protocols import QuestionEngine
from evoseek.questions.questions import evidence_of, folded, load_questions, missing, names_of, save_questions
from evoseek.search.calling import search
from evoseek.storage.files import check_new_file, write_atomic
from evoseek.storage.jsonl import ResumableJsonl, made_by
from evoseek.text.language import STOP_WORDS
from evoseek.text.normalization import comparable
from evoseek.text.printable import say, shown
from evoseek.text.scripts import is_unspaced
from evoseek.types import Passage, Question

TOP = 100
_AT_ONCE = 64  # questions whose passages are searched for in one call
_YES_OR_NO = frozenset(("yes", "no"))


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Audited:
    """What was found about a question; see the page. `lacks` names the evidence that is missing."""

    question: str
    gold: bool
    found: bool
    evidence: bool | None
    vague: bool
    in_question: bool
    yes_or_no: bool
    lacks: tuple[str, ...] = ()

    @property
    def is_answerable(self) -> bool:
        return not self.vague and (self.gold or self.yes_or_no) and self.evidence is not False


_AUDITED = TypeAdapter(Audited)


class CorpusAnswers:
    """What a corpus holds of the golden answers and the evidence of questions, gathered in one pass over its passages:
    one look-up for each run of words as long as some golden answer, however many questions there are."""

    def __init__(self, questions: Sequence[Question], passages: Iterable[Passage]) -> None:
        every = {answer for question in questions for answer in _golden(question)}
        unspaced = {answer for answer in every if is_unspaced(answer)}
        golden, sizes = every - unspaced, {len(answer) for answer in unspaced}
        lengths = {answer.count(" ") + 1 for answer in golden}
        wanted = {folded(name) for question in questions for name in evidence_of(question)}
        self.golden, self.names = set[str](), set[str]()
        for passage in passages:
            self.names |= wanted & names_of([passage]) if wanted else set()
            text = comparable(passage.contents)
            words = text.split()
            self.golden.update(run for length in lengths for run in runs(words, length) if run in golden)
            pieces = (text[start : start + size] for size in sizes for start in range(len(text) - size + 1))
            self.golden.update(unspaced.intersection(pieces))


def audit(question: Question, corpus: CorpusAnswers, first: Iterable[Passage]) -> Audited:
    """Audit a question; `first` are the engine's passages for it."""
    golden, evidence = _golden(question), evidence_of(question)
    lacks = missing(evidence, corpus.names)
    return Audited(
        question.id,
        gold=not golden.isdisjoint(corpus.golden),
        found=any(_stands_in(answer, passage.contents) for passage in first for answer in golden),
        evidence=not lacks if evidence else None,
        vague=all(STOP_WORDS.issuperset(answer.split()) and answer not in _YES_OR_NO for answer in golden),
        in_question=bool(golden) and all(_stands_in(answer, question.text) for answer in golden),
        yes_or_no=not golden.isdisjoint(_YES_OR_NO),
        lacks=tuple(lacks),
    )


def _golden(question: Question) -> set[str]:
    """The normal form of each golden answer of which something is left."""
    return {form for answer in question.golden_answers if (form := comparable(answer))}


def _stands_in(form: str, text: str) -> bool:
    return form in comparable(text) if is_unspaced(form) else f" {form} " in f" {comparable(text)} "


def shares(audited: Sequence[Audited]) -> Mapping[str, tuple[int, int]]:
    """For each finding, in how many questions it holds, of how many it is known for."""
    known = {
        "golden answer in some passage": [one.gold for one in audited],
        f"golden answer in the first {TOP} passages": [one.found for one in audited],
        "all evidence in the corpus": [one.evidence for one in audited if one.evidence is not None],
        "golden answers that say nothing": [one.vague for one in audited],
        "golden answers in the question": [one.in_question for one in audited],
        "answerable": [one.is_answerable for one in audited],
    }
    return {name: (sum(map(bool, values)), len(values)) for name, values in known.items() if values}


def audit_questions(context: Context, source: Path, out: Path, *, console: Console) -> None:
    """Audit questions against the corpus and engine of the settings: a table, `out` with those that are answerable, and
    OUT.audit.jsonl with what was found about each. `out` is written last: without it, the findings are those of an
    audit that did not finish or found no question answerable, and are replaced.

    Raises ConfigError if a file is there already, EvoseekError if not one question is answerable.
    """
    findings = out.with_suffix(".audit.jsonl")
    check_new_file(out)
    if not _is_findings(findings):
        check_new_file(findings)
    questions = load_questions(source)
    audited = asyncio.run(_audit_all(context, questions))
    write_atomic(findings, "".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in audited))
    table = Table("", "questions", "share", title=shown(f"{len(questions)} questions of {source.name}"))
    for name, (count, known_of) in shares(audited).items():
        table.add_row(name, f"{count} of {known_of}", f"{count / known_of:.1%}")
    console.print(table)
    kept = [question for question, one in zip(questions, audited, strict=True) if one.is_answerable]
    if not kept:
        raise EvoseekError(f"The corpus answers not one of {len(questions)} questions, so {out} was not written.")
    save_questions(out, kept)
    say(console, f"{len(kept)} answerable questions are in {out}; what was found about each is in {findings}.")


def _is_findings(path: Path) -> bool:
    """Whether a file holds what an audit found, and nothing else."""
    try:
        return path.is_file() and bool(list(ResumableJsonl(path).rows(made_by(_AUDITED), "finding")))
    except DataError:
        return False


async def _audit_all(context: Context, questions: Sequence[Question]) -> list[Audited]:
    corpus, engine = CorpusAnswers(questions, context.corpus.passages()), context.engine
    if isinstance(engine, QuestionEngine):
        raise ConfigError("A simulated engine has no corpus that could be audited. Give an index (--index).")
    audited: list[Audited] = []
    for start in range(0, len(questions), _AT_ONCE):
        batch = questions[start : start + _AT_ONCE]
        found = await search(engine, [question.text for question in batch], TOP)
        audited += [audit(question, corpus, first) for question, first in zip(batch, found, strict=True)]
    return audited
