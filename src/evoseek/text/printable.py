"""Text from outside on a terminal, and failures summarised in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

_KEPT = "\n\t\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"  # the last two: Persian and Indic words, emoji


def printable(text: str) -> str:
    """Return the text with every control character but newline and tab replaced, and every other white space as a plain
    space: a document cannot steer the terminal."""
    return "".join(char if char.isprintable() or char in _KEPT else _replacement(char) for char in text)


def shown(text: str) -> Text:
    """The same for a table or a title of rich, which takes brackets in a string for markup."""
    return Text(printable(text))


def _replacement(char: str) -> str:
    return " " if char.isspace() else "\N{REPLACEMENT CHARACTER}"


def say(console: Console, text: str | Text) -> None:
    """Print text without reading markup in it, with the styles of a Text."""
    shown = text.copy() if isinstance(text, Text) else Text(text)
    shown.plain = printable(shown.plain)
    console.print(shown, soft_wrap=True)


Reasons = Sequence[str] | Mapping[str, int]
"""One reason for each failure, or each reason with its count."""


def say_left_out(console: Console, what: str, reasons: Reasons) -> None:
    """How many failed, and why; None if there are no failures."""
    if reasons:
        say(console, f"{Counter(reasons).total()} {what}. {for_example(reasons)}")


def for_example(reasons: Reasons) -> str:
    """Return the most frequent of some reasons."""
    reason, count = Counter(reasons).most_common(1)[0]
    return f"The most frequent reason ({count} times): {reason}" if count > 1 else f"For example: {reason}"
