"""What a command works with: settings, those of a run or others. They are checked before torch is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evoseek.assemble.effect import check_effect, check_given
from evoseek.assemble.selfplay_settings import check_selfplay
from evoseek.assemble.sources import check_index, check_training_sources, read_questions
from evoseek.assemble.together import check_settings
from evoseek.config import Config, load_config
from evoseek.errors import ConfigError, PolicyError, RunError
from evoseek.files import nearest
from evoseek.runs import RunDirectory


def load_settings(
    command: str,
    run_dir: Path | None,
    config_files: Sequence[Path],
    *,
    options: Mapping[str, object],
    sets: Sequence[str],
    system: str | None = None,
    fallback: str = "search-r1",
) -> Config:
    """The config of a run, with options over it; without a run what config files and options say. `system` and
    `fallback` are those of `load_config`.

    Raises ConfigError if a run and a model of its own are both given, or a setting that the command makes no use of;
    RunError if the directory holds no run or no checkpoint yet.
    """
    if run_dir is None:
        config = load_config(config_files, system=system, fallback=fallback, options=options, sets=sets)
        check_model(config.policy.model, setting="policy.model")
    else:
        config = _of_run(run_dir, config_files, options, sets, system)
    check_given(config, command, sets, [key for key, value in options.items() if value is not None])
    return config


def training_settings(
    run_dir: Path,
    config_files: Sequence[Path],
    *,
    options: Mapping[str, object],
    sets: Sequence[str],
    system: str | None = None,
) -> Config:
    """The config of a new run, or of one that is resumed: then it is the run's own, with options over it, unless config
    files are given.

    Everything that can be checked without a model is checked. Raises EvoseekError.
    """
    run = RunDirectory(run_dir)
    run.check()
    given = bool(config_files or sets or system) or any(value is not None for value in options.values())
    begun = run.config.is_file()
    if not begun and not given:
        raise RunError(
            f"{run_dir} holds no run to resume: there is no config.json in it.{nearest(run_dir)} Give the directory of "
            "a run; or to begin one, say what to train on: --index and --questions (`evoseek train --help`)."
        )
    files = config_files if config_files or not begun else [run.config]
    config = load_config(files, system=system, options=options, sets=sets)
    if not begun:
        check_effect(config)
    (check_selfplay if config.run.system in ("dr-zero", "ssp") else check_settings)(config)
    check_model(config.policy.model, setting="policy.model")
    check_training_sources(config)
    return config


def check_evaluation(config: Config, *, search: bool) -> None:
    """Raises EvoseekError for questions or an index that are not there."""
    read_questions(config.evaluation.path or config.questions.path, setting="evaluation.path (--questions)")
    if search and config.run.system != "deepresearcher":
        check_index(config.evaluation.index or config.search.index, setting="evaluation.index (--index)")


def check_asking(config: Config, question: str, *, model: str | None) -> None:
    """Raises ConfigError if nothing is asked, or two are named who could be; SearchIndexError without an index.
    `model` is that of --model."""
    if not question.strip():
        raise ConfigError("The question is empty. Give the question's text.")
    if model is not None and (other := config.asked.model or config.asked.base_url):
        raise ConfigError(
            f"--model names the policy {model}, and [asked] the model {other}: who is to be asked? Leave out --model, "
            "or asked.model and asked.base_url."
        )
    if config.run.system != "deepresearcher":
        check_index(config.search.index, setting="--index")


def check_model(name: str, *, setting: str) -> None:
    """Raises PolicyError for a model that is given as a path and is not there. A hub's name is not looked up."""
    path = Path(name).expanduser()
    if name.startswith(("/", "./", "../", "~")) and not path.exists():
        raise PolicyError(
            f"{setting} is {name}, but there is no such directory.{nearest(path)} Give a directory that holds a model, "
            "`tiny`, or the name of a model on the Hugging Face hub."
        )


def _of_run(
    run_dir: Path, config_files: Sequence[Path], options: Mapping[str, object], sets: Sequence[str], system: str | None
) -> Config:
    run = RunDirectory(run_dir)
    if not run.config.is_file() or not any(run_dir.glob("checkpoints/step-*")):
        raise RunError(
            f"{run_dir} holds no checkpoint to use.{nearest(run_dir)} Give the directory of a run that `evoseek train` "
            "or `evoseek demo` made and that has saved one (every run.checkpoint_every steps), or give --model instead."
        )
    config = load_config(run.config, system=system, options=options, sets=sets)
    own_model = load_config(run.config).policy.model
    if config_files or config.policy.model != own_model:
        raise ConfigError(
            f"--run-dir brings its own config and model, {own_model}. Give either --run-dir, or --model and --config, "
            "not both."
        )
    return config
