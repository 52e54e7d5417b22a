"""`evoseek eval`: a policy, or another model instead of it, is scored on questions."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from evoseek.cli.options import (
    ConfigFiles,
    Index,
    Json,
    Model,
    Questions,
    RunDir,
    Seed,
    Sets,
    Who,
    resolve_answerer,
    stop_if_dry,
    who_answers,
)
from evoseek.errors import ConfigError
from evoseek.registry import KINDS, find
from evoseek.report.printable import say
from evoseek.settings import lookup
from evoseek.training.interrupt import end_on_interrupt

if TYPE_CHECKING:
    from evoseek.eval.results import Results
    from evoseek.eval.suite import Suite
    from evoseek.evaluation import Evaluated
    from evoseek.training.given import Given
    from evoseek.training.settings import TrainingSettings
    from evoseek.types import Question


_ENOUGH = 10  # searches without any result that tell a broken engine from queries that match nothing
On = Annotated[
    str | None,
    typer.Option(help="Suite: a name such as hotpotqa, a TOML file that declares one, or a question file or folder."),
]
SuiteData = Annotated[Path | None, typer.Option(help="Folder or file with a named suite's questions.")]
With = Annotated[
    str | None,
    typer.Option(
        "--with",
        metavar="ENGINE",
        help="What is searched: an engine by name, an index (as --index), or the URL of a retrieval server.",
    ),
]
Temperature = Annotated[float | None, typer.Option(help="0: greedy. Default: as in training.")]
Baseline = Annotated[
    str | None,
    typer.Option(help="Other way to answer: direct, cot, rag, ircot, search-o1, ragent, or package.module:Name."),
]
Limit = Annotated[int | None, typer.Option(help="Maximum number of questions, from the first.")]


def evaluate(
    who: Who = None,
    run_dir: RunDir = None,
    index: Index = None,
    questions: Questions = None,
    on: On = None,
    data: SuiteData = None,
    model: Model = None,
    with_: With = None,
    out: Annotated[Path | None, typer.Option(help="Folder for samples and results.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Number of samples of each question.")] = 1,
    temperature: Temperature = None,
    no_search: Annotated[bool, typer.Option("--no-search", help="Answer without any tool.")] = False,
    baseline: Baseline = None,
    limit: Limit = None,
    seed: Seed = None,
    json: Json = False,
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Score a policy, or the model of [answerer], on questions: every metric with 95 % intervals, and what it cost.

    In a project without labelled questions: on those that self-play wrote and was not trained on. With --out the same
    command resumes.

    Example: evoseek eval runs/mine --questions held-out.jsonl --out results/mine
    """
    searches = _searches(baseline, no_search)
    run_dir, model, endpoint_options = resolve_answerer(who, run_dir, model)
    engine = _engine(with_, index)
    from evoseek.cli.settings import given_settings, run_of_project

    run_dir = run_of_project(run_dir, model, config, endpoint_options)
    with end_on_interrupt():
        suite = _suite(on, data, questions)
    options = {
        "evaluation.path": questions,
        "evaluation.index": index or (suite.index if suite else None),
        **endpoint_options,
        **engine,
        "reward.name": (suite.declared.metric or None) if suite else None,
        "evaluation.temperature": temperature,
        "evaluation.limit": limit,
        "policy.model": model,
        "run.seed": seed,
    }
    given = given_settings("eval", run_dir, config or (), options=options, sets=set_ or ())
    _evaluate(given, _Examination(run_dir, model, suite, searches, baseline, samples), out, as_json=json)


@dataclass(frozen=True, slots=True)
class _Examination:
    """Who is examined (the run, and the value of --model), on what, and how."""

    run_dir: Path | None
    model: str | None
    suite: Suite | None
    searches: bool
    baseline: str | None
    samples: int


def _evaluate(given: Given, wanted: _Examination, out: Path | None, *, as_json: bool) -> None:
    from evoseek.cli.settings import answering_settings, check_evaluation

    suite, run_dir = wanted.suite, wanted.run_dir
    own = None if suite or run_dir is None else _written(given.read(), run_dir)
    check_evaluation(given.read(), search=wanted.searches, model=wanted.model, questions=suite is None and own is None)
    with end_on_interrupt():
        from evoseek.run import Run
        from evoseek.training.sources import evaluation_path, read_questions

    settings, console = answering_settings(given), Console(stderr=as_json)
    every = suite.questions if suite else own or read_questions(evaluation_path(settings), setting="evaluation.path")
    asked = every[: settings.evaluation.limit]
    times = f", {wanted.samples} times each" if wanted.samples > 1 else ""
    where = f"Samples and results in {out}" if out else "Nothing is written (--out keeps samples and results)"
    stop_if_dry([f"Ask {who_answers(given, run_dir)} {len(asked)} questions{times}", where], settings)
    say(console, f"Asking {len(asked)} of {len(every)} questions{times}.")
    evaluated = Run(directory=run_dir, settings=settings, console=console).evaluate(
        asked,
        samples=wanted.samples,
        search=wanted.searches,
        baseline=wanted.baseline,
        suite=suite,
        out=out,
    )
    if as_json:
        print(dumps(evaluated.json, ensure_ascii=False))
    else:
        _show(evaluated, out, console)


def _show(evaluated: Evaluated, out: Path | None, console: Console) -> None:
    from evoseek.report.evaluation import cost_grid, grids, note, terminal

    results = evaluated.results
    for grid in (*grids(results, evaluated.title), cost_grid(results.seconds())):
        console.print(terminal(grid))
    for said in (note(results), _empty_searches(results)):
        if said:
            say(console, said)
    if out:
        say(console, f"Results: {out / 'results.json'} (also results.md).")


def _empty_searches(results: Results) -> str | None:
    made = sum(sample.searches for sample in results.samples)
    if made < _ENOUGH or any(sample.documents for sample in results.samples):
        return None
    return f"None of {made} searches found anything: the index is empty or lost, and the scores are those of no search."


def _written(settings: TrainingSettings, run_dir: Path) -> list[Question] | None:
    """The questions that self-play wrote in this run and held out, if none were named: they are told of. None for a run
    of another system."""
    from evoseek.training.sources import evaluation_path

    if evaluation_path(settings) or lookup(settings, "proposer") is None:
        return None
    from evoseek.runs import RunDirectory
    from evoseek.selfplay.held_out import held_out_questions

    questions, words = held_out_questions(RunDirectory(run_dir))
    say(Console(stderr=True), words)
    return questions


def _engine(given: str | None, index: str | None) -> dict[str, object]:
    """The settings of the engine that --with names. Raises ConfigError if it names an index and --index another."""
    if given is None:
        return {}
    if "://" in given:
        own: dict[str, object] = {"search.name": "remote", "search.url": given, "evaluation.index": ""}
    elif re.match(r"[\w.-]+:\d+(/|$)", given) and not os.path.exists(given):
        raise ConfigError(f"--with {given} is a server's address without its scheme. Give http://{given}.")
    elif given in KINDS["search"].parts or (":" in given and not _is_path(given)):
        return {"search.name": given}
    else:
        own = {"evaluation.index": given}
    if index is not None:
        raise ConfigError(f"--with {given} and --index both say what is searched. Give one of them.")
    return own


def _is_path(given: str) -> bool:
    """Whether a text with a colon is a path; otherwise it is an engine's package.module:Name."""
    return "/" in given or os.path.exists(given)  # Path.exists raises for a name that is too long


def _searches(baseline: str | None, no_search: bool) -> bool:
    """Whether anything is searched. Raises ConfigError for an unknown baseline, and for --no-search with one."""
    if baseline is None:
        return not no_search
    if no_search:
        raise ConfigError(
            "--no-search and --baseline were both given, but a baseline says itself whether it searches. Leave out "
            "--no-search; the baselines direct and cot do not search."
        )
    return bool(find("baseline", baseline).searches)


def _suite(on: str | None, data: Path | None, questions: str | None) -> Suite | None:
    if on is None:
        if data is not None:
            raise ConfigError("--data holds the questions of a named suite: name it with --on.")
        return None
    if questions is not None:
        raise ConfigError("--on and --questions both name questions. Give one of them.")
    from evoseek.eval.suite import load_suite

    return load_suite(on, data)
