"""Words that keep strangers out, with those to use instead: in pages, docstrings, settings and errors."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "evoseek"
PLACES = ("*.md", "docs/**/*.md", "src/evoseek/recipes/**/*.md", "src/evoseek/tiny/weights/**/*.md", "bench/*/*.md")
PAGES = sorted(path.relative_to(ROOT).as_posix() for place in PLACES for path in ROOT.glob(place))
OUTSIDE = ("docs", "examples", "tools", "packages/tinker/src", "packages/verifiers/src")
ROOMS = sorted(path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())

BANNED = {
    "goes on": "continue, resume, keep",
    "go on": "continue, resume, keep",
    "anew": "again",
    "for ever": "indefinitely",
    "of which": "whose, and its",
    "so many": "N, that many",
    "whatever": "any, regardless of, even if",
    "those of": "repeat the noun",
    "that of": "repeat the noun",
    "likeness": "similarity",
    "examin(e|es|ed|ing|ation|ations)": "evaluate, check",
    "at once": "concurrently, together; immediately",
}
PATTERN = re.compile(rf"\b({'|'.join(BANNED)})\b".replace(" ", r"\s+"), re.IGNORECASE)
SHOWN = ("description", "help")
"""Keywords whose text a user reads: of a setting, and of an option."""


def found(text: str, line: int = 1) -> Iterator[tuple[int, str]]:
    """Each banned word of a text that begins in this line: its own line, and the word."""
    for word in PATTERN.finditer(text):
        yield line + text.count("\n", 0, word.start()), " ".join(word[0].split())


def prose(page: Path) -> str:
    """A page; of the changes the newest section; without words in italics where the words themselves are listed."""
    text = page.read_text()
    if page.name == "CHANGELOG.md":
        return "\n## ".join(text.split("\n## ")[:2])
    if page.name in ("AGENTS.md", "CONTRIBUTING.md"):
        return re.sub(r"(?<!\*)\*[^*]+\*(?!\*)", lambda listed: "\n" * listed[0].count("\n"), text)
    return text


def literals(node: ast.AST) -> Iterator[tuple[str, int]]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value, part.lineno


def shown(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What people read of a module, each with its line: docstrings, descriptions and errors."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                yield from literals(node)
            case ast.Raise(exc=ast.expr() as error):
                yield from literals(error)
            case ast.Call(func=ast.Name(id=name)) if name.endswith("Error"):
                yield from literals(node)
            case ast.keyword(arg=name, value=value) if name in SHOWN:
                yield from literals(value)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_none_of_the_words(name):
    lines = [f"{name}:{line}: {word}" for line, word in found(prose(ROOT / name))]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("name", [*ROOMS, *OUTSIDE])
def test_a_room_has_none_of_the_words(name):
    lines: set[str] = set()
    folder = PACKAGE / name if name in ROOMS else ROOT / name
    for path in [*folder.rglob("*.py"), *PACKAGE.glob(f"{name}.py")]:
        for text, begins in shown(ast.parse(path.read_text())):
            lines |= {f"{path.relative_to(ROOT)}:{line}: {word}" for line, word in found(text, begins)}
    assert not lines, "\n".join(sorted(lines))


def test_words_are_found_where_people_read_them():
    module = '''def f():
    """Goes
    on.

    It waits for ever.
    """
    x: int = Field(help="That of another.")
    raise Odd("whatever", DataError(f"So many: {x}, at once."))
    return "for ever"
'''
    lines = {(line, word) for text, begins in shown(ast.parse(module)) for line, word in found(text, begins)}
    assert lines == {
        *[(2, "Goes on"), (5, "for ever"), (7, "That of"), (8, "whatever"), (8, "So many"), (8, "at once")]
    }
