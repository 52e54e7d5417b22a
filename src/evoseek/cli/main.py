"""The command line. Commands load what they need when they run, so that `evoseek --help` is quick."""

from __future__ import annotations

import os
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from evoseek import __version__
from evoseek.cli.ask import ask
from evoseek.cli.demo import demo
from evoseek.cli.doctor.command import doctor
from evoseek.cli.evaluate import ManyAgainst, compare, evaluate
from evoseek.cli.export import export
from evoseek.cli.feedback import feedback
from evoseek.cli.filter import filter_questions
from evoseek.cli.index import index, search
from evoseek.cli.init import init
from evoseek.cli.list import list_choices
from evoseek.cli.propose import collect, propose
from evoseek.cli.review import review
from evoseek.cli.serve import serve, world
from evoseek.cli.simulator import simulator
from evoseek.cli.train import sft, train
from evoseek.cli.view import status, view
from evoseek.config.registry import moved_words
from evoseek.errors import EvoseekError, disk_text, is_of_disk, name_text
from evoseek.training.interrupt import INTERRUPTED

# Threads that spin while they wait slow down everything else on a busy machine many times over. Torch reads this when
# it is imported, so it must be set before.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

# Help is plain text: as markup, [section] in it would be taken for a style and not shown.
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"evoseek {__version__}")
        raise typer.Exit


@app.callback()
def evoseek(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Language-model search agents that teach themselves."""


for command in (init, doctor, demo, index, search, collect, sft, train, status, propose, review):
    app.command()(command)
app.command("eval")(evaluate)
app.command("filter")(filter_questions)
app.command(cls=ManyAgainst)(compare)
for command in (ask, feedback, view, export):
    app.command()(command)
app.command("list")(list_choices)
for name, group in {"simulator": simulator, "world": world, "serve": serve}.items():
    app.add_typer(group, name=name)


_GONE = {"parts": "list", "recipes": "list recipes", "prompt": "ask --show-prompt", "judge": "eval", "data": "filter"}


def main() -> None:
    """Run the command line."""
    if now := _GONE.get(" ".join(sys.argv[1:2])):
        sys.exit(_fail(f"There is no command {sys.argv[1]!r} any more. Use `evoseek {now}` (CHANGELOG.md, Removed)."))
    status = run_command(app)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # Torch's communication threads may still run when the interpreter shuts down, and then abort the process,
        # although everything is done and closed.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def run_command(command: Callable[[], Any]) -> int:
    """Run a command and return its exit status. An error becomes one paragraph and status 2, a warning one line, Ctrl-C
    status 130."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return int(command() or 0)
    except SystemExit as ended:  # typer's way to exit
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except EvoseekError as error:
        words = moved_words(error.__cause__)
        return _fail(str(error) if words in str(error) else f"{error} It imports {words}")
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if text := name_text(error) or (disk_text(error) if is_of_disk(error) else ""):
            return _fail(text)
        if os.environ.get("EVOSEEK_TRACEBACK") == "1":
            traceback.print_exc()
        message = textwrap.shorten(str(error), 1000) or "no message"
        return _fail(
            f"{type(error).__name__}: {message} (this is a bug or an unforeseen input; set EVOSEEK_TRACEBACK=1 for "
            "details)"
        )


def _fail(message: str) -> int:
    if _speaks():
        shown = message.encode(errors="backslashreplace").decode()  # a name may hold bytes that are no UTF-8
        print(f"evoseek: {shown}", file=sys.stderr, flush=True)
    return 2


def _speaks() -> bool:
    """Return whether this process reports errors: of a run's processes, which fail together, only the first does."""
    if "RANK" not in os.environ:
        return True
    from evoseek.learner.distributed import fails_first

    return fails_first()


def _show_warning(message: Warning | str, *_: object) -> None:
    print(f"evoseek: warning: {' '.join(str(message).split())}", file=sys.stderr)
