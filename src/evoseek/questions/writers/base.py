"""A question writer: passages in, questions out. What it gives is checked elsewhere, the same for every writer."""

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
    """A fact that a question needs, as a question of its own about one document.

    `evidence` are the ids of the passages that hold the fact, all of one document. `query` is what the document is
    about and the question names (`subject` of its title); "" where it does not name that. `said` are the words of the
    document around the answer, by which another document that says the same is told from one that only holds the
    answer; "" if they are not known.
    """

    question: str
    answer: str
    evidence: tuple[str, ...]
    query: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A question that a writer made. The answer of each hop leads to the next one, and the last one's is the answer.

        Draft("When was the director of The Kite born?", "date", (
            Hop("Who directed The Kite?", "Ada Birk", ("kite#0",), "The Kite"),
            Hop("When was Ada Birk born?", "16 June 1911", ("birk#2",), "Ada Birk"),
        ))

    `kind` says what the answer is: date, year, name, number, nationality, or a word of the writer's own. The kind
    `subject` asks for what the document is about: its query finds it first, and it is never made unanswerable, since it
    does not say what is missing. A draft `in_reserve` is asked only where there are too few others.

    Of a long question `support` are the sentences of one passage that answer it, as they stand there, and the answer is
    these. A near miss has the answer "": it asks about its hop's `query`, about which its evidence says nothing.
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

    It is a coroutine, since a model's replies are awaited. It gets all documents at once and gives all its questions at
    once, for three reasons: a question of two hops joins two documents; a question is dropped if another document
    answers it otherwise; and a writer that calls a model sends its calls together, as many as `number` asks for.

    Not a writer's task are what `questions.writers.checking` does for all: that a search finds the evidence,
    near-duplicates, the shares of kinds, of hops and of unanswerable questions, hidden documents, and demonstrations.
    """

    async def write(self, documents: Sequence[Sequence[Passage]], number: int) -> Sequence[Draft]:
        """Write questions of one hop or two, in any order. `documents` have their passages in order.

        `number` is how many are kept at most. A writer may give more, and should: about a third of those kept have two
        hops, and not every question passes the checks. Raises ToolError if what it calls fails.
        """
        ...


class QuestionWriterSettings(PartSettings):
    """What writes the questions of a cold start."""


QuestionWriterPart = Annotated[
    SerializeAsAny[QuestionWriterSettings], Chosen("question_writer", QuestionWriterSettings)
]


def subject(title: str) -> str:
    """Return what a document is about: its title without what stands in brackets, and without the name of its site."""
    text = " ".join(BRACKETS.sub("", " ".join(title.split())).split())
    mark = SITE_MARK.search(text)
    is_site = mark and (mark[0] in (" | ", " :: ") or _SITE.search(text, mark.end()))
    return _SECTION.sub("", text[: mark.start()]) if mark and is_site else text


def words(text: str) -> list[str]:
    """Split a text into its words, in lower case."""
    return re.findall(r"\w+", text.lower())
