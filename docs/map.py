"""Writes docs/map.md: what every file of the package is for, by the first sentence of its docstring.

python docs/map.py
"""

import ast
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

PAGE = Path(__file__).with_suffix(".md")
PACKAGE = Path(__file__).parents[1] / "src" / "evoseek"

HEAD = """# Map

Written by `python docs/map.py` from the docstrings; a test holds it up to date. `types.py` has a worked example of one
rollout: begin there, then `systems/search_r1.py`.
"""


def page() -> str:
    """The whole page: files outside of packages first."""
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    files.sort(key=lambda path: (path.parent.relative_to(PACKAGE).parts, path.name))
    return "\n".join([HEAD, *_packages(files)]).rstrip() + "\n"


def _packages(files: list[Path]) -> Iterator[str]:
    for folder, own in groupby(files, key=lambda path: path.parent):
        name = folder.relative_to(PACKAGE).as_posix()
        about = _sentence(folder / "__init__.py")
        yield f"## {name}/\n\n{about}\n" if name != "." else "## Outside of packages\n"
        yield from (f"- `{path.name}`: {_sentence(path)}" for path in own)
        yield ""


def _sentence(path: Path) -> str:
    """The first paragraph of a file's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
