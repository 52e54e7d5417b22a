"""Draws the pictures of the systems: docs/systems/NAME.svg, boxes on a grid with arrows between them.

python docs/pictures.py
"""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("systems")
COLUMN, ROW, WIDTH, HEIGHT, MARGIN = 182, 92, 138, 52, 22
FILL = {"data": "#f4f4f5", "policy": "#dbe4ff", "tool": "#e3f4e8", "score": "#fdeccf"}
STYLE = """<style>text{font:13px sans-serif;fill:#1c1c1e;text-anchor:middle}.l{font-size:11px;fill:#55555a}
rect{stroke:#8a8a90}path{fill:none;stroke:#55555a;stroke-width:1.5}</style>
<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse">
<path d="M0 0L8 4L0 8Z" style="fill:#55555a;stroke:none"/></marker>"""


class Box(NamedTuple):
    """A box: its column and row, what it is, and its lines of text."""

    column: int
    row: int
    kind: str
    text: str

    @property
    def x(self) -> float:
        """The middle."""
        return MARGIN + WIDTH / 2 + self.column * COLUMN

    @property
    def y(self) -> float:
        """The middle."""
        return MARGIN + HEIGHT / 2 + self.row * ROW


class Arrow(NamedTuple):
    """From a box to another. Boxes that share neither row nor column: along the first one's column, then the other's
    row; with `both` it has two heads; with `over` it goes above the row."""

    start: str
    end: str
    label: str = ""
    both: bool = False
    over: bool = False


class Picture(NamedTuple):
    """Boxes by name, and arrows."""

    title: str
    boxes: dict[str, Box]
    arrows: list[Arrow]


PICTURES = {
    "search-r1": Picture(
        "A policy searches before it answers, and is rewarded for right answers",
        {
            "question": Box(0, 0, "data", "Question"),
            "policy": Box(1, 0, "policy", "Policy"),
            "engine": Box(2, 0, "tool", "Search engine"),
            "answer": Box(1, 1, "data", "Answer"),
            "reward": Box(2, 1, "score", "Exact match:\n0 or 1"),
            "update": Box(3, 1, "policy", "Advantage in the\ngroup, update"),
        },
        [
            Arrow("question", "policy"),
            Arrow("policy", "engine", "", both=True),
            Arrow("policy", "answer"),
            Arrow("answer", "reward"),
            Arrow("reward", "update"),
        ],
    ),
    "dspo": Picture(
        "Only groups with a signal are trained on, with one ratio for each rollout",
        {
            "question": Box(0, 1, "data", "Question"),
            "rollouts": Box(1, 1, "policy", "G rollouts with\nsearches"),
            "filter": Box(2, 1, "score", "Some right,\nsome wrong?"),
            "batch": Box(3, 1, "data", "Batch of groups"),
            "ratio": Box(3, 2, "score", "One ratio for\neach rollout"),
            "update": Box(2, 2, "policy", "Clipped update"),
        },
        [
            Arrow("question", "rollouts"),
            Arrow("rollouts", "filter"),
            Arrow("filter", "batch", "yes"),
            Arrow("filter", "question", "no: another question, within a bound", over=True),
            Arrow("batch", "ratio"),
            Arrow("ratio", "update"),
        ],
    ),
    "zerosearch": Picture(
        "A language model plays the search engine",
        {
            "question": Box(0, 0, "data", "Question"),
            "policy": Box(1, 0, "policy", "Policy"),
            "simulator": Box(2, 0, "tool", "Simulated\nengine (frozen)"),
            "noise": Box(3, 0, "data", "Noise: more and\nmore often"),
            "answer": Box(1, 1, "data", "Answer"),
            "reward": Box(0, 1, "score", "F1, update"),
            "searches": Box(0, 2, "tool", "Searches of a\nreal engine"),
            "judge": Box(1, 2, "score", "Judge: useful or\nnoisy"),
            "tuned": Box(2, 2, "policy", "Fine-tuning"),
        },
        [
            Arrow("question", "policy"),
            Arrow("policy", "simulator", "", both=True),
            Arrow("noise", "simulator"),
            Arrow("policy", "answer"),
            Arrow("answer", "reward"),
            Arrow("searches", "judge"),
            Arrow("judge", "tuned"),
            Arrow("tuned", "simulator", "before training"),
        ],
    ),
    "deepresearcher": Picture(
        "A policy searches the web and opens pages",
        {
            "question": Box(0, 1, "data", "Question"),
            "policy": Box(1, 1, "policy", "Policy"),
            "search": Box(2, 0, "tool", "web_search"),
            "provider": Box(3, 0, "tool", "Provider:\ntitles, snippets"),
            "browse": Box(2, 1, "tool", "browse"),
            "page": Box(3, 1, "tool", "Page as text"),
            "reader": Box(3, 2, "policy", "Reading agent\nwith a memory"),
            "answer": Box(1, 2, "data", "Answer"),
            "reward": Box(0, 2, "score", "-1 or F1 of the\nset of words"),
        },
        [
            Arrow("question", "policy"),
            Arrow("policy", "search", both=True),
            Arrow("search", "provider", both=True),
            Arrow("policy", "browse", both=True),
            Arrow("browse", "page", both=True),
            Arrow("page", "reader", both=True),
            Arrow("policy", "answer"),
            Arrow("answer", "reward"),
        ],
    ),
    "dr-zero": Picture(
        "A proposer writes questions from passages; the solver's attempts decide its reward",
        {
            "passage": Box(0, 0, "data", "Passage"),
            "proposer": Box(1, 0, "policy", "Proposer"),
            "engine": Box(2, 0, "tool", "Search engine"),
            "question": Box(1, 1, "data", "Question and\nanswer"),
            "filter": Box(2, 1, "score", "Filter"),
            "solver": Box(3, 1, "policy", "Solver,\nn attempts"),
            "right": Box(3, 2, "score", "k of n are right"),
            "reward": Box(2, 2, "score", "Difficulty and\nform"),
            "update": Box(1, 2, "policy", "Update of the\nproposer (HRPO)"),
            "written": Box(3, 3, "policy", "Update of the\nsolver (GRPO)"),
        },
        [
            Arrow("passage", "proposer"),
            Arrow("proposer", "engine", both=True),
            Arrow("solver", "engine", both=True),
            Arrow("proposer", "question"),
            Arrow("question", "filter"),
            Arrow("filter", "solver"),
            Arrow("solver", "right"),
            Arrow("right", "reward"),
            Arrow("reward", "update"),
            Arrow("right", "written", "in turns"),
        ],
    ),
    "ssp": Picture(
        "One policy writes questions for answers, and answers them",
        {
            "answer": Box(0, 0, "data", "Answer from the\ncorpus"),
            "proposer": Box(1, 0, "policy", "Policy as\nproposer"),
            "engine": Box(2, 0, "tool", "Search engine"),
            "question": Box(1, 1, "data", "Question"),
            "filter": Box(2, 1, "score", "Rules, and read\namong noise"),
            "solver": Box(3, 1, "policy", "Policy as solver,\n5 attempts"),
            "right": Box(3, 2, "score", "Solver: right or\nwrong"),
            "reward": Box(2, 2, "score", "Proposer: 1 - mean\nof the solver's"),
            "update": Box(1, 2, "policy", "One update of\nboth roles"),
        },
        [
            Arrow("answer", "proposer"),
            Arrow("proposer", "engine", both=True),
            Arrow("solver", "engine", both=True),
            Arrow("proposer", "question"),
            Arrow("question", "filter"),
            Arrow("filter", "solver", "valid"),
            Arrow("solver", "right"),
            Arrow("right", "reward"),
            Arrow("reward", "update"),
        ],
    ),
}


def svg(picture: Picture) -> str:
    """The picture as SVG, on a light ground of its own."""
    boxes = picture.boxes.values()
    width = 2 * MARGIN + WIDTH + COLUMN * max(box.column for box in boxes)
    height = 2 * MARGIN + HEIGHT + ROW * max(box.row for box in boxes)
    top = ROW - 34 if not any(box.row == 0 for box in boxes) else 0
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {top} {width} {height - top}" width="{width}">',
        f"<title>{escape(picture.title)}</title>",
        STYLE,
        f'<rect y="{top}" width="{width}" height="{height - top}" fill="#fff" style="stroke:none"/>',
        *(line for arrow in picture.arrows for line in _arrow(arrow, picture.boxes)),
        *(line for box in boxes for line in _box(box)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(box: Box) -> Iterator[str]:
    left, top = box.x - WIDTH / 2, box.y - HEIGHT / 2
    yield f'<rect x="{left:g}" y="{top:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{FILL[box.kind]}"/>'
    lines = box.text.split("\n")
    for number, line in enumerate(lines):
        yield f'<text x="{box.x:g}" y="{box.y + 4.5 + 17 * (number - (len(lines) - 1) / 2):g}">{escape(line)}</text>'


def _arrow(arrow: Arrow, boxes: dict[str, Box]) -> Iterator[str]:
    points = _points(boxes[arrow.start], boxes[arrow.end], over=arrow.over)
    heads = 'marker-end="url(#a)"' + (' marker-start="url(#a)"' if arrow.both else "")
    yield f'<path d="M{"L".join(f"{x:g} {y:g}" for x, y in points)}" {heads}/>'
    if arrow.label:
        (x1, y1), (x2, y2) = points[len(points) // 2 - 1 : len(points) // 2 + 1]
        beside = 8 + 2.8 * len(arrow.label) if x1 == x2 else 0
        yield f'<text class="l" x="{(x1 + x2) / 2 + beside:g}" y="{(y1 + y2) / 2 - (0 if beside else 6):g}">'
        yield f"{escape(arrow.label)}</text>"


def _points(start: Box, end: Box, *, over: bool) -> list[tuple[float, float]]:
    """The corners of an arrow between the edges of two boxes."""
    right, down = (1 if end.x > start.x else -1), (1 if end.y > start.y else -1)
    if over:
        above = start.y - HEIGHT / 2
        return [(start.x, above), (start.x, above - 20), (end.x, above - 20), (end.x, above)]
    if start.row == end.row:
        return [(start.x + right * WIDTH / 2, start.y), (end.x - right * WIDTH / 2, end.y)]
    first, last = (start.x, start.y + down * HEIGHT / 2), (end.x - right * WIDTH / 2, end.y)
    if start.column == end.column:
        return [first, (end.x, end.y - down * HEIGHT / 2)]
    return [first, (start.x, end.y), last]


if __name__ == "__main__":
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(svg(picture), encoding="utf-8")
