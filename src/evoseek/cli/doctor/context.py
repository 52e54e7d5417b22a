"""What is checked, and what a check finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evoseek.agent.answer import uses_chat_model
from evoseek.assembly.settings import TrainingSettings
from evoseek.config.sections import is_given
from evoseek.errors import EvoseekError
from evoseek.models.shape import is_here
from evoseek.storage.runs import RunDirectory


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """Settings, the run that they would make or resume (optional), the number of processes that would train, and the
    index that `evoseek index` builds for the project (None: there is no project)."""

    settings: TrainingSettings
    run: RunDirectory | None = None
    processes: int = 1
    project_index: Path | None = None

    @property
    def trains(self) -> bool:
        """Whether there is a policy to train, and not only a model behind [answerer]."""
        return not uses_chat_model(self.settings) or is_given(self.settings, "policy.model")

    @property
    def has_model(self) -> bool:
        """Whether the model's files are on this machine, so that reading them downloads nothing."""
        return is_here(self.settings.policy.model)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a check; warnings, and faults, which make a command fail, have a remedy."""

    about: str
    state: Literal["ok", "warning", "fault"]
    words: str
    remedy: str = ""


def fine(about: str, words: str) -> Diagnosis:
    """A diagnosis without a remedy."""
    return Diagnosis(about, "ok", words)


def warning(about: str, words: str, remedy: str) -> Diagnosis:
    """A diagnosis about what works, but may not be what the user expects."""
    return Diagnosis(about, "warning", words, remedy)


def fault(about: str, words: str, remedy: str) -> Diagnosis:
    """A diagnosis about what makes a command fail."""
    return Diagnosis(about, "fault", words, remedy)


def refused(about: str, error: Exception) -> Diagnosis:
    """An error as a fault: its last sentence is the remedy, as in all errors of evoseek."""
    words, stop, remedy = " ".join(str(error).split()).rpartition(". ")
    return fault(about, f"{words}{stop.strip()}" if words else remedy, remedy if words else "Correct that.")


def tried(about: str, check: Callable[[], Diagnosis | str]) -> Diagnosis:
    """What a check finds, or the error that it raises as a fault. A text is a diagnosis without a remedy."""
    try:
        found = check()
    except EvoseekError as error:
        return refused(about, error)
    return fine(about, found) if isinstance(found, str) else found
