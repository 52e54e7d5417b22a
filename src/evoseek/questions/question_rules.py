"""Rules about the wording of a question: whether it asks one thing, in one language, and contains nothing else.

Marks, brackets, scripts and symbols are judged in any language; words by the tables `wording` of `text/languages`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import partial

from evoseek.text.language import (
    LANGUAGES,
    LATIN,
    SURE,
    WORDED,
    Language,
    WordedLanguage,
    any_of,
    grammar_hits,
    is_refusal,
    languages_of,
    pattern,
    words_in,
    words_of,
)
from evoseek.text.scripts import family, fold, is_unspaced, script, script_counts

_MARK = re.compile("[?？؟⁇]+")
_GREEK_MARK = re.compile("[;\u037e]")
_QUOTED = re.compile(
    '"[^"]{0,200}"|“[^”]{0,200}”|«[^»]{0,200}»|《[^》]{0,200}》|『[^』]{0,200}』|「[^」]{0,200}」|„[^“”]{0,200}[“”]|'
    r"(?<!\w)'(?:[^']|\b'\b){0,200}'(?!\w)|(?<!\w)‘(?:[^’]|\b’\b){0,200}’(?!\w)"  # an apostrophe stands in a word
)
_OPENING_WORDS = 5  # one of them is an interrogative if it opens the question: `in the year of which`
_SHORT_OPENING = 3
_PAIRS = ("()", "[]", "“”", "«»", "《》", "『』", "「」", "（）")
_OPEN = tuple(",;:–—-(«„“，、；：")
_SHAPES = {language.code: pattern([language.polar_shape], flags=0) for language in LANGUAGES.values()}
_NOW = {language.code: pattern([language.now], flags=0) for language in WORDED}
_COMPARED, _PAIRED = (
    {language.code: pattern([getattr(language, name)]) for language in LANGUAGES.values()}
    for name in ("compared", "paired")
)


def _worded(text: str) -> list[WordedLanguage]:
    return [language for language in languages_of(text) if isinstance(language, WordedLanguage)]


def _has_mark(text: str) -> bool:
    return bool(_MARK.search(text)) or (bool(_GREEK_MARK.search(text)) and family(script_counts(text)) == "GREEK")


def is_question(question: str) -> bool:
    """Return whether a text asks: by an interrogative, by the form of a yes-or-no question, or by a request to name
    something. In a language without a table of wording, a question mark is enough; in scripts without spaces, none is
    needed."""
    marked, languages = _has_mark(question), languages_of(question)
    if not languages or not all(isinstance(language, WordedLanguage) for language in languages):
        return marked or is_unspaced(question) or any(_asks(question, language, marked) for language in WORDED)
    if marked and any(language.interrogative.match(words_of(question)) for language in LATIN):
        return True  # a long title may be in another language than the question around it
    return any(_asks(question, language, marked) for language in _worded(question))


def _asks(question: str, language: WordedLanguage, marked: bool) -> bool:
    folded = words_of(question)
    if _requests(folded, language):
        return True
    if not marked:
        return not question.rstrip().endswith(".") and _opens_asking(folded, language, _SHORT_OPENING)
    return bool(language.interrogative.search(folded)) or _is_polar_form(question, folded, language)


def _requests(folded: str, language: WordedLanguage) -> bool:
    requests = any_of(language.requests)
    found = requests.match(folded) or requests.match(folded.partition(" ")[2])  # `please name`
    return found is not None and not words_in(language.creative) & set(folded.split()[:6]) and len(folded.split()) > 2


def _opens_asking(folded: str, language: WordedLanguage, words: int) -> bool:
    return bool(language.interrogative.search(" ".join(folded.split()[:words])))


def _is_polar_form(question: str, folded: str, language: Language) -> bool:
    return bool(_SHAPES[language.code].search(question.strip()) or any_of(language.polar).match(folded))


def may_be_polar(question: str) -> bool:
    """Return whether the answer may be yes or no: the question begins like it, or has no interrogative. Always True in
    a language without a table of wording."""
    languages, folded = languages_of(question), words_of(question)
    return not languages or any(
        not isinstance(language, WordedLanguage)
        or _is_polar_form(question, folded, language)
        or not _opens_asking(folded, language, _OPENING_WORDS)
        for language in languages
    )


def offers_alternatives(question: str) -> bool:
    """Return whether a question names alternatives for its answer: `which is older, A or B`, `is A or B older`, `which
    of A and B is older`."""
    folded = words_of(question)
    return any(_offers(question, folded, language) for language in languages_of(question))


def _offers(question: str, folded: str, language: Language) -> bool:
    if language.compared:
        return bool(_COMPARED[language.code].search(question) and _PAIRED[language.code].search(question))
    if any_of(language.of_both).search(folded):
        return True
    of = any_of(language.which_of).search(folded)
    if of and any_of(language.conjunctions).search(" ".join(folded[of.end() :].split()[1:5])):
        return True
    if between := any_of(language.between).search(folded):
        return any_of(language.conjunctions).search(folded, between.end()) is not None
    alternatives = any_of(language.alternatives)
    if alternatives.search(folded) is None:
        return False
    if ":" in question and alternatives.search(words_of(question.rpartition(":")[2])):
        return True
    return "," in question or "،" in question or _is_polar_form(question, folded, language)


def asks_twice(question: str) -> bool:
    """Return whether a text has two questions: one after the other, or two interrogatives joined by `and`."""
    plain = _QUOTED.sub(" ", question)
    return _marked_sentences(plain) > 1 or any(_joined_questions(plain, language) for language in _worded(plain))


def _marked_sentences(text: str) -> int:
    """Count the pieces that end with a question mark, followed by a new sentence or nothing. In titles (`Where Are You?
    or Kalo`) the sentence continues after the mark."""
    count, start = 0, 0
    for mark in _MARK.finditer(text):
        piece, after = text[start : mark.start()], text[mark.end() : mark.end() + 4].lstrip('"”» ')
        continues = bool(after) and (after[0].islower() or after[0] in ",;)(")
        count += not continues and sum(map(str.isalnum, piece)) > 1
        start = mark.end()
    return count


def _joined_questions(text: str, language: WordedLanguage) -> bool:
    folded = words_of(_without_names(text))
    second = language.second_question.search(folded)
    if second is None:
        return False
    return bool(language.interrogative.search(folded[: second.start()])) and not _relative(folded, second, language)


def _without_names(text: str) -> str:
    """Return the text without its capitalised words, except the first: `How They Grew` is a title."""
    first, *words = text.split() or [""]
    return " ".join((first, *(word for word in words if not word[:1].isupper())))


def _relative(folded: str, second: re.Match[str], language: WordedLanguage) -> bool:
    """Return whether a seeming second question is a relative clause: `a river which rises in A and which is long`."""
    if language.code != "en":
        return False
    pronoun, following = second.group().rsplit(" ", 1)[-1], folded[second.end() :].split()[:1]
    verbs = ("is", "was", "are", "were", "has", "had", "have", "in", "later")
    return pronoun == "whose" or (pronoun in ("which", "who") and following[:1] != [] and following[0] in verbs)


def is_cut_off(question: str) -> bool:
    """Return whether a text is cut off: within quotes or brackets, after a comma, or without a final mark if it begins
    with a capital."""
    text = question.strip(" ¿¡")
    if any(text.count(opening) != text.count(closing) for opening, closing in _PAIRS if "„" not in text):
        return True
    if _has_mark(text):
        return False
    is_cased = text[-1:].lower() != text[-1:].upper()
    return text[-1:] in _OPEN or (text[:1].isupper() and (text[-1:].isdigit() or is_cased))


def depends_on_now(question: str) -> bool:
    """Return whether the answer depends on the day of the question, by words outside titles."""
    plain = _QUOTED.sub(" ", question).strip()
    languages = _worded(plain) if languages_of(plain) else WORDED
    return any(_NOW[language.code].search(plain[:1].lower() + plain[1:]) for language in languages)


def is_vague(question: str) -> bool:
    """Return whether a question names nothing that could be searched for (`Who wrote the book?`), or has a pronoun for
    something that it has not named (`Which prize did he win for Hamlet?`)."""
    languages = _worded(question)
    return bool(languages) and all(map(partial(_is_vague, question), languages))


def _is_vague(question: str, language: WordedLanguage) -> bool:
    frames = set(language.frames.split())
    has_name = has_begun = False
    for place, token in enumerate(question.split()):
        for word in words_of(token).split():
            is_common = word.isdigit() or len(word) == 1 or word in language.common_words
            if not has_begun and word in language.pronouns.split() and (place == 0 or token.islower()):
                return True
            has_begun |= not is_common and word not in frames
            is_capital = place > 0 and language.code != "de" and any(map(str.isupper, token))
            has_name |= is_capital or not (is_common or language.generic_form.fullmatch(word))
    return not has_name and not _QUOTED.search(question)


_TAG = re.compile(
    r"</?[a-z_|!][^<>]{0,80}>|<\|[^<>|]{0,40}\|>|\[/?INST\]|<<SYS>>|</?s>|```|^\s*(?:system|assistant|user|human)\s*:|"
    r"(?<=[.?!？] )(?:system|assistant|user|human)\s*:|## ?\w",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"https?://|www\.\w|\bftp://|\b\w+\.(?:com|org|net|io)/", re.IGNORECASE)
_ORDER = pattern((language.orders for language in WORDED), "(?<![a-z])")
_OVERRIDES = tuple(
    (pattern([language.override_verbs], r"(?<!\w)"), pattern([language.override_nouns])) for language in WORDED
)
_LABEL = "|".join(word for language in WORDED for word in language.labels.split())
_TEMPLATE = pattern(
    (language.small_talk for language in WORDED),
    r"\{[^{}]{0,60}\}|\{\{|\}\}|\[[^\[\]\d]{1,40}\]|<[^<>\d]{1,40}>|_{3,}|\bX{3,}\b|○○|\bO{3}|\.\.\. ?\?|"
    rf"(?:^|[\s【\[(.。?？])(?:{_LABEL})(?: ?\d+)?[】\])]?\s*[:：】]|^q\d*\s*[:.]|lorem ipsum|\btodo\b|",
)
_NO_ANSWERS = {"the answer"}.union(*(map(fold, language.labels.split()[:2]) for language in WORDED))
_REFERS = pattern(language.refers for language in WORDED)
_STRANGE_RUN = re.compile(r"[?!.,;:@#$%^&*~=+|\\/<>_‽§]{4,}")
_REPEATED_CHARACTER = re.compile(r"(\w)\1{4,}")
_REPEATED_PIECE = re.compile(r"(\w{2,12}?)\1{3,}")
_REPEATED_WORD = re.compile(r"(?<!\S)(\S+)(?: \1(?!\S)){2,}")
_USUAL = frozenset("+%°$€£¥&/<>=№²³")
_MOJIBAKE = re.compile("Ã[\u0080-\u00bf]|â€|Ð[\u0080-\u00bf]|\ufffd")
_VOWELS = re.compile("[aeiouyàáâãäåæèéêëìíîïòóôõöøùúûüýœıāēīōūăąęőűůěı]", re.IGNORECASE)
_ODD_SHARE, _UNIQUE_SHARE, _MANY_WORDS = 0.12, 0.55, 8
_SURE_HITS = 3
_NEAR = 0.67  # share of the highest count of function words from which another language is possible, too
_NAMELIKE = re.compile(r"[A-Z][\w.&'-]*|[a-z]{1,3}|[a-z]?[A-Z]\w*|\w*\d\w*")
_STRONG = frozenset(
    word
    for language in LATIN
    for word in language.grammar_words - words_in(*(one.shared for one in LATIN))
    if len(word) > 1
)


def instructs(text: str) -> bool:
    """Return whether a text addresses a model instead of asking: instructions, role or tool tags, addresses to open."""
    if _TAG.search(text) or _ADDRESS.search(text) or _ORDER.search(text):
        return True
    return any(verb.search(text) and noun.search(text) for verb, noun in _OVERRIDES)


def is_template(question: str, answer: str) -> bool:
    """Return whether a text has leftovers: unfilled fields, blanks, labels, small talk, or an empty answer."""
    return (
        bool(_TEMPLATE.search(question) or _TEMPLATE.search(answer))
        or fold(answer) in _NO_ANSWERS
        or is_refusal(answer)
    )


def refers_to_passage(question: str) -> bool:
    """Return whether a question refers to a text that the solver cannot see."""
    return bool(_REFERS.search(unicodedata.normalize("NFKC", question)))


def is_noise(question: str) -> bool:
    """Return whether a text is not language: symbols, repetition, letters without a word."""
    plain = unicodedata.normalize("NFKC", question)
    if _STRANGE_RUN.search(plain) or _REPEATED_CHARACTER.search(plain) or _MOJIBAKE.search(question):
        return True
    folded = fold(plain)
    words = folded.split()
    if _REPEATED_WORD.search(folded) or _REPEATED_PIECE.search(folded):
        return True
    if len(words) >= _MANY_WORDS and len(set(words)) < _UNIQUE_SHARE * len(words):
        return True
    return _odd_characters(plain) or _without_vowels(words)


def _odd_characters(text: str) -> bool:
    odd = sum(_is_odd(character) for character in text)
    return (odd >= 3 and odd > _ODD_SHARE * 0.5 * len(text)) or odd >= 5


def _is_odd(character: str) -> bool:
    if character in _USUAL:
        return False
    category = unicodedata.category(character)
    return category[0] in "SC" or character in "#@*\\|~^_※§"


def _without_vowels(words: list[str]) -> bool:
    latin = [word for word in words if len(word) > 4 and word.isalpha() and family(script_counts(word)) == "LATIN"]
    return sum(_VOWELS.search(word) is None for word in latin) >= 2


def mixes_languages(question: str, passages: Sequence[str]) -> bool:
    """Return whether a question is in another script or language than the passages, or changes it within a sentence. It
    may contain names in another script or language, and anything in the passages' own words."""
    evidence = words_of(" ".join(passages))
    counts = script_counts(question)
    own, given = family(counts), family(script_counts(evidence))
    if given and own != given and counts[given] < counts.total() and not {own, given} <= {"HAN", "KANA"}:
        return True
    if any(_mixed_word(word) for word in fold(question).split()):
        return True
    return _foreign_script(question, own, evidence) or (own == "LATIN" and _foreign_grammar(question, evidence))


def _mixed_word(word: str) -> bool:
    scripts = {script(character) for character in word}
    return len(scripts & {"LATIN", "CYRILLIC", "GREEK"}) > 1


def _foreign_script(question: str, own: str, evidence: str) -> bool:
    """Return whether a question has words of another script that are not names, units or in the evidence."""
    allowed = {own, "HAN"} if own in ("KANA", "HANGUL") else {own}
    foreign = [word for word in _script_runs(question) if script_counts(word).keys() - allowed]
    unknown = [word for word in foreign if words_of(word) not in evidence]
    if own == "LATIN":
        return bool(unknown)
    return any(not _NAMELIKE.fullmatch(word) for word in unknown)


def _script_runs(text: str) -> list[str]:
    runs: list[str] = []
    last = ""
    for character in text:
        name = script(character) or ("" if not character.isdigit() else last)
        if name and name == last:
            runs[-1] += character
        elif name:
            runs.append(character)
        last = name
    return runs


def _foreign_grammar(question: str, evidence: str) -> bool:
    """Return whether a question has function words of two languages. Titles in capitals, and words from the evidence,
    do not count."""
    asked, told = words_of(question).split(), evidence.split()
    hits, of_evidence = grammar_hits(asked), grammar_hits(told)
    sure = max(of_evidence.values()) >= _SURE_HITS and max(hits.values()) >= SURE
    if sure and not any(hits[code] for code in _leading(of_evidence)):
        return True
    home = _leading(hits, of_evidence)
    said = set(told).union(*(LANGUAGES[code].grammar_words for code in home))
    own = [word for word in _running_words(question) if word not in said]
    return any(word in _STRONG for word in own)


def _leading(*hits: dict[str, int]) -> list[str]:
    """Return the languages with the most function words in several texts together, or nearly the most: related
    languages share many of them."""
    sums = {code: sum(part[code] for part in hits) for code in hits[0]}
    most = max(sums.values())
    return [code for code, count in sums.items() if count > _NEAR * most] if most else list(sums)


def _running_words(text: str) -> list[str]:
    """Return the lower-case words, and the first one, that are not between capitalised words."""
    words = [word.strip("¿¡.,;:?!()\"“”„«»'’") for word in text.split()]
    kept: list[str] = []
    for place, word in enumerate(words):
        before = words[place - 1] if place > 1 else ""
        after = words[place + 1] if place + 1 < len(words) else ""
        in_title = before[:1].isupper() and after[:1].isupper()
        if word and (place == 0 or word.islower()) and not in_title:
            kept.extend(words_of(word).split())
    return kept
