"""The natural order of a question: what a statement asks in place ("Marlow was founded when") with its question word in
front ("When was Marlow founded"), where that is safe.
"""

from __future__ import annotations

import re

from evoseek.questions.writers.english import (
    ADVERBIAL,
    BY_AGENT,
    CLAUSE,
    COMMON,
    COORDINATES,
    DESCRIBED,
    FINITE,
    FIRST_PHRASE,
    NO_SUBJECT,
    OF_WHOLE,
    OPEN,
    OPEN_PREDICATE,
    OWN,
    PARTICIPLE,
    PAST,
    PREPOSITION_END,
    VERB,
)

_WORDS_OF_SUBJECT = 7
_WORDS_SAID = 7  # between the verb and what is asked for


def fronted(name: str, stem: str, asked: str, after: str) -> str | None:
    """A question about `name` in natural word order, from a statement in which the question word `asked` (with its
    noun, as in "which version") stands between `stem` and `after`. None if no rule applies."""
    first = FIRST_PHRASE.match(stem)
    stem = stem[first.end() :].removeprefix(", ") if first else stem
    last = CLAUSE.search(after)
    after = after[: last.start()] if last else after
    question = _by_pattern(name, stem, asked, after) or _inverted(name, stem, asked, after)
    phrase = f" {first[0][0].lower()}{first[0][1:]}" if first else ""
    return f"{question}{phrase}{last[0] if last else ''}" if question else None


def _by_pattern(name: str, stem: str, asked: str, after: str) -> str | None:
    """Common statements: "The Kite is a film directed by who" to "Who directed The Kite", "Tree is a class of the
    module what" to "Which module has the class Tree", "Tree's base class is what" to "What is Tree's base class"."""
    if not name:
        return None
    if not stem.startswith(name):  # `set` of the page Tree.set
        known, name = _words(name), stem.split(" ")[0].rstrip(":")
        if not _words(name) <= known:
            return None
    said = stem.rstrip().removeprefix(name)
    if asked in ("when", "where"):
        found = re.match(
            rf" ({VERB}) (?!(?:a|an|the|one|not|its|his|her|their)\b)([^,;(]+)(?<! from)(?<! since)(?<! until)$", said
        )
        return f"{asked} {found[1]} {name} {found[2]}{after}" if found and not COORDINATES.search(found[2]) else None
    if after.strip() or asked not in ("who", "what"):
        return None
    if asked == "who" and (agent := BY_AGENT.match(said)):
        return f"who {PAST.get(agent['verb'], agent['verb'])} {name}"
    if asked == "who" and (kin := re.match(r" (is|was) (the [a-z]+) of$", said)):
        return f"who {kin[1]} {name} {kin[2]} of"
    if whole := OF_WHOLE.match(said):
        return f"which {whole['whole']} has the {whole['part']} {name}"
    own = OWN.match(said)
    return f"{asked} {own['is']} {name}{own['whose']}" if own else None


def _inverted(name: str, stem: str, asked: str, after: str) -> str | None:
    """Any statement of one clause, with its verb, or the `do` that takes its place, before its subject: "The package
    includes how many test modules" to "How many test modules does the package include"."""
    subject, said = (name, stem.removeprefix(name)) if stem.startswith(f"{name} ") else _split(stem)
    found = re.fullmatch(r" (?P<verb>\S+)(?P<rest>.*?) ?", said)
    if found is None or COORDINATES.search(found["rest"]) or _has_verb(found["rest"], found["verb"]):
        return None
    if len(found["rest"].split()) > _WORDS_SAID or DESCRIBED.match(found["rest"]):
        return None
    if found["verb"] in ("has", "had") and not PARTICIPLE.match(found["rest"]):
        return None  # "has how many inhabitants"
    if asked in ("who", "what") and found["rest"] and not OPEN_PREDICATE.search(found["rest"]):
        return None  # "is the home of the poet who"
    if asked in ("who", "what") and after.startswith(" by "):
        return None  # "in a defeat of what by Vell"
    if asked in ("when", "what year") and PREPOSITION_END.search(found["rest"]):
        return None  # "from when"
    if asked in ("when", "where") and re.match(" (?:an?|the) ", found["rest"]):
        return None  # "is a town where"
    noun, tail = _noun(asked, after)
    if noun is None or not is_finite(found["verb"]):
        return None
    first, base = FINITE.get(found["verb"], (found["verb"], ""))
    if subject != name and COMMON.match(subject):
        subject = f"{subject[0].lower()}{subject[1:]}"
    return f"{asked}{noun} {first} {subject}{f' {base}' if base else ''}{found['rest']}{tail}"


def is_finite(word: str) -> bool:
    """Whether a word is a common verb in a tense."""
    return word in FINITE or re.fullmatch(VERB, word) is not None


def _has_verb(rest: str, verb: str) -> bool:
    """Whether a predicate, without its verb, has another one: `added` is none after `was`."""
    finite = (word for word in rest.split() if is_finite(word))
    return any(verb in FINITE or word not in FINITE or FINITE[word][0] != "did" for word in finite)


def _split(stem: str) -> tuple[str, str]:
    """A statement's subject, and what is said of it, from its verb on. Two empty texts if that is not safe."""
    words = stem.split()
    verb = next((place for place, word in enumerate(words) if place and is_finite(word)), 0)
    most = 3 if words[verb:] and words[verb].endswith("ed") else _WORDS_OF_SUBJECT  # it may be a participle
    subject = " ".join(words[:verb])
    if verb and words[verb - 1] in OPEN.split():
        return "", ""  # a noun that is spelled like a verb: "the cost of lives"
    if not 0 < verb <= most or NO_SUBJECT.search(subject) or not subject[0].isalnum():
        return "", ""
    return subject, f" {' '.join(words[verb:])}"


def _noun(asked: str, after: str) -> tuple[str | None, str]:
    """What of `after` goes to the front with the question word, and the rest: of "how many columns by default" the
    columns. None if that is not clear."""
    if any(map(is_finite, after.split())) or COORDINATES.search(after):
        return None, ""
    if asked not in ("how many", "which"):
        return ("", after) if not after.strip() or ADVERBIAL.match(after) else (None, "")
    end = ADVERBIAL.search(after)
    noun, tail = (after[: end.start()], after[end.start() :]) if end else (after, "")
    return (noun, tail) if noun.strip() and not noun.startswith(" of ") else (None, "")


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))
