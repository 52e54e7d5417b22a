"""Text from outside on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text


def printable(text: str) -> str:
    """The text with every control character but newline and tab replaced, and every other white space as a plain space:
    a document cannot steer the terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else _replacement(char) for char in text)


def _replacement(char: str) -> str:
    return " " if char.isspace() else "\N{REPLACEMENT CHARACTER}"


def say(console: Console, text: str | Text) -> None:
    """Print text as it is, whatever it holds, with the styles of a Text."""
    shown = text.copy() if isinstance(text, Text) else Text(text)
    shown.plain = printable(shown.plain)
    console.print(shown, soft_wrap=True)
