"""Why some of many failed, in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console

from evoseek.report.printable import say

Reasons = Sequence[str] | Mapping[str, int]
"""One for each that failed, or each with how often it occurred."""


def say_left_out(console: Console, what: str, reasons: Reasons) -> None:
    """How many of what, and why; nothing if there are none."""
    if reasons:
        say(console, f"{Counter(reasons).total()} {what}. {for_example(reasons)}")


def for_example(reasons: Reasons) -> str:
    """The most frequent of some reasons."""
    reason, count = Counter(reasons).most_common(1)[0]
    return f"The most frequent reason ({count} times): {reason}" if count > 1 else f"For example: {reason}"
