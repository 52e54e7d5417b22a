"""The picture in docs/architecture.md, drawn from the imports in the code.

python docs/architecture.py     # draws it again
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

PAGE = Path(__file__).with_suffix(".md")
PACKAGE = Path(__file__).parents[1] / "src" / "evoseek"
# One box: nearly everything imports them.
FOUNDATION = "types, protocols, errors, files, runs, http, registry, settings, settings_tree, effect, recipes"
BEGIN, END = "<!-- imports -->\n", "<!-- end of imports -->"

Graph = Mapping[str, set[str]]


def box_of(module: str) -> str:
    """The box of a module such as evoseek.policy.load: its package, or the foundation."""
    name = module.split(".")[1]
    return FOUNDATION if name in FOUNDATION.split(", ") else name


def imported(file: Path) -> Iterator[str]:
    """The boxes of all modules of evoseek that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.ImportFrom(module=str(name)) if name.startswith("evoseek."):
                yield box_of(name)
            case ast.Import(names=names):
                yield from (box_of(alias.name) for alias in names if alias.name.startswith("evoseek."))
            case _:
                pass


def imports() -> Graph:
    """Every box with the other boxes that it imports."""
    graph: dict[str, set[str]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        if len(parts) > 1 and not parts[1].startswith("__"):
            box = box_of(".".join(parts))
            graph.setdefault(box, set()).update(name for name in imported(file) if name != box)
    return graph


def reach(graph: Graph, box: str) -> set[str]:
    """The boxes that a box imports, directly or through others. The graph has no cycle."""
    return graph[box].union(*(reach(graph, name) for name in graph[box]))


def reduced(graph: Graph) -> Graph:
    """Without the arrows that follow from others: a -> c where a -> b -> c."""
    return {box: names - {far for name in names for far in reach(graph, name)} for box, names in graph.items()}


def picture(graph: Graph) -> str:
    """The graph as a Mermaid flowchart."""
    label = {box: f'foundation["{box}"]' if box == FOUNDATION else box for box in graph}
    arrows = [f"    {label[box]} --> {label[name]}" for box, names in graph.items() for name in sorted(names)]
    return "\n".join(("```mermaid", "flowchart TD", *arrows, "```", ""))


def redrawn(page: str) -> str:
    """The page with the picture of the code as it is."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + picture(reduced(imports())) + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
