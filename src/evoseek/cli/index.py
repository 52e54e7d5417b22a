"""`evoseek index` and `evoseek search`. No torch is loaded for them."""

from __future__ import annotations

import asyncio
import json as jsons
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from evoseek.cli.options import Json
from evoseek.errors import ConfigError, SearchIndexError
from evoseek.report.printable import say

if TYPE_CHECKING:
    from evoseek.types import Passage


class StemmingChoice(StrEnum):
    """Reduction of words for searching."""

    none = "none"
    english = "english"


def index(
    corpus: Annotated[Path, typer.Argument(help="A folder of texts, Markdown, HTML, PDF, or a JSONL file.")],
    directory: Annotated[Path, typer.Argument(help="Directory for the index.")],
    stemming: Annotated[StemmingChoice, typer.Option(help="Reduce words to their stems.")] = StemmingChoice.none,
    max_words: Annotated[int, typer.Option(help="Maximum length of a passage, in words.")] = 100,
    encoding: Annotated[
        str | None,
        typer.Option(help="Encoding of files that are not UTF-8, such as shift_jis. Default: it is guessed."),
    ] = None,
) -> None:
    """Index a corpus for searching, and report what was skipped and why."""
    build_index(corpus, directory, stemming=stemming.value, max_words=max_words, encoding=encoding, console=Console())


def search(
    directory: Annotated[Path, typer.Argument(help="An index.")],
    query: Annotated[str, typer.Argument()],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of passages.")] = 5,
    json: Json = False,
) -> None:
    """Search an index."""
    search_index(directory, query, k=k, console=Console(), as_json=json)


def build_index(
    corpus: Path,
    directory: Path,
    *,
    stemming: Literal["none", "english"],
    max_words: int,
    console: Console,
    encoding: str | None = None,
) -> None:
    """Read a corpus, cut it into passages, index them, and report what was skipped and which encodings were guessed.
    `encoding` is that of files that are not UTF-8."""
    from evoseek.corpus.documents import read_corpus
    from evoseek.corpus.passages import split_document
    from evoseek.corpus.read_report import ReadReport
    from evoseek.search.analyser import Analyser
    from evoseek.search.lexical import LexicalIndex

    _refuse_inside(corpus, directory)
    report = ReadReport()
    documents = read_corpus(corpus, report=report, encoding=encoding)

    def passages() -> Iterator[Passage]:
        for document in documents:
            yield from split_document(document, max_words=max_words)

    index = LexicalIndex.build(directory, passages(), analyser=Analyser(stemming))
    say(console, report.summary())
    if report.skipped_count:
        say(console, report.table())
    if guessed := report.guessed_table():
        say(console, guessed)
    say(console, f"{len(index):,} passages indexed in {directory}")


def _refuse_inside(corpus: Path, directory: Path) -> None:
    if directory.resolve().is_relative_to(corpus.resolve()):
        raise SearchIndexError(
            f"The index folder {directory} lies in the corpus {corpus}, of which it would become a part. Give a folder "
            "outside the corpus."
        )


def search_index(directory: Path, query: str, *, k: int, console: Console, as_json: bool = False) -> None:
    """Print the best passages, or with `as_json` one JSON object with them. Raises ConfigError for an empty query."""
    if not query.strip():
        raise ConfigError("The query is empty. Give the words to search for.")
    from evoseek.search.lexical import LexicalIndex

    found = asyncio.run(LexicalIndex.open(directory).search([query], k))[0]
    if as_json:
        keys = ("id", "title", "text", "document_id", "score")
        passages = [{key: getattr(passage, key) for key in keys} for passage in found]
        print(jsons.dumps({"query": query, "passages": passages}, ensure_ascii=False))
        return
    for rank, passage in enumerate(found, start=1):
        say(console, f"{rank}. {passage.title}  [{passage.id}, score {passage.score or 0.0:.3f}]\n   {passage.text}")
    if not found:
        say(console, "Nothing was found.")
