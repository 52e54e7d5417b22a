"""The facts that sentences of the generated world's grammar state, in any text.

Letter case and white space do not matter, so that what a tokenizer has taken apart ("koto feno ' s employer is balo .")
is still read. A fact is stated by a whole sentence only: "Koto Feno's employer is Balo" says nothing about a Feno.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from evoseek.world.grammar import PHRASINGS, parse

_PIECE = re.compile(r"\w+|[^\w\s]")
_OBJECT = "OBJECT"


def sentences(texts: Iterable[str]) -> frozenset[str]:
    """The sentences of texts in their normal form: lower case, one space between words and marks, no full stop."""
    return frozenset(normal for text in texts for part in text.split(".") if (normal := _normal(part)))


def states(texts: Iterable[str], subject: str, relation: str, objects: Sequence[str] | None = None) -> bool:
    """Whether a sentence says that the subject's relation is one of these objects (None: whatever object)."""
    said = sentences(texts)
    if objects is not None:
        return any(_normal(p.sentence(subject, relation, name)) in said for p in PHRASINGS for name in objects)
    forms = (_normal(phrasing.sentence(subject, relation, _OBJECT)) for phrasing in PHRASINGS)
    patterns = [re.compile(re.escape(form).replace(_OBJECT.lower(), r"\w+(?: \w+)*")) for form in forms]
    return any(pattern.fullmatch(sentence) for pattern in patterns for sentence in said)


def asked_fact(query: str) -> tuple[str, str] | None:
    """Subject (case-folded) and relation of a query for one fact: "Koto Feno's employer", or a question for it."""
    for text in (query, f"What is {query}?"):
        parsed = parse(text)
        if parsed is not None and parsed.kind == "chain" and len(parsed.relations) == 1:
            return parsed.names[0], parsed.relations[0]
    return None


def _normal(text: str) -> str:
    return " ".join(_PIECE.findall(text.casefold())).removesuffix(" .")
