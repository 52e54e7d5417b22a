"""A question writer: passages in, questions out. Its questions are checked elsewhere, in the same way for every
writer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import SerializeAsAny

from evoseek.config.sections import Chosen, PartSettings
from evoseek.types import Passage

SITE_MARK = re.compile(r" (?:\||::|[—–·-]) ")  # "5. Fields — The Manual"
_SITE = re.compile(r"\b(?:documentation|docs?|manual|wiki\w*|handbook|guide|reference|book)\b", re.IGNORECASE)
_SECTION = re.compile(r"^\d+(?:\.\d+)*\. ")
BRACKETS = re.compile(r"\s*\([^()]*(?:\([^()]*\)[^()]*)*\)")


@dataclass(frozen=True, slots=True)
class Hop:
    """A fact that a question needs, as a separate question about one document.

    `evidence` are the ids of the passages that contain the fact, all of one document. `query` is the document's subject
    (`subject` of its title) if the question names it, else "". `said` are the document's words around the answer. They
    distinguish another document that says the same from one that merely contains the answer; "" if unknown.
    """

    question: str
    answer: str
    evidence: tuple[str, ...]
    query: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A question from a writer. The answer of each hop leads to the next hop; the last hop's answer is the question's.

        Draft("When was the director of The Kite born?", "date", (
            Hop("Who directed The Kite?", "Ada Birk", ("kite#0",), "The Kite"),
            Hop("When was Ada Birk born?", "16 June 1911", ("birk#2",), "Ada Birk"),
        ))

    `kind` is the kind of the answer: date, year, name, number, nationality, or the writer's own word. The kind
    `subject` asks for the document's subject: its query must find the document first, and it is never made
    unanswerable, since it does not say what is missing. A draft `in_reserve` is used only if there are too few others.

    For a long question, `support` are the sentences of one passage that answer it, word for word, and the answer is the
    same. A near miss has the answer "": it asks something about its hop's `query` that the evidence does not say.
    """

    question: str
    kind: str
    hops: tuple[Hop, ...]
    in_reserve: bool = False
    support: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """The answer of the last hop."""
        return self.hops[-1].answer

    @property
    def evidence(self) -> tuple[str, ...]:
        """The passages of all hops."""
        return tuple(id for hop in self.hops for id in hop.evidence)


class QuestionWriter(Protocol):
    """Writes questions about documents.

    It is a coroutine, since a model's replies are awaited. It receives all documents together and returns all questions
    together, for three reasons: a question of two hops joins two documents; a question is dropped if another document
    gives another answer; and a writer that calls a model sends its calls together, as many as `number` needs.

    `questions.writers.checking` does the rest for all writers: it checks that a search finds the evidence, removes
    near-duplicates, balances kinds, hops and unanswerable questions, hides documents, and makes demonstrations.
    """

    async def write(self, documents: Sequence[Sequence[Passage]], number: int) -> Sequence[Draft]:
        """Write questions of one hop or two, in any order. `documents` have their passages in order.

        `number` is the maximum to keep. A writer should return more: about a third of the kept questions have two hops,
        and not every question passes the checks. Raises ToolError if a model or service that it calls fails.
        """
        ...


class QuestionWriterSettings(PartSettings):
    """The writer of a cold start's questions."""


QuestionWriterPart = Annotated[
    SerializeAsAny[QuestionWriterSettings], Chosen("question_writer", QuestionWriterSettings)
]


def subject(title: str) -> str:
    """Return the subject of a document: its title without brackets and their contents, and without its site's name."""
    text = " ".join(BRACKETS.sub("", " ".join(title.split())).split())
    mark = SITE_MARK.search(text)
    is_site = mark and (mark[0] in (" | ", " :: ") or _SITE.search(text, mark.end()))
    return _SECTION.sub("", text[: mark.start()]) if mark and is_site else text


def words(text: str) -> list[str]:
    """Split a text into its words, in lower case."""
    return re.findall(r"\w+", text.lower())
