"""Questions with answers of one to four sentences: an English heading asks, and the sentences below it answer.

(2) What types are there?    What types are there?
Configuring remotes          How do I configure remotes?
The json_remove() function   What does the json_remove() function do?
core.bare                    What does core.bare do?       (below it: "Tells Git whether ...")
Covering indexes             What is a covering index?     (below it: "A covering index is an index that ...")
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from evoseek.questions.writers.base import BRACKETS, Draft, Hop, QuestionWriterSettings, subject, words
from evoseek.questions.writers.rules_en import english as en
from evoseek.questions.writers.rules_en.clozes import is_english
from evoseek.questions.writers.rules_en.writer import RulesEn
from evoseek.text.language import STOP_WORDS
from evoseek.types import Passage

_SENTENCES, _WORDS_OF_ANSWER, _WORDS_OF_SENTENCE = 4, range(8, 81), range(4, 46)
_WORDS_OF_HEADING, _WORDS_OF_QUESTION, _WORDS_OF_TITLE = 20, 18, 8
_LEAST_LETTERS = 0.85  # share of letters and spaces in a sentence: less is code
_GENERAL = 3  # sections with the same heading, which then says nothing
_STEM = 5  # letters for matching words of a heading with the text below

_NUMBER = re.compile(r"^(?:(?:\(?\d+\)|(?:[A-Z]\.)?\d+(?:\.\d+)*\.?|Chapter \S+|#+|-)\s+)+")
_GENERIC = re.compile(r"description|overview|introduction|summary", re.IGNORECASE)
_NOUNS = (
    "command|function|interface|macro|method|opcode|operator|option|parameter|pragma|program|statement|variable|clause"
)
_NAMED = re.compile(rf"(?:[Tt]he )?(?P<name>[\w'\"().*-]+) (?P<noun>{_NOUNS})", re.IGNORECASE)
_TERM = re.compile(r"-{1,2}(?!no-)\w[\w-]*|PRAGMA \w+|\w+(?:[._]\w+)+(?:\(\))?|[a-z]+[A-Z]\w+|\w+\(\)|[A-Z]+_[A-Z_]+")
"""An option, or a name spelt like a program's."""
_DOES = re.compile(
    rf"(?:(?:This|The) (?:\S+ ){{0,3}}?(?:{_NOUNS}|flag|hook|routine|setting|utility)s? |[\w()./-]+ )?(?:\w+ly )?"
    r"(?:(?:is|can be) used (?:to|for)|(?!(?:this|its|as|is|was|has|unless|always)\b)[a-z]{2,}s (?!of\b|are\b|were\b))|"
    r"With this option, |If this ",
    re.IGNORECASE,
)
"""Beginning of a sentence about what something does: `This option is used to`, `core.bare tells`, `Specifies`."""
_STEPS = (
    "add|call|change|choose|click|configure|copy|create|declare|define|download|edit|enter|execute|give|include|install|"
    "invoke|issue|make|open|pass|press|provide|put|run|select|set|specify|start|type|use|write"
)
_ACTS = re.compile(
    rf"(?:^|[.;:,] |\b(?:then|and|simply|just|possible to) )(?:{_STEPS})\b|"
    r"\byou (?:can|should|must|need|have to|may|will)\b|\b(?:can|must|should|may) be [a-z]+ (?:by|with|using|via)\b|"
    r"\b(?:is|are) (?:\w+ly )?[a-z]+(?:ed|ne|wn) (?:by|with|using|via)\b|\b(?:by|using) [a-z]+ing\b",
    re.IGNORECASE,
)
"""Words that say how to do something."""
_NO_STEP = re.compile(r"bad idea|\bcannot\b|\bwrong\b|\bnot (?:possible|supported)\b|\bsuppose\b", re.IGNORECASE)
_CODE = re.compile(r"[$#>] |\.\.\.|…|[{};|=]|::|->|#\w| \?\w")
_OUTSIDE = re.compile(
    r"\b(?:(?:the|as) (?:following|above|below|previous|preceding)|below|above|here|this (?:section|chapter|page|"
    r"document|manual|example|article|tutorial)|these|see|figure|table \d|let['’]s|we|our|i)\b|:$|\[\d",
    re.IGNORECASE,
)
_OPENS_OUTSIDE = re.compile(r"(?:It|They|Those|Such|But|And|Or|So|However|Also|Then|Thus|Therefore|Another|Instead)\b")
_ASKED = re.compile(r"(?:Who|What|Which|When|Where|How|Why|Is|Are|Can|Do|Does|Should|Will) ")
_TO_DO = {"how": "How do I", "when": "When should I", "where": "Where do I"}
_GERUND = re.compile(r"(?P<gerund>[A-Za-z]+ing) (?!(?:of|and|or|in|for|with|to)\b)(?P<rest>\S.*)")


class HeadingsEn:
    """Writes the questions of `rules-en`; questions with sentences as answers, from English headings; and near misses
    of both, with the name of another document."""

    Settings = QuestionWriterSettings

    @classmethod
    def build(cls, settings: QuestionWriterSettings, context: object) -> HeadingsEn:
        return cls()

    async def write(self, documents: Sequence[Sequence[Passage]], number: int) -> list[Draft]:
        """Write all questions from sentences and headings, except from instructions and change notes, whose question
        word stays in place: "Fix what?"."""
        vocabulary = Vocabulary(documents)
        short = [
            draft
            for draft in await RulesEn().write(documents, number)
            if not (draft.in_reserve and vocabulary.is_verb(draft.question.split()[0]))
        ]
        drafts = [*short, *of_headings(documents, vocabulary)]
        return [*drafts, *_near_misses(drafts, documents)]


def _near_misses(drafts: Sequence[Draft], documents: Sequence[Sequence[Passage]]) -> Iterator[Draft]:
    """Yield questions with another document's name in place of their own, drawn among names with as many words."""
    titles = {passage.id: subject(passage.title) for found in documents for passage in found}
    named, names = {_plain(title): title for title in titles.values()}, dict[int, list[str]]()
    for name in sorted({_plain(titles[draft.evidence[0]]) for draft in drafts}):
        names.setdefault(len(words(name)), []).append(name)
    for draft in drafts:
        own = _plain(titles[draft.evidence[0]])
        found = re.search(rf"(?<![\w-]){re.escape(own)}(?![\w-])", draft.question) if _is_title(own) else None
        if found and len(draft.hops) == 1 and draft.kind != "subject":
            name = random.Random(draft.question).choice(names[len(words(own))])
            question = f"{draft.question[: found.start()]}{name}{draft.question[found.end() :]}"
            if name != own:
                yield Draft(question, draft.kind, (Hop(question, "", draft.evidence, named[name]),), draft.in_reserve)


@dataclass(frozen=True, slots=True)
class _Chapter:
    """A heading of a document without its number, and the first sentences of the text below it, all of one passage."""

    heading: str
    sentences: tuple[str, ...]
    passage: Passage

    @property
    def title(self) -> str:
        return _plain(subject(self.passage.title))

    @property
    def said(self) -> str:
        return " ".join(self.sentences)

    @property
    def own_words(self) -> list[str]:
        return [word for word in words(self.heading) if word not in STOP_WORDS]


def of_headings(documents: Sequence[Sequence[Passage]], vocabulary: Vocabulary) -> Iterator[Draft]:
    """Yield questions from the headings of English documents. If a heading does not say enough, or several sections
    have it, the question names the document, too."""
    sections = (section for passages in documents if is_english(passages) for section in _sections(passages))
    found = {(section.heading.lower(), section.sentences): section for section in sections}
    places = Counter(heading for heading, _ in found)
    for (heading, _), section in found.items():
        if is_generic := _GENERIC.fullmatch(heading) is not None:
            section = replace(section, heading=section.title)
        is_general = not is_generic and places[heading] >= _GENERAL and not heading.startswith("-")
        if not section.heading or is_general or not (made := _question(section, vocabulary)):
            continue
        question, kind = made
        is_short = kind == "how" and len(section.own_words) < 3
        if not is_generic and (places[heading] > 1 or heading.startswith("-") or is_short):
            if not _is_title(section.title):
                continue
            if not {*words(section.title)} <= {*words(question)}:
                question = f"{question} in {section.title}"
        if len(question.split()) <= _WORDS_OF_QUESTION:
            hop = Hop(f"{question}?", section.said, (section.passage.id,))
            yield Draft(hop.question, kind, (hop,), support=section.sentences)


def _is_title(title: str) -> bool:
    """Return whether a question can name a document by its title."""
    return 0 < len(words(title)) <= _WORDS_OF_TITLE and "," not in title


def _question(section: _Chapter, vocabulary: Vocabulary) -> tuple[str, str] | None:
    """Return the question of a heading without its sign, and its kind. None if the heading asks nothing, or the
    sentences below do not answer."""
    heading, first = section.heading, section.sentences[0]
    if heading.endswith("?"):
        asked, _, rest = heading[:-1].partition(" ")
        is_whole = _ASKED.match(heading) and len(section.own_words) > 1
        return (f"{asked} {vocabulary.in_a_sentence(rest)}", "asked") if is_whole else None
    if ":" in heading or "," in heading:
        return None
    if vocabulary.says_what_it_does(first):
        if _TERM.fullmatch(heading):
            return f"What does {'the option ' if heading[0] == '-' else ''}{heading} do", "does"
        if (found := _NAMED.fullmatch(heading)) and vocabulary.is_name(found["name"]):
            return f"What does the {found['name']} {found['noun'].lower()} do", "does"
        if first.startswith(f"{heading} "):
            return f"What does {re.sub('^(?:The|An?) ', lambda one: one[0].lower(), heading)} do", "does"
    return _how(section, vocabulary) or _what(section, vocabulary)


def _how(section: _Chapter, vocabulary: Vocabulary) -> tuple[str, str] | None:
    """Return the question of a heading that names an action: `How to merge`, `Merging two branches`."""
    text = re.sub(r"\byour\b", "my", vocabulary.in_a_sentence(section.heading))
    if not _ACTS.search(section.said) or _NO_STEP.search(section.said):
        return None
    if (found := re.match(r"(how|when|where) to (?=\w)", text, re.IGNORECASE)) and len(section.own_words) > 1:
        return f"{_TO_DO[found[1].lower()]} {text[found.end() :]}", "how"
    found, own = _GERUND.fullmatch(text), section.own_words
    below = {word[:_STEM] for word in words(section.said)}
    if not found or 2 * sum(word[:_STEM] in below for word in own) < len(own):
        return None
    verb, rest = vocabulary.infinitive(found["gerund"]), found["rest"]
    if not verb or vocabulary.describes(found["gerund"].lower(), rest.split()[0]):
        return None
    rest = re.sub(
        r"(?:(?<=\band )|(?<=\bor ))[A-Za-z]+ing\b", lambda one: vocabulary.infinitive(one[0]) or one[0], rest
    )
    return f"How do I {verb} {rest}", "how"


def _what(section: _Chapter, vocabulary: Vocabulary) -> tuple[str, str] | None:
    """Return the question of a heading that names a thing, if the first sentence says what the thing is."""
    name = re.escape(section.heading)
    names = rf"{name}(?:e?s)?|{name.removesuffix('s')}|{name.removesuffix('es')}"
    form = rf"(?P<article>(?:An?|The) )?(?P<name>{names}) (?P<is>is|are) (?:an?|the)\b"
    if not (found := re.match(form, section.sentences[0], re.IGNORECASE)):
        return None
    text = found["name"] if found["article"] else vocabulary.in_a_sentence(found["name"])
    return f"What {found['is']} {(found['article'] or '').lower()}{text}", "what"


class Vocabulary:
    """Counts of words and pairs of words in documents, with their spelling."""

    def __init__(self, documents: Sequence[Sequence[Passage]]) -> None:
        self._counts, self._pairs = Counter[str](), Counter[tuple[str, str]]()
        for passage in (passage for found in documents for passage in found):
            said = re.findall(r"[\w'’-]+", passage.own_text)
            self._counts.update(said)
            self._pairs.update(pairwise(said))

    def in_a_sentence(self, heading: str) -> str:
        """Return a heading with lower case where its words mostly have lower case."""
        is_shouted = heading.upper() == heading

        def small(found: re.Match[str]) -> str:
            word = found[0]
            if word.isupper() and len(word) > 1 and not is_shouted:
                return word
            is_common = word != "I" and word.lower() in STOP_WORDS
            return word.lower() if is_common or not self.is_name(word) else word

        return re.sub(r"(?<![\w.\"'`<-])[A-Z][\w’'-]*(?![\w.(])", small, heading)

    def is_name(self, word: str) -> bool:
        """Return whether a word mostly occurs with a capital letter or a sign."""
        return not word.isalpha() or self._counts[word.lower()] < self._counts[word]

    def infinitive(self, gerund: str) -> str | None:
        """Return the verb of a gerund, in its most frequent form: `name` for `naming`."""
        stem = gerund.lower().removesuffix("ing")
        forms = [stem, f"{stem}e", *([stem[:-1]] if stem[-2:-1] == stem[-1:] else [])]
        best = max(forms, key=self._counts.__getitem__)
        return best if self._counts[best] > 2 and (len(best) > 2 or best in ("do", "go")) else None

    def describes(self, gerund: str, following: str) -> bool:
        """Return whether a gerund is an adjective of the next word: `a covering index`."""
        return any(self._pairs[before, gerund] for before in ("a", "an")) and self._pairs[gerund, following] > 0

    def says_what_it_does(self, sentence: str) -> bool:
        """Return whether a sentence says what something does: `Lists remotes`, `This option lists`, `List them`."""
        return self.is_verb(sentence.split()[0]) or _DOES.match(sentence) is not None

    def is_verb(self, word: str) -> bool:
        """Return whether a word has the other forms of a verb: for `list`, `lists` and `listing`."""
        verb = word.lower()
        if verb.endswith("ed"):
            return self.is_verb(verb.removesuffix("ed")) or self.is_verb(verb.removesuffix("d"))
        gerunds = (f"{verb}ing", f"{verb.removesuffix('e')}ing", f"{verb}{verb[-1:]}ing")
        has_third = any(self._counts[form] for form in (f"{verb}s", f"{verb}es"))
        return len(verb) > 2 and has_third and any(self._counts[form] for form in gerunds)


def _sections(passages: Sequence[Passage]) -> Iterator[_Chapter]:
    """Yield the sections of a document that begin with prose. Headings are passages' headings, or lines that ask."""
    headings = {_plain(passage.heading) for passage in passages if passage.heading}
    heading, body = "", list[tuple[str, Passage]]()
    for line, passage in [(line, one) for one in passages for line in one.own_text.split("\n")]:
        plain = _plain(line)
        is_question = plain.endswith("?") and len(plain.split()) <= _WORDS_OF_HEADING and _ASKED.match(plain)
        if plain and (plain in headings or is_question):
            yield from _opened(heading, body)
            heading, body = plain, []
        elif body or line.strip(" -\t"):
            body.append((line, passage))
    yield from _opened(heading, body)


def _opened(heading: str, body: Sequence[tuple[str, Passage]]) -> Iterator[_Chapter]:
    """Yield the section if the sentences below a heading, within one passage and before the first list, are prose."""
    if not body or not 0 < len(words(heading)) <= _WORDS_OF_HEADING:
        return
    lines, passage = list[str](), body[0][1]
    for number, (line, of) in enumerate(body):
        if of is not passage or (number and re.match(r"\s*(?:[-*•|>]|\d+\.)\s", line)):
            break
        lines.append(line.strip().removeprefix("- "))
    sentences = list[str]()
    for text in re.split(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)\s+(?=[A-Z\"'`])", "\n".join(lines)):
        sentence = " ".join(text.split())
        is_long = len(words(" ".join([*sentences, sentence]))) > _WORDS_OF_ANSWER[-1]
        if len(sentences) == _SENTENCES or is_long or not _is_prose(sentence, is_first=not sentences):
            break
        sentences.append(sentence)
    if len(words(" ".join(sentences))) in _WORDS_OF_ANSWER:
        yield _Chapter(heading, tuple(sentences), passage)


def _is_prose(sentence: str, *, is_first: bool) -> bool:
    letters = sum(character.isalpha() or character == " " for character in sentence)
    return (
        len(words(sentence)) in _WORDS_OF_SENTENCE
        and en.SENTENCE.search(sentence) is not None
        and not sentence.endswith("?")
        and letters >= _LEAST_LETTERS * len(sentence)
        and not (_CODE.search(sentence) or _OUTSIDE.search(sentence))
        and not (is_first and (not sentence[0].isupper() or _OPENS_OUTSIDE.match(sentence)))
        and sentence.count("(") == sentence.count(")")
        and sentence.count('"') % 2 == 0
    )


def _plain(heading: str) -> str:
    """Return a heading or title without its number and the brackets after it."""
    text = _NUMBER.sub("", " ".join(heading.split())).strip(" :")
    return BRACKETS.sub("", text) if text.endswith(")") and "()" not in text else text
