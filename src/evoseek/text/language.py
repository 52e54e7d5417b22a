"""The languages that are known: a table of words and patterns for each, `languages/<code>.toml`, their one reader, and
which of them a text is in.

A table says how a language asks and what its questions should not hold. Another language is one more file. A language
without a table is not judged by its words: there a question mark makes a question.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from evoseek.text.scripts import family, fold, script_counts

_FOLDER = Path(__file__).parent / "languages"


@dataclass(frozen=True)
class Language:
    """A language's table. Words are separated by spaces, with `_` for a space in one; patterns stand on lines of their
    own.

    `fronted`: its interrogatives open the question (else they stand anywhere). `joined`: its words are not set apart
    by spaces, or carry endings, so they are looked for as characters. `grammar` are words that tell the language and
    are rarely part of a name; `stop_words` say nothing by themselves. `requests` open a question without an
    interrogative, or end it where `joined`. `generic` are the beginnings of words that name nothing by themselves
    (`book`, `found`), with one of `inflections` or else any short ending; `frames` are what a question asks for before
    it names anything (`in which year`). `dangling` words, where letters have no case, end no question. `numbers` are
    the words from zero on; `shared` words of grammar stand in names and other languages too; `creative` works are not
    asked for. `abbreviations` with a point behind them end no sentence, `closing_abbreviations` none unless a capital
    follows; `ordinals` are the beginnings of words that a number with a point counts (`3. Mai`).

    Patterns: `orders` to a model, `override_verbs` with `override_nouns`, `small_talk` around a question or in place of
    it, what `refers` to a text, `refusals` (whole clauses) to answer and the `apologies` beside them, what means `now`;
    `compared`, `paired`, `topic` and `second` of a question's form.
    """

    code: str
    script: str
    fronted: bool = True
    joined: bool = False
    grammar: str = ""
    stop_words: str = ""
    interrogatives: str = ""
    requests: str = ""
    polar: str = ""
    alternatives: str = ""
    conjunctions: str = ""
    endings: str = ""
    labels: str = ""
    choices: str = ""
    shared: str = ""
    creative: str = ""
    between: str = ""
    of_both: str = ""
    which_of: str = ""
    finite: str = ""
    yes_no: str = ""
    numbers: str = ""
    pronouns: str = ""
    frames: str = ""
    generic: str = ""
    inflections: str = ""
    dangling: str = ""
    orders: str = ""
    override_verbs: str = ""
    override_nouns: str = ""
    small_talk: str = ""
    refers: str = ""
    refusals: str = ""
    apologies: str = ""
    now: str = ""
    compared: str = ""
    paired: str = ""
    topic: str = ""
    polar_shape: str = ""
    second: str = ""
    abbreviations: str = ""
    closing_abbreviations: str = ""
    ordinals: str = ""

    @cached_property
    def grammar_words(self) -> frozenset[str]:
        """`grammar`, the interrogatives and the words for `or`."""
        return words_in(self.grammar, self.alternatives, "" if self.joined else self.interrogatives)

    @cached_property
    def interrogative(self) -> re.Pattern[str]:
        return self.any_of(self.interrogatives)

    @cached_property
    def second_question(self) -> re.Pattern[str]:
        """A conjunction with an interrogative after it: at once, or after one short word (`and in which year`)."""
        if not self.fronted or self.joined:
            return self.any_of(self.conjunctions)
        between = r"(?:\w{1,4} )?" if self.conjunctions else ""
        return re.compile(rf"(?<!\S)(?:{_choice(self.conjunctions)}) {between}(?:{_choice(self.interrogatives)})(?!\S)")

    @cached_property
    def common_words(self) -> frozenset[str]:
        """Words that name nothing, beside `generic`."""
        asking = (self.interrogatives, self.requests, self.polar, self.conjunctions, self.pronouns)
        return words_in(
            *(text.replace("_", " ") for text in (self.grammar, self.alternatives, self.stop_words, *asking))
        )

    @cached_property
    def generic_form(self) -> re.Pattern[str]:
        """A generic word: one of `generic` with an ending, or as characters if `joined`."""
        if self.joined:
            return re.compile(_choice(f"{self.generic} {self.pronouns}"))
        short, long = (
            " ".join(word for word in self.generic.split() if (len(word) < 4) is few) for few in (True, False)
        )
        if self.inflections:
            return re.compile(rf"(?:{_choice(self.generic)})(?:{_choice(self.inflections)})?")
        return re.compile(rf"(?:{_choice(short)})\w{{0,2}}|(?:{_choice(long)})\w{{0,4}}")

    def opens(self, words: str) -> bool:
        return bool(self.interrogative.match(words) or self.any_of(self.polar).match(words))

    def any_of(self, words: str) -> re.Pattern[str]:
        """Any of these words: whole ones, or characters if `joined`."""
        return _any_of(words, self.joined)


@cache
def _any_of(words: str, joined: bool) -> re.Pattern[str]:
    return re.compile(_choice(words) if joined else rf"(?<!\S)(?:{_choice(words)})(?!\S)")


def words_in(*texts: str) -> frozenset[str]:
    """The single words of lists."""
    return frozenset(word for text in texts for word in text.split() if "_" not in word)


def _choice(text: str) -> str:
    """The words as alternatives of a pattern, longest first; `_` in one stands for a space."""
    words = sorted((unicodedata.normalize("NFC", word) for word in text.split()), key=len, reverse=True)
    return "|".join(re.escape(word.replace("_", " ")) for word in words) or r"(?!)"


def pattern(texts: Iterable[str], before: str = "", flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """Any of the patterns in tables, after another one."""
    lines = "|".join(line for text in texts for line in text.strip().splitlines())
    return re.compile(f"{before}(?:{lines or '(?!)'})", flags)


LANGUAGES = {
    file.stem: Language(file.stem, **tomllib.loads(file.read_text("utf-8"))) for file in sorted(_FOLDER.glob("*.toml"))
}
"""Every language by its code, as in ISO 639."""

STOP_WORDS = words_in(*(language.stop_words for language in LANGUAGES.values()))
"""Words without a meaning by themselves. Only mining leaves them out; search has no stop words."""

ABBREVIATIONS = words_in(*(language.abbreviations for language in LANGUAGES.values()))
CLOSING_ABBREVIATIONS = words_in(*(language.closing_abbreviations for language in LANGUAGES.values()))
ORDINALS = re.compile(rf"(?:{_choice(' '.join(language.ordinals for language in LANGUAGES.values()))})\w{{0,2}}\b")

_CLAUSES = re.compile(
    r"[,;:.!?()\n。，；：！？、،؟।]+|\b(?:but|however|aber|jedoch|mais|pero|ma|però|maar|mas|но|однако)\b",
    re.IGNORECASE,
)
_LONGEST_CLAUSE = 300  # characters; the patterns are not linear
_REFUSAL, _APOLOGY = (
    pattern(unicodedata.normalize("NFKC", text) for text in texts)
    for texts in zip(*((language.refusals, language.apologies) for language in LANGUAGES.values()), strict=True)
)


def is_refusal(answer: str | None) -> bool:
    """Whether an answer refuses: its clauses say that the answer is unknown or was not found, beside those that only
    apologise or name the source (none refuses by itself: "From the Danish coast"), or it is empty. A rollout that
    ended without an answer (None) did not refuse. This is the only definition of a refusal."""
    if answer is None:
        return False
    clauses = [words for clause in _CLAUSES.split(answer) if (words := fold(clause, accents=True))]
    if any(len(clause) > _LONGEST_CLAUSE for clause in clauses):
        return False
    others = [clause for clause in clauses if not _REFUSAL.fullmatch(clause)]
    return not clauses or (len(others) < len(clauses) and all(map(_APOLOGY.fullmatch, others)))


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
