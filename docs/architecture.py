"""docs/architecture.svg, the picture in docs/architecture.md, drawn from the imports in the code.

python docs/architecture.py     # draws it again
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate, pairwise
from math import fsum
from pathlib import Path

PICTURE = Path(__file__).with_suffix(".svg")
PACKAGE = Path(__file__).parents[1] / "src" / "evoseek"
# One box: nearly everything imports them.
FOUNDATION = "types, errors, protocols, storage, http, config, text, credit"

Graph = Mapping[str, set[str]]
Place = tuple[str, int]
"""A box and its row; or the way of an arrow through a row, named by both ends."""

ROW, HEIGHT, GAP, MARGIN, LETTER = 74, 30, 14, 16, 7.4
STYLE = """<style>text{font:13px sans-serif;fill:#1c1c1e;text-anchor:middle}rect{fill:#dbe4ff;stroke:#8a8a90}
path{fill:none;stroke:#55555a;stroke-width:1.2}</style>
<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L8 4L0 8Z" style="fill:#55555a;stroke:none"/></marker>"""


def box_of(module: str) -> str:
    """The box of a module such as evoseek.models.load: its package, or the foundation."""
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


def rows_of(graph: Graph) -> dict[str, int]:
    """The row of each box, counted from below: one above the highest that it imports."""
    rows: dict[str, int] = {}

    def row(box: str) -> int:
        if box not in rows:
            rows[box] = 1 + max(map(row, sorted(graph[box])), default=-1)
        return rows[box]

    for box in graph:
        row(box)
    return rows


def ways(graph: Graph) -> list[list[Place]]:
    """For each arrow its places, from row to row."""
    rows = rows_of(graph)
    return [
        [
            (box, rows[box]),
            *((f"{box} {name}", row) for row in range(rows[box] - 1, rows[name], -1)),
            (name, rows[name]),
        ]
        for box in sorted(graph)
        for name in sorted(graph[box])
    ]


def ordered(graph: Graph) -> list[list[Place]]:
    """The rows from below, in an order in which few arrows cross: every place near the middle of its neighbours."""
    near: dict[Place, set[Place]] = {(box, row): set() for box, row in rows_of(graph).items()}
    for way in ways(graph):
        for one, other in pairwise(way):
            near.setdefault(one, set()).add(other)
            near.setdefault(other, set()).add(one)
    layers = [sorted(place for place in near if place[1] == row) for row in range(1 + max(row for _, row in near))]
    for sweep in range(40):
        for row in range(len(layers))[:: 1 if sweep % 2 else -1]:
            at = {place: (n + 0.5) / len(layer) for layer in layers for n, place in enumerate(layer)}
            side = row + (-1 if sweep % 2 else 1)
            layers[row].sort(key=lambda place: middle([at[p] for p in near[place] if p[1] == side], at[place]))
    return layers


def middle(values: Sequence[float], other: float) -> float:
    """Their mean, which does not depend on their order; `other` if there are none."""
    return fsum(values) / len(values) if values else other


def width(place: Place) -> float:
    """Room for a box with its name, or for the line of an arrow."""
    is_way = " " in place[0] and place[0] != FOUNDATION
    return LETTER if is_way else len(place[0]) * LETTER + 14


def svg(graph: Graph) -> str:
    """The picture of a graph without a cycle."""
    layers = ordered(graph)
    widths = [sum(map(width, layer)) + GAP * (len(layer) - 1) for layer in layers]
    total, middles = max(widths) + 2 * MARGIN, dict[Place, tuple[float, float]]()
    for row, layer in enumerate(layers):
        space = (total - 2 * MARGIN - sum(map(width, layer))) / (len(layer) + 1)
        ends = accumulate(space + width(place) for place in layer)
        y = MARGIN + HEIGHT / 2 + ROW * (len(layers) - 1 - row)
        middles |= {place: (MARGIN + end - width(place) / 2, y) for place, end in zip(layer, ends, strict=True)}
    size = f'viewBox="0 0 {total:.0f} {2 * MARGIN + HEIGHT + ROW * (len(layers) - 1)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>What imports what</title>'
    boxes = [box_at(place, *middles[place]) for place in middles if place[0] in graph]
    return "\n".join([head, STYLE, *arrows(graph, middles), *boxes, "</svg>", ""])


def arrows(graph: Graph, middles: Mapping[Place, tuple[float, float]]) -> Iterator[str]:
    """Lines through the middles of all rows between two boxes."""
    for way in ways(graph):
        points = [(x, y + side) for x, y in map(middles.__getitem__, way) for side in (-HEIGHT / 2, HEIGHT / 2)][1:-1]
        (x, y), *rest = points
        yield f'<path d="M{x:.0f} {y:.0f}{"".join(f"L{x:.0f} {y:.0f}" for x, y in rest)}" marker-end="url(#a)"/>'


def box_at(place: Place, x: float, y: float) -> str:
    """A box with its name around a point."""
    wide = width(place)
    return (
        f'<rect x="{x - wide / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{wide:.0f}" height="{HEIGHT}" rx="6"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}">{escape(place[0])}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(svg(reduced(imports())), encoding="utf-8")
