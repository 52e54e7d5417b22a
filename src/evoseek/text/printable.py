"""Text from outside on a terminal, and failures summarised in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

_KEPT = "\n\t\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"  # the last two: Persian and Indic words, emoji


def printable(text: str) -> str:
    """Replace every control character but newline and tab, and make every other white space a plain space, so that a
    document cannot control the terminal."""
    return "".join(char if char.isprintable() or char in _KEPT else _replacement(char) for char in text)


def shown(text: str) -> Text:
    """Make text `printable` in a table or title of rich, which would read brackets in a string as markup."""
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
    """Print how many failed, and why; nothing if there are no failures."""
    if reasons:
        say(console, f"{Counter(reasons).total()} {what}. {for_example(reasons)}")


def for_example(reasons: Reasons) -> str:
    """Describe the most frequent reason."""
    reason, count = Counter(reasons).most_common(1)[0]
    return f"The most frequent reason ({count} times): {reason}" if count > 1 else f"For example: {reason}"
