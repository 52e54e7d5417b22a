"""The pages of the manual: one for each module, class, method and function, each with what its docstring says.

A method's page names its class, but no module, and a class's page does not list its methods: to find where the class of
a method is defined takes two searches.
"""

from __future__ import annotations

from collections.abc import Iterator

from evoseek.manual.library import ClassEntry, Entry, Library
from evoseek.types import Document


def pages(library: Library) -> Iterator[Document]:
    """The documents, ids unique: of definitions with one name in one place, the first counts."""
    seen: set[str] = set()
    for page in _all_pages(library):
        if page.id not in seen:
            seen.add(page.id)
            yield page


def _all_pages(library: Library) -> Iterator[Document]:
    for entry in library.modules:
        if entry.text:
            yield Document(f"module {entry.name}", entry.name, f"The module {entry.name}.\n\n{entry.text}")
    for entry in library.classes:
        yield Document(f"class {entry.module}.{entry.name}", entry.name, _class_text(entry))
        for method in entry.methods:
            yield _method(method, entry)
    for entry in library.functions:
        text = f"{entry.signature}: a function of the module {entry.module}.\n\n{entry.text}"
        yield Document(f"function {entry.module}.{entry.name}", entry.name, text)


def _class_text(entry: ClassEntry) -> str:
    based = f" Its base class is {' and '.join(entry.bases)}." if entry.bases else ""
    return f"{entry.name} is a class of the module {entry.module}.{based}\n\n{entry.text}"


def _method(method: Entry, owner: ClassEntry) -> Document:
    text = f"{method.name} is a method of the class {owner.name}.\n\n{method.signature}\n\n{method.text}"
    return Document(f"method {owner.module}.{owner.name}.{method.name}", f"{owner.name}.{method.name}", text)
