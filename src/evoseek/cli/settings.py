"""The settings of a command, from a run or from options. They are checked before a model is loaded."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from evoseek.assembly.inputs import check_training_sources, evaluation_path, read_questions
from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import SettingsSources, allow_project, edited, flat_settings, gather, shared_settings
from evoseek.cli.options import COMMANDS, EVERY, bound_path, project, resolve_answerer, shared, stop_if_dry
from evoseek.config.project import Project, how_to_name
from evoseek.config.sections import changed, check_effect
from evoseek.errors import ConfigError, RunError
from evoseek.models.source import check_policy
from evoseek.search.lexical import check_index
from evoseek.storage.files import nearest
from evoseek.storage.runs import RunDirectory, flatten
from evoseek.text.printable import say
from evoseek.training.interrupt import end_on_interrupt
from evoseek.training.stages import check_run

if TYPE_CHECKING:
    from evoseek.assembly.context import Context
    from evoseek.run import Run

_MOST = 6  # settings of a project that are named
_ONLY_IN_TRAINING = ("evaluation.path",)  # as a switch: `eval` has its own questions


def given_settings(
    options: Mapping[str, object],
    run_dir: Path | None = None,
    *,
    system: str | None = None,
    fallback: str = "search-r1",
) -> SettingsSources:
    """Return the settings of the command that runs: a run's, with `options` (by dotted names) and --set over them;
    without a run, config files and options over the project's. `system` and `fallback` are as in `gather`.

    Raises ConfigError if a run and a model are both given, or a setting that the command does not use; RunError if the
    directory holds no run or no checkpoint yet.
    """
    line = shared()
    own = line.project if line.command.in_project else None
    if run_dir is None:
        given = gather(line.config, system=system, fallback=fallback, options=options, sets=line.sets, project=own)
        if line.command.uses("policy.model"):
            check_policy(given.read().policy.model, setting="policy.model")
        _note_project(own, given.system)
    else:
        if own is not None and own.run == run_dir.absolute() and own.index and "search.index" in options:
            options = {**options, "search.index": options["search.index"] or str(own.index)}
        allow_project(own)
        given = _of_run(run_dir, options, system)
    _check_given(given.read(), [key for key, value in options.items() if value is not None])
    return given


def training_settings(
    options: Mapping[str, object], run_dir: Path, *, system: str | None = None, is_of_project: bool = False
) -> SettingsSources:
    """Return the settings of a new run or of a resumed one. A resumed run keeps its own settings, with config files,
    `options` (by dotted names) and --set over them. If it is the project's own (`is_of_project`), later edits of the
    project's file lie in between.

    Checks everything that needs no model. Raises EvoseekError.
    """
    run, line = RunDirectory(run_dir), shared()
    own = line.project
    run.check()
    allow_project(own)
    given = bool(line.config or line.sets or system) or any(value is not None for value in options.values())
    begun = run.config.is_file()
    if own is not None and begun and not is_of_project:
        own = None
    if own is not None:
        _check_trainable(own, options)
    given = given or own is not None
    if not begun and not given:
        raise RunError(
            f"{run_dir} holds no run to resume: it has no config.json.{nearest(run_dir)} Give the directory of a run; "
            "to begin a new one, name what to train on: --index and --questions (`evoseek train --help`)."
        )
    files = [*([run.config] if begun else []), *line.config]
    given = gather(files, system=system, options=options, sets=line.sets, project=None if begun else own)
    if own is not None and begun:
        edits = edited(own, run.read_project(), given.system)
        given = given.over(edits)
        _tell_resumed(own, run, edits)
    else:
        _note_project(own, given.system, run_dir)
    if own is not None:
        given = replace(_with_people(given, own, begun=begun), of_project=flat_settings(own, given.system))
    settings = given.read()
    check_run(settings, run)
    check_policy(settings.policy.model, setting="policy.model")
    check_training_sources(settings)
    return given


def _with_people(given: SettingsSources, own: Project, *, begun: bool) -> SettingsSources:
    """Add a project's test set and, for a new run, its feedback. Settings that name other files, or none, win."""
    found = dict[str, object]()
    named = str(given.stated("evaluation.reviewed") or "")
    is_open = own.lookup("evaluation.reviewed") is None and (not named or not Path(named).is_file())
    if is_open and own.reviewed.is_file():
        found["evaluation.reviewed"] = str(own.reviewed)
    is_open = own.lookup("questions.feedback") is None and not given.stated("questions.feedback")
    if is_open and not begun and given.has("questions.feedback") and own.feedback.is_file():
        found["questions.feedback"] = str(own.feedback)
    return given.over(found)


def run_of_project(run_dir: Path | None, *others: object) -> Path | None:
    """Return the run that a command uses: the given one; or if nothing else names what answers, the project's, once it
    has a checkpoint. None if there is none."""
    if run_dir is not None or shared().config or any(others):
        return run_dir
    own = project()
    if own is None or own.run is None or own.lookup("answerer.model") or own.lookup("answerer.base_url"):
        return None
    if not RunDirectory(own.run).is_begun:
        _note(f"The project's run {own.run} has no checkpoint yet, so the untrained model is used.")
        return None
    _note(f"From {own.file}: the run {own.run}")
    return own.run


def training_run(run_dir: Path | None) -> Path:
    """Return the directory to train in: the one that is given, or the project's. Raises ConfigError without either."""
    own = project() if run_dir is None else None
    found = own.run if own else run_dir
    if found is None:
        raise ConfigError(
            "Missing option '--run-dir'. Give the directory of the run, or " + how_to_name(own, 'run = "run"') + "."
        )
    return found


def _note_project(own: Project | None, system: str, run: Path | None = None) -> None:
    if own is None:
        return
    tree = own.settings if own.lookup("run.system") in (None, system) else shared_settings(own)
    taken = _few([f"{key} = {value}" for key, value in flatten(tree).items()])
    recipes = [f"recipe {recipe}" for recipe in own.recipes] if tree is own.settings else []
    where = [f"run {run}"] if run is not None and run == own.run else []
    _note(f"From {own.file}: {', '.join([*recipes, *([taken] if taken else []), *where])}")


def _tell_resumed(own: Project, run: RunDirectory, edits: Mapping[str, object]) -> None:
    edited = f", edited since: {_few([f'{key} = {value}' for key, value in edits.items()])}" if edits else ""
    _note(f"From {own.file}: run {run.path}, which keeps the settings with which it was begun{edited}")


def _few(texts: Sequence[str]) -> str:
    more = [f"and {len(texts) - _MOST} more"] if len(texts) > _MOST else []
    return ", ".join([*texts[:_MOST], *more])


def _note(text: str) -> None:
    say(Console(stderr=True), text)


def _check_trainable(own: Project, options: Mapping[str, object]) -> None:
    answerer = own.lookup("answerer.model") or own.lookup("answerer.base_url")
    if answerer and not own.lookup("policy.model") and not options.get("policy.model"):
        raise ConfigError(
            f"The project {own.file} asks {answerer}, a model behind an endpoint, which cannot be trained. Name a "
            "model to train with --model, or as policy.model in that file."
        )


def chosen_for_model(
    settings: TrainingSettings,
    *,
    console: Console,
    run: RunDirectory | None = None,
    answers: int = 0,
    processes: int | None = None,
) -> TrainingSettings:
    """Choose settings that were not given to suit the model, and print those that the command reads. A resumed run
    keeps its first choices. With `answers` the command only answers, that many questions concurrently. `processes`
    would train together, if this is none of them."""
    with end_on_interrupt():
        from evoseek.assembly.model_defaults import apply_model_defaults
        from evoseek.models.machine import Machine, find_machine

    saved = run.read_config() if run is not None and run.is_begun else None

    def machine(device: str | None) -> Machine:
        found = find_machine(device)
        return found if processes is None else replace(found, processes=processes)

    settings, words = apply_model_defaults(settings, machine, saved, shown=shared().command.uses, answers=answers)
    if words:
        say(console, words)
    return settings


def named_answerer(
    options: Mapping[str, object], answerer: str | None = None, *, run_dir: Path | None = None, model: str | None = None
) -> tuple[SettingsSources, Path | None]:
    """Return the settings of a command that answers, and the run that answers, if any: the one of the command's
    argument or options, or the project's. Raises ConfigError if two are named."""
    run_dir, named = resolve_answerer(answerer, run_dir, model)
    run_dir = run_of_project(run_dir, *named.values())
    given = given_settings({**options, **named}, run_dir)
    own, named_model = given.read().answerer, named.get("policy.model")
    if named_model is not None and (other := own.model or own.base_url):
        raise ConfigError(
            f"--model names the policy {named_model}, and [answerer] the model {other}, but only one can answer. Leave "
            "out --model, or answerer.model and answerer.base_url."
        )
    return given, run_dir


def answering_settings(given: SettingsSources, *, answers: int = 0) -> TrainingSettings:
    """Return the settings of a command that only answers, `answers` questions concurrently."""
    with end_on_interrupt():
        from evoseek.agent.answer import uses_chat_model
        from evoseek.assembly.model_defaults import follow_endpoint, search_first

    settings = given.read()
    if uses_chat_model(settings):
        return search_first(follow_endpoint(settings), given.states)
    return chosen_for_model(search_first(settings, given.states), console=Console(stderr=True), answers=answers)


def bounded(given: SettingsSources, run_dir: Path | None) -> SettingsSources:
    """Let the run's bound on wrong answers apply, or the project's, unless another one is stated."""
    is_open = (file := bound_path(run_dir)) and file.is_file() and not given.states("support.bound")
    return given.over({"support.bound": str(file)}) if is_open else given


def answering_run(given: SettingsSources, run_dir: Path | None, plan: str, console: Console | None = None) -> Run:
    """Return the run that answers, or the model alone; with --dry-run print the plan instead."""
    settings = answering_settings(bounded(given, run_dir), answers=1)
    stop_if_dry([plan], settings)
    from evoseek.run import Run

    return Run(directory=run_dir, settings=settings, console=console)


@contextmanager
def working(given: SettingsSources, plan: str) -> Generator[Context]:
    """Build the objects of the settings for a command; with --dry-run print its plan instead."""
    settings = given.read()
    stop_if_dry([plan], settings)
    with end_on_interrupt():
        from evoseek.assembly.context import Context
    with Context(settings) as context:
        yield context


def check_evaluation(settings: TrainingSettings, *, search: bool, questions: bool = True) -> None:
    """Raise EvoseekError for missing questions (if `questions`) or a missing index."""
    if questions:
        read_questions(evaluation_path(settings), setting="evaluation.path (--questions)")
    if search and settings.examines_index:
        index = settings.evaluation.index or settings.search.index
        check_index(index, setting="evaluation.index (--index)", engine=settings.search)


def check_searched(settings: TrainingSettings) -> None:
    """Raise SearchIndexError if the searched index is missing."""
    if settings.examines_index:
        check_index(settings.search.index, setting="--index", engine=settings.search)


def _of_run(run_dir: Path, options: Mapping[str, object], system: str | None) -> SettingsSources:
    run = RunDirectory(run_dir)
    if not run.config.is_file() or not any(run_dir.glob("checkpoints/step-*")):
        raise RunError(
            f"{run_dir} holds no checkpoint.{nearest(run_dir)} Give the directory of a run that has saved one (every "
            "run.checkpoint_every steps of `evoseek train` or `evoseek demo`), or give --model instead."
        )
    given = gather(run.config, system=system, options=options, sets=shared().sets)
    own_model = flatten(given.saved[0].tree).get("policy.model")
    if shared().config or given.stated("policy.model") != own_model:
        raise ConfigError(
            f"--run-dir brings its own config and model, {own_model}. Give either --run-dir, or --model and --config, "
            "not both."
        )
    return given


def _check_given(settings: TrainingSettings, options: Sequence[str]) -> None:
    """Raise ConfigError for a setting of --set that the command does not read, or whose switch is off. `options` are
    the settings that the command's own options gave."""
    line = shared()
    names = [text.partition("=")[0].strip() for text in line.sets]
    if not names and not options:
        return
    all_changed = changed(settings)
    given = [key for key in all_changed if any(key == name or key.startswith(f"{name}.") for name in names)]
    for key in given:
        if not line.command.uses(key):
            users = [name for name, other in COMMANDS.items() if other.reads not in ("", EVERY) and other.uses(key)]
            raise ConfigError(
                f"{key} was given with --set, but `evoseek {line.command.name}` does not use it. Leave it out; it is "
                f"for `evoseek {'`, `evoseek '.join(users or ['train'])}`."
            )
    # A command that does not run the system takes the settings of its task.
    elsewhere = () if line.command.in_project else ("", "reward.name")
    keys = [*given, *(key for key in options if key in all_changed)]
    check_effect(settings, keys, ignored=(*_ONLY_IN_TRAINING, *elsewhere))
