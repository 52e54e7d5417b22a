"""Natural word order: moves the question word of a cloze ("Marlow was founded when") to the front ("When was Marlow
founded"), where this is safe.
"""

from __future__ import annotations

import re

from evoseek.questions.writers.base import words
from evoseek.questions.writers.rules_en import english as en

_WORDS_SAID = 7  # between the verb and the question word
_COUNTED = re.compile(
    r"(?P<noun> (?:[a-z-]+ ){0,2}(?:[a-z-]*[^\W_s]s|people|men|women|children))"
    r"(?P<tail>(?: (?:in|with|for|at|from|on|since|during) .*)?)"
)
_ADVERBIAL = re.compile(r"(?: (?:in|on|at|to|for|with|from|as|during|after|before|near|without) .*)?")


def fronted(name: str, stem: str, asked: str, after: str) -> str | None:
    """Return a question about `name` in natural word order, from a statement in which the question word `asked` stands
    between `stem` and `after`. None if no rule applies."""
    first = stem.split(" ")[0]
    if not stem.startswith(name) and set(words(first)) <= set(words(name)):
        name = first  # "Birk" of the page Ada Birk
    if not name or not stem.startswith(name):
        return None
    said = stem.rstrip().removeprefix(name)
    passive = en.PASSIVE.match(said) if asked in ("when", "where") else None
    if passive and not en.COORDINATION.search(passive[2]):
        return f"{asked} {passive[1]} {name} {passive[2]}{after}"
    if found := re.fullmatch(rf" (?P<verb>{'|'.join(en.INFINITIVES)})\b(?P<rest>.*)", said):
        return _did(name, found["verb"], found["rest"], asked, after)
    if after.strip() or asked not in ("who", "what"):
        return None
    if asked == "who" and (agent := en.BY_AGENT.match(said)):
        return f"who {en.PAST_TENSES.get(agent['verb'], agent['verb'])} {name}"
    if asked == "who" and (kin := re.match(r" (is|was) (the [a-z]+) of$", said)):
        return f"who {kin[1]} {name} {kin[2]} of"
    own = en.POSSESSED.match(said)
    return f"{asked} {own['is']} {name}{own['whose']}" if own else None


def _did(name: str, verb: str, rest: str, asked: str, after: str) -> str | None:
    """Put `did` before the subject: "Marlow had eight gates" to "How many gates did Marlow have"."""
    infinitive, auxiliary = en.INFINITIVES[verb], "does" if verb == "has" else "did"
    if verb == "has" and re.fullmatch(" [a-z]+ed", rest):
        infinitive, auxiliary, rest = rest.strip(), "has", ""  # "has directed"
    if en.COORDINATION.search(rest + after) or len(rest.split()) > _WORDS_SAID:
        return None
    if asked == "how many" and not rest and (counted := _COUNTED.fullmatch(after)):
        return f"how many{counted['noun']} {auxiliary} {name} {infinitive}{counted['tail']}"
    is_asked = (asked in ("when", "where") and auxiliary == "did") or (asked == "who" and verb == "married")
    is_open = rest.endswith((" from", " since", " until"))
    if is_asked and not is_open and infinitive != "have" and _ADVERBIAL.fullmatch(rest) and _ADVERBIAL.fullmatch(after):
        return f"{asked} did {name} {infinitive}{rest}{after}"
    return None
