"""`evoseek serve` and `world serve`: servers for other programs, and a generated world as a web site to search."""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from evoseek.cli.index import Engine
from evoseek.cli.options import (
    ROLLOUTS,
    AnswererArgument,
    FixedSeed,
    Index,
    answerer_name,
    command,
    feedback_path,
    named_index,
    new_group,
    resolve_answerer,
    stop_if_dry,
)
from evoseek.config.sections import lookup, with_setting
from evoseek.errors import ConfigError
from evoseek.protocols import QuestionEngine, SearchEngine
from evoseek.storage.files import check_new_file, expanded
from evoseek.text.printable import say
from evoseek.training.interrupt import end_on_interrupt

if TYPE_CHECKING:
    from evoseek.agent.answer import Answerer
    from evoseek.assembly.settings import TrainingSettings
    from evoseek.questions.feedback import FeedbackFile
    from evoseek.run import Run
    from evoseek.serve.keys import Key
    from evoseek.serve.readers import AnswerSource

_RUNNING, _EXAMPLES = 16, 3
serve = new_group("Servers for other programs.")
world = new_group("The generated world.")
Host = Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 lets everybody in.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")]
Names = Annotated[
    list[str] | None,
    typer.Option("--name", help="Further name by which clients call the server, such as its host name."),
]


@serve.command("retrieval")
@command("serve retrieval", in_project=True)
def serve_retrieval(
    directory: Annotated[Path | None, typer.Argument(help="An index. Default: the project's.")] = None,
    engine: Engine = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    name: Names = None,
) -> None:
    """Serve an index to Search-R1's clients, and to evoseek's engine `remote`, until Ctrl-C or SIGTERM."""
    with _extra():
        from evoseek.serve.retrieval import RetrievalServer
    from evoseek.search.opening import LiveIndex, open_built

    directory = directory or named_index()
    stop_if_dry([f"Serve the index {directory} at {host}:{port}"])
    console, index = Console(), LiveIndex(directory, partial(open_built, directory, engine or "auto"))

    def started(url: str) -> None:
        say(console, f"{len(index):,} passages at {url}/retrieve   (Ctrl-C ends it)")

    RetrievalServer(index).run(host, port, names=name or (), started=started)
    say(console, "Ended.")


@serve.command("agent")
@command("serve agent", reads=f"{ROLLOUTS} answerer.* support.*", in_project=True)
def serve_agent(
    answerer: AnswererArgument = None,
    index: Index = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    key_file: Annotated[
        Path | None,
        typer.Option(
            help="File of accepted keys: .toml, with their folders (see docs/serve.md), or one a line. Default: the "
            "key in the variable EVOSEEK_KEY, if set."
        ),
    ] = None,
    name: Names = None,
    running: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent answers.")] = _RUNNING,
    waiting: Annotated[int, typer.Option(min=0, help="Maximum number of waiting questions; others get 429.")] = 64,
    drain: Annotated[int, typer.Option(min=0, help="Seconds that a stopped server waits for unfinished answers.")] = 30,
    feedback: Annotated[
        bool, typer.Option("--feedback", help="Keep conversations with a verdict, in feedback.jsonl (see `feedback`).")
    ] = False,
    log: Annotated[
        Literal["texts", "numbers"] | None,
        typer.Option(help="Keep what was asked, in asked.jsonl (see `feedback --asked`), or without texts."),
    ] = None,
    upload: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of the indexed documents into which clients may upload files."),
    ] = None,
) -> None:
    """Serve an agent until Ctrl-C or SIGTERM: a chat page, OpenAI's chat completions, and MCP at /mcp.

    Clients need the key if there is one. At any address but this machine's own a key is required.

    Example: evoseek serve agent runs/mine --port 8080
    """
    judged = _feedback(answerer) if feedback else None
    with _extra():
        from evoseek.questions.asked import ASKED, AskedLog
        from evoseek.serve.agent import AgentServer, AgentServerLimits
        from evoseek.serve.keys import read_keys
        from evoseek.serve.uploads import Uploads
    keys = read_keys(key_file, host=host)
    asked = AskedLog(_feedback(answerer).path.with_name(ASKED), log == "texts") if log else None
    console = Console()
    kept = f", feedback in {judged.path}" if judged else ""
    run = _run(answerer, index, f"a server at {host}:{port}{kept}", running)

    def started(url: str) -> None:
        say(console, f"{server.model} at {url}   chat page {url}/, API {url}/v1, MCP {url}/mcp   (Ctrl-C ends it)")
        for file, shown in ((judged, "Conversations with a verdict"), (asked, "Questions")):
            if file is not None:
                say(console, f"{shown} are kept in {file.path}: `evoseek feedback` lists them.")

    with _AnswerSources(run, console) as sources:

        def load() -> tuple[AnswerSource | None, Sequence[Key]]:
            found = read_keys(key_file, host=host)  # first: if that fails, no checkpoint is loaded in vain
            return sources.newer(), found

        server = AgentServer(
            sources.open(),
            limits=AgentServerLimits(running=running, waiting=waiting, drain_s=drain),
            keys=keys,
            host=host,
            names=name or (),
            feedback=judged,
            asked=asked,
            examples=example_questions(run),
            uploads=Uploads(expanded(upload), Path(run.settings.search.index)) if upload else None,
            load=load,
        )
        server.run(port, started=started)
    say(console, "Ended.")


@serve.command("mcp")
@command("serve mcp", reads=f"{ROLLOUTS} answerer.* support.*", in_project=True)
def serve_mcp(
    answerer: Annotated[
        str | None,
        typer.Argument(metavar="INDEX|RUN|MODEL|ENDPOINT", help="An index, or what answers, as in `serve agent`."),
    ] = None,
    index: Index = None,
) -> None:
    """Serve an index (search, open) or also an agent (ask) to the MCP client that started this command."""
    with _extra():
        from evoseek.serve.mcp import Library, mcp_server
    if answerer and (Path(answerer) / "manifest.json").is_file():
        stop_if_dry([f"Serve the index {answerer}: MCP by stdio"])
        from evoseek.search.opening import LiveIndex

        mcp_server(Library(LiveIndex(Path(answerer))), None).run("stdio")
        return
    run = _run(answerer, index, "MCP by stdio", _RUNNING)
    with _AnswerSources(run, Console(stderr=True)) as sources:
        source = sources.open()
        library = Library(source.engine) if source.engine is not None else None
        mcp_server(library, source.answerer_for(source.engine).answer_alone).run("stdio")


def _run(answerer: str | None, index: str | None, place: str, running: int) -> Run:
    from evoseek.cli.settings import answering_settings, bounded, check_searched, named_answerer

    given, run_dir = named_answerer({"search.index": index}, answerer)
    check_searched(given.read())
    with end_on_interrupt():
        from evoseek.agent.answer import uses_chat_model
        from evoseek.assembly.memory_needs import fit
        from evoseek.run import Run

    settings = answering_settings(bounded(given, run_dir), answers=running)
    plan = f"Serve {answerer_name(given, run_dir)}: {place}"
    if uses_chat_model(settings):
        stop_if_dry([plan], settings)
        return Run(settings=settings, search=_live(settings))
    if (slots := lookup(settings, "sampler.slots")) is not None:  # the run's value is for training
        settings = with_setting(settings, "sampler.slots", min(slots, running))
    memory = f"Memory: {fit(settings, answers=running).words}"
    stop_if_dry([plan, memory], settings)
    say(Console(stderr=True), memory)
    return Run(directory=run_dir, settings=settings, search=_live(settings))


def example_questions(run: Run) -> list[str]:
    """Return some held-out questions that the run wrote, of a kind that its policy has learnt to answer."""
    from evoseek.selfplay.question_log import held_out_questions

    own = run.directory
    if own is None or not any(path.is_file() and path.stat().st_size for path in (own.held_out, own.questions)):
        return []
    return [question.text for question in held_out_questions(own)[0] if question.is_answerable][:_EXAMPLES]


def _feedback(answerer: str | None) -> FeedbackFile:
    from evoseek.questions.feedback import FeedbackFile

    return FeedbackFile(feedback_path(resolve_answerer(answerer, None, None)[0]))


def _live(settings: TrainingSettings) -> SearchEngine | None:
    """Return the searched index, reopened when it changes on disk; None without an index."""
    from evoseek.config.registry import build
    from evoseek.search.opening import LiveIndex

    if not settings.examines_index:
        return None
    return LiveIndex(Path(settings.search.index), partial(build, "search", settings.search, None))


class _AnswerSources(ExitStack):
    """The sources of a server, which are closed at the end of the `with` block, or before."""

    def __init__(self, run: Run, console: Console) -> None:
        super().__init__()
        self._run, self._console, self._loaded = run, console, ""

    def open(self) -> AnswerSource:
        """Load what answers, with the newest checkpoint. Clients may search nothing if the engine depends on the
        question, or on the web."""
        from evoseek.agent.answer import Answerer
        from evoseek.serve.readers import AnswerSource

        closing = self.enter_context(ExitStack())
        context = closing.enter_context(self._run.context())

        def answerer_for(engine: SearchEngine | None) -> Answerer:
            return Answerer.of(context, engine)

        for notice in answerer_for(None).notices():
            say(self._console, notice)
        self._loaded = context.checkpoint.digest if context.checkpoint else ""
        closing.callback(self._forget, self._loaded)
        engine = context.searched
        return AnswerSource(answerer_for, None if isinstance(engine, QuestionEngine) else engine, closing.close)

    def _forget(self, digest: str) -> None:
        if self._loaded == digest:  # a newer source that could not be used: it may be loaded again
            self._loaded = ""

    def newer(self) -> AnswerSource | None:
        """Load what answers, if the run has a newer checkpoint."""
        from evoseek.storage.checkpoints import latest_checkpoint

        newest = latest_checkpoint(self._run.directory.path) if self._run.directory else None
        return None if newest is None or newest.digest == self._loaded else self.open()


@contextmanager
def _extra() -> Generator[None]:
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"Serving needs packages that are not installed ({error}). Install them: pip install 'evoseek[serve]'."
        ) from error


@world.command("serve")
@command("world serve")
def serve_world(
    entities: Annotated[int, typer.Option(help="Number of articles, at least 200.")] = 2000,
    seed: FixedSeed = 0,
    split: Annotated[Literal["train", "evaluation"], typer.Option(help="Split whose names it uses.")] = "train",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = 8765,
    questions: Annotated[Path | None, typer.Option(help="New JSONL file for questions about it.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of questions.")] = 1000,
) -> None:
    """Serve a generated world as a web site with a search API, on this machine, until Ctrl-C."""
    stop_if_dry([f"Serve a world of {entities} entities (seed {seed}) on port {port}; questions: {questions}"])
    from evoseek.questions.questions import save_questions
    from evoseek.world.server import serving
    from evoseek.world.site import Site
    from evoseek.world.world import World

    if questions is not None:
        check_new_file(questions)
    made, ended, console = World.generate(seed, entities, split), Event(), Console()
    site = Site(made, seed)
    with serving(site, port) as api:
        for number in (signal.SIGINT, signal.SIGTERM):  # also in the background, where SIGINT is ignored
            signal.signal(number, lambda number, frame: ended.set())
        if questions is not None:  # once the port is bound: otherwise the next try would find its file there
            save_questions(questions, made.questions(count, seed=seed))
            say(console, f"{count} questions in {questions}")
        url, name, relation = api.host, made.names[0], made.facts(0)[0].relation
        say(
            console,
            f"{len(made):,} entities at {url}   (Ctrl-C ends it)\n"
            f"  curl {url}{site.url_path(0)}\n"
            f"  curl '{url}/searxng/search?q={name.replace(' ', '+')}+{relation}&format=json'",
        )
        ended.wait()
    counts = "  ".join(f"{kind} {number:,}" for kind, number in sorted(api.counts.items()))
    say(console, f"\nEnded. Requests: {counts or 'none'}")
