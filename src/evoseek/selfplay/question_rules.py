"""Rules about a question by itself: whether it asks exactly one thing."""

from __future__ import annotations

import re

from evoseek.corpus.scripts import family, script_counts
from evoseek.selfplay.wording import LATIN_WORDINGS, Wording, wordings_of, words_of

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
_CREATIVE = frozenset(
    ["story", "poem", "essay", "summary", "song", "letter", "article", "explanation", "overview", "report", "paragraph"]
)
_INVERTED = re.compile(r"-(?:t-)?(?:il|elle|ils|elles|on|ce)\b", re.IGNORECASE)
_VERB_FIRST = re.compile(r"^[A-ZÄÖÜ][a-zäöüß]+(?:t|te|ten|en|st) (?:(?:der|die|das|ein|eine|er|sie|es|man) |[A-ZÄÖÜ])")
_ARABIC_SECOND = re.compile(
    r"(?<!\S)و(?:متى|أين|كم|ماذا|لماذا|كيف|هل|أي|(?:في|من|إلى|على) (?:أي|ماذا)|(?:ما|من) (?:هي|هو))(?!\S)"
)
_TOPIC = {"ko": re.compile(r"[은는][?？]$"), "ja": re.compile(r"は[?？]$")}  # `the name of the river?`
_COMPARED = {
    "zh": re.compile("更|最|还是|還是"),
    "ja": re.compile("どちら|どっち|それとも"),
    "th": re.compile("กว่า"),
    "ko": re.compile("중|더|아니면"),
}
_PAIRED = {"zh": "和|与|還是|还是|跟", "ja": "と|か|、", "th": "กับ|หรือ|และ", "ko": "와|과|,|이나|인가"}
_BETWEEN = re.compile(r"(?<!\S)(?:between|out of|zwischen|entre|tra|fra|между|tussen)(?!\S)")
_WHICH_OF = re.compile(
    r"(?<!\S)(?:which (?:one )?of|welche[rs]? von|l[ae]quel(?:le)? de|cuál de) (?:\S+ ){1,4}?(?:and|und|et|y)(?!\S)"
)
_OF_BOTH = re.compile(r"(?<!\S)(?:में से|में कौन|of the two|von beiden|der beiden|des deux)(?!\S)")


def has_mark(text: str) -> bool:
    """Whether a text has a question mark, of any script."""
    return bool(_MARK.search(text)) or (bool(_GREEK_MARK.search(text)) and family(script_counts(text)) == "GREEK")


def is_question(question: str) -> bool:
    """Whether a text asks: by an interrogative, by the form of a question for yes or no, or by a request to name
    something. In a language whose words are not known, a question mark is enough."""
    marked, wordings = has_mark(question), wordings_of(question)
    if not wordings:
        return marked or any(_asks(question, wording, marked) for wording in LATIN_WORDINGS)
    if marked and any(wording.interrogative.match(words_of(question)) for wording in LATIN_WORDINGS):
        return True  # a long title may be in another language than the question around it
    return any(_asks(question, wording, marked) for wording in wordings)


def _asks(question: str, wording: Wording, marked: bool) -> bool:
    folded = words_of(question)
    if _requests(folded, wording):
        return True
    if wording.joined or not wording.fronted:
        return _asks_in_place(question, folded, wording)
    if not marked:
        return not question.rstrip().endswith(".") and opens_with_interrogative(folded, wording)
    if "¿" in question or wording.interrogative.search(folded):
        return True
    return is_polar_form(question, folded, wording)


def _asks_in_place(question: str, folded: str, wording: Wording) -> bool:
    if wording.interrogative.search(folded) or (wording.polar and wording.polar_form.search(folded)):
        return True
    if _ends_asking(folded, wording):
        return True
    return wording.code in _TOPIC and bool(_TOPIC[wording.code].search(question.rstrip()))


def _ends_asking(folded: str, wording: Wording) -> bool:
    return bool(wording.endings) and folded.endswith(tuple(wording.endings.split()))


def _requests(folded: str, wording: Wording) -> bool:
    if wording.joined or not wording.fronted:
        return bool(wording.request_words.search(folded))
    found = wording.request_words.match(folded)
    if found is None:
        found = wording.request_words.match(folded.partition(" ")[2])  # `please name`
    return found is not None and not _CREATIVE & set(folded.split()[:6]) and len(folded.split()) > 2


def opens_with_interrogative(folded: str, wording: Wording) -> bool:
    """Whether one of the first words is an interrogative."""
    opening = " ".join(folded.split()[:_SHORT_OPENING])
    return bool(wording.interrogative.search(opening))


def is_polar_form(question: str, folded: str, wording: Wording) -> bool:
    """Whether a question begins like one that is answered by yes or no."""
    if wording.code == "fr" and _INVERTED.search(question):
        return True
    if wording.code == "ru":
        return bool(wording.polar_form.search(folded))
    if wording.code == "de" and _VERB_FIRST.match(question.strip()):
        return True
    return bool(wording.polar_form.match(folded))


def may_be_polar(question: str) -> bool:
    """Whether yes or no may be the answer: the question begins so, or has no interrogative."""
    wordings, folded = wordings_of(question), words_of(question)
    return not wordings or any(_may_be_polar(question, folded, wording) for wording in wordings)


def _may_be_polar(question: str, folded: str, wording: Wording) -> bool:
    if wording.code == "hi":
        return folded.startswith("क्या ") or not wording.interrogative.search(folded)
    if wording.joined:
        return not wording.interrogative.search(folded) or bool(wording.polar and wording.polar_form.search(folded))
    if is_polar_form(question, folded, wording):
        return True
    opening = " ".join(folded.split()[:_OPENING_WORDS])
    return not wording.interrogative.search(opening)


def offers_alternatives(question: str) -> bool:
    """Whether a question names what its answer is to be chosen from: `which is older, A or B`, `is A or B older`,
    `which of A and B is older`."""
    folded = words_of(question)
    return any(_offers(question, folded, wording) for wording in wordings_of(question))


def _offers(question: str, folded: str, wording: Wording) -> bool:
    if wording.code in _COMPARED:
        return bool(_COMPARED[wording.code].search(question) and re.search(_PAIRED[wording.code], question))
    if _OF_BOTH.search(folded) or _WHICH_OF.search(folded):
        return True
    if between := _BETWEEN.search(folded):
        return wording.conjunction.search(folded, between.end()) is not None
    if wording.alternative.search(folded) is None:
        return False
    if ":" in question and wording.alternative.search(words_of(question.rpartition(":")[2])):
        return True
    return "," in question or "،" in question or is_polar_form(question, folded, wording)


def asks_twice(question: str) -> bool:
    """Whether a text holds two questions: two of them in a row, or two interrogatives joined by `and`."""
    plain = _QUOTED.sub(" ", question)
    return _marked_sentences(plain) > 1 or any(_joined_questions(plain, wording) for wording in wordings_of(plain))


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


def _joined_questions(text: str, wording: Wording) -> bool:
    folded = words_of(_without_names(text))
    if wording.code == "ar":
        return bool(_ARABIC_SECOND.search(text))
    if wording.fronted:
        second = wording.second_question.search(folded)
        if second is None:
            return False
        before = folded[: second.start()]
        return bool(wording.interrogative.search(before)) and not _relative(folded, second, wording)
    if not wording.joined:
        places = [match.start() for match in wording.interrogative.finditer(folded)]
        return any(
            places and places[0] < match.start() < places[-1] for match in wording.second_question.finditer(folded)
        )
    found = [match.span() for match in wording.interrogative.finditer(text)]
    return len(found) > 1 and bool(wording.second_question.search(text, found[0][1], found[-1][0] + 1))


def _without_names(text: str) -> str:
    """The text without its capitalised words, but for the first: `How They Grew` is a title."""
    first, *words = text.split() or [""]
    return " ".join((first, *(word for word in words if not word[:1].isupper())))


def _relative(folded: str, second: re.Match[str], wording: Wording) -> bool:
    """Whether what looks like a second question is a relative clause: `a river which rises in A and which is long`."""
    pronoun, following = second.group().rsplit(" ", 1)[-1], folded[second.end() :].split()[:1]
    if wording.code == "en":
        verbs = ("is", "was", "are", "were", "has", "had", "have", "in", "later")
        return pronoun == "whose" or (pronoun in ("which", "who") and following[:1] != [] and following[0] in verbs)
    return pronoun in ("qui", "que", "che", "die", "как", "что")
