"""Summaries of failures, in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console

from evoseek.report.printable import say

Reasons = Sequence[str] | Mapping[str, int]
"""One reason for each failure, or each reason with its count."""


def say_left_out(console: Console, what: str, reasons: Reasons) -> None:
    """How many failed, and why; None if there are no failures."""
    if reasons:
        say(console, f"{Counter(reasons).total()} {what}. {for_example(reasons)}")


def for_example(reasons: Reasons) -> str:
    """The most frequent of some reasons."""
    reason, count = Counter(reasons).most_common(1)[0]
    return f"The most frequent reason ({count} times): {reason}" if count > 1 else f"For example: {reason}"
