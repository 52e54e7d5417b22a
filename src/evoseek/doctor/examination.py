"""All checks, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from evoseek.doctor.disk import check_disk
from evoseek.doctor.environment import check_environment
from evoseek.doctor.finding import Finding, fault
from evoseek.doctor.index import check_indexes
from evoseek.doctor.machine import check_machine, check_memory
from evoseek.doctor.model import check_model
from evoseek.doctor.patient import Patient
from evoseek.doctor.plan import check_plan, check_run
from evoseek.doctor.services import check_services
from evoseek.doctor.sources import check_sources
from evoseek.errors import disk_text, is_of_disk

CHECKS: tuple[Callable[[Patient], Iterator[Finding]], ...] = (
    check_environment,
    check_machine,
    check_memory,
    check_disk,
    check_model,
    check_indexes,
    check_sources,
    check_services,
    check_run,
    check_plan,
)
_OF_TRAINING = (check_memory, check_disk, check_model, check_sources, check_run, check_plan)


def examine(patient: Patient) -> Iterator[Finding]:
    """Every finding; without those about training where a model of [answerer] answers and none is trained. A check that
    fails in a way that it does not know is a fault, and the others go on."""
    for check in CHECKS:
        if check in _OF_TRAINING and not patient.is_trained:
            continue
        try:
            yield from check(patient)
        except Exception as error:  # an unforeseen environment is what a doctor is for
            name = check.__name__.removeprefix("check_")
            remedy = disk_text(error) if is_of_disk(error) else "Report this with the line above: it is unforeseen."
            yield fault(name, f"{type(error).__name__}: {error}", remedy)
