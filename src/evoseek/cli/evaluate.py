"""`evoseek eval` and `compare`: score a model on questions, and compare evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from json import dumps
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from evoseek.cli.options import (
    ROLLOUTS,
    AnswererArgument,
    Index,
    Json,
    Model,
    Questions,
    RunDir,
    Seed,
    answerer_name,
    bound_path,
    command,
    feedback_path,
    project,
    stop_if_dry,
)
from evoseek.config.registry import find
from evoseek.config.sections import lookup, with_setting
from evoseek.errors import ConfigError
from evoseek.models.source import origin
from evoseek.text.printable import say
from evoseek.training.interrupt import end_on_interrupt

if TYPE_CHECKING:
    from evoseek.assembly.settings import TrainingSettings
    from evoseek.assembly.sources import SettingsSources
    from evoseek.eval.results import Results
    from evoseek.eval.run import EvaluationResult
    from evoseek.eval.suite import Suite
    from evoseek.questions.feedback import JudgedQuestions
    from evoseek.types import Question


_FEEDBACK = "feedback"  # instead of a suite
_ASK_PEOPLE = (
    "These questions are synthetic, and people word theirs differently. Collect twenty real ones with their answers "
    "(question,golden_answers), and score on them: --questions, or evaluation.path in evoseek.toml."
)
_AT_ONCE = 64  # questions, at most
_MIN_SEARCHES = 10  # empty searches that tell a broken engine from queries that match nothing
On = Annotated[
    str | None,
    typer.Option(
        help="Suite: a name such as hotpotqa, or a question file or folder; or `feedback`: the conversations with a "
        "verdict."
    ),
]
SuiteData = Annotated[Path | None, typer.Option(help="Folder or file with a named suite's questions.")]
TemperatureOption = Annotated[
    float | None, typer.Option(help="Sampling temperature; 0 is greedy, the default in a project.")
]
BaselineOption = Annotated[
    str | None,
    typer.Option(help="Baseline to evaluate: direct, cot, rag, ircot, search-o1, ragent, or package.module:Name."),
]
LabelledAnswers = Annotated[
    Path | None,
    typer.Option(help="Score the judge instead, on this file of labelled answers."),
]
Alone = Annotated[bool, typer.Option("--alone", help="Do not compare a run with its model before training.")]
MostWrong = Annotated[
    float | None, typer.Option(help="Largest share of wrong answers that `ask` and `serve` may show.")
]
_UNTRAINED = "untrained"  # folder within an evaluation's
Limit = Annotated[int | None, typer.Option(min=1, help="Maximum number of questions, from the first.")]


@command(
    "eval",
    reads=f"{ROLLOUTS} answerer.* support.* questions.path reward.* judge.* evaluation.path evaluation.index "
    "evaluation.limit evaluation.temperature",
    in_project=True,
)
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
    temperature: TemperatureOption = None,
    no_search: Annotated[bool, typer.Option("--no-search", help="Answer without any tool.")] = False,
    baseline: BaselineOption = None,
    limit: Limit = None,
    seed: Seed = None,
    check_judge: LabelledAnswers = None,
    alone: Alone = False,
    most_wrong: MostWrong = None,
    json: Json = False,
) -> None:
    """Score a policy, or the model of [answerer], on questions: every metric with 95 % intervals, and the cost.

    Without labelled questions a project is scored on its test set (`evoseek review`), or else on questions that
    self-play wrote and did not train on. With --out the same command resumes.

    Example: evoseek eval runs/mine --questions held-out.jsonl --out out
    """
    if check_judge is not None:
        _check_judge(check_judge)
        return
    searches = _searches(baseline, no_search)
    if most_wrong is not None:
        _check_most_wrong(most_wrong, as_asked=not (baseline or no_search or samples > 1 or temperature))
    from evoseek.cli.settings import answering_settings, named_answerer

    with end_on_interrupt():
        suite = _suite(on, data, questions)
    options = {
        "evaluation.path": questions,
        "evaluation.index": index or (suite.index if suite else None),
        "reward.name": (suite.declared.metric or None) if suite else None,
        "evaluation.temperature": temperature if most_wrong is None else 0.0,
        "evaluation.limit": limit,
        "run.seed": seed,
    }
    given, run_dir = named_answerer(options, answerer, run_dir=run_dir, model=model)
    if samples == 1 and project() is not None and given.read().evaluation.temperature is None:
        given = given.over({"evaluation.temperature": 0.0})  # greedy, as `evoseek ask` is
    given, every, wrong, kind = _questions(given, run_dir, suite, of_feedback=on == _FEEDBACK, search=searches)
    with end_on_interrupt():
        from evoseek.eval.run import with_metric_of_sentences
        from evoseek.run import Run

    settings = answering_settings(given, answers=_AT_ONCE)
    settings, console = with_metric_of_sentences(settings, given, baseline), Console(stderr=json)
    asked, wrong = (some[: settings.evaluation.limit] for some in (every, wrong))
    times = f", {samples} times each" if samples > 1 else ""
    where = f"Samples and results in {out}" if out else "Nothing is written (--out keeps samples and results)"
    stop_if_dry([f"Ask {answerer_name(given, run_dir)} {len(asked) + len(wrong)} questions{times}", where], settings)
    say(console, f"Asking {len(asked)} of {len(every)} questions{times}.")
    run = Run(directory=run_dir, settings=settings, console=console)
    scored = partial(run.evaluate, samples=samples, temperature=temperature, search=searches, baseline=baseline)
    values: dict[str, object] = {}
    if asked:
        result = scored(asked, suite=suite, kind=kind, out=out)
        values = result.json
        _show(result, out, console)
        if most_wrong is not None:
            values = {**values, **_bound(result, most_wrong, run_dir, console)}
        if not alone and run_dir is not None and searches and baseline is None:
            values = {**values, **_beside(result, asked, run_dir, settings, samples, out, console)}
    if wrong:
        values = {**values, "judged_wrong": _again(scored, wrong, out, console)}
    if json:
        print(dumps(values, ensure_ascii=False))


def _check_most_wrong(share: float, *, as_asked: bool) -> None:
    if not as_asked or not 0.0001 <= share < 1:
        raise ConfigError(
            "--most-wrong is about answers as `evoseek ask` gives them: searched, greedy, one each. Give a share "
            "from 0.0001 to below 1, such as 0.05, without --baseline, --no-search, --samples and --temperature."
        )


def _beside(
    trained: EvaluationResult,
    questions: Sequence[Question],
    run_dir: Path,
    settings: TrainingSettings,
    samples: int,
    out: Path | None,
    console: Console,
) -> dict[str, object]:
    """Ask the model that a run began with the same questions, untrained and search first. Print the difference, for
    answers of sentences apart, and return it as JSON values; empty for a policy of the package, which cannot read a
    passage in its prompt."""
    from evoseek.assembly.model_defaults import search_first
    from evoseek.eval.comparison import Compared, common, compare, values_of
    from evoseek.eval.results import OF_SENTENCES
    from evoseek.eval.tables import comparison_grids, terminal
    from evoseek.models.shape import is_here, local_config
    from evoseek.run import Run

    model = origin(str(run_dir))
    searches = any(tool.name == "search" for tool in settings.tools)
    if not searches or model == str(run_dir) or local_config(model).get("evoseek_prompts") == "tiny":
        return {}
    if not is_here(model):
        say(console, f"{model} is not on this machine, so the run is not compared with it.")
        return {}
    settings = with_setting(with_setting(settings, "policy.model", model), "reward.name", OF_SENTENCES)
    settings = search_first(settings, lambda _: False)  # as `evoseek ask` asks a model before training
    say(console, f"The same questions to {model} untrained, with what a search for each finds in its prompt:")
    before = Run(settings=settings, console=console).evaluate(questions, samples=samples, out=out and out / _UNTRAINED)
    found: dict[str, object] = {"untrained": before.json}
    every = {"untrained": before.results.samples, "trained": trained.results.samples}
    has_sentences = any(sample.is_long for sample in trained.results.samples)
    metrics = {"against_untrained": before.results.metric} | ({"against_untrained_f1": "f1"} if has_sentences else {})
    for name, metric in metrics.items():
        shared = common({side: values_of(drawn, metric) for side, drawn in every.items()})
        pairs, means = compare(shared, metric), {side: fmean(own.values()) for side, own in shared.items()}
        found[name] = asdict(pairs[0])
        for grid in comparison_grids(Compared(metric, pairs[0].n, means, pairs, ())):
            console.print(terminal(grid))
    return found


def _bound(result: EvaluationResult, most_wrong: float, run_dir: Path | None, console: Console) -> dict[str, object]:
    """Bound the share of wrong answers among the shown, write the bound for `ask` and `serve`, and return it as JSON
    values, None if nothing can be promised."""
    from evoseek.eval.risk import bound, fewest, judged

    results, file = result.results, bound_path(run_dir)
    answers = list(judged(results.samples, results.metric))
    found = bound(answers, most_wrong, results.n)
    if found is None:
        words = f"Nothing promises at most {most_wrong:.0%} wrong of what is shown, and nothing is written"
        judgeable = f"{sum(one.is_wrong for one in answers)} of {len(answers)} supported answers are wrong"
        say(console, f"{words}: {judgeable}; at least {fewest(most_wrong)} are needed, all right, and more otherwise.")
        return {"bound": None}
    found = replace(found, answerer=result.answerer)
    if file:
        found.write(file)
    say(console, f"{found} {f'Written to {file}.' if file else 'It is not written: there is no run and no project.'}")
    return {"bound": asdict(found)}


def _check_judge(file: Path) -> None:
    from evoseek.cli.settings import given_settings, working
    from evoseek.questions.questions import load_judged_answers

    given = given_settings({"reward.name": "judge"})
    labelled = load_judged_answers(file)
    given.read().judge.check("judge")
    with end_on_interrupt():
        from evoseek.eval.judging import check_judge

    with working(given, f"Ask the judge about {len(labelled)} answers of {file}") as context:
        check_judge(*context.chat("judge"), labelled, console=Console())


def _show(result: EvaluationResult, out: Path | None, console: Console) -> None:
    from evoseek.eval.tables import cost_grid, grids, note, terminal

    results = result.results
    for grid in (*grids(results, result.title), cost_grid(results.costs(("seconds",)), "Time of a sample")):
        console.print(terminal(grid))
    for text in (note(results), _empty_searches(results)):
        if text:
            say(console, text)
    if out:
        say(console, f"Results: {out / 'results.json'} (also results.md).")


def _again(
    scored: Callable[..., EvaluationResult], wrong: Sequence[Question], out: Path | None, console: Console
) -> dict[str, object]:
    """Ask the questions whose answer was judged wrong, with the wrong answer as the golden one. Print the share of
    valid samples that repeat it, and return it as JSON values."""
    from evoseek.eval.folder import JUDGED_WRONG
    from evoseek.eval.results import score
    from evoseek.eval.tables import score_json, score_text

    say(console, f"Asking {len(wrong)} questions whose answer was judged wrong, without a right one.")
    samples = scored(wrong, out=out and out / JUDGED_WRONG).results.samples
    valid = [sample for sample in samples if sample.invalid is None]
    same = score(valid, "exact_match")
    interval = replace(same.interval, low=1 - same.interval.high, high=1 - same.interval.low)
    other = replace(same, mean=1 - same.mean, interval=interval)
    if failed := len(samples) - len(valid):
        say(console, f"{failed} of {len(samples)} rollouts were Invalid and are left out.")
    say(console, f"The same wrong answer again: {score_text(same)}\nAnother one, or none: {score_text(other)}")
    return {"same_again": score_json(same), "another": score_json(other)}


def _questions(
    given: SettingsSources, run_dir: Path | None, suite: Suite | None, *, of_feedback: bool, search: bool
) -> tuple[SettingsSources, Sequence[Question], Sequence[Question], str]:
    """Return the settings, the questions to ask, questions whose answer was judged wrong, and a short description.
    Raises EvoseekError for missing questions or a missing index."""
    from evoseek.assembly.inputs import evaluation_path, read_questions
    from evoseek.cli.settings import check_evaluation

    judged, kind = _judged(run_dir) if of_feedback else None, ""
    own: Sequence[Question] | None = suite.questions if suite else judged.known if judged else None
    if own is None:
        given, own, kind = _own_questions(given, run_dir)
    settings = given.read()
    check_evaluation(settings, search=search, questions=own is None)
    if own is None:
        own = read_questions(evaluation_path(settings), setting="evaluation.path")
    return given, own, judged.wrong if judged else (), kind


def _judged(run_dir: Path | None) -> JudgedQuestions:
    """Return the questions of the project's conversations with a verdict, or else of the run's. Raises ConfigError if
    there are none."""
    from evoseek.questions.feedback import FeedbackFile, JudgedQuestions

    path = feedback_path(run_dir)
    judged = JudgedQuestions.of(FeedbackFile(path).read())
    if not (judged.known or judged.wrong):
        raise ConfigError(
            f"{path} holds no conversation with a verdict whose question can be asked alone. Collect some with "
            "`evoseek serve agent --feedback`, or name questions with --questions."
        )
    note = f"{len(judged.known)} questions of {path} have a known right answer, {len(judged.wrong)} only a wrong one"
    alone = f"; {judged.not_alone} verdicts are on questions within a conversation, which are left out"
    say(Console(stderr=True), f"{note}{alone if judged.not_alone else ''}.")
    return judged


def _own_questions(given: SettingsSources, run_dir: Path | None) -> tuple[SettingsSources, list[Question] | None, str]:
    """If no questions were named, return the settings with the test set that people judged right, or else the questions
    that the run wrote and held out. Print which, and return it in a few words."""
    settings, own = given.read(), project()
    named = Path(settings.evaluation.reviewed) if settings.evaluation.reviewed else None
    path = named or (own.reviewed if own else None)
    if settings.evaluation.path or path is None or not path.is_file() or not path.stat().st_size:
        return given, *_written(settings, run_dir)
    from evoseek.questions.questions import load_questions
    from evoseek.selfplay.question_log import trained_on
    from evoseek.storage.runs import RunDirectory

    tests = load_questions(path)
    met = trained_on(RunDirectory(run_dir)) if run_dir is not None else None
    seen = sum(not met.is_new(question.text, remember=False) for question in tests) if met else 0
    more = f" {seen} of them this run was trained on, before they were judged." if seen else ""
    say(Console(stderr=True), f"Scored on the test set, {len(tests)} questions that were judged right: {path}.{more}")
    return given.over({"evaluation.path": str(path)}), None, "written questions that were judged right"


def _empty_searches(results: Results) -> str | None:
    made = sum(sample.searches for sample in results.samples)
    if made < _MIN_SEARCHES or any(sample.documents for sample in results.samples):
        return None
    return f"None of {made} searches found anything: the index is empty or lost, so these are scores without search."


def _written(settings: TrainingSettings, run_dir: Path | None) -> tuple[list[Question] | None, str]:
    """If no questions were named, return and print the questions that a cold start or self-play wrote in this run and
    held out, described in a few words. None without a run, or for a run with other questions."""
    from evoseek.assembly.inputs import evaluation_path
    from evoseek.storage.runs import RunDirectory

    if run_dir is None or settings.evaluation.path:
        return None, ""
    is_cold = RunDirectory(run_dir).held_out.is_file()
    if not is_cold and (evaluation_path(settings) or lookup(settings, "proposer") is None):
        return None, ""
    from evoseek.selfplay.question_log import held_out_questions

    questions, words = held_out_questions(RunDirectory(run_dir))
    say(Console(stderr=True), f"{words} {_ASK_PEOPLE}" if project() is not None else words)
    by = "rules" if is_cold else "self-play"
    return questions, f"questions written by {by}, worded as those it was trained on"


def _searches(baseline: str | None, no_search: bool) -> bool:
    """Say whether anything is searched. Raises ConfigError for an unknown baseline, and for --no-search with one."""
    if baseline is None:
        return not no_search
    if no_search:
        raise ConfigError(
            "--no-search and --baseline were both given, but a baseline fixes whether it searches. Leave out "
            "--no-search; the baselines direct and cot do not search."
        )
    return bool(find("baseline", baseline).searches)


def _suite(on: str | None, data: Path | None, questions: str | None) -> Suite | None:
    if on and questions is not None:
        raise ConfigError("--on and --questions both name questions. Give one of them.")
    if on is None or on == _FEEDBACK:
        if data is not None:
            raise ConfigError("--data was given without --on. Name the suite whose questions it holds with --on.")
        return None
    from evoseek.eval.suite import load_suite

    return load_suite(on, data)


class ManyAgainst(TyperCommand):
    """A command whose option --against takes all values up to the next option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its values, as click reads several."""
        words, option = list[str](), ""
        for word in args:
            if word.startswith("-"):
                option = word.partition("=")[0]
            elif option == "--against" and words[-1] != option:
                words.append(option)
            words.append(word)
        return super().parse_args(ctx, words)


@command("compare", only_reads=True)
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders that `evoseek eval --out` wrote, two or more.")],
    against: Annotated[
        list[Path] | None,
        typer.Option(help="Folders of a second method, one per seed; the folders before are the first method's."),
    ] = None,
    metric: Annotated[str | None, typer.Option(help="Metric to compare. Default: the declared one.")] = None,
    json: Json = False,
) -> None:
    """Compare evaluations by paired tests over the questions that they share.

    Scores of 0 or 1 get the exact McNemar test; graded scores or several samples get sign flips. Each difference has
    its interval. P-values are corrected for the number of comparisons, and a warning says if there are too few
    questions. With --against two methods are compared over their seeds, by Student's test and interval.

    Example: evoseek compare A-0 A-1 A-2 --against B-0 B-1 B-2
    """
    from evoseek.eval.comparison import Compared, compare_folders, compare_sides
    from evoseek.eval.tables import comparison_grids, sides_grids, terminal

    compared = compare_sides(folders, against, metric) if against else compare_folders(folders, metric)
    console = Console()
    if json:
        print(dumps(asdict(compared), ensure_ascii=False))
        return
    shown = comparison_grids(compared) if isinstance(compared, Compared) else sides_grids(compared)
    for grid in shown:
        console.print(terminal(grid))
    for note in compared.notes:
        say(console, note)
