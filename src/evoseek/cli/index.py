"""`evoseek index` and `evoseek search`. Torch is loaded for them only by an encoder that needs it."""

from __future__ import annotations

import asyncio
import json as jsons
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from evoseek.cli.options import Json, checked_project, command, project, stop_if_dry
from evoseek.config.project import how_to_name, keep_settings
from evoseek.config.registry import build
from evoseek.config.sections import with_setting
from evoseek.config.trust import is_import_path
from evoseek.errors import ConfigError
from evoseek.protocols import QuestionEngine, SearchEngine
from evoseek.search.calling import search as find
from evoseek.search.settings import BuiltEngine
from evoseek.storage.files import expanded
from evoseek.text.printable import say

if TYPE_CHECKING:
    from evoseek.assembly.settings import TrainingSettings
    from evoseek.search.indexing import IndexPlan

Stemming = Annotated[
    Literal["none", "english"] | None, typer.Option(help="Reduce words to their stems. Default: none.")
]
MaxWords = Annotated[
    int | None, typer.Option(help="Maximum length of a passage, in words. Default: the project's, or 100.")
]
Encoding = Annotated[
    str | None, typer.Option(help="Encoding of files that are not UTF-8, such as shift_jis. Default: guessed.")
]
MaxText = Annotated[
    int | None, typer.Option(min=1, help="Maximum length of a text that is read, in characters. Default: 16,000,000.")
]
MaxSeconds = Annotated[
    int | None, typer.Option(min=1, help="Maximum processor time for reading a file, in seconds. Default: 60.")
]
FollowLinks = Annotated[
    bool | None, typer.Option("--follow-links", help="Follow links that lead out of the folder. Default: no.")
]
Engine = Annotated[
    BuiltEngine | None,
    typer.Option(help="Search by terms, by vectors, or by both. Default: the index's own; for a new one lexical."),
]
EncoderName = Annotated[
    str | None,
    typer.Option(help="static, minilm, or a sentence-transformers model: a directory or a name. Default: static."),
]
Numbers = Annotated[
    Literal["float32", "float16"] | None, typer.Option(help="Data type of the vectors on disk. Default: float32.")
]

Choose = Annotated[
    bool,
    typer.Option("--choose", help="Measure several ways to search, build the best, and set it in the project's file."),
]


@command("index", in_project=True)
def index(
    corpus: Annotated[
        Path | None,
        typer.Argument(help="A folder of documents (see docs/search.md), or one file. Default: the project's."),
    ] = None,
    directory: Annotated[Path | None, typer.Argument(help="Directory for the index. Default: the project's.")] = None,
    stemming: Stemming = None,
    max_words: MaxWords = None,
    encoding: Encoding = None,
    max_text: MaxText = None,
    max_seconds: MaxSeconds = None,
    follow_links: FollowLinks = None,
    engine: Engine = None,
    encoder: EncoderName = None,
    device: Annotated[str | None, typer.Option(help="Device of the encoder: cpu, cuda or auto.")] = None,
    dtype: Numbers = None,
    choose: Choose = False,
    update: Annotated[bool, typer.Option("--update", help="Read only what changed since the index was built.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Update now and at every change, until Ctrl-C.")] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON file that lists every file that was read or skipped. Default: none."),
    ] = None,
) -> None:
    """Index a corpus for searching; report what was read, by type of file, and what was skipped and why. After an
    interruption the same command resumes."""
    options: dict[str, Any] = {
        "engine": engine,
        "stemming": stemming,
        "max_words": max_words,
        "encoding": encoding,
        "max_text": max_text,
        "max_seconds": max_seconds,
        "follow_links": follow_links,
        "encoder": encoder,
        "dtype": dtype,
    }
    given = {name: value for name, value in options.items() if value is not None}
    documents, built, of_project = _places(corpus, directory)
    if given.get("engine", of_project.get("engine")) == "lexical":
        of_project.pop("encoder", None)
    from evoseek.search.indexing import IndexPlan, build_index, check_apart, update_index, watch_corpus

    console = Console()
    if update or watch:
        _refuse_settings(given | ({"choose": True} if choose else {}))
        stop_if_dry([f"{'Watch' if watch else 'Read'} {documents} and update {built}"])
        options = {"device": device, "of_project": of_project, "report_file": report}
        refresh = partial(update_index, documents, built, console=console, **options)
        if watch:
            watch_corpus(documents, refresh, console=console)
        else:
            refresh()
        return
    plan, top_k = IndexPlan(**(of_project | given), device=device), None
    stop_if_dry([f"{'Choose how, and index' if choose else 'Index'} {documents} in {built}"], asdict(plan))
    if choose:
        from evoseek.search.choosing import choose as chosen

        check_apart(documents, built, report)  # before the measuring, which takes minutes
        plan, top_k = chosen(documents, plan, given, console)
    build_index(documents, built, plan, console=console, report_file=report)
    if top_k:
        _keep(plan, top_k, built, console)


def _keep(plan: IndexPlan, top_k: int, built: Path, console: Console) -> None:
    """Write the choice to the project of the index; without a project, print what a search needs."""
    own = project()
    if own is None or own.index != built:
        say(console, f"To show as many passages as were chosen: --set search.top_k={top_k}")
        return
    names = ("engine", "encoder", "stemming", "max_words")
    table = {name: value for name in names if (value := getattr(plan, name)) is not None}
    keep_settings(own.file, {"project": table, "search": {"top_k": top_k}})
    said = ", ".join(f"{name} = {value}" for name, value in {**table, "search.top_k": top_k}.items())
    say(console, f"{own.file} says so from now on: {said}.")


def _refuse_settings(given: Iterable[str]) -> None:
    for name in given:
        option = f"--{name.replace('_', '-')}"
        raise ConfigError(
            f"{option} has no effect on an update, which keeps the settings that the index was built with. Leave out "
            f"{option}, or build the index again without --update and --watch."
        )


def _places(corpus: Path | None, directory: Path | None) -> tuple[Path, Path, dict[str, Any]]:
    """Return the documents and the index, as given or else the project's, and the project's options. Raises ConfigError
    without either."""
    own = checked_project() if corpus is None or directory is None else None
    documents, built = corpus or (own and own.documents), directory or (own and own.index)
    if documents is None:
        raise _missing("CORPUS", how_to_name(own, 'documents = "documents"'))
    if built is None:
        raise _missing("DIRECTORY", how_to_name(own, 'index = "index"', table="search"))
    if own:
        say(Console(stderr=True), f"From {own.file}: documents {documents}, index {built}")
    options = {name: getattr(own, name) for name in ("max_words", "stemming", "engine", "encoder")} if own else {}
    return expanded(documents), expanded(built), {name: value for name, value in options.items() if value is not None}


def _missing(argument: str, remedy: str) -> ConfigError:
    return ConfigError(f"Missing argument '{argument}': give the documents and a folder for the index, or {remedy}.")


def _engine(settings: TrainingSettings, closing: ExitStack) -> SearchEngine:
    """Open the engine. Built-in engines need no context, whose import takes seconds. Raises ConfigError."""
    if is_import_path(settings.search.name):
        from evoseek.assembly.context import Context

        engine = closing.enter_context(Context(settings)).engine
    else:
        engine = build("search", settings.search, None)
    if isinstance(engine, QuestionEngine):
        raise ConfigError(
            f"The engine {settings.search.name} needs a question for its results, so it cannot be searched alone. Name "
            "another one with --engine."
        )
    return engine


@command("search", reads="search.*", in_project=True, only_reads=True)
def search(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[INDEX] QUERY", help="An index, and what to search for. Default: the project's."),
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of passages.")] = 5,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Engine: a built-in name, or package.module:Name. Default: the project's, if it searches an index, or "
            "the one that the index was built for."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Search an index, or what the engine of the project searches.

    Example: evoseek search "warranty of the pump"
    """
    *directory, query = words
    if len(directory) > 1:
        raise ConfigError(f'Got {len(words)} words. Put the words to search for in quotes, as in "{" ".join(words)}".')
    if not directory and (Path(query) / "manifest.json").is_file():
        raise ConfigError(f"{query} is an index, and the query is missing. Add the words to search for, in quotes.")
    if not query.strip():
        raise ConfigError("The query is empty. Give the words to search for.")
    from evoseek.agent.shown import also, citation
    from evoseek.cli.settings import given_settings

    own, console = project(), Console()
    place = directory[0] if directory else own and own.index and str(own.index)
    given = given_settings({"search.index": place, "search.name": engine})
    settings = given.read()
    if directory and engine is None and not settings.search.reads_index:
        settings = with_setting(with_setting(settings, "search.name", "auto"), "search.index", place)
    if directory and not settings.search.reads_index and not is_import_path(settings.search.name):
        raise ConfigError(
            f"The engine {settings.search.name} searches no index, but the index {place} was given. Leave out the "
            "index, or name an engine that searches it, as in --engine auto."
        )
    with ExitStack() as closing:
        found = asyncio.run(find(_engine(settings, closing), [query], k))[0]
    if json:
        keys = ("id", "title", "text", "document_id", "score")
        passages = [{key: getattr(passage, key) for key in keys} | citation(passage) for passage in found]
        print(jsons.dumps({"query": query, "passages": passages}, ensure_ascii=False))
        return
    for rank, passage in enumerate(found, start=1):
        say(console, f"{rank}. {passage.title}  [{passage.id}, score {passage.score or 0.0:.3f}]\n   {passage.text}")
        if passage.file:
            say(console, f"   from {passage.citation}{also(passage)}")
    if not found:
        say(console, "Nothing was found.")
