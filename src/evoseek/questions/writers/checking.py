"""The questions of a cold start, each with its demonstration: a writer's questions, filtered by the search engine,
without near-duplicates, and balanced. This is the same for every writer.

A question is kept if one search finds a passage of its document that contains the answer; this search is its
demonstration. With two hops, both searches must. Some questions are asked as if their document did not exist
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
from pathlib import PurePosixPath
from typing import TypeVar

from evoseek.errors import DataError
from evoseek.protocols import PassageStore, SearchEngine
from evoseek.questions.demonstrations import DemonstratedTurn, Demonstration, ProposerDemonstration
from evoseek.questions.writers.base import SITE_MARK, Draft, Hop, QuestionWriter, subject, words
from evoseek.search.calling import search, search_others
from evoseek.text.duplicates import NearDuplicates
from evoseek.text.language import STOP_WORDS
from evoseek.text.normalization import comparable
from evoseek.text.scripts import fold
from evoseek.types import SHORT_ANSWER, Passage, Question

_T = TypeVar("_T")

REFUSAL = "Not found in the documents."
STATED_IN = "stated_in"
"""Key in the metadata of an unanswerable question: the passages whose statements it was made from."""
TWO_HOPS, UNANSWERABLE = 0.35, 0.25
"""Shares of the questions. The rest has one hop, and also replaces missing questions of two hops."""
LONG, NEAR = 0.35, 0.4
"""Shares of long questions among one-hop questions, and of near misses among unanswerable ones."""
KINDS = {"name": 0.4, "date": 0.25, "year": 0.1, "number": 0.1, "nationality": 0.1, "subject": 0.1, "does": 0.5}
"""The largest share of a kind among one-hop questions, as long as there are others. Other kinds have no limit."""

_DOCUMENTS = 20_000  # maximum number to read, drawn at random
_OF_AN_ANSWER = 0.01  # maximum share of one-hop questions with the same answer
_NEAR_DUPLICATE = 0.8
_DEPTH, _UNSAID = 8, 0.1  # search depth, in multiples of k, for passages that lack this share of a question's words
_UNSAID_BESIDE = 0.5  # the same share, in a passage with the answer
_UNSAID_MOST = 0.34  # in the first passages that a long question finds, or about the subject of a near miss
_FIRST = 10  # passages, among them the answer of a long question
_ENOUGH = 300  # kept one-hop questions: with these, no reserve is used
_OF_A_SITE = re.compile(rf"(.+){SITE_MARK.pattern}(.+)")
_SHARE_OF_A_SITE = 0.05  # of the titles have the site's name
_AT_ONCE = 128  # questions whose searches are one call of the engine


@dataclass(frozen=True, slots=True)
class Item:
    """A question with two demonstrations: answering it, and proposing it from a passage (None if the documents do not
    answer it)."""

    solved: Demonstration
    proposed: ProposerDemonstration | None = None

    @property
    def question(self) -> Question:
        """The demonstrated question."""
        return self.solved.question


@dataclass(frozen=True, slots=True)
class Written:
    """Questions in random order; `counts` says how many were made of each kind, and how many were kept."""

    items: tuple[Item, ...]
    counts: Mapping[str, int]


async def checked_questions(
    writer: QuestionWriter, corpus: PassageStore, engine: SearchEngine, number: int, *, k: int, seed: int
) -> Written:
    """Keep at most `number` of a writer's questions about a corpus; `k` is the number of passages per search. The same
    questions, corpus, engine and seed give the same result. Raises DataError if none is kept, ToolError if the engine,
    or a service that the writer calls, fails."""
    rng = random.Random(f"{seed}/cold start")
    titles: dict[str, str] = {}
    for passage in corpus.passages():
        titles.setdefault(passage.document_id, passage.title)
    titles = _without_site(titles)
    documents = _documents(corpus, {id: titles[id] for id in rng.sample(sorted(titles), min(len(titles), _DOCUMENTS))})
    copies = _copies(documents)
    for id in set(documents) - set(copies):
        del documents[id], titles[id]
    made = list(await writer.write(list(documents.values()), number))
    checker = _Checker(engine, k, documents, copies)
    checker.check_evidence(made)
    drafts = _of_one_answer(made, titles)
    checker.counts.update(documents=len(documents), copies=sum(map(len, copies.values())) - len(copies))
    checker.counts.update(f"made/{draft.kind}" for draft in drafts)
    written = await checker.chosen(drafts, number, rng)
    if not any(item.question.is_answerable for item in written):
        raise DataError(
            f"No question could be written about the {len(documents)} documents of the index: {len(made)} were made, "
            "and none was kept. Expected documents of English sentences about what their titles name, and a search "
            "that finds them. Give questions of your own (questions.path), or another writer (cold_start.writer)."
        )
    rng.shuffle(written)
    return Written(tuple(_numbered(one, number) for number, one in enumerate(written)), checker.counts)


def _without_site(titles: Mapping[str, str]) -> dict[str, str]:
    """Return titles by document id, without the site's name, with which many end after a mark."""
    parts = {id: found for id, title in titles.items() if (found := _OF_A_SITE.fullmatch(title))}
    sites, fewest = Counter(found[2] for found in parts.values()), max(3, _SHARE_OF_A_SITE * len(titles))
    return {
        id: parts[id][1] if id in parts and sites[parts[id][2]] >= fewest else title for id, title in titles.items()
    }


def _documents(corpus: PassageStore, titles: Mapping[str, str]) -> dict[str, list[Passage]]:
    """Return the passages of these documents, in order, under these titles."""
    found: dict[str, list[Passage]] = {id: [] for id in titles}
    for passage in corpus.passages():
        if (title := titles.get(passage.document_id)) is not None:
            found[passage.document_id].append(replace(passage, title=title))
    return {id: sorted(passages, key=lambda passage: passage.start) for id, passages in found.items()}


def _copies(documents: Mapping[str, Sequence[Passage]]) -> dict[str, list[str]]:
    """Return the first of each set of documents with equal texts, with the ids of all of them."""
    of_text: dict[str, list[str]] = {}
    for id in sorted(documents):
        of_text.setdefault(" ".join(" ".join(passage.text for passage in documents[id]).split()), []).append(id)
    return {ids[0]: ids for ids in of_text.values()}


def _of_one_answer(drafts: Sequence[Draft], titles: Mapping[str, str]) -> list[Draft]:
    """Drop questions that another document or sentence answers differently, and questions that name several documents:
    by a name that they share, or by words that are in other names, too."""
    answers: dict[str, set[str]] = {}
    for hop in (hop for draft in drafts for hop in draft.hops):
        answers.setdefault(comparable(hop.question), set()).add(comparable(hop.answer))
    names = Counter(map(subject, titles.values()))
    holding: dict[str, set[str]] = {}
    for name in names:
        for word in words(name):
            holding.setdefault(word, set()).add(name)

    def names_one(hop: Hop) -> bool:
        if not hop.query or names[hop.query]:
            return names[hop.query] <= 1
        return len(set.intersection(*(holding.get(word, set[str]()) for word in words(hop.query)))) == 1

    def is_one(draft: Draft) -> bool:
        return all(
            len(answers[comparable(hop.question)]) == 1 and (draft.kind == "subject" or names_one(hop))
            for hop in draft.hops
        )

    return list(filter(is_one, drafts))


def _parts(documents: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return the part of the collection to which each document belongs: its folder, at the highest level with several
    folders, and its type."""
    paths = {id: PurePosixPath(id) for id in documents}
    levels = zip(*(path.parent.parts for path in paths.values()), strict=False)
    shared = sum(1 for _ in takewhile(lambda names: len({*names}) == 1, levels))
    return {id: ("".join(path.parent.parts[shared : shared + 1]), path.suffix.lower()) for id, path in paths.items()}


def _in_turn(made: Iterable[_T], part_of: Callable[[_T], tuple[str, str]]) -> list[_T]:
    """Take items from every part of the collection in turn, each in its order. By size alone, a manual would leave no
    question for a few other documents."""
    by_part: dict[tuple[str, str], list[_T]] = {}
    for one in made:
        by_part.setdefault(part_of(one), []).append(one)
    return [one for several in zip_longest(*by_part.values()) for one in several if one is not None]


@dataclass(slots=True)
class _Checker:
    """Keeps questions whose evidence the engine finds, each once."""

    engine: SearchEngine
    k: int
    documents: Mapping[str, Sequence[Passage]]
    copies: Mapping[str, Sequence[str]]
    counts: Counter[str] = field(default_factory=Counter[str])
    seen: NearDuplicates = field(default_factory=lambda: NearDuplicates(_NEAR_DUPLICATE))
    passages: dict[str, Passage] = field(init=False)

    def __post_init__(self) -> None:
        self.passages = {passage.id: passage for found in self.documents.values() for passage in found}

    def check_evidence(self, drafts: Iterable[Draft]) -> None:
        """Raise DataError for a hop without evidence, or with evidence from no document or several."""
        for hop in (hop for draft in drafts for hop in draft.hops):
            held = {self.passages[id].document_id for id in hop.evidence if id in self.passages}
            if len(held) != 1 or not self.passages.keys() >= set(hop.evidence):
                raise DataError(
                    f"The question writer gave {hop.question!r} with the evidence {list(hop.evidence)}. Expected the "
                    "ids of passages that it was given, all of one document."
                )

    async def chosen(self, drafts: Sequence[Draft], number: int, rng: random.Random) -> list[Item]:
        """Choose questions of one hop, of several hops, and unanswerable ones, in their shares."""
        parts = _parts(self.documents)

        def part_of(draft: Draft) -> tuple[str, str]:
            return parts[self._document(draft.hops[0])]

        one = [draft for draft in drafts if len(draft.hops) == 1 and draft.answer and not draft.support]
        long = [draft for draft in drafts if draft.support]
        near = [draft for draft in drafts if not draft.answer]
        linked = [draft for draft in drafts if len(draft.hops) > 1]
        rng.shuffle(linked)
        linked = _in_turn([draft for draft in linked if not draft.in_reserve] or linked, part_of)
        plain, reserve = ([draft for draft in one if draft.in_reserve == is_last] for is_last in (False, True))
        number = min(number, max(len(plain), min(_ENOUGH, len(one))) + len(long))
        two = await self.of_several_hops(linked, round(TWO_HOPS * number))
        none = await self.without_last_hop(linked[::-1], round(UNANSWERABLE * number) // 3)
        none += await self.near_misses(_in_turn(self._spread(near, rng), part_of), round(NEAR * UNANSWERABLE * number))
        room = number - len(two) - len(none)
        most = room - min(round(LONG * room), len(long))
        found = await self.of_one_hop(_in_turn(self._spread(plain, rng), part_of), most)
        if (missing := min(most, _ENOUGH) - len(found)) > 0:
            found += await self.of_one_hop(_in_turn(self._spread(reserve, rng), part_of), missing)
        found += await self.of_one_hop(_in_turn(self._spread(long, rng), part_of), room - len(found))
        share = round(UNANSWERABLE * (len(found) + len(two) + len(none))) - len(none)
        answered, hidden = await self.hide(found, max(0, share))
        return [*answered, *two, *none, *hidden]

    def _spread(self, drafts: Sequence[Draft], rng: random.Random) -> Iterator[Draft]:
        """Yield the drafts of every document in turn; first the ones that name their subject."""
        by_document: dict[str, list[Draft]] = {}
        for draft in drafts:
            by_document.setdefault(self._document(draft.hops[0]), []).append(draft)
        mixed = [rng.sample(found, len(found)) for found in by_document.values()]
        for is_named in (True, False):
            own = [[draft for draft in found if bool(draft.hops[0].query) == is_named] for found in mixed]
            yield from (draft for several in zip_longest(*own) for draft in several if draft is not None)

    async def of_one_hop(self, candidates: Sequence[Draft], number: int) -> list[tuple[Draft, Item]]:
        """Keep questions of one hop. Kinds at their limit fill places that other kinds leave."""
        kept, spare = list[tuple[Draft, Item]](), list[tuple[Draft, Item]]()
        kinds, answers = Counter[str](), Counter[str]()

        def has_room(draft: Draft) -> bool:
            return kinds[draft.kind] < KINDS.get(draft.kind, 1) * number

        def is_of_use(draft: Draft) -> bool:
            return has_room(draft) or len(kept) + len(spare) < number

        for batch in _batches(filter(is_of_use, candidates)):
            queries = await self._queries([(draft.hops[0], self._depth(draft, draft.hops[0])) for draft in batch])
            for draft, query in zip(batch, queries, strict=True):
                is_common = answers[draft.answer] >= max(2, _OF_AN_ANSWER * number)
                if query and not is_common and self._is_new(draft.question):
                    room = has_room(draft)
                    (kept if room else spare).append((draft, self._item(draft, [query])))
                    kinds[draft.kind] += room
                    answers[draft.answer] += 1
            if len(kept) >= number:
                break
        return [*kept, *spare][:number]

    async def of_several_hops(self, candidates: Sequence[Draft], number: int) -> list[Item]:
        """Keep questions of more hops, each hop found by a separate search."""
        kept = list[Item]()
        for batch in _batches(candidates):
            hops = [(hop, self._depth(draft, hop)) for draft in batch for hop in draft.hops]
            queries = iter(await self._queries(hops))
            for draft in batch:
                found = [next(queries) for _ in draft.hops]
                if len(kept) < number and all(found) and self._is_new(draft.question):
                    kept.append(self._item(draft, found))
            if len(kept) >= number:
                break
        return self._counted(kept)

    async def without_last_hop(self, linked: Sequence[Draft], number: int) -> list[Item]:
        """Keep questions of more hops whose last document is hidden."""
        kept = list[Item]()
        for batch in _batches(linked):
            hops = [(hop, self._depth(draft, hop)) for draft in batch for hop in draft.hops[:-1]]
            queries = iter(await self._queries(hops))
            found = [[next(queries) for _ in draft.hops[:-1]] for draft in batch]
            others = [(draft.question, *filter(None, own)) for draft, own in zip(batch, found, strict=True)]
            without = await self._without([draft.hops[-1] for draft in batch], others)
            for draft, own, lacks in zip(batch, found, without, strict=True):
                if len(kept) < number and all(own) and lacks and self._is_new(draft.question):
                    kept.append(self._refusal(draft, [*own, draft.hops[-1].query or draft.hops[-1].question]))
            if len(kept) >= number:
                break
        return self._counted(kept)

    async def hide(self, found: Sequence[tuple[Draft, Item]], number: int) -> tuple[list[Item], list[Item]]:
        """Divide questions into the ones that keep their answers, and at most `number` whose document is hidden; no
        other question may be about that document. Each form (kind and question word) is hidden in the same share, never
        completely: if a form were mostly hidden, the policy would learn to refuse every question of that form."""
        forms = Counter(_form(draft) for draft, _ in found)
        room = {form: min(count - 1, ceil(number * count / len(found))) for form, count in forms.items()}
        answered, none = list[Item](), list[Item]()
        for batch in _batches(found):
            tried = [draft for draft, _ in batch if draft.kind != "subject" and room[_form(draft)]]
            without = await self._without([draft.hops[0] for draft in tried], [draft.support for draft in tried])
            lacks = dict(zip(tried, without, strict=True))
            for draft, item in batch:
                if lacks.get(draft) and room[_form(draft)] and len(none) < number:
                    none.append(self._refusal(draft, [draft.hops[0].query or draft.question]))
                    room[_form(draft)] -= 1
                else:
                    answered.append(item)
        return self._counted(answered), self._counted(none)

    async def near_misses(self, candidates: Sequence[Draft], number: int) -> list[Item]:
        """Keep questions that no document answers: no passage found has nearly all of their words, and no passage about
        their subject has most of them."""
        kept = list[Item]()

        def answers(passage: Passage, hop: Hop) -> bool:
            return _has_most(hop, passage, _UNSAID_MOST if subject(passage.title) == hop.query else _UNSAID)

        for batch in _batches(candidates):
            hops = [draft.hops[0] for draft in batch]
            queries = [query for hop in hops for query in (hop.question, hop.query)]
            found = await search(self.engine, queries, _DEPTH * self.k)
            for draft, hop, *both in zip(batch, hops, found[::2], found[1::2], strict=True):
                is_missed = not any(answers(passage, hop) for passages in both for passage in passages)
                if len(kept) < number and is_missed and self._is_new(draft.question):
                    kept.append(self._refusal(draft, [draft.question], hidden=()))
            if len(kept) >= number:
                break
        return self._counted(kept)

    def _depth(self, draft: Draft, hop: Hop) -> int:
        """Return in how many of a hop's search results its answer may be. For a short question that asks for its
        subject, or does not name it, the answer must be in the first one."""
        if draft.support:
            return _FIRST
        return self.k if hop.query and draft.kind != "subject" else 1

    async def _queries(self, hops: Sequence[tuple[Hop, int]]) -> list[str]:
        """Return, for each hop, the query that finds the answer in its document: its subject, or else the whole
        question; "" if neither does. The answer must be among the given number of passages."""
        queries = [query for hop, _ in hops for query in (hop.query or hop.question, hop.question)]
        found = await search(self.engine, queries, max([self.k, *(depth for _, depth in hops)]))
        chosen: list[str] = []
        for place, (hop, depth) in enumerate(hops):
            tried = ((queries[i], found[i][:depth]) for i in (2 * place, 2 * place + 1))
            chosen.append(next((query for query, passages in tried if self._holds(passages, hop)), ""))
        self.counts["not found"] += chosen.count("")
        return chosen

    async def _without(self, hops: Sequence[Hop], others: Sequence[Sequence[str]]) -> list[bool]:
        """Return whether the answer is gone when the hop's document is hidden: no search (by the subject, the question
        or one of `others`) returns a passage with the answer, or finds farther down one about the question."""
        searched = [
            [(query, self._document(hop)) for query in (hop.query, hop.question, *more) if query]
            for hop, more in zip(hops, others, strict=True)
        ]
        distinct = list(dict.fromkeys(pair for pairs in searched for pair in pairs))
        queries, hidden = [query for query, _ in distinct], [{*self.copies[document]} for _, document in distinct]
        found = await search_others(self.engine, queries, hidden, _DEPTH * self.k)
        left = dict(zip(distinct, found, strict=True))

        def lacks(hop: Hop, pairs: Sequence[tuple[str, str]]) -> bool:
            long = len(words(hop.answer)) > SHORT_ANSWER
            return not any(
                (place < self.k and (_contains(passage, hop.answer) or (long and _has_most(hop, passage))))
                or _is_about(passage, hop)
                for pair in pairs
                for place, passage in enumerate(left[pair])
            )

        return list(map(lacks, hops, searched))

    def _document(self, hop: Hop) -> str:
        return self.passages[hop.evidence[0]].document_id

    def _holds(self, passages: Sequence[Passage], hop: Hop) -> bool:
        """Return whether a passage has the hop's answer: one of its document, or of a copy that also has the rest of
        the statement."""
        said = {*words(hop.said)} - STOP_WORDS
        return any(
            _contains(passage, hop.answer)
            and (self._document(hop) in passage.documents or _unsaid(said, passage) <= _UNSAID)
            for passage in passages
        )

    def _item(self, draft: Draft, queries: Sequence[str]) -> Item:
        """Make the question and its proposal: from a passage of the first document, by searches for the others."""
        about: dict[str, object] = {"hops": len(draft.hops), "kind": draft.kind, "evidence": list(draft.evidence)}
        about |= {"form": "sentences", "support": list(draft.support)} if draft.support else {"form": "short"}
        answered = (*map(_search, queries), DemonstratedTurn(answer=draft.answer))
        solved = Demonstration(Question("", draft.question, (draft.answer,), about), answered)
        found = [_search(hop.query or hop.question) for hop in draft.hops[1:]]
        stated = (*found, DemonstratedTurn(question=draft.question, answer=draft.answer))
        passage = self.passages[draft.evidence[0]]
        return Item(solved, ProposerDemonstration("", passage, len(draft.hops), stated))

    def _refusal(self, draft: Draft, queries: Sequence[str], hidden: Sequence[str] | None = None) -> Item:
        """Make the question as if these documents (by default the last one and all its copies) did not exist. Its
        passages are not evidence, but keep it together with other questions from the same statements."""
        hidden = [*(self.copies[self._document(draft.hops[-1])] if hidden is None else hidden)]
        about = {"kind": "unanswerable", "answerable": False, "hidden": hidden, STATED_IN: list(draft.evidence)}
        turns = (*map(_search, queries), DemonstratedTurn(answer=REFUSAL))
        return Item(Demonstration(Question("", draft.question, (), about), turns))

    def _is_new(self, question: str) -> bool:
        is_new = self.seen.is_new(question)
        self.counts["duplicate"] += not is_new
        return is_new

    def _counted(self, kept: list[Item]) -> list[Item]:
        self.counts.update(f"kept/{item.question.metadata['kind']}" for item in kept)
        return kept


def _form(draft: Draft) -> tuple[str, str]:
    return draft.kind, "" if draft.in_reserve else draft.question.split()[0]


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    left = iter(items)
    while batch := list(islice(left, _AT_ONCE)):
        yield batch


def _contains(passage: Passage, answer: str) -> bool:
    return f" {fold(answer)} " in f" {fold(passage.contents)} "


def _is_about(passage: Passage, hop: Hop) -> bool:
    """Return whether a passage may answer a question: it has nearly all of the question's words except stop words, or
    half of them and the answer."""
    beside = _has_most(hop, passage, _UNSAID_BESIDE) and _contains(passage, hop.answer)
    return beside or _has_most(hop, passage, _UNSAID)


def _has_most(hop: Hop, passage: Passage, unsaid: float = _UNSAID_MOST) -> bool:
    return _unsaid({*words(hop.question)} - STOP_WORDS, passage) <= unsaid


def _unsaid(said: set[str], passage: Passage) -> float:
    """Return the share of these words that a passage lacks; 1 if there are no words."""
    return 1 - len(said & {*words(passage.contents)}) / max(1, len(said))


def _search(query: str) -> DemonstratedTurn:
    return DemonstratedTurn(query=query)


def _numbered(item: Item, number: int) -> Item:
    id = f"cold-{number}"
    solved = replace(item.solved, question=replace(item.question, id=id))
    return Item(solved, item.proposed and replace(item.proposed, id=id))
