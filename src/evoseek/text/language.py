"""The known languages, each with a table of words, `languages/<code>.toml`; and which of them a text is in.

`docs/extend.md` shows how to add a language.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from evoseek.text.scripts import family, fold, script_counts, without_citations

_FOLDER = Path(__file__).parent / "languages"


@dataclass(frozen=True)
class Language:
    """A language's table: how to recognise it, and what the checks of evidence and refusals need.

    Words are separated by spaces, with `_` for a space within one; each pattern has its own line."""

    code: str
    script: str
    grammar: str = ""
    interrogatives: str = ""
    shared: str = ""
    polar: str = ""
    polar_shape: str = ""
    alternatives: str = ""
    conjunctions: str = ""
    between: str = ""
    of_both: str = ""
    which_of: str = ""
    compared: str = ""
    paired: str = ""
    yes_no: str = ""
    numbers: str = ""
    denials: str = ""
    joins: str = ""
    turns: str = ""
    refusals: str = ""
    apologies: str = ""
    stop_words: str = ""
    abbreviations: str = ""
    closing_abbreviations: str = ""
    ordinals: str = ""

    @cached_property
    def grammar_words(self) -> frozenset[str]:
        """`grammar`, the interrogatives and the words for `or`."""
        return words_in(self.grammar, self.alternatives, self.interrogatives)

    @cached_property
    def interrogative(self) -> re.Pattern[str]:
        """A pattern that matches any of the interrogatives."""
        return any_of(self.interrogatives)

    def opens(self, words: str) -> bool:
        """Return whether a question of this language begins with these words."""
        return bool(self.interrogative.match(words) or any_of(self.polar).match(words))


@dataclass(frozen=True)
class WordedLanguage(Language):
    """A language with the table `wording`, which the rules about wording use."""

    requests: str = ""
    labels: str = ""
    choices: str = ""
    creative: str = ""
    finite: str = ""
    pronouns: str = ""
    frames: str = ""
    generic: str = ""
    inflections: str = ""
    orders: str = ""
    override_verbs: str = ""
    override_nouns: str = ""
    small_talk: str = ""
    refers: str = ""
    now: str = ""

    @cached_property
    def second_question(self) -> re.Pattern[str]:
        """A conjunction with an interrogative after it: directly, or after one short word (`and in which year`)."""
        return re.compile(
            rf"(?<!\S)(?:{_choice(self.conjunctions)}) (?:\w{{1,4}} )?(?:{_choice(self.interrogatives)})(?!\S)"
        )

    @cached_property
    def common_words(self) -> frozenset[str]:
        """Words that name nothing, beside `generic`."""
        asking = (self.interrogatives, self.requests, self.polar, self.conjunctions, self.pronouns)
        return words_in(
            *(text.replace("_", " ") for text in (self.grammar, self.alternatives, self.stop_words, *asking))
        )

    @cached_property
    def generic_form(self) -> re.Pattern[str]:
        """One of `generic` with an ending."""
        if self.inflections:
            return re.compile(rf"(?:{_choice(self.generic)})(?:{_choice(self.inflections)})?")
        short, long = (
            " ".join(word for word in self.generic.split() if (len(word) < 4) is few) for few in (True, False)
        )
        return re.compile(rf"(?:{_choice(short)})\w{{0,2}}|(?:{_choice(long)})\w{{0,4}}")


@cache
def any_of(words: str) -> re.Pattern[str]:
    """Return a pattern that matches any of these words, as a whole."""
    return re.compile(rf"(?<!\S)(?:{_choice(words)})(?!\S)")


def words_in(*texts: str) -> frozenset[str]:
    """Split lists into their single words."""
    return frozenset(word for text in texts for word in text.split() if "_" not in word)


def _choice(text: str) -> str:
    """Return the words as alternatives in a pattern, longest first; `_` in a word stands for a space."""
    words = sorted((unicodedata.normalize("NFC", word) for word in text.split()), key=len, reverse=True)
    return "|".join(re.escape(word.replace("_", " ")) for word in words) or r"(?!)"


def pattern(texts: Iterable[str], before: str = "", flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """Return a pattern that matches any of the patterns in tables, after `before`."""
    lines = "|".join(line for text in texts for line in text.strip().splitlines())
    return re.compile(f"{before}(?:{lines or '(?!)'})", flags)


def _load(file: Path) -> Language:
    table = tomllib.loads(file.read_text("utf-8"))
    wording = table.pop("wording", None)
    return WordedLanguage(file.stem, **table, **wording) if wording else Language(file.stem, **table)


LANGUAGES = {file.stem: _load(file) for file in sorted(_FOLDER.glob("*.toml"))}
"""Every language by its code, as in ISO 639."""

LATIN = tuple(language for language in LANGUAGES.values() if language.script == "LATIN")
WORDED = tuple(language for language in LANGUAGES.values() if isinstance(language, WordedLanguage))

STOP_WORDS = words_in(*(language.stop_words for language in LANGUAGES.values()))
"""Words without a meaning by themselves. Only mining skips them; search has no stop words."""

DENIALS = frozenset(fold(" ".join(language.denials for language in LANGUAGES.values())).split())
"""Words that turn a statement into its opposite."""

JOINS = words_in(*(language.joins for language in LANGUAGES.values()))
"""Words between the parts of an answer."""

ABBREVIATIONS = words_in(*(language.abbreviations for language in LANGUAGES.values()))
CLOSING_ABBREVIATIONS = words_in(*(language.closing_abbreviations for language in LANGUAGES.values()))
ORDINALS = re.compile(rf"(?:{_choice(' '.join(language.ordinals for language in LANGUAGES.values()))})\w{{0,2}}\b")

_CLAUSES = re.compile(
    rf"[,;:.!?()\n。，；：！？、،؟।]+|\b(?:{_choice(' '.join(language.turns for language in LANGUAGES.values()))})\b",
    re.IGNORECASE,
)
_LONGEST_CLAUSE = 300  # characters; the patterns are not linear
_REFUSAL, _APOLOGY = (
    pattern(unicodedata.normalize("NFKC", text) for text in texts)
    for texts in zip(*((language.refusals, language.apologies) for language in LANGUAGES.values()), strict=True)
)


NOT_FOUND = "Not found in the documents."
"""The refusal that is shown, and that prompts ask for."""


def is_refusal(answer: str | None) -> bool:
    """Return whether an answer refuses: it is empty, or its clauses say that the answer is unknown or was not found.
    Further clauses may apologise or name the source, but do not refuse by themselves ("From the Danish coast"). A
    rollout that ended without an answer (None) did not refuse. Citations do not count. No other refusal is defined."""
    if answer is None:
        return False
    clauses = [words for clause in _CLAUSES.split(without_citations(answer)) if (words := fold(clause, accents=True))]
    if any(len(clause) > _LONGEST_CLAUSE for clause in clauses):
        return False
    others = [clause for clause in clauses if not _REFUSAL.fullmatch(clause)]
    return not clauses or (len(others) < len(clauses) and all(map(_APOLOGY.fullmatch, others)))


SURE = 2  # words of its grammar tell the language of a text in Latin script
YES_NO = frozenset(fold(" ".join((*(one.yes_no for one in LANGUAGES.values()), "evet hayır tak nie"))).split())
_ONLY_ONE = {language.script: language for language in LANGUAGES.values() if language.script != "LATIN"}


def words_of(text: str) -> str:
    """Return the words of a text for language detection: folded, accents kept (French `où` is not `ou`)."""
    return fold(text, accents=True)


def languages_of(text: str) -> tuple[Language, ...]:
    """Return the known languages that a text may be in, or (). They follow from its script; in Latin script from the
    most words of grammar, at least two, or else from how the text begins."""
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
    """Count the folded words that belong to the grammar of each language in Latin script."""
    listed = list(words)
    return {language.code: sum(word in language.grammar_words for word in listed) for language in LATIN}
