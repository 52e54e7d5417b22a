"""Questions from statements: a question word replaces a span of a sentence, and the span is the answer.

"Marlow was founded by Ines Oduya in 1907." gives "Who founded Marlow?" and "When was Marlow founded by Ines Oduya?".
This is the cloze of unsupervised question answering (Lewis et al. 2019, arXiv 1906.04980), with the question word for
the kind of the span. It needs no model: when a model with 135 million parameters writes about a passage, 4 to 7 of 100
texts are a question with its answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evoseek.questions.writers.base import BRACKETS, subject, words
from evoseek.questions.writers.rules_en import english as en
from evoseek.questions.writers.rules_en.fronting import fronted
from evoseek.text.language import grammar_hits, languages_of, words_of
from evoseek.types import Passage

_WORDS_OF_STATEMENT, _WORDS_OF_QUESTION = range(4, 46), range(3, 33)
_LEAST_LETTERS = 0.8  # share of letters and spaces in a statement: less is code, a table or a formula
_CODE = re.compile(r">>>|[;*|={}<>#]")
_TWICE = re.compile(r"(\w+) \1\b", re.IGNORECASE)  # a heading, and the sentence after it
_NAMES_SOMETHING = re.compile(rf"(?<=\w ){en.SPANS['name'].pattern}|[a-z][A-Z]|\b[A-Z]{{2}}|\w_\w")
_SIGNS = 9  # that may stand before a heading
_LANGUAGE_PASSAGES = 5  # from which a document's language is detected
_SENTENCES = 20_000  # of a document
_WORDS_OF_INTRODUCTION = 6  # that name a person
_LONGEST_SENTENCE = 1_000  # characters to read, since some patterns take quadratic time
_WORDS_OF_SUBJECT = 8
_WORDS_OF_SUBJECT_QUESTION = range(6, 23)


@dataclass(frozen=True, slots=True)
class Cloze:
    """A question about a span of a statement.

    `before` and `after` are the statement around the span, up to the clause's end. `query` is the document's subject,
    or the part of it that the question names; "" if the statement does not name it. `evidence` are the ids of the
    passages with the statement and the answer. `subject` is the document's subject.
    """

    question: str
    answer: str
    kind: str
    query: str
    before: str
    after: str
    subject: str
    evidence: tuple[str, ...]
    of_person: bool = False  # the document

    @property
    def is_natural(self) -> bool:
        """Whether the question begins with its question word."""
        return is_natural(self.question)


@dataclass(frozen=True, slots=True)
class _Statement:
    """A sentence of a document, with the document's subject in place of a pronoun and without brackets."""

    text: str
    subject: str
    of_person: bool
    passages: tuple[Passage, ...]
    is_section: bool = False

    def asks(self, question: str, answer: str, kind: str, query: str, before: str = "", after: str = "") -> Cloze:
        holding = [passage.id for passage in self.passages if answer in " ".join(passage.text.split())]
        evidence = tuple(holding or [passage.id for passage in self.passages])
        found_by = "" if self.is_section else query  # its document has other subjects, too
        about = subject(self.passages[0].title)
        return Cloze(f"{opened(question)}?", answer, kind, found_by, before, after, about, evidence, self.of_person)


@dataclass(frozen=True, slots=True)
class _SentencePart:
    """Sentences of a document about `name`, each with its passages: the page, or a section of it."""

    name: str
    sentences: list[tuple[str, tuple[Passage, ...]]]
    is_section: bool = False


def is_natural(question: str) -> bool:
    """Return whether a question begins with its question word."""
    return question[:1].isupper() and en.INTERROGATIVE.match(question) is not None


def opened(question: str) -> str:
    """Capitalise a question, unless it begins with a name such as `hasHandlers`."""
    is_word = en.INTERROGATIVE.match(question) or question.startswith("the ")
    return f"{question[0].upper()}{question[1:]}" if is_word else question


def clozes(passages: Sequence[Passage]) -> Iterator[Cloze]:
    """Yield questions from the statements of a document. `passages` are all of one document, in order. A title that is
    too long does not count as a subject: then only questions that name their own subject are used."""
    name = subject(passages[0].title)
    if is_english(passages):
        name = name if 0 < len(words(name)) <= _WORDS_OF_SUBJECT else ""
        for part in _parts(list(_sentences(passages)), name, {passage.heading for passage in passages}):
            yield from _of_part(part)


def is_english(passages: Sequence[Passage]) -> bool:
    """Return whether a document is in English, or in no known language, such as code. Short English documents may have
    as many words of another language, in names."""
    text = " ".join(passage.text for passage in passages[:_LANGUAGE_PASSAGES])
    found = languages_of(text)
    if not found or found[0].script != "LATIN":
        return not found
    hits = grammar_hits(words_of(text).split())
    return 2 * hits["en"] >= max(hits.values())


def _sentences(passages: Sequence[Passage]) -> Iterator[tuple[str, tuple[Passage, ...]]]:
    """Yield the first sentences, each with its passages; a sentence may continue in the next passage. Passages are
    separated by white space: the end of a line or, also if their places are unknown, of a paragraph."""
    text, places = "", list[tuple[int, int]]()
    for passage in passages:
        gap = passage.start - passages[0].start - len(text)
        text += "\n\n" if gap < 0 else "\n" * gap
        places.append((len(text), len(text) + len(passage.own_text)))
        text += _with_heading_apart(passage)
    text = en.HEADING.sub("\\1\f", text)
    start = 0
    for _ in range(_SENTENCES):
        if start >= len(text):
            return
        end = en.SENTENCE_END.search(text, start)
        stop, following = (end.start(), end.end()) if end else (len(text), len(text))
        held = tuple(p for p, (begin, last) in zip(passages, places, strict=True) if begin < stop and last > start)
        if held:
            yield " ".join(text[start:stop].split())[:_LONGEST_SENTENCE].lstrip("-•*→ "), held
        start = following


def _with_heading_apart(passage: Passage) -> str:
    """Return the text with a form feed after an initial heading."""
    heading, text = r"\s+".join(map(re.escape, (passage.heading or "").split())), passage.own_text
    return re.sub(rf"\A(\W{{0,{_SIGNS}}}{heading})\s(?=\s*[A-Z])", "\\1\f", text) if heading else text


def _parts(found: list[tuple[str, tuple[Passage, ...]]], name: str, headings: set[str | None]) -> list[_SentencePart]:
    """Return the page, and its sections about a person: the heading is a name, and the section begins with the name's
    first word: "### Ada Birk", "Ada studied in Brill."."""
    parts = [_SentencePart(name, [])]
    place = 0
    for number, (sentence, held) in enumerate(found):
        if sentence.startswith("#") or sentence in headings:
            heading, (following, _) = sentence.lstrip("# "), found[min(number + 1, len(found) - 1)]
            is_person = en.PERSON_NAME.fullmatch(heading) and heading != name
            is_own = is_person and heading.split()[0] == following.split(" ")[0]
            place = len(parts) if is_own else 0
            if is_own:
                parts.append(_SentencePart(heading, [], is_section=True))
        parts[place].sentences.append((sentence, held))
    return parts


def _of_part(part: _SentencePart) -> Iterator[Cloze]:
    name = part.name
    sentences = [sentence for sentence, _ in part.sentences]
    introduction = next(filter(en.SENTENCE.search, sentences), "")  # headings are not sentences
    gender = en.GENDER.search(" ".join(sentences))
    of_person = any(map(en.ABOUT_PERSON.search, sentences)) or (gender is not None and _has_lived(introduction))
    before = ""
    for sentence, held in part.sentences:
        other, last, before = en.GENDER.match(sentence), before, sentence
        if other and gender and bool(other["he"]) != bool(gender["he"]):
            continue  # "She" for somebody other than the document's "he"
        if other and not _is_of(last, name):
            continue  # "She" for somebody named in the sentence before
        if part.is_section:
            sentence = re.sub(rf"^{re.escape(name.split()[0])}(?=['’]s | )(?! [A-Z])", lambda _: name, sentence)
        told = _with_subject(sentence, part, introduction, of_person=of_person)
        if told is None or (en.NEEDS_CONTEXT.match(told) and not (name and told.startswith(name))):
            continue
        text, brackets = _without_brackets(told, name, is_first=sentence == introduction)
        statement = _Statement(text, name, of_person, held, part.is_section)
        yield from _of_life(brackets, statement)
        yield from _of_introduction(statement)
        if _is_prose(text, name):
            yield from _of_spans(statement)
            yield from _of_subject(statement)


def _is_of(sentence: str, name: str) -> bool:
    """Return whether a sentence is about the page's person, or a heading, so that the next one may begin with a
    pronoun."""
    begins = words(re.split(r"[.(] ", sentence, maxsplit=1)[0])[:_WORDS_OF_INTRODUCTION]
    is_heading = not en.SENTENCE.search(sentence)
    return is_heading or en.PERSON_CONTINUES.match(sentence) is not None or not set(words(name)).isdisjoint(begins)


def _has_lived(first: str) -> bool:
    return en.LIVED.match(first[max(first.find("("), 0) :]) is not None


def _is_prose(sentence: str, name: str) -> bool:
    letters = sum(character.isalpha() or character == " " for character in sentence)
    return (
        len(words(sentence)) in _WORDS_OF_STATEMENT
        and sentence[-1] in ".!\"'”’"
        and letters >= _LEAST_LETTERS * len(sentence)
        and not _CODE.search(sentence)
        and (not en.FRAGMENT.match(sentence) or words(sentence)[0] in words(name))
        and ((name and sentence.startswith(name)) or not _TWICE.match(sentence))
    )


def _with_subject(sentence: str, part: _SentencePart, introduction: str, *, of_person: bool) -> str | None:
    """Return the sentence with the subject's name in place of its initial pronoun. None if the pronoun means something
    else: `it` for a person, `he` if the first sentence does not begin with a person of that name, or `the film` if that
    sentence does not call the subject a film."""
    name = part.name
    found = None if name and sentence.startswith(name) else en.PRONOUN.match(sentence)
    if found is None:
        return sentence
    if not name or en.EMPTY_IT.match(sentence):
        return None
    titled, said = (words(en.ARTICLE.sub("", text, count=1)) for text in (name, introduction))
    is_titled = said[: len(titled)] == titled
    if found["noun"]:
        is_whole = en.MODIFIED_NOUN.match(sentence[found.end() :]) is None
        is_subject = is_titled and not of_person and found["noun"] in said[len(titled) :] and is_whole
    elif found[0] in ("It ", "Its ", "They ", "Their "):
        is_subject = is_titled and not of_person
    else:
        is_named = not set(titled).isdisjoint(said[:_WORDS_OF_INTRODUCTION])
        is_thing = en.NO_PERSON.search(name) or (en.ABOUT_THING.search(introduction) and not part.is_section)
        is_subject = is_named and not is_thing
    if not is_subject:
        return None
    return f"{name}{chr(39) + 's' if found['own'] else ''} {sentence[found.end() :]}"


def _without_brackets(sentence: str, name: str, *, is_first: bool) -> tuple[str, str]:
    """Return the sentence without brackets, and the text from the bracket after the subject on: after its name, a part
    of it or, in the first sentence, another name."""
    text = re.sub(r"\s+([,;:?!]|\.(?!\w))", r"\1", BRACKETS.sub("", sentence))
    at = sentence.find("(")
    before = words(sentence[: max(at, 0)])
    is_named = is_first or not set(before).isdisjoint(words(name))
    opens = at > 0 and (sentence[:at].strip() == name or (is_named and len(before) <= _WORDS_OF_SUBJECT))
    return text, sentence[at:] if opens else ""


def _of_life(brackets: str, statement: _Statement) -> Iterator[Cloze]:
    """Yield birth and death, from "(born 16 June 1911)" or "(16 June 1911 - 3 May 1980)" after the name."""
    found = en.BORN.match(brackets) or en.LIVED.match(brackets)
    if found is not None and statement.of_person and statement.subject:
        name = statement.subject
        yield statement.asks(f"when was {name} born", found["born"], "date", name, f"{name} was born on ")
        if died := found.groupdict().get("died"):
            yield statement.asks(f"when did {name} die", died, "date", name, f"{name} died on ")


def _of_introduction(statement: _Statement) -> Iterator[Cloze]:
    """Yield the nationality of a person, the year of a work and the whole of a part, from "Ada Birk was a Danish
    actress", "The Kite is a 1947 film" and "set is a method of the class Tree"."""
    name, text = statement.subject, statement.text
    named = re.match(r"[\w.]+", text)  # of `Tree.set` the `set`
    if not text.startswith(name) and named and set(words(named[0])) <= set(words(name)):
        name = named[0]
    if not name or not text.startswith(name):
        return
    said = text.removeprefix(name)
    if statement.of_person and (found := en.NATIONALITY.match(said)):
        yield statement.asks(f"what is the nationality of {name}", found["nation"], "nationality", name)
    if found := en.DATED_WORK.match(said):
        noun, done = (found["noun"], "released") if found["noun"] else (found["text"], "published")
        yield statement.asks(f"when was the {noun} {name} {done}", found["year"], "year", name)
    if (found := en.PART_OF_WHOLE.match(said)) and found["answer"] not in name:
        asked, before = (
            f"which {found['whole']} has the {found['part']} {name}",
            f"{name}{said[: found.start('answer')]}",
        )
        yield statement.asks(asked, found["answer"], "name", name, before)


def _of_spans(statement: _Statement) -> Iterator[Cloze]:
    text, taken = statement.text, list[tuple[int, int]]()
    named = re.finditer(re.escape(statement.subject), text) if statement.subject else ()
    own = [found.span() for found in named]
    for kind, pattern in en.SPANS.items():
        for found in pattern.finditer(text):
            start, end = found.span()
            if any(start < stop and begin < end for begin, stop in taken):
                continue
            taken.append((start, end))
            answer = re.sub(r"['’]s$|[-.'’]+$", "", found[0])
            is_empty = len(answer) < 2 or en.NO_NAME.fullmatch(answer)
            is_own = any(start < stop and begin < end for begin, stop in own)
            if text[:start].strip("`\"'") and not is_empty and not is_own:
                yield from _of_span(answer, kind, text[:start], text[start + len(answer) :], statement)


def _of_span(answer: str, kind: str, before: str, rest: str, statement: _Statement) -> Iterator[Cloze]:
    """Yield the question for a span, unless it would lack its subject, contain its answer, or have other answers."""
    if _is_part(answer, kind, before, rest):
        return
    name, before = statement.subject, before.rstrip("`\"'")
    cut = en.CLAUSE_END.search(rest)
    after = (rest[: cut.start()] if cut else rest).rstrip(" .`\"'")
    if en.DANGLING_END.search(after) or _continues(rest, after, cut):
        return
    asked, stem = _asked(kind, answer, before, after)
    if asked == "where" and (en.NO_PLACE.search(answer) or en.NATION.fullmatch(answer) or en.ONE_OF.search(before)):
        return
    if asked == "what number" or (kind == "year" and asked != "when" and en.MODIFIER.match(rest)):
        return  # of what?, "the 1907 novel"
    if en.ARTICLE_END.search(stem):
        return
    natural = fronted(name, stem, asked, after)
    if natural is None and ((asked == "what" and en.INCOMPLETE_NOUN_PHRASE.search(stem)) or len(words(stem)) == 1):
        return  # "a backup what", "sometimes which flag"
    question = " ".join((natural or f"{stem}{asked}{after}").replace("`", "").split())
    known, own = set(words(question)), set(words(answer))
    if question.count('"') % 2 or en.GARBLED.search(question):
        return  # another part of a title or of the text
    is_named = bool(name) and set(words(name)) <= known
    says = _NAMES_SOMETHING.search(before + after) and not en.POINTS_OUTSIDE.search(question)
    if len(words(question)) in _WORDS_OF_QUESTION and not own <= known and (is_named or says):
        yield statement.asks(question, answer, kind, name if is_named else "", before, after)


def _continues(rest: str, after: str, cut: re.Match[str] | None) -> bool:
    """Return whether the part cut off `rest` after `after` is a condition, or completes a phrase that began there."""
    if cut is None:
        return False
    left = rest[cut.start() :]
    is_phrase = re.search(r" [a-z][a-z-]*$", after) is not None  # a name is whole
    return en.CONDITION.match(left) is not None or (is_phrase and en.CONTINUED_PHRASE.match(left) is not None)


def _is_part(answer: str, kind: str, before: str, rest: str) -> bool:
    """Return whether a span is a part of something else, or its place would change the question's meaning."""
    if kind == "name" and (en.MODIFIER.match(rest) or en.LISTED.match(rest)):
        return True
    if en.INITIAL.search(before) or (re.search(r"\b[A-Z]$", answer) and re.match(r"\. [A-Z]", rest)):
        return True  # the first word of a sentence, or a part of a name with initials
    is_opened, is_closed = en.OPEN_QUOTE.search(before) is not None, rest.lstrip(" .,").startswith(('"', "”"))
    if is_opened > is_closed or (before.count('"') % 2 and not is_opened):
        return True  # a part of a title
    if re.match(r"['’]s\b|-? ?[-–—‘]|[\[/]|\.? \d", rest) or en.HEDGED.search(before):
        return True  # an owner, a part of a compound, or before the number of a section
    if kind == "number" and (en.NUMBERED_NAME.search(before) or before.rstrip().endswith(("$", "€", "£"))):
        return True
    if kind == "number" and answer.isalpha() and not rest[1:2].isalpha():
        return True  # "a power of two"
    if kind == "name" and (before[-2:-1].isdigit() or (before.endswith("from ") and re.match(" (?:to|until) ", rest))):
        return True  # a unit, or a part of a range
    if kind in ("date", "year") and en.SECOND_DATE.search(before):
        return True
    is_joined = en.PART_OF_RANGE.search(before) or re.match(" (?:[A-Z]|to |and |through )", rest)
    return kind in ("year", "number") and is_joined is not None


def _asked(kind: str, answer: str, before: str, after: str) -> tuple[str, str]:
    """Return the question word, and the words before it, without a preposition that the question word includes."""
    if kind == "date" or (kind == "year" and en.BEFORE_YEAR.search(before)):
        return "when", en.BEFORE_DATE.sub("", before)
    if kind == "year":
        return "what year", before
    if kind == "number":
        return ("how many" if after.strip() else "what number"), before
    is_spelled_as_person = not re.search(r"[a-z][A-Z]|\d", answer) and (
        not answer.isupper() or en.MADE_BY.search(before)
    )
    if en.BEFORE_PERSON.search(before) and is_spelled_as_person:
        return "who", before
    if en.BEFORE_PLACE.search(before) and not en.BEFORE_LANGUAGE.search(before):
        return "where", en.BEFORE_PLACE.sub("", before)
    return "what", before


def _of_subject(statement: _Statement) -> Iterator[Cloze]:
    """Yield the question for the subject itself, by its description: "Who is the director of the Oro Press?"."""
    name = statement.subject
    found = re.match(rf"{re.escape(name)} ({en.VERB} (?:an?|the|one)\b.*)", statement.text)
    if found is None or en.POINTS_OUTSIDE.search(found[1]):
        return
    end = en.CLAUSE_END.search(found[1], min(len(found[1]), 40))
    description = (found[1][: end.start()] if end else found[1]).rstrip(" .")
    if _continues(found[1], description, end):
        return
    said = words(description)
    is_specific = re.search(r"[A-Z0-9]", en.NATION.sub("", description)) and not en.DANGLING_END.search(description)
    if is_specific and len(said) in _WORDS_OF_SUBJECT_QUESTION and not set(words(name)) & set(said):
        noun = en.PERSON_OR_WORK.match(description)
        asked = "who" if (noun["people"] if noun else statement.of_person) else "what"
        work = en.DESCRIBED_WORK.fullmatch(description)
        question = f"which {work['kind']}was {work['said']}" if work else f"{asked} {description}"
        yield statement.asks(question, name, "subject", description, after=description)
