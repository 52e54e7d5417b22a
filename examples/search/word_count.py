"""A search engine of one's own: passages in memory, the best is the one with most words of the query."""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from evoseek.errors import ConfigError
from evoseek.search.settings import SearchSettings
from evoseek.types import Passage


class WordCount:
    """Implements `evoseek.protocols.SearchEngine`."""

    is_local = True  # a search waits for nothing outside this process, so that a run can be repeated bit for bit

    class Settings(SearchSettings):
        """What stands in the table [search], beside what all engines have."""

        passages: str = Field(default="", description="File of passages: JSON lines with id, title and text.")

    def __init__(self, settings: Settings) -> None:
        """Reads the passages. Raises ConfigError without a file of them."""
        if not Path(settings.passages).is_file():
            raise ConfigError(f"search.passages is {settings.passages!r}: expected a file of JSON lines.")
        rows = map(json.loads, Path(settings.passages).read_text(encoding="utf-8").splitlines())
        self._passages = [Passage(row["id"], row["id"], row["title"], row["text"]) for row in rows]
        self._words = [set(passage.contents.casefold().split()) for passage in self._passages]

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """For each query at most k passages, best first."""
        return [self._find(set(query.casefold().split()), k) for query in queries]

    def _find(self, query: set[str], k: int) -> list[Passage]:
        ranked = sorted(range(len(self._words)), key=lambda number: -len(query & self._words[number]))
        return [self._passages[number] for number in ranked[:k] if query & self._words[number]]
