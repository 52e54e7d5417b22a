"""The files that a run reads: questions, demonstrations, and parts of a user's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evoseek.corpus.demonstrations import load_demonstrations
from evoseek.doctor.finding import Finding, fault, fine, refused, warning
from evoseek.doctor.patient import Patient
from evoseek.errors import EvoseekError
from evoseek.settings import lookup
from evoseek.training.sources import read_questions

_FEW = 100  # held-out questions below which a score has an interval of +-0.1


def check_sources(patient: Patient) -> Iterator[Finding]:
    """Each file that the settings name, and those that the system needs."""
    settings = patient.settings
    path = lookup(settings, "questions.path")
    if path is not None:
        yield _questions(path, "questions.path")
    if settings.evaluation.path:
        yield _questions(settings.evaluation.path, "evaluation.path")
    else:
        words = "No held-out questions: training is not evaluated."
        yield warning("evaluation.path", words, "Name labelled questions as evaluation.path, if there are any.")
    for setting in ("demonstrations.path", "demonstrations.held_out_path"):
        if path := lookup(settings, setting):
            try:
                yield fine(setting, f"{len(load_demonstrations(Path(path)))} demonstrations in {path}")
            except EvoseekError as error:
                yield refused(setting, error)
    for setting in ("selfplay.world", "ssp.answers"):
        if (path := lookup(settings, setting)) and not Path(path).is_file():
            yield fault(setting, f"There is no file {path}.", f"Correct {setting}.")


def _questions(path: str, setting: str) -> Finding:
    try:
        number = len(read_questions(path, setting=setting))
    except EvoseekError as error:
        return refused(setting, error)
    if setting == "evaluation.path" and number < _FEW:
        words = f"{number} questions in {path}: a score has a wide interval."
        return warning(setting, words, f"Name {_FEW} or more, if there are.")
    return fine(setting, f"{number} questions in {path}")
