"""The manual of Python's standard library: real text that lies on every machine, as documents with questions and
demonstrations.

corpus.jsonl          a page for each module, class, method and function, with its docstring
train.jsonl           questions of one hop, or of two over the class of a method
dev.jsonl             the same, of other classes
demonstrations.jsonl  the searches that answer some of the training questions

A method's page names its class, but no module, and a class's page does not list its methods: to find where the class of
a method is defined takes two searches. Sources are read, and neither imported nor executed.
"""

from __future__ import annotations

import ast
import json
import random
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

from evoseek.corpus.demonstrations import DemonstratedTurn, Demonstration, demonstration_row
from evoseek.corpus.questions import question_row
from evoseek.errors import DataError
from evoseek.files import replace_directory
from evoseek.types import Document, Question

HELD_OUT = 5  # one class in so many
DEV_QUESTIONS = 300
DEMONSTRATIONS = {1: 220, 2: 60}
"""Number of demonstrations of questions by their hops: one hop is taught, two are hinted at."""
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages", "__pycache__"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A definition: `signature` as written, `text` the docstring ("" if there is none)."""

    name: str
    module: str
    signature: str
    text: str


@dataclass(frozen=True, slots=True)
class ClassEntry(Entry):
    """A class: `bases` without their qualifiers (`TarError` for `tarfile.TarError`), and its methods."""

    bases: tuple[str, ...]
    methods: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """The public definitions of a source tree, in the order of its files."""

    modules: tuple[Entry, ...]
    classes: tuple[ClassEntry, ...]
    functions: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Hop:
    """A search on the way to an answer, a sentence with its finding, and what was looked for; of the last hop that is
    the question's answer."""

    query: str
    finding: str
    answer: str


@dataclass(frozen=True, slots=True)
class ManualQuestion:
    """A question, the class that it is about (the unit of a split), and its hops."""

    question: Question
    about: str
    hops: tuple[Hop, ...]

    def demonstration(self) -> Demonstration:
        """A search for every hop in turn, each after what the one before has found, then the answer."""
        last = self.hops[-1]
        turns = [DemonstratedTurn(query=self.hops[0].query)]
        turns += [DemonstratedTurn(hop.finding, query=after.query) for hop, after in pairwise(self.hops)]
        return Demonstration(self.question, (*turns, DemonstratedTurn(last.finding, answer=last.answer)))


def write_manual(folder: Path, library: Library, *, seed: int = 0) -> None:
    """Write the four files: all of them or, on an error, none.

    Questions are split by class: all that are about one class are on one side. `dev.jsonl` has as many questions
    of one hop as of two. The same library and seed give the same files. OSError if the disk does not take them.
    """
    every = list(questions(library))
    random.Random(seed).shuffle(every)
    train = [one for one in every if not _is_held_out(one)]
    held_out = [one for one in every if _is_held_out(one)]
    half = DEV_QUESTIONS // 2
    with replace_directory(folder) as unfinished:
        documents = ({"id": page.id, "title": page.title, "text": page.text} for page in pages(library))
        _write(unfinished / "corpus.jsonl", documents)
        _write(unfinished / "train.jsonl", (question_row(one.question) for one in train))
        shown = (demonstration_row(one.demonstration()) for one in _take(train, DEMONSTRATIONS))
        _write(unfinished / "demonstrations.jsonl", shown)
        _write(unfinished / "dev.jsonl", (question_row(one.question) for one in _take(held_out, {1: half, 2: half})))


def standard_library() -> Path:
    """The folder with the standard library's source of the Python that runs this."""
    return Path(sysconfig.get_paths()["stdlib"])


def read_library(folder: Path) -> Library:
    """Read every module under `folder`, in a stable order; files that this Python cannot parse are left out.

    Raises DataError if no class is found.
    """
    modules: list[Entry] = []
    classes: list[ClassEntry] = []
    functions: list[Entry] = []
    for name, tree in _trees(folder):
        modules.append(Entry(name, name, name, _docstring(tree)))
        classes += [_class(node, name) for node in _public(tree) if isinstance(node, ast.ClassDef)]
        functions += _functions(tree, name)
    if not classes:
        raise DataError(
            f"{folder} holds no Python source with classes. Expected the folder of the standard library's modules, "
            "such as /usr/lib/python3.11; install Python with its source files, or give another folder of documents."
        )
    return Library(tuple(modules), tuple(classes), tuple(functions))


def pages(library: Library) -> Iterator[Document]:
    """The documents, ids unique: of definitions with one name in one place, the first counts."""
    seen: set[str] = set()
    for page in _all_pages(library):
        if page.id not in seen:
            seen.add(page.id)
            yield page


def questions(library: Library) -> Iterator[ManualQuestion]:
    """Every question that the manual answers in one way only: its class and its method have names of their own."""
    classes = Counter(entry.name for entry in library.classes)
    methods = Counter(method.name for entry in library.classes for method in entry.methods)
    for entry in library.classes:
        if classes[entry.name] == 1:
            yield from _of_class(entry)
            for method in entry.methods:
                if methods[method.name] == 1 and method.name not in classes:
                    yield from _of_method(method.name, entry)


def _of_class(entry: ClassEntry) -> Iterator[ManualQuestion]:
    yield _question("module", entry, f"Which module has the class {entry.name}?", (_module(entry),))
    if len(entry.bases) == 1:
        yield _question("base", entry, f"What is the base class of the class {entry.name}?", (_base(entry),))


def _of_method(name: str, entry: ClassEntry) -> Iterator[ManualQuestion]:
    first = Hop(name, f"{name} is a method of {entry.name}.", entry.name)
    yield _question("class", entry, f"Which class has the method {name}?", (first,), name)
    text = f"Which module has the class with the method {name}?"
    yield _question("method's module", entry, text, (first, _module(entry)), name)
    if len(entry.bases) == 1:
        text = f"What is the base class of the class that has the method {name}?"
        yield _question("method's base", entry, text, (first, _base(entry)), name)


def _module(entry: ClassEntry) -> Hop:
    return Hop(f"class {entry.name}", f"{entry.name} is in the module {entry.module}.", entry.module)


def _base(entry: ClassEntry) -> Hop:
    return Hop(f"class {entry.name}", f"The base class of {entry.name} is {entry.bases[0]}.", entry.bases[0])


def _question(kind: str, entry: ClassEntry, text: str, hops: tuple[Hop, ...], method: str = "") -> ManualQuestion:
    key = f"{kind}: {entry.name}{f'.{method}' if method else ''}"
    metadata = {"hops": len(hops), "kind": kind}
    return ManualQuestion(Question(key, text, (hops[-1].answer,), metadata), entry.name, hops)


def _all_pages(library: Library) -> Iterator[Document]:
    for entry in library.modules:
        if entry.text:
            yield Document(f"module {entry.name}", entry.name, f"The module {entry.name}.\n\n{entry.text}")
    for entry in library.classes:
        based = f" Its base class is {' and '.join(entry.bases)}." if entry.bases else ""
        text = f"{entry.name} is a class of the module {entry.module}.{based}\n\n{entry.text}"
        yield Document(f"class {entry.module}.{entry.name}", entry.name, text)
        for method in entry.methods:
            text = f"{method.name} is a method of the class {entry.name}.\n\n{method.signature}\n\n{method.text}"
            name = f"{entry.name}.{method.name}"
            yield Document(f"method {entry.module}.{name}", name, text)
    for entry in library.functions:
        text = f"{entry.signature}: a function of the module {entry.module}.\n\n{entry.text}"
        yield Document(f"function {entry.module}.{entry.name}", entry.name, text)


def _trees(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        hidden = any(part.startswith("_") for part in parts if part != "__init__")
        if hidden or _LEFT_OUT & set(parts):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of invalid escapes in old sources
                tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), tree


_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _public(node: ast.Module | ast.ClassDef) -> Iterator[_Definition]:
    return (part for part in node.body if isinstance(part, _Definition) and not part.name.startswith("_"))


def _class(node: ast.ClassDef, module: str) -> ClassEntry:
    names = (ast.unparse(base).rpartition(".")[2] for base in node.bases)
    bases = tuple(name for name in names if name.isidentifier() and name != "object")
    methods = tuple(_functions(node, module))
    return ClassEntry(node.name, module, f"class {node.name}", _docstring(node), bases, methods)


def _functions(node: ast.Module | ast.ClassDef, module: str) -> Iterator[Entry]:
    for part in _public(node):
        if not isinstance(part, ast.ClassDef):
            yield Entry(part.name, module, f"{part.name}({ast.unparse(part.args)})", _docstring(part))


def _docstring(node: ast.Module | _Definition) -> str:
    return ast.get_docstring(node) or ""


def _take(every: Sequence[ManualQuestion], numbers: Mapping[int, int]) -> Iterator[ManualQuestion]:
    """The first so many of each number of hops, in their order."""
    left = Counter(numbers)
    for one in every:
        if left[len(one.hops)] > 0:
            left[len(one.hops)] -= 1
            yield one


def _is_held_out(one: ManualQuestion) -> bool:
    return sha256(one.about.encode()).digest()[0] % HELD_OUT == 0


def _write(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
