"""What a check found: fine, a warning or a fault, with one remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "fault"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about one thing. `remedy` says what to do about a warning or a fault."""

    about: str
    state: State
    words: str
    remedy: str = ""


def fine(about: str, words: str) -> Finding:
    """Nothing is to be done."""
    return Finding(about, "ok", words)


def warning(about: str, words: str, remedy: str) -> Finding:
    """It works, but not as one may expect."""
    return Finding(about, "warning", words, remedy)


def fault(about: str, words: str, remedy: str) -> Finding:
    """A command would fail."""
    return Finding(about, "fault", words, remedy)


def refused(about: str, error: Exception) -> Finding:
    """A fault in the words of an error, whose last sentence is the remedy, as in all errors of evoseek."""
    words, stop, remedy = " ".join(str(error).split()).rpartition(". ")
    return fault(about, f"{words}{stop.strip()}" if words else remedy, remedy if words else "Correct that.")
