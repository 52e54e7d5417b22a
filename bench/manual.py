"""The manual of Python's standard library: real text that lies on every machine, as documents with questions for a
score, on which nothing is trained.

corpus.jsonl   a page for each module, class, method and function, with its docstring
dev.jsonl      questions of one hop, of two over the class of a method, and of one whose pages no search finds

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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from evoseek.errors import DataError
from evoseek.questions.questions import question_row
from evoseek.storage.files import replace_directory
from evoseek.types import Document, Question

T = TypeVar("T", ast.ClassDef, ast.FunctionDef | ast.AsyncFunctionDef)
DEV_QUESTIONS = 150
"""Number of questions of one hop, and of two."""
UNANSWERABLE = 60
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages", "__pycache__"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A definition: `signature` as written, `text` the docstring ("" if there is none); of a class its `bases` without
    their qualifiers (`TarError` for `tarfile.TarError`), and its methods."""

    name: str
    module: str
    signature: str
    text: str
    bases: tuple[str, ...] = ()
    methods: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Library:
    """The public definitions of a source tree, in the order of its files."""

    modules: tuple[Entry, ...]
    classes: tuple[Entry, ...]
    functions: tuple[Entry, ...]


def write_manual(folder: Path, library: Library, *, seed: int = 0) -> None:
    """Write the two files: both or, on an error, none. The same library and seed give the same files. OSError if the
    disk does not take them."""
    rng, documents, every = random.Random(seed), list(pages(library)), list(questions(library))
    rng.shuffle(every)
    one, two = ([question for question in every if question.metadata["hops"] == hops] for hops in (1, 2))
    lacking = (_taken_out(question, documents) for question in one[DEV_QUESTIONS:][:UNANSWERABLE])
    dev = [*one[:DEV_QUESTIONS], *two[:DEV_QUESTIONS], *lacking]
    rng.shuffle(dev)
    with replace_directory(folder) as unfinished:
        rows = ({"id": page.id, "title": page.title, "text": page.text} for page in documents)
        _write(unfinished / "corpus.jsonl", rows)
        _write(unfinished / "dev.jsonl", map(question_row, dev))


def standard_library() -> Path:
    """The folder with the standard library's source of the Python that runs this."""
    return Path(sysconfig.get_paths()["stdlib"])


def read_library(folder: Path) -> Library:
    """Read every module under `folder`, in a stable order; files that this Python cannot parse are left out.

    Raises DataError if no class is found.
    """
    modules: list[Entry] = []
    classes: list[Entry] = []
    functions: list[Entry] = []
    for name, tree in _trees(folder):
        modules.append(Entry(name, name, name, _docstring(tree)))
        classes += [_class(node, name) for node in _public(tree, ast.ClassDef)]
        functions += _functions(tree, name)
    if not classes:
        raise DataError(
            f"{folder} holds no Python source with classes. Expected the folder of the standard library's modules, "
            "such as /usr/lib/python3.11; install Python with its source files, or give another folder of documents."
        )
    return Library(tuple(modules), tuple(classes), tuple(functions))


def pages(library: Library) -> Iterator[Document]:
    """The documents, ids unique: of definitions with one name in one place, the first counts."""
    first: dict[str, Document] = {}
    for page in _all_pages(library):
        first.setdefault(page.id, page)
    yield from first.values()


def questions(library: Library) -> Iterator[Question]:
    """Every question that the manual answers in one way only, its class and its method having names of their own. The
    evidence is a page for each hop."""
    classes = Counter(entry.name for entry in library.classes)
    methods = Counter(method.name for entry in library.classes for method in entry.methods)
    for entry in library.classes:
        if classes[entry.name] == 1:
            yield from _of_class(entry)
            for method in entry.methods:
                if methods[method.name] == 1 and method.name not in classes:
                    yield from _of_method(method.name, entry)


def _of_class(entry: Entry) -> Iterator[Question]:
    name, evidence = entry.name, [_class_page(entry)]
    yield _question(f"module: {name}", f"Which module has the class {name}?", entry.module, evidence)
    if len(entry.bases) == 1:
        yield _question(f"base: {name}", f"What is the base class of the class {name}?", entry.bases[0], evidence)


def _of_method(name: str, entry: Entry) -> Iterator[Question]:
    place, evidence = f"{entry.name}.{name}", [_method_page(name, entry), _class_page(entry)]
    yield _question(f"class: {place}", f"Which class has the method {name}?", entry.name, evidence[:1])
    text = f"Which module has the class with the method {name}?"
    yield _question(f"method's module: {place}", text, entry.module, evidence)
    if len(entry.bases) == 1:
        text = f"What is the base class of the class that has the method {name}?"
        yield _question(f"method's base: {place}", text, entry.bases[0], evidence)


def _question(id: str, text: str, answer: str, evidence: list[str]) -> Question:
    kind = id.partition(":")[0]
    return Question(id, text, (answer,), {"hops": len(evidence), "kind": kind, "evidence": evidence})


def _taken_out(question: Question, documents: Iterable[Document]) -> Question:
    """A question of one hop as if the pages that name both what it is about and its answer were not there."""
    name, answer = question.text.rstrip("?").split()[-1], question.golden_answers[0]
    hidden = [page.id for page in documents if name in page.text and answer in page.text]
    about = {"kind": question.metadata["kind"], "answerable": False, "hidden": hidden}
    return replace(question, golden_answers=(), metadata=about)


def _class_page(entry: Entry) -> str:
    return f"class {entry.module}.{entry.name}"


def _method_page(name: str, entry: Entry) -> str:
    return f"method {entry.module}.{entry.name}.{name}"


def _all_pages(library: Library) -> Iterator[Document]:
    for entry in library.modules:
        if entry.text:
            yield Document(f"module {entry.name}", entry.name, f"The module {entry.name}.\n\n{entry.text}")
    for entry in library.classes:
        based = f" Its base class is {' and '.join(entry.bases)}." if entry.bases else ""
        text = f"{entry.name} is a class of the module {entry.module}.{based}\n\n{entry.text}"
        yield Document(_class_page(entry), entry.name, text)
        for method in entry.methods:
            text = f"{method.name} is a method of the class {entry.name}.\n\n{method.signature}\n\n{method.text}"
            yield Document(_method_page(method.name, entry), f"{entry.name}.{method.name}", text)
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


def _public(node: ast.Module | ast.ClassDef, *kinds: type[T]) -> Iterator[T]:
    """The definitions of these kinds whose names are public."""
    return (part for part in node.body if isinstance(part, kinds) and not part.name.startswith("_"))


def _class(node: ast.ClassDef, module: str) -> Entry:
    names = (ast.unparse(base).rpartition(".")[2] for base in node.bases)
    bases = tuple(name for name in names if name.isidentifier() and name != "object")
    methods = tuple(_functions(node, module))
    return Entry(node.name, module, f"class {node.name}", _docstring(node), bases, methods)


def _functions(node: ast.Module | ast.ClassDef, module: str) -> Iterator[Entry]:
    for part in _public(node, ast.FunctionDef, ast.AsyncFunctionDef):
        yield Entry(part.name, module, f"{part.name}({ast.unparse(part.args)})", _docstring(part))


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.get_docstring(node) or ""


def _write(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
