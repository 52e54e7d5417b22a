"""The size of the house: lines of `src` by kind, files, rooms and arrows, settings, commands, tests, words.

    python bench/house.py                       this checkout
    python bench/house.py --against FOLDER      beside another checkout

A room is a package of `src/evoseek`, or a module outside of packages; an arrow is one room that imports another, also
inside functions. tests/test_budget.py holds the budgets.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETTING = re.compile(r"^\| `[a-z_.*]+`", re.MULTILINE)
DEFINED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


def package(root: Path) -> Path:
    """The folder of the package in a checkout."""
    return root / "src" / "evoseek"


def sources(root: Path) -> list[Path]:
    """The files of the package."""
    return sorted(package(root).rglob("*.py"))


def room_of(path: Path, root: Path) -> str:
    """The room of a file; "" for the files that belong to none."""
    name = path.relative_to(package(root)).parts[0].removesuffix(".py")
    return "" if name.startswith("__") else name


def rooms(root: Path) -> set[str]:
    """The rooms with code."""
    return {room_of(path, root) for path in sources(root)} - {""}


def arrows(root: Path) -> set[tuple[str, str]]:
    """The pairs of rooms whose first imports the second."""
    found: set[tuple[str, str]] = set()
    known = rooms(root)
    for path in sources(root):
        room = room_of(path, root)
        for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
            parts = name.split(".")
            if room and parts[0] == "evoseek" and len(parts) > 1 and parts[1] in known:
                found.add((room, parts[1]))
    return {(room, other) for room, other in found if room != other}


def imported(tree: ast.Module) -> Iterator[str]:
    """Every name that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def lines(root: Path) -> Counter[str]:
    """The lines of the package by kind: `total`, and of these `docstring`, `import`, `blank`, `comment`, `code`."""
    counts: Counter[str] = Counter()
    for path in sources(root):
        text = path.read_text(encoding="utf-8")
        kinds = dict.fromkeys(range(1, len(text.splitlines()) + 1), "code")
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                kinds[number] = "blank"
            elif line.lstrip().startswith("#"):
                kinds[number] = "comment"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                kinds |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), "import")
            elif isinstance(node, DEFINED):
                kinds |= {number: "docstring" for string in _strings(node) for number in string}
        counts.update(kinds.values())
    counts["total"] = counts.total()
    return counts


def _strings(node: DEFINED) -> Iterator[range]:
    """The lines of the strings that stand alone in a body: docstrings, also those of attributes."""
    for inner in node.body:
        if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant) and isinstance(inner.value.value, str):
            yield range(inner.lineno, (inner.end_lineno or 0) + 1)


def count_settings(root: Path) -> int:
    """The settings in docs/settings.md."""
    return len(SETTING.findall((root / "docs" / "settings.md").read_text(encoding="utf-8")))


def count_commands(root: Path) -> int:
    """The commands that `evoseek` has, those of its groups included."""
    code = (
        "import typer\nfrom evoseek.cli.main import app\n"
        "def count(group): return sum(count(c) if hasattr(c, 'commands') else 1 for c in group.commands.values())\n"
        "print(count(typer.main.get_command(app)))"
    )
    environment = {"PYTHONPATH": str(root / "src"), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout)


def words_of_docs(root: Path) -> int:
    """The words of the pages that people write: docs and README, without the pages that scripts write."""
    written = {"settings.md", "map.md"}
    pages = [path for path in (root / "docs").rglob("*.md") if path.name not in written]
    return sum(len(path.read_text(encoding="utf-8").split()) for path in (*pages, root / "README.md"))


def lines_of_tests(root: Path) -> int:
    """The lines of the tests."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (root / "tests").rglob("*.py"))


def class_names(root: Path) -> Counter[str]:
    """How many classes of the package have each name, a leading underscore ignored."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in sources(root))
    return Counter(node.name.lstrip("_") for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))


def sizes(root: Path) -> dict[str, int]:
    """All the numbers."""
    kinds = lines(root)
    return {
        **{f"src, {kind}": kinds[kind] for kind in ("total", "code", "docstring", "import", "blank", "comment")},
        "files": len(sources(root)),
        "rooms": len(rooms(root)),
        "arrows": len(arrows(root)),
        "settings": count_settings(root),
        "commands": count_commands(root),
        "class names more than once": sum(number > 1 for number in class_names(root).values()),
        "tests, lines": lines_of_tests(root),
        "docs, words": words_of_docs(root),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout, to the left")
    options = parser.parse_args()
    before = sizes(options.against) if options.against else {}
    for name, number in sizes(ROOT).items():
        print(f"{name:28}{before.get(name, ''):>9}{number:>9}")


if __name__ == "__main__":
    main()
