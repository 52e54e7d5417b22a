"""`evoseek eval`, `compare` and `judge`: a model is scored on questions, evaluations and a judge are compared."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from evoseek.cli.options import (
    AnswererArgument,
    ConfigFiles,
    Index,
    Json,
    Model,
    Questions,
    RunDir,
    Seed,
    Sets,
    answerer_name,
    new_group,
    resolve_answerer,
    stop_if_dry,
)
from evoseek.errors import ConfigError
from evoseek.registry import find
from evoseek.report.printable import say
from evoseek.settings import lookup
from evoseek.training.interrupt import end_on_interrupt

if TYPE_CHECKING:
    from evoseek.eval.results import Results
    from evoseek.eval.suite import Suite
    from evoseek.evaluation import Evaluated
    from evoseek.training.settings import TrainingSettings
    from evoseek.types import Question


judge = new_group("The model that says whether an answer is right.")
_MIN_SEARCHES = 10  # searches without any result that tell a broken engine from queries that match nothing
On = Annotated[
    str | None,
    typer.Option(help="Suite: a name such as hotpotqa, a TOML file that declares one, or a question file or folder."),
]
SuiteData = Annotated[Path | None, typer.Option(help="Folder or file with a named suite's questions.")]
Temperature = Annotated[float | None, typer.Option(help="0: greedy. Default: as in training.")]
Baseline = Annotated[
    str | None,
    typer.Option(help="Other way to answer: direct, cot, rag, ircot, search-o1, ragent, or package.module:Name."),
]
Limit = Annotated[int | None, typer.Option(help="Maximum number of questions, from the first.")]


def evaluate(
    answerer: AnswererArgument = None,
    run_dir: RunDir = None,
    index: Index = None,
    questions: Questions = None,
    on: On = None,
    data: SuiteData = None,
    model: Model = None,
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
    run_dir, model, endpoint_options = resolve_answerer(answerer, run_dir, model)
    from evoseek.cli.settings import answering_settings, check_evaluation, given_settings, run_of_project

    run_dir = run_of_project(run_dir, model, config, endpoint_options)
    with end_on_interrupt():
        suite = _suite(on, data, questions)
    options = {
        "evaluation.path": questions,
        "evaluation.index": index or (suite.index if suite else None),
        **endpoint_options,
        "reward.name": (suite.declared.metric or None) if suite else None,
        "evaluation.temperature": temperature,
        "evaluation.limit": limit,
        "policy.model": model,
        "run.seed": seed,
    }
    given = given_settings("eval", run_dir, config or (), options=options, sets=set_ or ())
    own = suite.questions if suite else _written(given.read(), run_dir)
    check_evaluation(given.read(), search=searches, model=model, questions=own is None)
    with end_on_interrupt():
        from evoseek.run import Run
        from evoseek.training.inputs import evaluation_path, read_questions

    settings, console = answering_settings(given), Console(stderr=json)
    every = read_questions(evaluation_path(settings), setting="evaluation.path") if own is None else own
    asked = every[: settings.evaluation.limit]
    times = f", {samples} times each" if samples > 1 else ""
    where = f"Samples and results in {out}" if out else "Nothing is written (--out keeps samples and results)"
    stop_if_dry([f"Ask {answerer_name(given, run_dir)} {len(asked)} questions{times}", where], settings)
    say(console, f"Asking {len(asked)} of {len(every)} questions{times}.")
    evaluated = Run(directory=run_dir, settings=settings, console=console).evaluate(
        asked, samples=samples, search=searches, baseline=baseline, suite=suite, out=out
    )
    if json:
        print(dumps(evaluated.json, ensure_ascii=False))
    else:
        _show(evaluated, out, console)


def _show(evaluated: Evaluated, out: Path | None, console: Console) -> None:
    from evoseek.report.evaluation import cost_grid, grids, note, terminal

    results = evaluated.results
    for grid in (*grids(results, evaluated.title), cost_grid(results.seconds())):
        console.print(terminal(grid))
    for text in (note(results), _empty_searches(results)):
        if text:
            say(console, text)
    if out:
        say(console, f"Results: {out / 'results.json'} (also results.md).")


def _empty_searches(results: Results) -> str | None:
    made = sum(sample.searches for sample in results.samples)
    if made < _MIN_SEARCHES or any(sample.documents for sample in results.samples):
        return None
    return f"None of {made} searches found anything: the index is empty or lost, and the scores are those of no search."


def _written(settings: TrainingSettings, run_dir: Path | None) -> list[Question] | None:
    """The questions that self-play wrote in this run and held out, if none were named, which is printed. None without a
    run, or for a run of another system."""
    from evoseek.training.inputs import evaluation_path

    if run_dir is None or evaluation_path(settings) or lookup(settings, "proposer") is None:
        return None
    from evoseek.runs import RunDirectory
    from evoseek.selfplay.question_log import held_out_questions

    questions, words = held_out_questions(RunDirectory(run_dir))
    say(Console(stderr=True), words)
    return questions


def _searches(baseline: str | None, no_search: bool) -> bool:
    """Whether anything is searched. Raises ConfigError for an unknown baseline, and for --no-search with one."""
    if baseline is None:
        return not no_search
    if no_search:
        raise ConfigError(
            "--no-search and --baseline were both given, but whether a baseline searches is part of it. Leave out "
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


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders that `evoseek eval --out` wrote, two or more.")],
    metric: Annotated[str | None, typer.Option(help="Metric to compare by. Default: the declared one.")] = None,
    json: Json = False,
) -> None:
    """Compare evaluations by paired tests over the questions that all of them have.

    Exact McNemar test (0 or 1) or sign flips (graded, or several samples), each difference with its interval; p-values
    are corrected for the number of comparisons, and a warning says if there are too few questions.
    """
    from evoseek.eval.comparison import compare_folders
    from evoseek.report.evaluation import comparison_grids, terminal

    compared, console = compare_folders(folders, metric), Console()
    if json:
        print(dumps([asdict(pair) for pair in compared.pairs], ensure_ascii=False))
        return
    for grid in comparison_grids(compared):
        console.print(terminal(grid))
    for note in compared.notes:
        say(console, note)


@judge.command()
def check(
    cases: Annotated[Path, typer.Argument(help="JSON lines: question, golden_answers, answer, correct (true, false).")],
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Ask the judge of the settings (judge.model) about labelled answers, and report how far it agrees."""
    from evoseek.cli.settings import given_settings
    from evoseek.corpus.questions import load_judged_answers

    given = given_settings("judge check", None, config or (), options={}, sets=set_ or ())
    labelled = load_judged_answers(cases)
    given.read().judge.check("judge")
    with end_on_interrupt():
        from evoseek.report.judging import check_judge
        from evoseek.training.context import Context

    stop_if_dry([f"Ask the judge about {len(labelled)} answers of {cases}"], given.read())
    with Context(given.read()) as context:
        check_judge(*context.chat("judge"), labelled, console=Console())
