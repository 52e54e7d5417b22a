"""The check whether the passages that a rollout found support its answer, and which do.

By words (the default): the first rule that applies decides.

    none    there is no answer, or only a refusal or citations
    topic   yes or no, which stands in no passage: supported if passages about the question, namely those whose title it
            names, and those with at least half of its significant words, have two thirds of these words between them
            (of a question in a script without spaces, if there are such passages)
    topic   a choice between things that the question itself names, so that naming one proves little: the answer stands
            in a passage, and those passages and the ones whose title the question names are of two documents or more
    words   the whole answer stands in a passage, its words in a row, in any case, accents and punctuation
            (empty words, such as `the` or `May`, only if capitalised within a sentence; an answer of nothing but words
            of its question, never)
    words   of an answer in several parts or in a sentence, every claim stands so in some passage: its parts without the
            words of the question, and without empty words at their ends

By words, the passages also have to be about the question: at least half of its significant words, by their stems, and
two thirds of its names and numbers, each whole, stand in the passages that hold the answer, or in those that are
connected with them (of the same document, or one names the title of the other, as the page of a film names its
director). A passage says what its path says, too. A name is words with capital letters in a row: Rufus Jones is not
Rufus E. Jones. Its words count twice, words of the answer not. That is not asked of a question that has no more than
one significant word, or is in a script without spaces.

If the engine knows how many passages hold a word, rarer words weigh more. A rare word counts twice, like a name, since
people also write names in lower case. A name that the index is about (a quarter of its passages hold it), such as a
product's in its manual, need not stand there.

An answer of several sentences, or of one with more than ten words that no rule above supports, is judged sentence by
sentence (rule `sentences`). A sentence is supported if it stands in a passage, or if up to three in a row there, with
the passage's title, have 85 % of its significant words, by the same weights, and all its names, options and
numbers, but not its number in a list; the nearest of them must deny if and only if the sentence does. `Yes.` and
`No.` count as their explanation. The passages also have to be about the question, words of the answer included.

This checks that the passages contain the answer and mention the question's subject, not that they state the answer
about the subject: Meri may be the same city's judge. A judge (settings [support]) reads the question, the answer and
the passages instead.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import log
from typing import Literal

from evoseek.protocols import Chat, WordCounts
from evoseek.questions.answer_rules import NUMBER_WORDS, AnswerSentence, sentences_of
from evoseek.questions.question_rules import offers_alternatives
from evoseek.reward.judge import on_one_line, parse_verdict, verdict_form
from evoseek.rollout.prompts import PromptTemplate
from evoseek.search.analyser import Analyser
from evoseek.text.language import DENIALS, JOINS, STOP_WORDS, YES_NO, is_refusal, languages_of
from evoseek.text.scripts import find_citations, fold, fold_places, is_unspaced, without_citations
from evoseek.types import SHORT_ANSWER, Message, Passage, Trajectory

_SAID, _IN_A_ROW = 0.85, 3  # of a sentence's significant words, and the sentences of a passage that have them
_OPTION = re.compile(r"(?<!\S)[(\"'`]*(--?[a-z][\w-]*|[\w.-]*[a-z_]{2}[./_]\w[\w./-]*)")  # or the name of a file
_ITEM = re.compile(r"(\d{1,2})[.)]\s+(?=\S)")  # of a numbered list
_DENIAL = re.compile(rf"\b(?:{'|'.join(sorted(DENIALS))})\b|n['’]t\b", re.IGNORECASE)

_EMPTY = STOP_WORDS - DENIALS
_PARTS = re.compile(rf"[,;:.!?()\n]+(?=\s|$)|[、。，；]|\b(?:{'|'.join(sorted(JOINS))})\b", re.IGNORECASE)

_ABOUT, _COVERED = 0.5, 2 / 3  # of a question's significant words
_STEMS = Analyser("english")  # also for words of other languages, the same in questions and passages
_QUALIFIER = re.compile(r"(?<!\s)\s*\([^()]*\)$")  # of a title: Alien (film)
_COUNTS = frozenset(["one", "two", "first", "second"])  # answers, though stop words
_GENITIVE = re.compile(r"['’]s\b\W*$")
_GROUPED = re.compile(r"\d[ .]\d{3}(?!\d)")
_STOPS = re.compile(r"[、。，；！？]|[.,;!?](?!\d)")


@dataclass(frozen=True, slots=True)
class Support:
    """The result of the check: the supporting passages in the order of finding, whether they support the answer, the
    rule that decided, and the words that were looked for."""

    passages: tuple[Passage, ...]
    is_given: bool
    rule: Literal["none", "topic", "words", "sentences", "judge"]
    words: tuple[str, ...] = ()
    sentences: tuple[Sentence, ...] = ()

    @property
    def kept(self) -> str:
        """The supported sentences of the answer, without citations."""
        kept = [one for one in self.sentences if one.is_supported]
        return "".join(f"{one.before}{one.text}" for one in kept).strip()


Check = Callable[[Trajectory], Awaitable[Support]]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of an answer without its citations, and the white space before it. `numbers` are the cited passages
    that support it, or else the first passage that does."""

    text: str
    before: str
    numbers: tuple[int, ...]
    is_supported: bool

    @property
    def marked(self) -> str:
        """The text with its numbers before the full stop, if it is supported."""
        marks = "".join(f"[{number}]" for number in self.numbers if self.is_supported)
        bare = self.text.rstrip(".!?。！？")
        return f"{bare} {marks}{self.text[len(bare) :]}" if marks else self.text


async def by_words(trajectory: Trajectory, index: WordCounts | None = None) -> Support:
    """Check by words, as a Check."""
    return support_of(trajectory, index)


def support_of(trajectory: Trajectory, index: WordCounts | None = None) -> Support:
    """Check by words, with the index's weights; None: equal weights, since the engine does not count words."""
    parts, shown = sentences_of(trajectory.answer or ""), trajectory.passages
    bare = replace(trajectory, answer=trajectory.answer and without_citations(trajectory.answer))
    answer = bare.answer or ""
    if len(parts) > 1 and not is_refusal(answer):
        said = [part for part in parts if fold(part.text) and not part.text.startswith("```")]  # not of Markdown
        return _by_sentence(bare, said, index)
    whole = _of_whole(bare, index)
    is_short = len(fold(answer).split()) <= SHORT_ANSWER and _explanation(answer) == answer
    if not (whole.is_given or is_short or whole.rule == "none"):
        return _by_sentence(bare, parts, index)
    numbers = _numbers(whole.passages, shown, [number for part in parts for number in part.cited])
    return replace(whole, sentences=(Sentence(answer, "", numbers, whole.is_given),) if answer else ())


def _numbers(holding: Sequence[Passage], shown: Sequence[Passage], cited: Sequence[int]) -> tuple[int, ...]:
    """Return the cited numbers of passages that hold a sentence, or else the first such number."""
    ids = {passage.id for passage in holding}
    held = [number for number, passage in enumerate(shown, start=1) if passage.id in ids]
    return tuple(number for number in dict.fromkeys(cited) if number in held) or tuple(held[:1])


def _of_whole(trajectory: Trajectory, index: WordCounts | None) -> Support:
    held, question = _held(trajectory, index), trajectory.question.text
    if held.rule != "words" or not held.is_given or _is_about(held, question, found_passages(trajectory), index):
        return held
    return replace(held, passages=(), is_given=False)


def _by_sentence(trajectory: Trajectory, parts: Sequence[AnswerSentence], index: WordCounts | None) -> Support:
    question, found, shown = trajectory.question.text, found_passages(trajectory), trajectory.passages
    items = {place: item for place, part in enumerate(parts) if (item := _ITEM.match(part.text))}
    is_list = len(items) > 1 and [int(item[1]) for item in items.values()] == list(range(1, len(items) + 1))
    starts = [items[place].end() if is_list and place in items else 0 for place in range(len(parts))]
    stated = [part.text[start:] for part, start in zip(parts, starts, strict=True)]
    sources = [_sources(replace(trajectory, answer=text), index) for text in stated]
    holding = tuple(p for p in found if any(p.id in own for own in sources))
    is_about = bool(holding) and _is_about(Support(holding, True, "sentences"), question, found, index)
    judged = list[Sentence]()
    for part, own in zip(parts, sources, strict=True):
        numbers = _numbers([p for p in found if p.id in own], shown, part.cited)
        is_supported = is_about and (bool(own) or fold(part.text) in YES_NO)
        judged.append(Sentence(part.text, part.before, numbers, is_supported))
    if not is_about:
        return Support((), False, "sentences", sentences=tuple(judged))
    cited = {shown[number - 1].id for one in judged for number in one.numbers}
    words = tuple(dict.fromkeys(said for own in sources for id, said in own.items() if id in cited))
    return Support(tuple(p for p in holding if p.id in cited), True, "sentences", words, tuple(judged))


def _sources(trajectory: Trajectory, index: WordCounts | None) -> dict[str, str]:
    """Return the supporting text of each passage that supports a sentence, by the passage's id."""
    sentence = trajectory.answer or ""
    if is_refusal(sentence) or fold(sentence) in YES_NO:
        return {}
    stated = _Meaning.of(_explanation(sentence), index)
    return {p.id: source for p in found_passages(trajectory) if (source := stated.source(p))}


@lru_cache(maxsize=256)
def _said(text: str) -> tuple[list[str], list[list[str]]]:
    """Return the sentences of a passage, and the stems of each; cached for all rollouts of a group."""
    said = [one.text for one in sentences_of(text, cites=False)]
    return said, list(map(_stems, said))


def _explanation(sentence: str) -> str:
    """Return what follows `Yes,` or `No,`, or else the whole sentence."""
    first, comma, rest = sentence.partition(",")
    return rest.strip() if comma and fold(first) in YES_NO else sentence


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The meaning of a sentence: the weights of its significant words, its names, options and numbers, and whether it
    denies."""

    text: str
    weights: Mapping[str, float]
    names: Sequence[Sequence[str]]
    denies: bool

    @classmethod
    def of(cls, text: str, index: WordCounts | None) -> _Meaning:
        counts, weights = _counts(text, index), dict[str, float]()
        for word, weight in _weights(counts, index).items():
            weights |= {stem: max(weight, weights.get(stem, 0.0)) for stem in _stems(word)}
        names = [*_names_in(text), *(_stems(option[1]) for option in _OPTION.finditer(text))]
        names = _telling(names, counts, len(index)) if index is not None else names
        names += [_stems(word) for word in fold(text).split() if NUMBER_WORDS.get(word, "0") not in "01"]
        return cls(text, weights, names, bool(_DENIAL.search(text)))

    def source(self, passage: Passage) -> str:
        """Return the passage's text that states it, or ""."""
        if _stands_in(self.text, passage.contents):
            return self.text
        said, stems = _said(passage.text)
        label = _stems(f"{passage.label} {passage.file or ''}")
        for start in range(len(said)):
            row = range(start, min(start + _IN_A_ROW, len(said)))
            text = [*label, *(stem for n in row for stem in stems[n])]
            nearest = said[max(row, key=lambda n: self._share(stems[n]))]
            is_said = bool(self.weights) and self._share(text) >= _SAID and all(_is_named(n, text) for n in self.names)
            if is_said and self.denies is bool(_DENIAL.search(nearest)):
                return " ".join(said[n] for n in row)
        return ""

    def _share(self, stems: Sequence[str]) -> float:
        wanted = sum(self.weights.values())
        return sum(self.weights[stem] for stem in self.weights.keys() & stems) / wanted if wanted else 0.0


def _held(trajectory: Trajectory, index: WordCounts | None = None) -> Support:
    """Check the whole answer by words, without regard to what the passages are about."""
    answer, question, found = trajectory.answer or "", trajectory.question.text, found_passages(trajectory)
    if _says_nothing(answer):
        return Support((), False, "none")
    if fold(answer) in YES_NO:
        weights = _weights(_counts(question, index), index)
        about = tuple(p for p in found if _names(question, p) or _share(weights, (p,)) >= _ABOUT)
        is_covered = bool(about) and (is_unspaced(question) or _share(weights, about) >= _COVERED)
        return Support(about if is_covered else (), is_covered, "topic")
    holding = tuple(p for p in found if _holds(p, answer))
    if offers_alternatives(question) and _stands_in(answer, question):
        related = tuple(p for p in found if p in holding or _names(question, p))
        return Support(related, bool(holding) and len({p.document_id for p in related}) > 1, "topic", (answer,))
    if _echoes(answer, question):
        return Support((), False, "words")
    if holding:
        return Support(holding, True, "words", (answer,))
    claims = list(_claims(answer, question))
    holders = {claim: [p for p in found if _stands_in(claim, p.contents)] for claim in claims}
    named = [p for passages in holders.values() for p in passages]
    denies = any(DENIALS.issuperset(claim.split()) for claim in claims)  # common in passages
    is_given = bool(claims) and all(holders.values()) and not denies
    return Support(tuple(p for p in found if is_given and p in named), is_given, "words", tuple(dict.fromkeys(claims)))


def _says_nothing(answer: str) -> bool:
    """Return whether an answer is a refusal, or only a citation."""
    return is_refusal(answer) or not fold(find_citations(answer)[0])


def found_passages(trajectory: Trajectory) -> tuple[Passage, ...]:
    """Return the passages of all searches, each once."""
    return tuple({p.id: p for p in trajectory.passages}.values())


def missing_words(question: str, passages: Sequence[Passage]) -> tuple[str, ...]:
    """Return the significant words of a question that stand in none of these passages, by their stems; none in a script
    without spaces."""
    held = {stem for passage in passages for stem in _stems(_text_of(passage))}
    words = [] if is_unspaced(question) else (word.strip("\"'“”‘’()[].,;:?!") for word in question.split())
    absent = (word for word in words if fold(word) not in STOP_WORDS and not held.issuperset(_stems(word)))
    return tuple(dict.fromkeys(absent))


class SupportJudge:
    """A Check by a chat model, called only for an answer with passages. The supporting passages are those that the
    words point to, or else all. Raises ToolError without a verdict."""

    def __init__(self, chat: Chat, template: PromptTemplate) -> None:
        self._chat, self._template = chat, template

    async def __call__(self, trajectory: Trajectory) -> Support:
        found = found_passages(trajectory)
        if _says_nothing(trajectory.answer or "") or not found:
            return Support((), False, "none")
        question, answer = on_one_line(trajectory.question.text), on_one_line(trajectory.answer or "")
        prompt = self._template.marked(question=question, answer=answer, passages=found)
        reply = await self._chat.chat(
            [Message("user", prompt)], key=f"{trajectory.id}/support", form=verdict_form("supported")
        )
        is_given = parse_verdict(reply, ("supported", "unsupported"))
        by_its_words = _held(replace(trajectory, answer=without_citations(trajectory.answer or "")))
        judged = tuple(replace(one, is_supported=is_given) for one in support_of(trajectory).sentences)
        passages = (by_its_words.passages or found) if is_given else ()
        return Support(passages, is_given, "judge", by_its_words.words, judged)


def spans(words: Sequence[str], text: str) -> list[list[int]]:
    """Return the character ranges of these words in a text, in order and disjoint."""
    found: list[tuple[int, int]] = []
    for part in filter(fold, words):
        for grouped in _groupings(text):
            folded, places = fold_places(text, grouped)
            found += ((places[one.start()][0], places[one.end() - 1][1]) for one in _pattern(part).finditer(folded))
    apart: list[list[int]] = []
    for start, end in sorted(found):
        if apart and start < apart[-1][1]:
            apart[-1][1] = max(end, apart[-1][1])
        else:
            apart.append([start, end])
    return apart


def _is_about(support: Support, question: str, found: Sequence[Passage], index: WordCounts | None = None) -> bool:
    """Return whether the passages that hold the answer, and connected ones, have half of a question's significant
    words, and two thirds of its names and numbers, by weight."""
    skipped = {*_stems(" ".join((*support.words, *STOP_WORDS.intersection(fold(question).split()))))}
    every = _counts(question, index)
    counts = {w: n for w, n in every.items() if not skipped.issuperset(_stems(w))}
    names, rare = [name for name in _names_in(question) if not skipped.issuperset(name)], set[str]()
    if index is not None:
        names, rare = _telling(names, counts, len(index)), _rare(counts, len(index))
    weights = {
        stem: weight * (1 + (stem in rare or any(stem in name for name in names)))
        for word, weight in _weights(counts, index).items()
        for stem in {*_stems(word)} - skipped
    }
    significant = {stem for word in every for stem in _stems(word)}
    if len(significant) + sum(any(stem in name for name in names) for stem in weights) < 2 or is_unspaced(question):
        return True
    texts = [_stems(_text_of(p)) for p in _connected(support.passages, found)]
    held = {stem for text in texts for stem in text}
    is_covered = sum(weight for stem, weight in weights.items() if stem in held) >= _ABOUT * sum(weights.values())
    weigh = [max(weights.get(stem, 0) for stem in name) for name in names]
    whole = sum(weight for name, weight in zip(names, weigh, strict=True) if any(_is_named(name, t) for t in texts))
    return is_covered and whole >= _COVERED * sum(weigh)


def _counts(question: str, index: WordCounts | None) -> dict[str, int]:
    """Return a question's significant words, with the number of the index's passages that hold each."""
    words = (word for word in fold(question).split() if word not in STOP_WORDS)
    return {word: min(index.passages_with(word), len(index)) if index is not None else 0 for word in words}


def _weights(counts: Mapping[str, int], index: WordCounts | None) -> dict[str, float]:
    """Return the weights of words: higher for rarer words; equal without an index."""
    return {word: log((len(index) + 1) / (count + 0.5)) if index is not None else 1.0 for word, count in counts.items()}


def _telling(names: Sequence[list[str]], counts: Mapping[str, int], passages: int) -> list[list[str]]:
    """Leave out names that an index is about, in at least a quarter of its passages; if it has n < 256 passages, in n
    divided by its fourth root, which is more."""
    held = {stem: count for word, count in counts.items() for stem in _stems(word)}
    most = max(passages / 4, passages**0.75)
    return [name for name in names if any(held.get(stem, 0) < most for stem in name)]


def _rare(counts: Mapping[str, int], passages: int) -> set[str]:
    """Return the stems of rare words, which weigh like names in any case: at most the fourth root of n of n passages
    hold one."""
    return {stem for word, count in counts.items() if count <= passages**0.25 for stem in _stems(word)}


def _text_of(passage: Passage) -> str:
    """Return a passage's contents and file: the folder of a product's documents often has the product's name."""
    return f"{passage.contents} {passage.file or ''}"


def _names_in(question: str) -> list[list[str]]:
    """Return the stems of each name or number: consecutive words with a capital letter, a digit or an underscore (in
    German, whose nouns are capitalised, single words). The capital letter of a question's first word does not count, a
    genitive or a punctuation mark ends a name, and a year is a name by itself. If every word is capitalised, there are
    no names."""
    words = (question[:1].lower() + question[1:]).split()
    if not any(word.islower() for word in words[1:]):
        return []
    is_german = "de" in (language.code for language in languages_of(question))
    names: list[list[str]] = [[]]
    for word in words:
        bare = _GENITIVE.sub("", word).strip("\"'“”‘’()[]")
        is_number = bare.strip(",.;:?!").isdigit()
        if is_number or word[0] in '("“':
            names.append([])
        is_name = any(c.isupper() or c.isdigit() or c == "_" for c in word)
        names[-1] += [bare] if is_name else []
        if not is_name or is_number or is_german or bare != word or word[-1] in ",;:?!":
            names.append([])
    return [stems for name in names if (stems := _stems(" ".join(name)))]


def _is_named(name: Sequence[str], text: Sequence[str]) -> bool:
    """Return whether a name stands in a text as a phrase; of three words or more (President Ada Birk), two as a phrase,
    and the others anywhere."""
    if f" {' '.join(name)} " in f" {' '.join(text)} ":
        return True
    pairs = (f" {one} {other} " for one, other in pairwise(name))
    return len(name) > 2 and set(name) <= {*text} and any(pair in f" {' '.join(text)} " for pair in pairs)


def _stems(text: str) -> list[str]:
    return list(_STEMS.tokens(fold(text)))


def _connected(passages: Sequence[Passage], found: Sequence[Passage]) -> list[Passage]:
    """Return passages, with those connected by chains of the same documents and named titles."""
    texts = {p.id: (f" {fold(_QUALIFIER.sub('', p.title))} ", f" {fold(p.contents)} ") for p in found}

    def name_each_other(one: Passage, other: Passage) -> bool:
        (title, text), (other_title, other_text) = texts[one.id], texts[other.id]
        named = (title in other_text and _is_telling(title)) or (other_title in text and _is_telling(other_title))
        return named or one.document_id == other.document_id

    reached, others = list(passages), [p for p in found if p not in passages]
    for one in reached:  # grows in the loop
        near = [p for p in others if name_each_other(one, p)]
        reached += near
        others = [p for p in others if p not in near]
    return reached


def _is_telling(title: str) -> bool:
    return bool(_without_ends(title.split()))


def _holds(passage: Passage, answer: str) -> bool:
    """Return whether an answer stands in a passage; an answer of empty words must be capitalised within a sentence."""
    if not set(fold(answer).split()) <= (STOP_WORDS | DENIALS) - _COUNTS:
        return _stands_in(answer, passage.contents)
    name = answer.strip(" .")
    return name[:1].isupper() and bool(re.search(rf"(?<=[^\s.:!?] ){re.escape(name)}\b", passage.contents))


def _echoes(answer: str, question: str) -> bool:
    """Return whether all words of an answer, or all but empty ones, are words of its question."""
    words = set(fold(answer).split())
    return _stands_in(answer, question) or (words - (_EMPTY - _COUNTS) or words) <= set(fold(question).split())


def _stands_in(words: str, text: str) -> bool:
    """Return whether words stand in a text as a phrase of whole words; without spaces between words, as characters
    within a sentence, but not within a number or a Latin word."""
    if not fold(words):
        return False
    pieces = _STOPS.split(text) if is_unspaced(words) else [text]
    blank = "" if is_unspaced(words) else " "
    return any(
        _pattern(words).search(fold(piece, grouped=grouped).replace(" ", blank))
        for piece in pieces
        for grouped in _groupings(piece)
    )


def _groupings(text: str) -> Iterator[str]:
    """Yield the possible separators of thousands of a text: `12 345` may be one number or two, and `1.250` one of four
    digits, if the text is known not to be English."""
    yield ""
    if _GROUPED.search(text):
        codes = [language.code for language in languages_of(text)]
        yield " ." if codes and "en" not in codes else " "


@lru_cache(maxsize=256)
def _pattern(words: str) -> re.Pattern[str]:
    """Return a pattern that finds words in a folded text."""
    if not is_unspaced(words):
        return re.compile(rf"(?<!\S){' +'.join(map(re.escape, fold(words).split()))}(?!\S)")
    part = fold(words).replace(" ", "")
    before, after = r"(?<![0-9a-z])(?<![0-9][./:^])(?<!-)", r"(?![0-9a-z+#*]|[./:^][0-9])"
    pattern = " *".join(map(re.escape, part))
    return re.compile(f"{before if part[0].isascii() else ''}{pattern}{after if part[-1].isascii() else ''}")


def _names(question: str, passage: Passage) -> bool:
    return _is_telling(fold(passage.title)) and _stands_in(passage.title, question)


def _share(weights: Mapping[str, float], passages: Sequence[Passage]) -> float:
    """Return the weighted share of these words that the passages together hold; 0 without words."""
    held = {word for passage in passages for word in fold(_text_of(passage)).split()}
    wanted = sum(weights.values())
    return sum(weight for word, weight in weights.items() if word in held) / wanted if wanted else 0.0


def _claims(answer: str, question: str) -> Iterator[str]:
    """Yield the parts of an answer beyond the words of its question."""
    known = set(fold(question).split())
    for part in _PARTS.split(answer):
        run: list[str] = []
        for word in [*fold(part).split(), None]:
            if word is not None and word not in known:
                run.append(word)
            else:
                if claim := _without_ends(run):
                    yield " ".join(claim)
                run = []


def _without_ends(words: Sequence[str]) -> Sequence[str]:
    """Return the words from the first to the last that is not empty."""
    telling = [number for number, word in enumerate(words) if word not in _EMPTY]
    return words[telling[0] : telling[-1] + 1] if telling else ()
