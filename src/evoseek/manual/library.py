"""Reads the public classes, methods, functions and modules of a Python source tree. Nothing is imported or executed."""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evoseek.errors import DataError

_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages", "__pycache__"}


@dataclass(frozen=True, slots=True)
class Entry:
    """What a name's definition says: `signature` as written, `text` the docstring ("" if there is none)."""

    name: str
    module: str
    signature: str
    text: str


@dataclass(frozen=True, slots=True)
class ClassEntry(Entry):
    """A class: `bases` without what qualifies them (`TarError` for `tarfile.TarError`), and its methods."""

    bases: tuple[str, ...]
    methods: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """The public definitions of a source tree, in the order of its files."""

    modules: tuple[Entry, ...]
    classes: tuple[ClassEntry, ...]
    functions: tuple[Entry, ...]


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
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and _is_public(node.name):
                classes.append(_class(node, name))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_public(node.name):
                functions.append(_function(node, name))
    if not classes:
        raise DataError(
            f"{folder} holds no Python source with classes. Expected the folder of the standard library's modules, "
            "such as /usr/lib/python3.11; install Python with its source files, or give another folder of documents."
        )
    return Library(tuple(modules), tuple(classes), tuple(functions))


def _trees(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if _LEFT_OUT & set(parts) or not all(_is_public(part) for part in parts if part != "__init__"):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of invalid escapes in old sources
                tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), tree


def _class(node: ast.ClassDef, module: str) -> ClassEntry:
    names = (ast.unparse(base).rpartition(".")[2] for base in node.bases)
    bases = tuple(name for name in names if name.isidentifier() and name != "object")
    methods = tuple(
        _function(part, module)
        for part in node.body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and _is_public(part.name)
    )
    return ClassEntry(node.name, module, f"class {node.name}", _docstring(node), bases, methods)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, module: str) -> Entry:
    return Entry(node.name, module, f"{node.name}({ast.unparse(node.args)})", _docstring(node))


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.get_docstring(node) or ""


def _is_public(name: str) -> bool:
    return not name.startswith("_")
