"""`evoseek propose`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import (
    GrowingFile,
    Model,
    Seed,
    answerer_name,
    finish,
    stop_if_dry,
)
from evoseek.training.interrupt import end_on_interrupt


def propose(
    index: Annotated[str, typer.Argument(help="Directory of an index made by `evoseek index`: the corpus.")],
    out: GrowingFile,
    system: Annotated[
        str | None,
        typer.Option(
            help="ssp: backwards from answers in the corpus, verified from the passages found; dr-zero: forwards from "
            "passages, unverified without --set verification.readings=1. Default: the run's, --config's or ssp."
        ),
    ] = None,
    model: Model = None,
    count: Annotated[int, typer.Option(min=1, help="Number of questions.")] = 100,
    max_proposals: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of proposals. Default: 20 per question.")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Directory of a run of self-play: its proposer and solver are used.")
    ] = None,
    cold: Annotated[
        bool,
        typer.Option("--cold", help="Write them by rules from sentences of the documents (English), without a model."),
    ] = False,
    seed: Seed = None,
) -> None:
    """Write questions with answers, evidence and the solver's pass rate from a corpus. Ctrl-C leaves a usable file."""
    from evoseek.cli.settings import chosen_for_model, given_settings
    from evoseek.search.lexical import check_index

    options = {"search.index": index, "policy.model": model, "run.seed": seed}
    given = given_settings(options, run_dir, system=system, fallback="ssp")
    settings = given.read()
    check_index(settings.search.index, setting="search.index", engine=settings.search.name)
    if cold:
        stop_if_dry([f"Write {count} questions about {settings.search.index} to {out} by rules"], settings)
        from evoseek.cold_start.phase import write_questions as write_cold

        write_cold(settings, out, count, console=Console())
        return
    with end_on_interrupt():
        from evoseek.checkpoints import latest_checkpoint
        from evoseek.data.proposing import propose as write_questions

    settings = chosen_for_model(settings, console=Console(stderr=True))
    checkpoint = latest_checkpoint(run_dir) if run_dir else None
    words = f"Write {count} questions about {settings.search.index} to {out} with {answerer_name(given, run_dir)}"
    stop_if_dry([words], settings)
    finish(write_questions(settings, checkpoint, out, count=count, max_proposals=max_proposals, console=Console()))
