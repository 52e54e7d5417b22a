"""Questions about the manual, with the searches that answer them: one hop, or two over the class of a method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from evoseek.manual.library import ClassEntry, Entry, Library
from evoseek.types import Question


@dataclass(frozen=True, slots=True)
class Hop:
    """One search on the way to an answer, and what its result says."""

    query: str
    finding: str
    """A sentence."""
    answer: str
    """What was looked for; of the last hop, the question's answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, the class that it is about (the unit of a split), and its hops."""

    question: Question
    about: str
    hops: tuple[Hop, ...]


def ask(library: Library) -> list[Asked]:
    """Every question that the manual answers in one way only: its class and its method have names of their own."""
    classes = Counter(entry.name for entry in library.classes)
    methods = Counter(method.name for entry in library.classes for method in entry.methods)
    found: list[Asked] = []
    for entry in library.classes:
        if classes[entry.name] > 1:
            continue
        found += _of_class(entry)
        for method in entry.methods:
            if methods[method.name] == 1 and method.name not in classes:
                found += _of_method(method, entry)
    return found


def _of_class(entry: ClassEntry) -> Iterator[Asked]:
    yield _asked("module", entry, f"Which module has the class {entry.name}?", (_module(entry),))
    if len(entry.bases) == 1:
        yield _asked("base", entry, f"What is the base class of the class {entry.name}?", (_base(entry),))


def _of_method(method: Entry, entry: ClassEntry) -> Iterator[Asked]:
    name = method.name
    first = Hop(name, f"{name} is a method of {entry.name}.", entry.name)
    yield _asked("class", entry, f"Which class has the method {name}?", (first,), name)
    yield _asked(
        "method's module", entry, f"Which module has the class with the method {name}?", (first, _module(entry)), name
    )
    if len(entry.bases) == 1:
        text = f"What is the base class of the class that has the method {name}?"
        yield _asked("method's base", entry, text, (first, _base(entry)), name)


def _module(entry: ClassEntry) -> Hop:
    return Hop(f"class {entry.name}", f"{entry.name} is in the module {entry.module}.", entry.module)


def _base(entry: ClassEntry) -> Hop:
    return Hop(f"class {entry.name}", f"The base class of {entry.name} is {entry.bases[0]}.", entry.bases[0])


def _asked(kind: str, entry: ClassEntry, text: str, hops: tuple[Hop, ...], method: str = "") -> Asked:
    key = f"{kind}: {entry.name}{f'.{method}' if method else ''}"
    metadata = {"hops": len(hops), "kind": kind}
    return Asked(Question(key, text, (hops[-1].answer,), metadata), entry.name, hops)
