"""`evoseek serve`: servers for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.index import EngineChoice
from evoseek.cli.options import new_group
from evoseek.cli.shared import stop_if_dry
from evoseek.errors import ConfigError
from evoseek.report.printable import say

serve = new_group("Servers for other programs.")


@serve.command("retrieval")
def serve_retrieval(
    directory: Annotated[Path, typer.Argument(help="An index.")],
    engine: Annotated[
        EngineChoice | None, typer.Option(help="Search by terms, by vectors, or by both. Default: as it was built for.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 lets everybody in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = 8000,
    max_queries: Annotated[int, typer.Option(min=1, help="Number of queries in a request, at most.")] = 1_024,
    max_k: Annotated[int, typer.Option(min=1, help="Number of passages for a query, at most.")] = 1_000,
    max_query: Annotated[int, typer.Option(min=1, help="Number of characters of a query, at most.")] = 20_000,
) -> None:
    """Serve an index to Search-R1's clients, and to evoseek's engine `remote`, until Ctrl-C or SIGTERM."""
    try:
        from evoseek.serve.retrieval import Limits, RetrievalServer
    except ImportError as error:
        raise ConfigError(
            f"Serving needs starlette and uvicorn, which are not installed ({error}). Install them: pip install "
            "'evoseek[serve]'."
        ) from error
    from evoseek.search.opening import LiveIndex

    stop_if_dry([f"Serve the index {directory} at {host}:{port}"])
    console, index = Console(), LiveIndex(directory, engine and engine.value)

    def started(url: str) -> None:
        say(console, f"{len(index):,} passages at {url}/retrieve   (Ctrl-C ends it)")

    RetrievalServer(index, Limits(max_queries=max_queries, max_k=max_k, max_query=max_query)).run(
        host, port, started=started
    )
    say(console, "Ended.")
