"""Chooses how to search a corpus without labelled questions: it removes headings from the texts, searches for them, and
compares the results with their sections."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from evoseek.documents.documents import find_readable, read_documents
from evoseek.documents.passages import count_words, split_document
from evoseek.documents.read_report import ReadReport
from evoseek.errors import ConfigError, DataError
from evoseek.search.analyser import Analyser
from evoseek.search.dense import DenseIndex, HybridIndex
from evoseek.search.indexing import IndexPlan
from evoseek.search.lexical import LexicalIndex
from evoseek.text.duplicates import TextSet
from evoseek.text.printable import say
from evoseek.text.progress import CountProgress
from evoseek.types import TERM, Document, Passage

SIZES = (60, 100, 200)  # words of a passage
MOST = 10  # passages that a search may show
_AS_COLUMNS = (3, 5, 10)
_READ = 400_000  # words of the corpus, from files drawn at random
_ASKED, _FEWEST = 300, 30  # headings
_LONG = (100, 6_000)  # characters of their sections
_PREFERRED = 0.02  # about the standard error of a difference
_SHOWN = 350  # words of the passages of a search


@dataclass(frozen=True, slots=True)
class HeadedText:
    """A heading, and the place of the text under it."""

    heading: str
    document_id: str
    start: int
    end: int

    def share(self, passage: Passage) -> float:
        """Return the share of the text that a passage, or one of its copies, contains."""
        own = (one for one in (passage, *passage.copies) if one.document_id == self.document_id)
        return sum(max(0, min(one.end, self.end) - max(one.start, self.start)) for one in own) / (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of a plan: for 1, 2, ... passages, the mean share of the sections shown, and the words shown."""

    plan: IndexPlan
    found: tuple[float, ...]
    words: tuple[float, ...]

    def top_k(self, shown: int) -> int:
        """Return how many passages fit in this many words, at least 1."""
        return max(1, sum(words <= shown for words in self.words))

    def at(self, shown: int) -> float:
        """Return the share found within this many words."""
        return self.found[self.top_k(shown) - 1]


def choose(
    corpus: Path, plan: IndexPlan, given: Mapping[str, object], console: Console, shown: int = _SHOWN
) -> tuple[IndexPlan, int]:
    """Measure plans, print a table, and return the best one with its number of passages per search, at most `shown`
    words. Settings in `given` are not varied. Raises DataError for a corpus without enough headings."""
    documents = _sample(corpus, plan, console)
    sections = sections_of(documents)
    if len(sections) < _FEWEST:
        raise DataError(
            f"{corpus} has {len(sections)} headings of two words or more that can be searched for; choosing takes at "
            f"least {_FEWEST}. Leave out --choose, and give --engine, --stemming and --max-words yourself."
        )
    say(console, f"Searching for {len(sections)} headings of {len(documents)} documents, as if no text had them.")
    measured = list[Measured]()

    def best(plans: Sequence[IndexPlan]) -> IndexPlan:
        with CountProgress(console, "ways of searching measured") as progress:
            for number, tried in enumerate(plans, start=1):
                if all(known.plan != tried for known in measured):
                    measured.append(measure(tried, documents, sections))
                progress(number, len(plans))
        return best_of(measured, shown).plan

    def varied(of: IndexPlan, name: str, values: Sequence[object]) -> list[IndexPlan]:
        return [of] if name in given else [replace(of, **{name: value}) for value in values]

    by_terms = plan if "engine" in given else replace(plan, engine="lexical", encoder=None, device=None, dtype=None)
    stemming = best(varied(by_terms, "stemming", ("none", "english"))).stemming
    own = [str(given["encoder"])] if "encoder" in given else ["static", "minilm"]
    encoders = [name for name in own if "engine" not in given and _is_there(name, plan, console)]
    hybrid = [replace(plan, engine="hybrid", encoder=name, stemming=stemming) for name in encoders]
    quick = [one for one in hybrid if one.encoder == "static"]
    ways = [replace(by_terms, stemming=stemming), *quick]
    found = best([sized for one in ways for sized in varied(one, "max_words", SIZES)])
    if slow := [replace(one, max_words=found.max_words) for one in hybrid if one not in quick]:
        found = best(slow)
    console.print(table(measured, found, shown))
    return found, best_of(measured, shown).top_k(shown)


def best_of(measured: Sequence[Measured], shown: int) -> Measured:
    """Return the plan that finds most in `shown` words. Hybrid search by the static encoder is preferred: people's
    questions differ more from the texts than headings do. A slower encoder must find 0.02 more."""
    return max(measured, key=lambda one: one.at(shown) + _PREFERRED * (one.plan.encoder == "static"))


def table(measured: Sequence[Measured], best: IndexPlan, shown: int) -> Table:
    """Make a table with a row for each plan; k is the number of passages that fit."""
    found = Table(box=None, pad_edge=False, title=f"Share of a section that is shown (k: in {shown} words)")
    for name in ("engine", "stems", "words", *(f"@{k}" for k in _AS_COLUMNS), "k", "@k", "shown", ""):
        found.add_column(name, justify="left" if name in ("engine", "stems") else "right", no_wrap=True)
    for one in measured:
        plan, k = one.plan, one.top_k(shown)
        shares = [f"{one.found[k - 1]:.3f}" for k in (*_AS_COLUMNS, k)]
        cells = (*shares[:-1], str(k), shares[-1], f"{one.words[k - 1]:.0f}", "chosen" if plan == best else "")
        found.add_row(" ".join(filter(None, (plan.engine, plan.encoder))), plan.stemming, str(plan.max_words), *cells)
    return found


def measure(plan: IndexPlan, documents: Sequence[Document], sections: Sequence[HeadedText]) -> Measured:
    """Search for the headings in an index of these documents, built by a plan."""
    with TemporaryDirectory() as folder:
        directory, analyser, encoder = Path(folder, "index"), Analyser(plan.stemming), plan.make_encoder()
        passages = without_headings(documents, sections, plan.max_words)
        if encoder is None:
            index = LexicalIndex.build(directory, passages, analyser=analyser)
        else:
            DenseIndex.build(directory, passages, encoder, analyser=analyser)
            index = (HybridIndex if plan.engine == "hybrid" else DenseIndex).open(directory, encoder)
        lists = index.find_all([section.heading for section in sections], MOST)
    ranks = range(1, MOST + 1)
    shares = [[section.share(passage) for passage in found] for section, found in zip(sections, lists, strict=True)]
    words = [[count_words(passage.text) for passage in found] for found in lists]
    return Measured(
        plan,
        tuple(fmean(sum(own[:k]) for own in shares) for k in ranks),
        tuple(fmean(sum(own[:k]) for own in words) for k in ranks),
    )


def sections_of(documents: Sequence[Document]) -> list[HeadedText]:
    """Return some sections whose headings are unique and have two words or more."""
    every = [section for document in documents for section in _sections(document)]
    counts = Counter(section.heading for section in every)
    usable = [
        section
        for section in every
        if counts[section.heading] == 1
        and count_words(section.heading) > 1
        and _LONG[0] < section.end - section.start < _LONG[1]
    ]
    return random.Random(0).sample(usable, min(_ASKED, len(usable)))


def _sections(document: Document) -> Iterator[HeadedText]:
    """Yield the headings of a document, each with the text down to the next mark."""
    end = len(document.text)
    for mark, following in pairwise((*document.marks, None)):
        if mark and mark.heading and 0 < mark.level < TERM:
            start = mark.start + document.text[mark.start :].find("\n")
            yield HeadedText(mark.heading, document.id, start, following.start if following else end)


def without_headings(
    documents: Sequence[Document], sections: Sequence[HeadedText], max_words: int
) -> Iterator[Passage]:
    """Yield the passages of documents, without the headings of these sections."""
    hidden: dict[str, list[str]] = {}
    for section in sections:
        hidden.setdefault(section.document_id, []).append(section.heading)
    for document in documents:
        for passage in split_document(document, max_words=max_words):
            text, own = passage.text, hidden.get(document.id, ())
            for heading in own:
                text = text.replace(heading, " ")
            yield replace(passage, text=text, heading=None if passage.heading in own else passage.heading)


def _sample(corpus: Path, plan: IndexPlan, console: Console) -> list[Document]:
    """Read files drawn at random until there are enough words."""
    report, seen, documents, words = ReadReport(), TextSet(), list[Document](), 0
    files = list(find_readable(corpus, report, plan.reading))
    random.Random(0).shuffle(files)
    with CountProgress(console, "words read") as progress:
        for file in files:
            for document in read_documents(file, seen, report, plan.reading):
                if words >= _READ:
                    return documents
                documents.append(document)
                words += count_words(document.text)
                progress(min(words, _READ), _READ)
    return documents


def _is_there(encoder: str, plan: IndexPlan, console: Console) -> bool:
    """Return whether an encoder is installed. If not, print what to install."""
    try:
        return replace(plan, engine="hybrid", encoder=encoder).make_encoder() is not None
    except ConfigError as error:
        say(console, f"Not measured: hybrid {encoder}. {error}")
        return False
