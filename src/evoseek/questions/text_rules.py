"""Rules about unwanted content of a question: instructions, leftovers, references, other languages, noise."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from evoseek.text.language import LANGUAGES, LATIN, SURE, grammar_hits, is_refusal, pattern, words_in, words_of
from evoseek.text.scripts import family, fold, script, script_counts

_TAG = re.compile(
    r"</?[a-z_|!][^<>]{0,80}>|<\|[^<>|]{0,40}\|>|\[/?INST\]|<<SYS>>|</?s>|```|^\s*(?:system|assistant|user|human)\s*:|"
    r"(?<=[.?!？] )(?:system|assistant|user|human)\s*:|## ?\w|"
    r"(?:^|[.?!？。] ?)(?:système|sistema|система|النظام|系统|系統|システム|ระบบ|시스템|सिस्टम)\s*[:：]",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"https?://|www\.\w|\bftp://|\b\w+\.(?:com|org|net|io)/", re.IGNORECASE)
_ALL = tuple(LANGUAGES.values())
_ORDER = pattern((language.orders for language in _ALL), "(?<![a-z])")
_OVERRIDES = tuple(
    (pattern([language.override_verbs], "" if language.joined else r"(?<!\w)"), pattern([language.override_nouns]))
    for language in _ALL
)
_LABEL = "|".join(word for language in _ALL for word in language.labels.split())
_TEMPLATE = pattern(
    (language.small_talk for language in _ALL),
    r"\{[^{}]{0,60}\}|\{\{|\}\}|\[[^\[\]\d]{1,40}\]|<[^<>\d]{1,40}>|_{3,}|\bX{3,}\b|○○|\bO{3}|\.\.\. ?\?|"
    rf"(?:^|[\s【\[(.。?？])(?:{_LABEL})(?: ?\d+)?[】\])]?\s*[:：】]|^q\d*\s*[:.]|lorem ipsum|\btodo\b|",
)
_NO_ANSWERS = {"the answer"}.union(*(map(fold, language.labels.split()[:2]) for language in _ALL))
_REFERS = pattern(language.refers for language in _ALL)
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


def instructs(text: str) -> bool:
    """Whether a text addresses a model instead of asking: instructions, tags of roles or tools, addresses to open."""
    if _TAG.search(text) or _ADDRESS.search(text) or _ORDER.search(text):
        return True
    return any(verb.search(text) and noun.search(text) for verb, noun in _OVERRIDES)


def is_template(question: str, answer: str) -> bool:
    """Whether a text contains leftovers: unfilled fields, blanks, labels, small talk, or an answer that states none."""
    return (
        bool(_TEMPLATE.search(question) or _TEMPLATE.search(answer))
        or fold(answer) in _NO_ANSWERS
        or is_refusal(answer)
    )


def refers_to_passage(question: str) -> bool:
    """Whether a question refers to a text that the solver cannot see."""
    return bool(_REFERS.search(unicodedata.normalize("NFKC", question)))


def is_noise(question: str) -> bool:
    """Whether a text is not language: symbols, repetition, letters without a word."""
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
    """Whether a question is in another script or language than the passages, or changes it within a sentence. Names of
    another script or language may stand in it, and all that the passages say so."""
    evidence = words_of(" ".join(passages))
    counts = script_counts(question)
    own, given = family(counts), family(script_counts(evidence))
    if given and own != given and counts[given] < counts.total() and not {own, given} <= {"HAN", "KANA"}:
        return True
    if any(_mixed_word(word) for word in fold(question).split()):
        return True
    return _foreign_script(question, own, evidence) or (own == "LATIN" and _foreign_grammar(question, evidence))


def _mixed_word(word: str) -> bool:
    """Letters of two alphabets that look alike, in one word."""
    scripts = {script(character) for character in word}
    return len(scripts & {"LATIN", "CYRILLIC", "GREEK"}) > 1


def _foreign_script(question: str, own: str, evidence: str) -> bool:
    """Whether words of another script stand in a question that are no names, no units and not in the evidence."""
    allowed = {own, "HAN"} if own in ("KANA", "HANGUL") else {own}
    foreign = [word for word in _script_runs(question) if script_counts(word).keys() - allowed]
    unknown = [word for word in foreign if words_of(word) not in evidence]
    if own == "LATIN":
        return bool(unknown)
    return any(not _NAMELIKE.fullmatch(word) or word in _LATIN_GRAMMAR for word in unknown)


_LATIN_GRAMMAR = frozenset(
    word for code in ("en", "de", "fr", "es") for word in LANGUAGES[code].grammar_words if len(word) > 1
) | {"What", "Which", "Who", "Where", "When", "How", "Why", "Does", "Did", "Is"}  # fmt: skip


def _script_runs(text: str) -> list[str]:
    """The words of a text, cut where letters of another script begin."""
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
    """Whether words of grammar of two languages stand in a question; of a title in capitals they do not count, nor what
    the evidence says in the same words."""
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
    """The languages that have the most words of grammar of several texts together, or nearly so: related languages
    share many of them."""
    sums = {code: sum(part[code] for part in hits) for code in hits[0]}
    most = max(sums.values())
    return [code for code, count in sums.items() if count > _NEAR * most] if most else list(sums)


def _running_words(text: str) -> list[str]:
    """The words in lower case, and the first one, which do not stand between words with capitals."""
    words = [word.strip("¿¡.,;:?!()\"“”„«»'’") for word in text.split()]
    kept: list[str] = []
    for place, word in enumerate(words):
        before = words[place - 1] if place > 1 else ""
        after = words[place + 1] if place + 1 < len(words) else ""
        in_title = before[:1].isupper() and after[:1].isupper()
        if word and (place == 0 or word.islower()) and not in_title:
            kept.extend(words_of(word).split())
    return kept


_STRONG = frozenset(
    word
    for language in LATIN
    for word in language.grammar_words - words_in(*(one.shared for one in LATIN))
    if len(word) > 1
)
