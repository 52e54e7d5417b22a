"""The questions of a cold start, each with its demonstration: what the statements give, filtered by the search engine,
without near-duplicates, and balanced.

A question is kept if one search finds a passage of its document that holds the answer; that search is its
demonstration. Of a chain both searches have to. Some questions are asked as if their document were not there
(`hidden`), and demonstrate a refusal.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile, zip_longest
from math import ceil
from operator import attrgetter
from pathlib import PurePosixPath
from typing import TypeVar

from evoseek.errors import DataError
from evoseek.protocols import PassageStore, SearchEngine
from evoseek.questions.demonstrations import DemonstratedTurn, Demonstration, ProposerDemonstration
from evoseek.questions.writers.chains import Chain, Comparison, chains, comparisons
from evoseek.questions.writers.clozes import SITE_MARK, Cloze, clozes, is_natural, subject, words
from evoseek.questions.writers.tables import tabled
from evoseek.search.calling import search, search_others
from evoseek.text.duplicates import NearDuplicates
from evoseek.text.language import STOP_WORDS
from evoseek.text.normalization import comparable
from evoseek.text.scripts import fold
from evoseek.types import Passage, Question

_T = TypeVar("_T")

REFUSAL = "Not found in the documents."
STATED_IN = "stated_in"
"""Key of the metadata of an unanswerable question: the passages whose statements it was made of."""
TWO_HOPS, COMPARISONS, UNANSWERABLE = 0.35, 0.1, 0.25
"""Shares of the questions: two hops are chains but for the comparisons, and the rest has one hop. Too few comparisons
are made up for by chains, and too few chains by questions of one hop."""
KINDS = {
    "name": 0.4,
    "date": 0.25,
    "year": 0.1,
    "number": 0.1,
    "version": 0.1,
    "value": 0.1,
    "nationality": 0.1,
    "code": 0.3,
    "subject": 0.1,
}
"""The largest share of each kind among the questions of one hop, as long as there are others."""

_DOCUMENTS = 20_000  # as many are read, drawn at random
_OF_AN_ANSWER = 0.01  # at most this share of the questions of one hop has the same answer
_LIKENESS = 0.8
_DEPTH, _UNSAID = 8, 0.1  # how deep is looked, in times k, for passages that lack so many of a question's words
_UNSAID_BESIDE = 0.5  # where the answer is
_ENOUGH = 300  # kept questions of one hop in natural order: then there are no others
_OF_A_SITE = re.compile(rf"(.+){SITE_MARK.pattern}(.+)")
_SHARE_OF_A_SITE = 0.05  # of the titles have its name
_AT_ONCE = 128  # questions whose searches are one call of the engine


@dataclass(frozen=True, slots=True)
class Item:
    """A question with the demonstration of how it is answered, and that of how it is proposed from a passage (None if
    the documents do not answer it)."""

    solved: Demonstration
    proposed: ProposerDemonstration | None = None

    @property
    def question(self) -> Question:
        return self.solved.question


@dataclass(frozen=True, slots=True)
class Written:
    """Questions in a random order; `counts` says how many were made of each kind, and what became of them."""

    items: tuple[Item, ...]
    counts: Mapping[str, int]


async def write(corpus: PassageStore, engine: SearchEngine, number: int, *, k: int, seed: int) -> Written:
    """At most `number` questions about a corpus; `k` is the number of passages that a search finds. The same corpus,
    engine and seed give the same ones. Raises DataError if there are none, ToolError if the engine fails."""
    rng = random.Random(f"{seed}/cold start")
    titles: dict[str, str] = {}
    for passage in corpus.passages():
        titles.setdefault(passage.document_id, passage.title)
    titles = _without_site(titles)
    documents = _documents(corpus, {id: titles[id] for id in rng.sample(sorted(titles), min(len(titles), _DOCUMENTS))})
    copies = _copies(documents)
    for id in set(documents) - set(copies):
        del documents[id], titles[id]
    stated = {id: [*clozes(passages), *tabled(passages)] for id, passages in documents.items()}
    by_document = _of_one_answer(stated, titles)
    parts = _parts(titles)
    linked = list(chains(by_document, titles))
    rng.shuffle(linked)
    compared = list(comparisons(by_document, rng))
    rng.shuffle(compared)
    linked = _in_turn([chain for chain in linked if is_natural(chain.question)] or linked, parts, of=_first_document)
    compared = _in_turn(compared, parts, of=_first_document)
    natural, in_place = (_in_order(by_document, in_front) for in_front in (True, False))
    made = sum(map(len, natural.values()))
    number = min(number, max(made, min(_ENOUGH, sum(map(len, by_document.values())))))
    writer = _Writer(engine, k, documents, copies)
    copied = sum(map(len, copies.values())) - len(copies)
    writer.counts.update(
        documents=len(documents), copies=copied, **{"made/chain": len(linked), "made/comparison": len(compared)}
    )
    writer.counts.update(f"made/{cloze.kind}" for found in by_document.values() for cloze in found)
    two = await writer.of_two_hops(compared, "comparison", round(COMPARISONS * number))
    two += await writer.of_two_hops(linked, "chain", round(TWO_HOPS * number) - len(two))
    none = await writer.without_second_hop(linked[::-1], round(UNANSWERABLE * number) // 3)
    room = number - len(two) - len(none)
    found = await writer.of_clozes(_spread(natural, parts, rng), room)
    if (missing := min(room, _ENOUGH) - len(found)) > 0:
        found += await writer.of_clozes(_spread(in_place, parts, rng), missing)
    share = round(UNANSWERABLE * (len(found) + len(two) + len(none))) - len(none)
    one, hidden = await writer.hide(found, max(0, share))
    written = [*one, *two, *none, *hidden]
    if not one:
        raise DataError(
            f"No question could be written about the {len(documents)} documents of the index: "
            f"{sum(map(len, by_document.values()))} were made of their sentences, and none was kept. Expected "
            "documents of English sentences about what their titles name, and a search that finds them. Give questions "
            "of your own (questions.path), or a model that writes questions by itself."
        )
    rng.shuffle(written)
    return Written(tuple(_numbered(one, number) for number, one in enumerate(written)), writer.counts)


def _without_site(titles: Mapping[str, str]) -> dict[str, str]:
    """Titles by the ids of their documents, without the name of their site, which many end with behind a mark."""
    parts = {id: found for id, title in titles.items() if (found := _OF_A_SITE.fullmatch(title))}
    sites, fewest = Counter(found[2] for found in parts.values()), max(3, _SHARE_OF_A_SITE * len(titles))
    return {
        id: parts[id][1] if id in parts and sites[parts[id][2]] >= fewest else title for id, title in titles.items()
    }


def _documents(corpus: PassageStore, titles: Mapping[str, str]) -> dict[str, list[Passage]]:
    """The passages of these documents, in order, with these titles."""
    found: dict[str, list[Passage]] = {id: [] for id in titles}
    for passage in corpus.passages():
        if (title := titles.get(passage.document_id)) is not None:
            found[passage.document_id].append(replace(passage, title=title))
    return {id: sorted(passages, key=lambda passage: passage.start) for id, passages in found.items()}


def _copies(documents: Mapping[str, Sequence[Passage]]) -> dict[str, list[str]]:
    """Of documents with the same text the first, with the ids of all of them."""
    of_text: dict[str, list[str]] = {}
    for id in sorted(documents):
        of_text.setdefault(" ".join(" ".join(passage.text for passage in documents[id]).split()), []).append(id)
    return {ids[0]: ids for ids in of_text.values()}


def _of_one_answer(by_document: Mapping[str, Sequence[Cloze]], titles: Mapping[str, str]) -> dict[str, list[Cloze]]:
    """Without questions that have another answer in another document, or another sentence, and without those that name
    several documents: by the name of all of them, or by words of it that are in the names of others."""
    answers: dict[str, set[str]] = {}
    for found in by_document.values():
        for cloze in found:
            answers.setdefault(comparable(cloze.question), set()).add(comparable(cloze.answer))
    names = Counter(map(subject, titles.values()))
    holding: dict[str, set[str]] = {}
    for name in names:
        for word in words(name):
            holding.setdefault(word, set()).add(name)

    def is_one(cloze: Cloze) -> bool:
        if not cloze.query:
            return True
        if cloze.kind == "subject" or names[cloze.query]:
            return names[cloze.query] <= 1
        return len(set.intersection(*(holding.get(word, set[str]()) for word in words(cloze.query)))) == 1

    return {
        id: [cloze for cloze in found if len(answers[comparable(cloze.question)]) == 1 and is_one(cloze)]
        for id, found in by_document.items()
    }


def _in_order(by_document: Mapping[str, Sequence[Cloze]], in_front: bool) -> dict[str, list[Cloze]]:
    return {id: [cloze for cloze in found if cloze.is_natural == in_front] for id, found in by_document.items()}


def _parts(documents: Collection[str]) -> dict[str, tuple[str, str]]:
    """The part of the collection that each document is of: its folder, the highest level of which there are several,
    and its type."""
    paths = {id: PurePosixPath(id) for id in documents}
    levels = zip(*(path.parent.parts for path in paths.values()), strict=False)
    shared = sum(1 for _ in takewhile(lambda names: len({*names}) == 1, levels))
    return {id: ("".join(path.parent.parts[shared : shared + 1]), path.suffix.lower()) for id, path in paths.items()}


def _in_turn(made: Iterable[_T], parts: Mapping[str, tuple[str, str]], *, of: Callable[[_T], str]) -> list[_T]:
    """One of every part of the collection in turn, of each in its order: by size alone, a manual would leave no
    question for the few documents beside it. `of` gives the document."""
    by_part: dict[tuple[str, str], list[_T]] = {}
    for one in made:
        by_part.setdefault(parts[of(one)], []).append(one)
    return [one for several in zip_longest(*by_part.values()) for one in several if one is not None]


def _first_document(made: Chain | Comparison) -> str:
    return made.first.document_id


def _spread(
    by_document: Mapping[str, Sequence[Cloze]], parts: Mapping[str, tuple[str, str]], rng: random.Random
) -> Iterator[Cloze]:
    """Questions of every part of the collection in turn, and there of every document; first those that name what they
    are about."""
    mixed = {id: rng.sample(found, len(found)) for id, found in by_document.items()}
    for is_named in (True, False):
        own = [[cloze for cloze in found if bool(cloze.query) == is_named] for found in mixed.values()]
        several = (one for ones in zip_longest(*own) for one in ones if one is not None)
        yield from _in_turn(several, parts, of=attrgetter("document_id"))


@dataclass(slots=True)
class _Writer:
    """Keeps what the engine finds, each question once."""

    engine: SearchEngine
    k: int
    documents: Mapping[str, Sequence[Passage]]
    copies: Mapping[str, Sequence[str]]
    counts: Counter[str] = field(default_factory=Counter[str])
    seen: NearDuplicates = field(default_factory=lambda: NearDuplicates(_LIKENESS))

    async def of_clozes(self, candidates: Iterator[Cloze], number: int) -> list[tuple[Cloze, Item]]:
        """One hop. Kinds that have reached their share fill up what the others leave."""
        kept, spare = list[tuple[Cloze, Item]](), list[tuple[Cloze, Item]]()
        kinds, answers = Counter[str](), Counter[str]()

        def is_of_use(cloze: Cloze) -> bool:
            return kinds[cloze.kind] < KINDS[cloze.kind] * number or len(kept) + len(spare) < number

        for batch in _batches(filter(is_of_use, candidates)):
            for cloze, query in zip(batch, await self._queries(batch), strict=True):
                is_common = answers[cloze.answer] >= max(2, _OF_AN_ANSWER * number)
                if query and not is_common and self._is_new(cloze.question):
                    made = self._item(cloze.question, [cloze], [query], answer=cloze.answer, kind=cloze.kind)
                    room = kinds[cloze.kind] < KINDS[cloze.kind] * number
                    (kept if room else spare).append((cloze, made))
                    kinds[cloze.kind] += room
                    answers[cloze.answer] += 1
            if len(kept) >= number:
                break
        return [*kept, *spare][:number]

    async def of_two_hops(self, candidates: Sequence[Chain | Comparison], kind: str, number: int) -> list[Item]:
        """Two hops, each found by a search of its own."""
        kept = list[Item]()
        for batch in _batches(candidates):
            found = zip(
                batch,
                await self._queries([chain.first for chain in batch]),
                await self._queries([replace(chain.second, query=subject(chain.second.title)) for chain in batch]),
                strict=True,
            )
            for chain, first, second in found:
                if len(kept) < number and first and second and self._is_new(chain.question):
                    hops = [chain.first, chain.second]
                    kept.append(self._item(chain.question, hops, [first, second], answer=chain.answer, kind=kind))
            if len(kept) >= number:
                break
        return self._counted(kept)

    async def without_second_hop(self, linked: Sequence[Chain], number: int) -> list[Item]:
        """Chains whose second document is taken out."""
        kept = list[Item]()
        for batch in _batches(linked):
            first = await self._queries([chain.first for chain in batch])
            others = [(chain.question, query) for chain, query in zip(batch, first, strict=True)]
            without = await self._without([chain.second for chain in batch], others)
            for chain, query, lacks in zip(batch, first, without, strict=True):
                if len(kept) < number and query and lacks and self._is_new(chain.question):
                    queries, hops = [query, subject(chain.second.title)], [chain.first, chain.second]
                    kept.append(self._refusal(chain.question, hops, queries))
            if len(kept) >= number:
                break
        return self._counted(kept)

    async def hide(self, found: Sequence[tuple[Cloze, Item]], number: int) -> tuple[list[Item], list[Item]]:
        """The questions that keep their answers, and at most `number` whose document is taken out; no other one may be
        about the same. Each form (kind, and question word if it is in front) is hidden in the same share, and never
        whole: one that is mostly hidden would teach to refuse whatever has it."""
        forms = Counter(_form(cloze) for cloze, _ in found)
        room = {form: min(count - 1, ceil(number * count / len(found))) for form, count in forms.items()}
        one, none = list[Item](), list[Item]()
        for batch in _batches(found):
            tried = [cloze for cloze, _ in batch if cloze.kind != "subject" and room[_form(cloze)]]
            lacks = dict(zip(tried, await self._without(tried, [()] * len(tried)), strict=True))
            for cloze, item in batch:
                if lacks.get(cloze) and room[_form(cloze)] and len(none) < number:
                    none.append(self._refusal(cloze.question, [cloze], [cloze.query or cloze.question]))
                    room[_form(cloze)] -= 1
                else:
                    one.append(item)
        return self._counted(one), self._counted(none)

    async def _queries(self, clozes: Sequence[Cloze]) -> list[str]:
        """For each question the query that finds the answer in its document: its subject, or else the whole question;
        "" if neither does. A question that does not name its subject has to find it first."""
        queries = [query for cloze in clozes for query in (cloze.query or cloze.question, cloze.question)]
        found = await search(self.engine, queries, self.k)
        chosen: list[str] = []
        for place, cloze in enumerate(clozes):
            best = 1 if not cloze.query or cloze.kind == "subject" else self.k
            tried = ((queries[i], found[i][:best]) for i in (2 * place, 2 * place + 1))
            chosen.append(next((query for query, passages in tried if _holds(passages, cloze)), ""))
        self.counts["not found"] += chosen.count("")
        return chosen

    async def _without(self, clozes: Sequence[Cloze], others: Sequence[Sequence[str]]) -> list[bool]:
        """Whether no search, by the subject, by the question or by one of `others`, gives a passage with the answer
        once the question's document is taken out, nor finds one farther down that has what is asked about."""
        searched = [
            [(query, cloze.document_id) for query in (cloze.query, cloze.question, *more) if query]
            for cloze, more in zip(clozes, others, strict=True)
        ]
        distinct = list(dict.fromkeys(pair for pairs in searched for pair in pairs))
        queries, hidden = [query for query, _ in distinct], [{*self.copies[document]} for _, document in distinct]
        found = await search_others(self.engine, queries, hidden, _DEPTH * self.k)
        left = dict(zip(distinct, found, strict=True))

        def lacks(cloze: Cloze, pairs: Sequence[tuple[str, str]]) -> bool:
            return not any(
                (place < self.k and _contains(passage, cloze.answer)) or _is_about(passage, cloze)
                for pair in pairs
                for place, passage in enumerate(left[pair])
            )

        return list(map(lacks, clozes, searched))

    def _item(self, question: str, hops: Sequence[Cloze], queries: Sequence[str], *, answer: str, kind: str) -> Item:
        """The question of these hops, and how it is proposed: from a passage of the first document, by a search for the
        second."""
        source = hops[0]
        about = {"hops": len(hops), "kind": kind, "evidence": _stated_in(hops)}
        answered = (*map(_search, queries), DemonstratedTurn(answer=answer))
        solved = Demonstration(Question("", question, (answer,), about), answered)
        found = [_search(subject(hop.title)) for hop in hops[1:]]
        stated = (*found, DemonstratedTurn(question=question, answer=answer))
        held = self.documents[source.document_id]
        passage = next(passage for passage in held if passage.id == source.evidence[0])
        return Item(solved, ProposerDemonstration("", passage, len(hops), stated))

    def _refusal(self, question: str, hops: Sequence[Cloze], queries: Sequence[str]) -> Item:
        """The question of these hops as if the last document, and every copy of it, were not there. Its passages are
        not evidence, but keep it with the other questions of the same statements."""
        hidden = [*self.copies[hops[-1].document_id]]
        about = {"kind": "unanswerable", "answerable": False, "hidden": hidden, STATED_IN: _stated_in(hops)}
        turns = (*map(_search, queries), DemonstratedTurn(answer=REFUSAL))
        return Item(Demonstration(Question("", question, (), about), turns))

    def _is_new(self, question: str) -> bool:
        is_new = self.seen.is_new(question)
        self.counts["duplicate"] += not is_new
        return is_new

    def _counted(self, kept: list[Item]) -> list[Item]:
        self.counts.update(f"kept/{item.question.metadata['kind']}" for item in kept)
        return kept


def _stated_in(hops: Sequence[Cloze]) -> list[str]:
    return [id for hop in hops for id in hop.evidence]


def _form(cloze: Cloze) -> tuple[str, str]:
    return cloze.kind, cloze.question.split()[0] if cloze.is_natural else ""


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    left = iter(items)
    while batch := list(islice(left, _AT_ONCE)):
        yield batch


def _holds(passages: Sequence[Passage], cloze: Cloze) -> bool:
    """Whether a passage of the question's document has its answer, or one of a copy, which has what the statement says
    beside it."""
    said = {*words(f"{cloze.before} {cloze.after}")} - STOP_WORDS
    return any(
        _contains(passage, cloze.answer)
        and (cloze.document_id in passage.documents or _unsaid(said, passage) <= _UNSAID)
        for passage in passages
    )


def _contains(passage: Passage, answer: str) -> bool:
    return f" {fold(answer)} " in f" {fold(passage.contents)} "


def _is_about(passage: Passage, cloze: Cloze) -> bool:
    """Whether a passage has nearly all words of a question, stop words aside, and so may answer it in other words, or
    half of them, and the answer."""
    unsaid = _unsaid({*words(cloze.question)} - STOP_WORDS, passage)
    return unsaid <= _UNSAID or (unsaid <= _UNSAID_BESIDE and _contains(passage, cloze.answer))


def _unsaid(said: set[str], passage: Passage) -> float:
    """The share of these words that a passage has not; 1 if there are none."""
    return 1 - len(said & {*words(passage.contents)}) / max(1, len(said))


def _search(query: str) -> DemonstratedTurn:
    return DemonstratedTurn(query=query)


def _numbered(item: Item, number: int) -> Item:
    id = f"cold-{number}"
    solved = replace(item.solved, question=replace(item.question, id=id))
    return Item(solved, item.proposed and replace(item.proposed, id=id))
