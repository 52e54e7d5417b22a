"""Which of the known languages a text is in, and its words.

A language without a table is not judged by its words: there a question mark makes a question.
"""

from __future__ import annotations

from collections.abc import Iterable

from evoseek.corpus.language import LANGUAGES, Language
from evoseek.corpus.scripts import family, fold, script_counts

LATIN = tuple(language for language in LANGUAGES.values() if language.script == "LATIN")
ARABIC_PREFIXES = ("وال", "بال", "فال", "كال", "ال", "لل", "و", "ب", "ل", "ف", "ك")
SURE = 2  # words of its grammar tell the language of a text in Latin script
YES_NO = frozenset(fold(" ".join((*(one.yes_no for one in LANGUAGES.values()), "evet hayır tak nie"))).split())
_ONLY_ONE = {language.script: language for language in LANGUAGES.values() if language.script != "LATIN"}


def words_of(text: str) -> str:
    """The words by which a text is judged: as `fold` gives them, with their accents (French `où` is not `ou`)."""
    return fold(text, accents=True)


def languages_of(text: str) -> tuple[Language, ...]:
    """The languages that a text may be in, () if none that is known here: by its script, and in Latin script by the
    most words of grammar, at least two, or else by how it begins."""
    name = family(script_counts(text))
    if name != "LATIN":
        return (_ONLY_ONE[name],) if name in _ONLY_ONE else ()
    words = words_of(text).split()
    hits = grammar_hits(words)
    most = max(hits.values())
    if most < SURE:
        return tuple(language for language in LATIN if language.opens(" ".join(words)))
    return tuple(LANGUAGES[code] for code, count in hits.items() if count == most)


def grammar_hits(words: Iterable[str]) -> dict[str, int]:
    """How many of the folded words belong to the grammar of each language in Latin script."""
    listed = list(words)
    return {language.code: sum(word in language.grammar_words for word in listed) for language in LATIN}


def bare(word: str) -> str:
    """An Arabic word without its first particle."""
    prefix = next((prefix for prefix in ARABIC_PREFIXES if word.startswith(prefix)), "")
    return word[len(prefix) :] if len(word) - len(prefix) > 2 else word
