"""Questions from statements: a span of a sentence is asked for in its place, and the span is the answer.

"Marlow was founded by Ines Oduya in 1907." gives "Marlow was founded by who?" and "When was Marlow founded by Ines
Oduya?". That is the cloze of unsupervised question answering (Lewis et al. 2019, arXiv 1906.04980), with the question
word that fits the kind of the span. It needs no model: what a model of 135 million parameters writes about a passage is
a question with its answer in 4 to 7 of 100 cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evoseek.questions.writers.english import (
    AGAIN,
    ARTICLE,
    BEGINS,
    BETWEEN,
    BORN,
    BROKEN,
    CLAUSE_END,
    CONDITION,
    CONDITIONAL,
    CONTINUES,
    DEFAULT,
    DEPENDS,
    DESCRIBES,
    DOES,
    EXPLETIVE,
    FRAGMENT,
    GOES_ON,
    HALF,
    HEADING,
    HEDGED,
    IN_CONDITION,
    LANGUAGE,
    LISTED,
    LIVED,
    MADE_BY,
    MISSTATED,
    NAME,
    NAMED,
    NATION,
    NATIONALITY,
    NO_NAMES,
    NO_PERSON,
    NO_PLACE,
    NOUN,
    NOUN_GOES_ON,
    NUMBERED,
    OF_KIND,
    OF_PERSON,
    OF_THING,
    ON,
    ONE_OF,
    OPEN,
    OPEN_END,
    OPEN_QUOTE,
    OPEN_STEM,
    OPENING,
    PERSON,
    PLACE,
    POINTS,
    PRONOUN,
    PURPOSE,
    QUESTION,
    REFERS,
    RELATIVE,
    RELEASED,
    SENTENCE_END,
    SOMEBODY,
    SPANS,
    SPLIT,
    STATES,
    TIME,
    TWO_SENTENCES,
    UNIT,
    UNSAID,
    VERB,
    VERSION,
    WHO_OR_WHAT,
    WHOLE,
    WHOLE_END,
)
from evoseek.questions.writers.fronting import fronted, is_finite
from evoseek.text.language import STOP_WORDS, grammar_hits, languages_of, words_of
from evoseek.types import Passage

_BRACKETS = re.compile(r"\s*\([^()]*(?:\([^()]*\)[^()]*)*\)")
SITE_MARK = re.compile(r" (?:\||::|[—–·-]) ")  # "5. Fields — The Manual"
_SITE = re.compile(r"\b(?:documentation|docs?|manual|wiki\w*|handbook|guide|reference|book)\b", re.IGNORECASE)
_SECTION = re.compile(r"^\d+(?:\.\d+)*\. ")
_WORDS_OF_STATEMENT, _WORDS_OF_QUESTION = range(4, 46), range(3, 33)
_LEAST_LETTERS = 0.8  # share of letters and spaces in a statement: less is code, a table or a formula
_CODE = re.compile(r">>>|[;*|={}<>#]")
_TWICE = re.compile(r"(\w+) \1\b", re.IGNORECASE)  # a heading, and the sentence after it
_NAMES = re.compile(
    rf"(?<=\w ){dict(SPANS)['name'].pattern}|[a-z][A-Z]|\b[A-Z]{{2}}|"
    + "|".join(span.pattern for kind, span in SPANS if kind == "code")
)
_TERM, _LONGEST_TERM = re.compile(r"[A-Za-z]\w*[_.][\w.]*\w"), 100
_SIGNS = 9  # that may stand before and after a heading
_LANGUAGE_PASSAGES = 5  # from which a document's language is told
_SENTENCES = 20_000  # of a document
_WORDS_OF_INTRODUCTION = 6  # that name a person
_LONGEST_SENTENCE = 1_000  # characters that are looked at, since some patterns take time by their square
_WORDS_OF_SUBJECT = 8
_WORDS_OF_SUBJECT_QUESTION = range(6, 23)
_WORDS_SAID = 4  # by a question in natural order that has no name


@dataclass(frozen=True, slots=True)
class Cloze:
    """A question about a span of a statement.

    `before` and `after` are the statement around the span, up to the clause's end. `query` finds the statement's
    document: what it is about, or "" if the statement does not name that. `evidence` are the ids of the passages that
    hold the statement and the answer.
    """

    question: str
    answer: str
    kind: str
    query: str
    before: str
    after: str
    document_id: str
    title: str
    evidence: tuple[str, ...]
    of_person: bool = False  # the document

    @property
    def is_natural(self) -> bool:
        """Whether it is in natural order."""
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
        first = self.passages[0]
        found_by = "" if self.is_section else query  # its document is about something else, too
        stated = (found_by, before, after, first.document_id, first.title, evidence, self.of_person)
        return Cloze(f"{opened(question)}?", answer, kind, *stated)


def is_natural(question: str) -> bool:
    """Whether the question word of a question is in front."""
    return QUESTION.match(question) is not None


def words(text: str) -> list[str]:
    """The words of a text in lower case."""
    return re.findall(r"\w+", text.lower())


def opened(question: str) -> str:
    """A question with a capital letter at its beginning, unless it begins with a name, such as `hasHandlers`."""
    return f"{question[0].upper()}{question[1:]}" if OPENING.match(question) else question


def subject(title: str) -> str:
    """What a document is about: its title without what stands in brackets, and without the name of its site."""
    text = " ".join(_BRACKETS.sub("", " ".join(title.split())).split())
    mark = SITE_MARK.search(text)
    is_site = mark and (mark[0] in (" | ", " :: ") or _SITE.search(text, mark.end()))
    return _SECTION.sub("", text[: mark.start()]) if mark and is_site else text


def clozes(passages: Sequence[Passage]) -> Iterator[Cloze]:
    """The questions that the statements of a document give. `passages` are those of one document, in order. A title
    that is too long is no subject: then only what its questions say themselves is asked for."""
    name = subject(passages[0].title)
    if not is_english(passages):
        return
    name = name if 0 < len(words(name)) <= _WORDS_OF_SUBJECT else ""
    for part in _parts(list(_sentences(passages)), name, {passage.heading for passage in passages}):
        yield from _of_part(part)
    yield from _of_purpose(passages, name)


@dataclass(frozen=True, slots=True)
class _Part:
    """Sentences of a document about `name`, each with the passages that hold it: the page, or a section of it."""

    name: str
    sentences: list[tuple[str, tuple[Passage, ...]]]
    is_section: bool = False


def _parts(found: list[tuple[str, tuple[Passage, ...]]], name: str, headings: set[str | None]) -> list[_Part]:
    """The page, and its sections about somebody, whose heading is the name with whose beginning they begin: "### Ada
    Birk", "Ada studied in Brill."."""
    parts = [_Part(name, [])]
    place = 0
    for number, (sentence, held) in enumerate(found):
        if sentence.startswith("#") or sentence in headings:
            heading, (following, _) = sentence.lstrip("# "), found[min(number + 1, len(found) - 1)]
            is_own = NAME.fullmatch(heading) and heading != name and heading.split()[0] == following.split(" ")[0]
            place = len(parts) if is_own else 0
            if is_own:
                parts.append(_Part(heading, [], is_section=True))
        parts[place].sentences.append((sentence, held))
    return parts


def _of_part(part: _Part) -> Iterator[Cloze]:
    name = part.name
    sentences = [sentence for sentence, _ in part.sentences]
    introduction = next(filter(WHOLE.search, sentences), "")  # headings are no sentences
    somebody = SOMEBODY.search(" ".join(sentences))
    of_person = any(map(OF_PERSON.search, sentences)) or (somebody is not None and _has_lived(introduction))
    before = ""
    for sentence, held in part.sentences:
        other, last, before = SOMEBODY.match(sentence), before, sentence
        if other and somebody and bool(other["he"]) != bool(somebody["he"]):
            continue  # "She" of somebody else than the document's "he"
        if other and not _is_of(last, name):
            continue  # "She" of somebody whom the sentence before names
        sentence = _with_term(_condition_last(sentence), held[0])
        if part.is_section:
            sentence = re.sub(rf"^{re.escape(name.split()[0])}(?=['’]s | )(?! [A-Z])", lambda _: name, sentence)
        told = _with_subject(sentence, part, introduction, of_person=of_person)
        if told is None or (POINTS.match(told) and not (name and told.startswith(name))):
            continue
        text, brackets = _without_brackets(told, name, is_first=sentence == introduction)
        statement = _Statement(text, name, of_person, held, part.is_section)
        yield from _of_life(brackets, statement)
        yield from _of_introduction(statement)
        if _is_prose(text, name):
            yield from _of_spans(statement)
            yield from _of_subject(statement)


def is_english(passages: Sequence[Passage]) -> bool:
    """Whether a document is in English, or in no language that is told by its words, as code. Short ones in English may
    have as many words of another language, in names."""
    text = " ".join(passage.text for passage in passages[:_LANGUAGE_PASSAGES])
    found = languages_of(text)
    if not found or found[0].script != "LATIN":
        return not found
    hits = grammar_hits(words_of(text).split())
    return 2 * hits["en"] >= max(hits.values())


def _sentences(passages: Sequence[Passage]) -> Iterator[tuple[str, tuple[Passage, ...]]]:
    """The first sentences, also those that go over from one passage to the next, each with the passages that hold it.
    What stood between passages is white space: the end of a line, or a paragraph's, as between those whose places are
    not known."""
    text, places = "", list[tuple[int, int]]()
    for passage in passages:
        gap = passage.start - passages[0].start - len(text)
        text += "\n\n" if gap < 0 else "\n" * gap
        places.append((len(text), len(text) + len(passage.own_text)))
        text += _with_heading_apart(passage)
    text = HEADING.sub("\\1\f", text)
    start = 0
    for _ in range(_SENTENCES):
        if start >= len(text):
            return
        end = SENTENCE_END.search(text, start)
        stop, following = (end.start(), end.end()) if end else (len(text), len(text))
        held = tuple(p for p, (begin, last) in zip(passages, places, strict=True) if begin < stop and last > start)
        if held:
            yield " ".join(text[start:stop].split())[:_LONGEST_SENTENCE].lstrip("-•*→ "), held
        start = following


def _with_heading_apart(passage: Passage) -> str:
    """The text, a form feed for the white space after the heading that it begins with."""
    heading, text = r"\s+".join(map(re.escape, (passage.heading or "").split())), passage.own_text
    return re.sub(rf"\A(\W{{0,{_SIGNS}}}{heading})\s(?=\s*[A-Z])", "\\1\f", text) if heading else text


def _is_of(sentence: str, name: str) -> bool:
    """Whether a sentence is of the somebody whom a page is about, or a heading, so that the next one may begin with a
    pronoun."""
    begins = words(re.split(r"[.(] ", sentence, maxsplit=1)[0])[:_WORDS_OF_INTRODUCTION]
    is_heading = not WHOLE.search(sentence)
    return is_heading or GOES_ON.match(sentence) is not None or not set(words(name)).isdisjoint(begins)


def _has_lived(first: str) -> bool:
    return LIVED.match(first[max(first.find("("), 0) :]) is not None


def _condition_last(sentence: str) -> str:
    """A statement with its condition at its end: "If it is open, the call returns 2." to "The call returns 2 if it is
    open."."""
    found = CONDITIONAL.match(sentence)
    if found is None or REFERS.search(sentence):
        return sentence
    said = found["said"]
    said = f"{said[0].upper()}{said[1:]}" if ARTICLE.match(said.capitalize()) else said
    return f"{said} {found['word'].lower()} {found['condition']}{found['end']}"


def _is_prose(sentence: str, name: str) -> bool:
    letters = sum(character.isalpha() or character == " " for character in sentence)
    return (
        len(words(sentence)) in _WORDS_OF_STATEMENT
        and sentence[-1] in ".!\"'”’"
        and letters >= _LEAST_LETTERS * len(sentence)
        and not _CODE.search(sentence)
        and not DEPENDS.match(sentence)
        and (not FRAGMENT.match(sentence) or words(sentence)[0] in words(name))
        and ((name and sentence.startswith(name)) or not _TWICE.match(sentence))
    )


def _with_subject(sentence: str, part: _Part, introduction: str, *, of_person: bool) -> str | None:
    """The sentence with the subject's name in place of the pronoun that it begins with. None if that is of something
    else: `it` of a person, `he` where the first sentence does not begin with somebody of that name, or `the film` where
    it does not say that the subject is one."""
    name = part.name
    found = None if name and sentence.startswith(name) else PRONOUN.match(sentence)
    if found is None:
        return sentence
    if not name or EXPLETIVE.match(sentence):
        return None
    titled, said = (words(ARTICLE.sub("", text, count=1)) for text in (name, introduction))
    is_titled = said[: len(titled)] == titled
    if found["noun"]:
        rest = sentence[found.end() :]
        is_whole = is_finite(rest.split(" ", 1)[0]) or NOUN_GOES_ON.match(rest) is None
        is_subject = is_titled and not of_person and found["noun"] in said[len(titled) :] and is_whole
    elif found[0] in ("It ", "Its ", "They ", "Their "):
        is_subject = is_titled and not of_person
    else:
        is_named = not set(titled).isdisjoint(said[:_WORDS_OF_INTRODUCTION])
        is_thing = NO_PERSON.search(name) or (OF_THING.search(introduction) and not part.is_section)
        is_subject = is_named and not is_thing
    if not is_subject:
        return None
    return f"{name}{chr(39) + 's' if found['own'] else ''} {sentence[found.end() :]}"


def _with_term(sentence: str, passage: Passage) -> str:
    """The statement of a default, or of what something does, with the identifier that is its heading. Only the first
    one after the heading says what it does: "Sets the limit." under `max_size` to "max_size sets the limit."."""
    heading = passage.heading or ""
    term = _BRACKETS.sub("", heading) if len(heading) <= _LONGEST_TERM else ""
    if not _TERM.fullmatch(term):
        return sentence
    if DOES.match(sentence) and _follows(passage, heading, sentence):
        return f"{term} {sentence[0].lower()}{sentence[1:]}"
    return DEFAULT.sub(f"The default of {term} is ", sentence)


def _follows(passage: Passage, heading: str, sentence: str) -> bool:
    """Whether a sentence is the first after the heading with which a passage begins."""
    begins = passage.text[: _SIGNS + len(heading) + _SIGNS + len(sentence)].split()
    heading, sentence = (re.escape(part) for part in (" ".join(heading.split()), sentence))
    return re.match(rf"\W{{0,{_SIGNS}}}{heading}\W+{sentence}", " ".join(begins)) is not None


def _without_brackets(sentence: str, name: str, *, is_first: bool) -> tuple[str, str]:
    """The sentence without what stands in brackets, and from the bracket on what follows the subject: its name, a part
    of it or, in the first sentence, another one."""
    text = re.sub(r"\s+([,;:?!]|\.(?!\w))", r"\1", _BRACKETS.sub("", sentence))
    at = sentence.find("(")
    before = words(sentence[: max(at, 0)])
    is_named = is_first or not set(before).isdisjoint(words(name))
    opens = at > 0 and (sentence[:at].strip() == name or (is_named and len(before) <= _WORDS_OF_SUBJECT))
    return text, sentence[at:] if opens else ""


def _of_life(brackets: str, statement: _Statement) -> Iterator[Cloze]:
    """Birth and death, from "(born 16 June 1911)" or "(16 June 1911 - 3 May 1980)" after the name."""
    found = BORN.match(brackets) or LIVED.match(brackets)
    if found is not None and statement.of_person and statement.subject:
        name = statement.subject
        yield statement.asks(f"when was {name} born", found["born"], "date", name, f"{name} was born on ")
        if died := found.groupdict().get("died"):
            yield statement.asks(f"when did {name} die", died, "date", name, f"{name} died on ")


def _of_introduction(statement: _Statement) -> Iterator[Cloze]:
    """The nationality of a person and the year of a work, from "Ada Birk was a Danish actress", "The Kite is a 1947
    film"."""
    name = statement.subject
    said = statement.text.removeprefix(name)
    if said == statement.text:
        return
    if statement.of_person and (found := NATIONALITY.match(said)):
        yield statement.asks(f"what is the nationality of {name}", found["nation"], "nationality", name)
    if found := RELEASED.match(said):
        question = (
            f"when was the {found['noun'] or found['text']} {name} {'released' if found['noun'] else 'published'}"
        )
        yield statement.asks(question, found["year"], "year", name)


def _of_spans(statement: _Statement) -> Iterator[Cloze]:
    text, taken = statement.text, list[tuple[int, int]]()
    for kind, pattern in SPANS:
        for found in pattern.finditer(text):
            start, end = found.span(1 if pattern.groups else 0)
            if any(start < stop and begin < end for begin, stop in taken):
                continue
            taken.append((start, end))
            answer = re.sub(r"['’]s$|[-.'’]+$", "", text[start:end])
            is_empty = len(answer) < 2 or NO_NAMES.fullmatch(answer) or answer in OPEN.split()
            is_inner = text[:start].strip("`\"'") or (kind == "code" and STATES.match(text[end:].lstrip("`\"'")))
            if is_inner and not is_empty and not _within(statement, start, end):
                yield from _of_span(answer, kind, text[:start], text[start + len(answer) :], statement)


def _of_purpose(passages: Sequence[Passage], name: str) -> Iterator[Cloze]:
    """What something is for, from a line such as "pg_dump - extract a database into a script", below its title."""
    for passage in passages:
        for found in PURPOSE.finditer(passage.text):
            if found["name"] != name:
                continue
            said = " ".join(found["said"].split())
            question, known = f"what is used to {said}", set(words(said))
            is_whole = not OPEN_END.search(said) and not TWO_SENTENCES.search(said)
            if is_whole and len(words(question)) in _WORDS_OF_QUESTION and not set(words(name)) <= known:
                statement = _Statement(found[0], name, False, (passage,))
                yield statement.asks(question, name, "subject", said, after=said)
            return


def _within(statement: _Statement, start: int, end: int) -> bool:
    named = re.finditer(re.escape(statement.subject), statement.text) if statement.subject else ()
    return any(start < found.end() and found.start() < end for found in named)


def _of_span(answer: str, kind: str, before: str, rest: str, statement: _Statement) -> Iterator[Cloze]:
    """The question for a span, unless it would not say what it is about, hold its answer, or have other answers."""
    name = statement.subject
    if _is_part(answer, kind, before, rest):
        return
    describes = DESCRIBES.match(rest) is not None
    before = before.rstrip("`\"'")
    is_first = re.fullmatch("(?:(?:The|An?) )?", before) is not None
    is_subject = BEGINS.fullmatch(VERSION.sub("", before)) is not None
    cut = (WHOLE_END if is_subject else CLAUSE_END).search(rest)
    after = (rest[: cut.start()] if cut else rest).rstrip(" .`\"'")
    if OPEN_END.search(after) or (is_subject and RELATIVE.match(rest)) or _goes_on(rest, after, cut):
        return
    asked, stem = _asked(kind, answer, before, after)
    if kind == "version" and len(words(stem)) < 3 and not after.strip():
        return  # "prior to which version"
    if asked == "where" and (NO_PLACE.search(answer) or NATION.fullmatch(answer) or ONE_OF.search(before)):
        return
    if asked == "what number":
        return  # of what?
    if kind == "year" and describes and asked != "when":
        return  # "the 1907 novel"
    if kind == "code" and describes and (article := re.search(r"\b[Tt]he $", before)):
        asked, stem = "what" if is_finite(rest.split()[0]) else "which", before[: article.start()]
        question = fronted(name, stem, asked, after) or f"{stem}{asked}{after}"
    elif is_first and before:
        question = f"{asked}{after}"
    elif OPEN_STEM.search(stem):
        return
    else:
        question = fronted(name, stem, asked, after)
        noun = NOUN.search(before) if asked in ("who", "what") else None
        if question is None and noun and (kind == "code" or asked == "who" or NAMED.search(noun["noun"])):
            asked, stem = f"which {noun['noun']}", before[: noun.start()]
            question = fronted(name, stem, asked, after)
        elif question is None and asked == "what" and HALF.search(stem):
            return  # "a backup what"
        question = question or f"{stem}{asked}{after}"
    question = " ".join(question.replace("`", "").split())
    known, own = set(words(question)), set(words(answer))
    query = _query(name, known, own)
    if question.count('"') % 2 or TWO_SENTENCES.search(question) or BROKEN.search(question):
        return  # another part of a title or of the text, or of an identifier
    in_front = is_natural(opened(question))
    if in_front and MISSTATED.search(opened(question)):
        return
    if not in_front and len(words(stem)) == 1:
        return  # "sometimes which flag"
    says = _NAMES.search(before + after) or (in_front and is_subject and len(known - STOP_WORDS) >= _WORDS_SAID)
    is_whole = query or (says and not REFERS.search(question) and not UNSAID.search(question))
    if len(words(question)) in _WORDS_OF_QUESTION and not own <= known and is_whole:
        yield statement.asks(question, answer, kind, query, before, after)


def _goes_on(rest: str, after: str, cut: re.Match[str] | None) -> bool:
    """Whether what is cut off `rest` behind `after` is a condition, or the rest of a phrase that began there."""
    if cut is None:
        return False
    left = rest[cut.start() :]
    is_phrase = re.search(r" [a-z][a-z-]*$", after) is not None  # a name is whole
    return CONDITION.match(left) is not None or (is_phrase and CONTINUES.match(left) is not None)


def _is_part(answer: str, kind: str, before: str, rest: str) -> bool:
    """Whether a span is a part of something else, or stands where its question would be another one."""
    if (kind == "name" and DESCRIBES.match(rest)) or (kind in ("name", "code") and LISTED.match(rest)):
        return True
    if SPLIT.search(before) or (re.search(r"\b[A-Z]$", answer) and re.match(r"\. [A-Z]", rest)):
        return True  # the first word of a sentence, or a part of a name with initials
    is_opened, is_closed = OPEN_QUOTE.search(before) is not None, rest.lstrip(" .,").startswith(('"', "”"))
    if is_opened > is_closed or (before.count('"') % 2 and not is_opened):
        return True  # a part of a title
    if re.match(r"['’]s\b|-? ?[-–—‘]|[\[/]|\.? \d", rest):
        return True  # an owner, a part of a compound, or before the number of a section
    if HEDGED.search(before) or IN_CONDITION.search(before):
        return True  # "if what is not given"
    if before.endswith(("default of ", " any ")):
        return True  # of many things
    if kind == "number" and answer.isalpha() and not rest[1:2].isalpha():
        return True  # "a power of two"
    if kind == "number" and (NUMBERED.search(before) or before.rstrip().endswith(("$", "€", "£"))):
        return True
    if kind == "name" and (UNIT.search(before) or (before.endswith("from ") and re.match(" (?:to|until) ", rest))):
        return True
    if kind in ("date", "year") and AGAIN.search(before):
        return True
    is_joined = BETWEEN.search(before) or re.match(" (?:[A-Z]|to |and |through )", rest)
    return kind in ("year", "number") and is_joined is not None


def _query(name: str, known: set[str], own: set[str]) -> str:
    """What the question, of the words `known`, names of the subject: all of it, or what the answer, of the words `own`,
    leaves of it: of the page `Tree.set`, which says of what class the method `set` is, the method. "" if nothing."""
    if set(words(name)) <= known:
        return name
    left = [word for word in re.findall(r"[\w'’-]+", name) if not set(words(word)) <= own]
    return " ".join(left) if set(words(" ".join(left))) <= known else ""


def _asked(kind: str, answer: str, before: str, after: str) -> tuple[str, str]:
    """The question word, and the words before it without a preposition that it includes."""
    if kind == "date" or (kind == "year" and TIME.search(before)):
        return "when", ON.sub("", before)
    if kind == "year":
        return "what year", before
    if kind == "version" and (found := VERSION.search(before)):
        return f"which version{f' of {found[1]}' if found[1] else ''}", before[: found.start()]
    if kind == "number":
        return ("how many" if after.strip() else "what number"), before
    if (
        kind == "name"
        and PERSON.search(before)
        and not re.search(r"[a-z][A-Z]|\d", answer)
        and (not answer.isupper() or MADE_BY.search(before))
    ):
        return "who", before
    if kind == "name" and PLACE.search(before) and not LANGUAGE.search(before):
        return "where", PLACE.sub("", before)
    return "what", before


def _of_subject(statement: _Statement) -> Iterator[Cloze]:
    """The question for the subject itself, by what is said of it: "Who is the director of the Oro Press?"."""
    name = statement.subject
    found = re.match(rf"{re.escape(name)} ({VERB} (?:an?|the|one)\b.*)", statement.text)
    if found is None or REFERS.search(found[1]):
        return
    end = CLAUSE_END.search(found[1], min(len(found[1]), 40))
    description = (found[1][: end.start()] if end else found[1]).rstrip(" .")
    if _goes_on(found[1], description, end):
        return
    said = words(description)
    is_specific = re.search(r"[A-Z0-9]", NATION.sub("", description)) is not None and not OPEN_END.search(description)
    if is_specific and len(said) in _WORDS_OF_SUBJECT_QUESTION and not set(words(name)) & set(said):
        noun = WHO_OR_WHAT.match(description)
        asked = "who" if (noun["people"] if noun else statement.of_person) else "what"
        of_kind = OF_KIND.fullmatch(description)
        question = f"which {of_kind['kind']}was {of_kind['said']}" if of_kind else f"{asked} {description}"
        yield statement.asks(question, name, "subject", description, after=description)
