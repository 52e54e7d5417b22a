"""Text from outside on a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with every control character but newline and tab replaced: a document cannot steer the terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)
