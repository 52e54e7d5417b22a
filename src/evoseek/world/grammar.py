"""The generated world's grammar: it words facts and questions, parses question texts, and finds the facts stated by the
sentences of a text.

Every wording has several phrasings. Phrasing 0 is the plainest (subject, relation, object in that order), which a
policy with less than a million parameters can learn to read. The others are for larger models and for evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PHRASINGS = (
    "{subject}'s {relation} is {object}.",
    "The {relation} of {subject} is {object}.",
    "{object} is the {relation} of {subject}.",
)
QUESTION_PHRASINGS = 3
WORDS = ("what", "is", "the", "of", "name", "which", "has", "year", "earlier", "later", "or", "and")


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    """A parsed question text: the case-folded name at the start of its chain, and the chain's relations."""

    name: str
    relations: tuple[str, ...]


def fact_text(subject: str, relation: str, name: str, phrasing: int = 0) -> str:
    """Word a fact as a sentence."""
    return PHRASINGS[phrasing].format(subject=subject, relation=relation, object=name)


def chain_text(start: str, relations: Sequence[str], phrasing: int = 0) -> str:
    """Word the question for the last object of a chain of relations from `start`."""
    if phrasing == 0:
        return f"What is {start}'s {possessive(relations)}?"
    if phrasing == 1:
        return f"What is the {' of the '.join(reversed(relations))} of {start}?"
    owner = f"{start}'s {possessive(relations[:-1])}" if len(relations) > 1 else start
    return f"Name the {relations[-1]} of {owner}."


def possessive(relations: Sequence[str]) -> str:
    """Join relations: mother, employer -> "mother's employer"."""
    return "'s ".join(relations)


_WORD = r"[^\s',.?]+"
_NAME = rf"{_WORD}(?: {_WORD})*"
# If words could belong to one name or the next, the rest is checked once, as if it were one name: its parts are names.
_REST = rf"(?={_WORD}(?: {_WORD})*+\Z)"
_POSSESSIVE = re.compile(rf"what is ({_NAME})((?:'s \w+)+)")
_OF = re.compile(rf"what is {_REST}((?:the \w+ of )+)(.+)")
_NAMED = re.compile(rf"name the (\w+) of ({_NAME})((?:'s \w+)*)")


def parse(text: str) -> ParsedQuestion | None:
    """Parse a question text in any letter case, with any spaces around punctuation; None if it is not a question."""
    plain = re.sub(r"\s+", " ", text.casefold()).strip()
    plain = re.sub(r" ?' ?s\b", "'s", plain).rstrip(" ?.")
    if found := _POSSESSIVE.fullmatch(plain):
        return ParsedQuestion(found[1], tuple(found[2].split("'s ")[1:]))
    if found := _OF.fullmatch(plain):
        return ParsedQuestion(found[2], tuple(reversed(re.findall(r"the (\w+) of", found[1]))))
    if found := _NAMED.fullmatch(plain):
        return ParsedQuestion(found[2], (*found[3].split("'s ")[1:], found[1]))
    return None


_PIECE = re.compile(r"\w+|[^\w\s]")
_OBJECT = "OBJECT"


def sentences(texts: Iterable[str]) -> frozenset[str]:
    """Return the normalised sentences of texts: lower case, one space between words and marks, no full stop."""
    return frozenset(normal for text in texts for part in text.split(".") if (normal := _normal(part)))


def states(texts: Iterable[str], subject: str, relation: str, objects: Sequence[str] | None = None) -> bool:
    """Return whether a sentence states that the subject's relation is one of these objects (None: any object).

    Letter case and white space do not matter, so text split by a tokenizer is still read. Only a whole sentence states
    a fact: "Koto Feno's employer is Balo" states nothing about a Feno.
    """
    said = sentences(texts)
    if objects is not None:
        return any(_normal(text) in said for name in objects for text in _all_texts(subject, relation, name))
    forms = map(_normal, _all_texts(subject, relation, _OBJECT))
    patterns = [re.compile(re.escape(form).replace(_OBJECT.lower(), r"\w+(?: \w+)*")) for form in forms]
    return any(pattern.fullmatch(sentence) for pattern in patterns for sentence in said)


def _all_texts(subject: str, relation: str, name: str) -> Iterable[str]:
    return (fact_text(subject, relation, name, phrasing) for phrasing in range(len(PHRASINGS)))


def asked_fact(query: str) -> tuple[str, str] | None:
    """Return subject (case-folded) and relation of a query for one fact: "Koto Feno's employer", or a question."""
    for text in (query, f"What is {query}?"):
        parsed = parse(text)
        if parsed is not None and len(parsed.relations) == 1:
            return parsed.name, parsed.relations[0]
    return None


def _normal(text: str) -> str:
    return " ".join(_PIECE.findall(text.casefold())).removesuffix(" .")
