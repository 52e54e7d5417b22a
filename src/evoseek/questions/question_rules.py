"""Rules about a question by itself: whether it asks exactly one thing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from evoseek.text.language import LANGUAGES, LATIN, Language, bare, languages_of, pattern, words_in, words_of
from evoseek.text.scripts import family, script_counts

_MARKS = "?？؟⁇;"
_MARK = re.compile("[?？؟⁇]+")
_GREEK_MARK = re.compile("[;\u037e]")
_QUOTED = re.compile(
    '"[^"]{0,200}"|“[^”]{0,200}”|«[^»]{0,200}»|《[^》]{0,200}》|『[^』]{0,200}』|「[^」]{0,200}」|„[^“”]{0,200}[“”]|'
    r"(?<!\w)'(?:[^']|\b'\b){0,200}'(?!\w)|(?<!\w)‘(?:[^’]|\b’\b){0,200}’(?!\w)"  # an apostrophe stands in a word
)
_OPENING_WORDS = 5  # of which an interrogative that opens a question is one: `in the year of which`
_SHORT_OPENING = 3
_SENTENCE = re.compile(r"[.!。！।](?=\s|$)|[。！।]")
_PAIRS = ("()", "[]", "“”", "«»", "《》", "『』", "「」", "（）")
_OPEN = tuple(",;:–—-(«„“，、；：")
_NAME = 2  # letters that are left of a question whose other words are generic make a name
_SHAPES = {language.code: pattern([language.polar_shape], flags=0) for language in LANGUAGES.values()}
_NOW = {language.code: pattern([language.now], flags=0) for language in LANGUAGES.values()}
_FORMS = {
    language.code: {name: pattern([getattr(language, name)]) for name in ("compared", "paired", "topic", "second")}
    for language in LANGUAGES.values()
}


def _has_mark(text: str) -> bool:
    return bool(_MARK.search(text)) or (bool(_GREEK_MARK.search(text)) and family(script_counts(text)) == "GREEK")


def is_question(question: str) -> bool:
    """Whether a text asks: by an interrogative, by the form of a question for yes or no, or by a request to name
    something. In a language whose words are not known, a question mark is enough."""
    marked, languages = _has_mark(question), languages_of(question)
    if not languages:
        return marked or any(_asks(question, language, marked) for language in LATIN)
    if marked and any(language.interrogative.match(words_of(question)) for language in LATIN):
        return True  # a long title may be in another language than the question around it
    return any(_asks(question, language, marked) for language in languages)


def _asks(question: str, language: Language, marked: bool) -> bool:
    folded = words_of(question)
    if _requests(folded, language):
        return True
    if language.joined or not language.fronted:
        return _asks_in_place(question, folded, language)
    if not marked:
        return not question.rstrip().endswith(".") and _opens_asking(folded, language, _SHORT_OPENING)
    if "¿" in question or language.interrogative.search(folded):
        return True
    return _is_polar_form(question, folded, language)


def _asks_in_place(question: str, folded: str, language: Language) -> bool:
    if language.interrogative.search(folded) or (language.polar and language.any_of(language.polar).search(folded)):
        return True
    if language.endings and folded.endswith(tuple(language.endings.split())):
        return True
    return bool(_FORMS[language.code]["topic"].search(question.rstrip()))  # `the name of the river?`


def _requests(folded: str, language: Language) -> bool:
    if language.joined or not language.fronted:
        return bool(language.any_of(language.requests).search(folded))
    found = language.any_of(language.requests).match(folded)
    if found is None:
        found = language.any_of(language.requests).match(folded.partition(" ")[2])  # `please name`
    return found is not None and not words_in(language.creative) & set(folded.split()[:6]) and len(folded.split()) > 2


def _opens_asking(folded: str, language: Language, words: int) -> bool:
    return bool(language.interrogative.search(" ".join(folded.split()[:words])))


def _is_polar_form(question: str, folded: str, language: Language) -> bool:
    shaped = _SHAPES[language.code].search(question.strip())
    return bool(shaped or language.any_of(language.polar).match(folded))


def may_be_polar(question: str) -> bool:
    """Whether yes or no may be the answer: the question begins so, or has no interrogative."""
    languages, folded = languages_of(question), words_of(question)
    return not languages or any(_may_be_polar(question, folded, language) for language in languages)


def _may_be_polar(question: str, folded: str, language: Language) -> bool:
    if language.code == "hi":
        return folded.startswith("क्या ") or not language.interrogative.search(folded)
    if language.joined:
        return not language.interrogative.search(folded) or bool(
            language.polar and language.any_of(language.polar).search(folded)
        )
    return _is_polar_form(question, folded, language) or not _opens_asking(folded, language, _OPENING_WORDS)


def offers_alternatives(question: str) -> bool:
    """Whether a question names what its answer is to be chosen from: `which is older, A or B`, `is A or B older`,
    `which of A and B is older`."""
    folded = words_of(question)
    return any(_offers(question, folded, language) for language in languages_of(question))


def _offers(question: str, folded: str, language: Language) -> bool:
    forms = _FORMS[language.code]
    if language.joined:
        return bool(forms["compared"].search(question) and forms["paired"].search(question))
    if language.any_of(language.of_both).search(folded):
        return True
    of = language.any_of(language.which_of).search(folded)
    if of and language.any_of(language.conjunctions).search(" ".join(folded[of.end() :].split()[1:5])):
        return True
    if between := language.any_of(language.between).search(folded):
        return language.any_of(language.conjunctions).search(folded, between.end()) is not None
    if language.any_of(language.alternatives).search(folded) is None:
        return False
    if ":" in question and language.any_of(language.alternatives).search(words_of(question.rpartition(":")[2])):
        return True
    return "," in question or "،" in question or _is_polar_form(question, folded, language)


def asks_twice(question: str) -> bool:
    """Whether a text holds two questions: two of them in a row, or two interrogatives joined by `and`."""
    plain = _QUOTED.sub(" ", question)
    return _marked_sentences(plain) > 1 or any(_joined_questions(plain, language) for language in languages_of(plain))


def _marked_sentences(text: str) -> int:
    """How many pieces end with a question mark and are followed by a new sentence or nothing. In titles (`Where Are
    You? or Kalo`) the sentence goes on after the mark."""
    count, start = 0, 0
    for mark in _MARK.finditer(text):
        piece, after = text[start : mark.start()], text[mark.end() : mark.end() + 4].lstrip('"”» ')
        goes_on = bool(after) and (after[0].islower() or after[0] in ",;)(")
        count += not goes_on and sum(map(str.isalnum, piece)) > 1
        start = mark.end()
    return count


def _joined_questions(text: str, language: Language) -> bool:
    folded = words_of(_without_names(text))
    if language.second:
        return bool(_FORMS[language.code]["second"].search(text))
    if language.fronted:
        second = language.second_question.search(folded)
        if second is None:
            return False
        before = folded[: second.start()]
        return bool(language.interrogative.search(before)) and not _relative(folded, second, language)
    if not language.joined:
        places = [match.start() for match in language.interrogative.finditer(folded)]
        return any(
            places and places[0] < match.start() < places[-1] for match in language.second_question.finditer(folded)
        )
    found = [match.span() for match in language.interrogative.finditer(text)]
    return len(found) > 1 and bool(language.second_question.search(text, found[0][1], found[-1][0] + 1))


def _without_names(text: str) -> str:
    """The text without its capitalised words, but for the first: `How They Grew` is a title."""
    first, *words = text.split() or [""]
    return " ".join((first, *(word for word in words if not word[:1].isupper())))


def _relative(folded: str, second: re.Match[str], language: Language) -> bool:
    """Whether what looks like a second question is a relative clause: `a river which rises in A and which is long`."""
    pronoun, following = second.group().rsplit(" ", 1)[-1], folded[second.end() :].split()[:1]
    if language.code == "en":
        verbs = ("is", "was", "are", "were", "has", "had", "have", "in", "later")
        return pronoun == "whose" or (pronoun in ("which", "who") and following[:1] != [] and following[0] in verbs)
    return pronoun in ("qui", "que", "che", "die", "как", "что")


def is_cut_off(question: str, passages: Sequence[str]) -> bool:
    """Whether a text ends before its end: within quotes or brackets, after a comma, or without a mark where it begins
    with a capital; where letters have no case, with a word that ends no question, or within one of the passages."""
    text = question.strip(" ¿¡")
    if any(text.count(opening) != text.count(closing) for opening, closing in _PAIRS if "„" not in text):
        return True
    if _has_mark(text):
        return False
    if text[-1:] in _OPEN or (text[:1].isupper() and (text[-1:].isdigit() or text[-1:].lower() != text[-1:].upper())):
        return True
    if not text[-1:].isalpha() or text[-1].islower():
        return False
    last, known = words_of(text).split()[-1], set(words_of(" ".join(passages)).split())
    if any(_ends_open(text, last, language) for language in languages_of(text)):
        return True
    return " " in text and last not in known and any(word.startswith(last) for word in known)


def _ends_open(text: str, last: str, language: Language) -> bool:
    dangling = tuple(language.dangling.split())
    return text.endswith(dangling) if language.joined and dangling else last in dangling


def depends_on_now(question: str) -> bool:
    """Whether the answer changes with the day on which it is asked, by words that are in no title."""
    plain = _QUOTED.sub(" ", question).strip()
    return any(_NOW[one.code].search(plain[:1].lower() + plain[1:]) for one in languages_of(plain) or LATIN)


def is_vague(question: str) -> bool:
    """Whether a question names nothing that could be looked for (`Who wrote the book?`), or begins with a pronoun of
    something that it has not named (`Which prize did he win for Hamlet?`). A language without generic words is not
    judged."""
    languages = [language for language in languages_of(question) if language.generic]
    return bool(languages) and all(map(partial(_is_vague, question), languages))


def _is_vague(question: str, language: Language) -> bool:
    if language.joined:
        return _is_vague_joined(question, language)
    frames = set(language.frames.split())
    has_name = has_begun = False
    for place, token in enumerate(question.split()):
        for word in words_of(token).split():
            is_common = word.isdigit() or len(word) == 1 or word in language.common_words
            if not has_begun and word in language.pronouns.split() and (place == 0 or token.islower()):
                return True
            has_begun |= not is_common and word not in frames
            is_capital = place > 0 and language.code != "de" and any(map(str.isupper, token))
            has_name |= is_capital or not (is_common or language.generic_form.fullmatch(bare(word)))
    return not has_name and not _QUOTED.search(question)


def _is_vague_joined(question: str, language: Language) -> bool:
    """As characters: what is left without generic words and those of asking."""
    if _QUOTED.search(question):
        return False
    pronouns = language.pronouns.split()
    left = language.generic_form.sub(lambda found: found[0] if found[0] in pronouns else " ", question)
    for word in pronouns:
        before, found, _ = left.partition(word)
        if found and not any(map(str.isalpha, before)):
            return True
    asking = language.any_of(f"{language.interrogatives} {language.requests} {language.endings} {language.polar}")
    return sum(map(str.isalpha, asking.sub(" ", left))) < _NAME
