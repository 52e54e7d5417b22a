"""`evoseek review`: a person judges a sample of questions beside their passages, on a page or in the terminal."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from evoseek.cli.options import FixedSeed, Index, command, finish, named_run, project, stop_if_dry
from evoseek.config.project import REVIEWED
from evoseek.errors import ConfigError
from evoseek.storage.files import nearest
from evoseek.storage.runs import RunDirectory
from evoseek.text.printable import printable, say
from evoseek.training.interrupt import end_on_interrupt

if TYPE_CHECKING:
    from evoseek.curation.reviewing import Review
    from evoseek.protocols import PassageStore
    from evoseek.types import Question

_COUNT = 30
_WIDTH = 100  # longest line, in characters
KEYS = {"r": "right", "w": "wrong", "u": "unclear"}
_INTERRUPTED = "\x03"
BACK, QUIT = ("b", "\x1b[D", "\x1bOD"), ("q", _INTERRUPTED, "")
_HELP = "r right   w wrong   u unclear   b (or left) back   q quit"


@command("review", in_project=True)
def review(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="FILE|RUN", help="A question file, or a run that wrote some. Default: the project's."),
    ] = None,
    index: Index = None,
    count: Annotated[int, typer.Option(min=1, help="Total number to judge, earlier sessions included.")] = _COUNT,
    seed: FixedSeed = 0,
    out: Annotated[
        Path | None, typer.Option(help="File of the verdicts. Default: review.jsonl in the run, or beside the file.")
    ] = None,
    terminal: Annotated[bool, typer.Option("--terminal", help="Judge in the terminal, not on a page.")] = False,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of the page, whose address is printed; 0 takes any free one."),
    ] = None,
) -> None:
    """Judge questions beside their passages by one key each: right, wrong or unclear. Print the share that is right.

    Right questions become the project's test set, reviewed.jsonl: `evoseek eval` scores it, training leaves it out.
    Every verdict is saved immediately, and the same command resumes. Without a browser it runs in the terminal.

    Example: evoseek review runs/mine --terminal
    """
    if terminal and port is not None:
        raise ConfigError("--terminal and --port were both given, but only the page has a port. Leave one out.")
    source = source or named_run()
    if not source.exists():
        raise ConfigError(
            f"There is no {source} with questions to judge.{nearest(source)} Give a question file, or the directory of "
            "a run that wrote some (`evoseek train`)."
        )
    written, log = _questions(source)
    with end_on_interrupt():
        from evoseek.curation.reviewing import Review, judgeable
    questions, own = judgeable(written), project()
    if hidden := len(written) - len(questions):
        why = "their document was hidden, so the documents cannot say who is right"
        say(Console(stderr=True), f"{hidden} of {len(written)} questions are left out: {why}.")
    log, tests = out or log, own.reviewed if own else (out or log).parent / REVIEWED
    stop_if_dry(
        [f"Judge {min(count, len(questions))} of {len(questions)} questions of {source}", f"Write {log}, {tests}"]
    )
    store = _store(index, source)
    opened = Review.open(questions, log, tests, store, count=count, seed=seed)
    console, ended = Console(), True
    if opened.next is not None:
        ended = _judge(opened, console, terminal=terminal, port=port)
    _say_result(opened, len(questions), console)
    finish(ended)


def _questions(source: Path) -> tuple[list[Question], Path]:
    """Read the questions of a file or a run, and name the file of their verdicts. A run's questions are those that its
    cold start held out, or else that self-play wrote and did not train on. Raises ConfigError or DataError."""
    from evoseek.questions.questions import load_questions
    from evoseek.selfplay.question_log import held_out_questions

    if not source.is_dir():
        return load_questions(source), source.with_suffix(".review.jsonl")
    return held_out_questions(RunDirectory(source))[0], source / "review.jsonl"


def _store(index: str | None, source: Path) -> PassageStore | None:
    """Open the given index, or else the run's or the project's. None if there is none."""
    from evoseek.search.lexical import open_index

    own, run = project(), RunDirectory(source)
    searched: Any = run.read_config().get("search", {}) if run.config.is_file() else {}
    directory = index or searched.get("index") or (str(own.index) if own and own.index else "")
    if not directory:
        say(Console(stderr=True), "No index: only passages within the questions are shown. Give --index for others.")
        return None
    return open_index(directory, setting="--index")


def _judge(review: Review, console: Console, *, terminal: bool, port: int | None) -> bool:
    """Have the questions judged; False if that was interrupted."""
    if not terminal and (port is not None or _has_browser()):
        try:
            from evoseek.serve.review import ReviewServer
        except ImportError as error:
            say(console, f"The page needs packages that are not installed ({error}): pip install 'evoseek[serve]'.")
        else:

            def started(url: str) -> None:
                say(
                    console,
                    f"Judge {len(review.questions)} questions at {url}   (q Finish on the page or Ctrl-C ends it)",
                )
                if port is None:
                    webbrowser.open(url)

            ReviewServer(review).run(port or 0, started=started)
            return True
    return judge_in_terminal(review, console)


def _has_browser() -> bool:
    """Return whether a browser with a window can be started; a browser in the terminal shows no page."""
    try:
        return type(webbrowser.get()) is not webbrowser.GenericBrowser
    except webbrowser.Error:
        return False


def judge_in_terminal(review: Review, console: Console) -> bool:
    """Show the questions one after another, and read a key for each; False if Ctrl-C ended that."""
    number = review.next
    while number is not None:
        console.print(Rule(f"{number + 1} of {len(review.questions)}", align="left"))
        shown = _shown(review.json(number))
        shown.plain = printable(shown.plain)
        console.print(shown, width=min(console.width, _WIDTH))
        while (key := _key()) not in (*KEYS, *BACK, *QUIT):
            say(console, _HELP)
        if key in QUIT:
            return key != _INTERRUPTED
        if key in BACK:
            number = max(0, number - 1)
            continue
        review.judge(number, KEYS[key])
        say(console, f"-> {KEYS[key]}\n")
        number = number + 1 if number + 1 < len(review.questions) else review.next
    return True


def _key() -> str:
    """Read the next key; "" at the end of the input."""
    try:
        key = click.getchar() if sys.stdin.isatty() else sys.stdin.read(1)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except EOFError:
        return ""
    return key if key.startswith("\x1b") else key.lower()


def _shown(question: Mapping[str, Any]) -> Text:
    """Show a question of `Review.json` below its passages, with the answer in bold."""
    lines = [
        *([Text(question["note"])] if question["note"] else []),
        *map(_passage, question["passages"]),
        Text(question["question"], "bold"),
        Text.assemble("Answer: ", (" | ".join(question["answers"]), "bold"), "\n"),
        Text(_HELP + (f"   (judged {question['verdict']})" if question["verdict"] else ""), "dim"),
    ]
    return Text("\n").join(lines)


def _passage(passage: Mapping[str, Any]) -> Text:
    from evoseek.agent.shown import marked

    title, text = marked(passage["title"], passage["title_spans"]), marked(passage["text"], passage["spans"])
    place = f" ({passage['place']})" if passage["place"] else ""
    return Text.assemble(title, f"{place}\n", text, "\n")


def _say_result(review: Review, total: int, console: Console) -> None:
    share, judged = review.share, len(review.verdicts)
    say(console, f"{judged} of {len(review.questions)} judged. {share}")
    if review.next is not None:
        say(console, "The same command resumes.")
    elif total > len(review.questions):
        say(console, f"There are {total} questions: to judge more, raise --count.")
    if judged:
        say(console, f"Verdicts: {review.log.path}; test set, the questions judged right: {review.tests}")
