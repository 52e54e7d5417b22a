"""`evoseek world`: a generated world as a web site to search and browse."""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import FixedSeed, new_group, stop_if_dry
from evoseek.files import check_new_file
from evoseek.report.printable import say

world = new_group("The generated world.")


class SplitChoice(StrEnum):
    """The split whose names a world uses."""

    train = "train"
    evaluation = "evaluation"


@world.command("serve")
def serve_world(
    entities: Annotated[int, typer.Option(help="Number of articles, at least 200.")] = 2000,
    seed: FixedSeed = 0,
    split: Annotated[SplitChoice, typer.Option(help="The split whose names it uses.")] = SplitChoice.train,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = 8765,
    questions: Annotated[Path | None, typer.Option(help="A new JSONL file for questions about it.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of questions.")] = 1000,
) -> None:
    """Serve a generated world as a web site with a search API, on this machine, until Ctrl-C."""
    stop_if_dry([f"Serve a world of {entities} entities (seed {seed}) on port {port}; questions: {questions}"])
    from evoseek.corpus.questions import save_questions
    from evoseek.world.server import serving
    from evoseek.world.site import Site
    from evoseek.world.world import World

    if questions is not None:
        check_new_file(questions)
    made, ended, console = World.generate(seed, entities, split.value), Event(), Console()
    site = Site(made, seed)
    with serving(site, port) as api:
        for number in (signal.SIGINT, signal.SIGTERM):  # also if it was started in the background, with SIGINT ignored
            signal.signal(number, lambda number, frame: ended.set())
        if questions is not None:  # with the port: without it the same command would find its file there the next time
            save_questions(questions, made.questions(count, seed=seed))
            say(console, f"{count} questions in {questions}")
        url, name, relation = api.web.host, made.names[0], made.facts(0)[0].relation
        say(
            console,
            f"{len(made):,} entities at {url}   (Ctrl-C ends it)\n"
            f"  curl {url}{site.url_path(0)}\n"
            f"""  curl {url}/search -H 'X-API-KEY: any' -d '{{"q": "{name} {relation}", "num": 3}}'\n"""
            f"  curl '{url}/searxng/search?q={name.replace(' ', '+')}+{relation}&format=json'",
        )
        ended.wait()
    counts = "  ".join(f"{kind} {number:,}" for kind, number in sorted(api.counts.items()))
    say(console, f"\nEnded. Requests: {counts or 'none'}")
