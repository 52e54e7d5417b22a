"""`evoseek world`: a generated world as a web site to search and browse."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from evoseek.cli.options import FixedSeed, new_group
from evoseek.cli.shared import stop_if_dry
from evoseek.errors import ConfigError
from evoseek.files import check_new_file
from evoseek.report.printable import say

if TYPE_CHECKING:
    from evoseek.world.server import WorldSite
    from evoseek.world.world import Split

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
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="A fault as name=share, such as hang=0.01; search.NAME or page.NAME for searches or pages alone."
        ),
    ] = None,
    questions: Annotated[Path | None, typer.Option(help="A new JSONL file for questions about it.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of questions.")] = 1000,
) -> None:
    """Serve a generated world as a web site with a search API, on this machine, until Ctrl-C."""
    stop_if_dry([f"Serve a world of {entities} entities (seed {seed}) on port {port}; questions: {questions}"])
    serve(
        entities=entities,
        seed=seed,
        split=split.value,
        port=port,
        faults=fault or (),
        questions=questions,
        count=count,
        console=Console(),
    )


def serve(
    *,
    entities: int,
    seed: int,
    split: Split,
    port: int,
    faults: Sequence[str],
    questions: Path | None,
    count: int,
    console: Console,
) -> None:
    """Serve a world on the loopback until Ctrl-C (or SIGTERM), then report the number of requests of each kind.

    `faults` are `name=share`, or `page.name=share` and `search.name=share` for one of the two. `questions` is a new
    file for `count` questions about the world. Raises ConfigError for an unknown fault, DataError for a world that is
    too small.
    """
    from evoseek.corpus.questions import save_questions
    from evoseek.world.server import WorldSite
    from evoseek.world.site import Site
    from evoseek.world.world import World

    if questions is not None:
        check_new_file(questions)
    made = World.generate(seed, entities, split)
    server = WorldSite(Site(made, seed))
    _set_faults(server, faults)

    def begin() -> None:
        if questions is not None:
            save_questions(questions, made.questions(count, seed=seed))
            say(console, f"{count} questions in {questions}")

    asyncio.run(_serve(server, port, console, begin))
    counts = "  ".join(f"{kind} {number:,}" for kind, number in sorted(server.counts.items()))
    say(console, f"\nEnded. Requests: {counts or 'none'}")


async def _serve(server: WorldSite, port: int, console: Console, begin: Callable[[], None]) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # also if it was started in the background, with SIGINT ignored
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with server.serving(port) as url:
        begin()  # with the port: without it the same command would find its file there the next time
        article, name = server.site.url_path(0), server.site.world.names[0]
        relation = server.site.world.facts(0)[0].relation
        say(
            console,
            f"{len(server.site.world):,} entities at {url}   (Ctrl-C ends it)\n"
            f"  curl {url}{article}\n"
            f"""  curl {url}/search -H 'X-API-KEY: any' -d '{{"q": "{name} {relation}", "num": 3}}'\n"""
            f"  curl '{url}/searxng/search?q={name.replace(' ', '+')}+{relation}&format=json'",
        )
        await ended.wait()


def _set_faults(server: WorldSite, given: Sequence[str]) -> None:
    shares: dict[str, dict[str, float]] = {"page": {}, "search": {}}
    for text in given:
        name, _, share = text.partition("=")
        kind, _, fault = name.rpartition(".")
        try:
            for chosen in [kind] if kind else shares:
                shares[chosen][fault] = float(share)
        except (ValueError, KeyError) as error:
            raise ConfigError(
                f"The fault {text!r} is not name=share, such as hang=0.01, or search.too_many=0.2 and page.reset=0.1 "
                "for searches or pages alone."
            ) from error
    server.page_faults.set(shares["page"])
    server.search_faults.set(shares["search"])
