"""Train with a search engine of your own: here SQLite's full-text search.
Needs nothing: makes a small world with questions, and trains the tiny model for two steps."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from evoseek import LexicalIndex, Passage, Run, make_world


class FullText:
    """Implements evoseek.SearchEngine."""

    is_local = True  # it waits for nothing outside this process

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages
        self.base = sqlite3.connect(":memory:", check_same_thread=False)
        self.base.execute("CREATE VIRTUAL TABLE texts USING fts5(text)")
        rows = ((number, passage.contents) for number, passage in enumerate(passages))
        self.base.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", rows)

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most k passages for each query, best first. Raise ToolError for a failure."""
        return [self.find(query, k) for query in queries]

    def find(self, query: str, k: int) -> list[Passage]:
        """Search for any of the words."""
        words = " OR ".join(f'"{word}"' for word in query.replace('"', " ").split())
        found = "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT ?"
        return [self.passages[row] for (row,) in self.base.execute(found, (words, k))] if words else []


make_world("world", entities=200)
engine = FullText(list(LexicalIndex.open(Path("world", "index")).passages()))
settings = {"questions.path": "world/questions.jsonl", "questions.per_step": 4, "run.steps": 2}
run = Run("search-r1", "run", settings=settings, search=engine)
run.train()
print("mean reward:", run.evaluate("world/questions.jsonl").score.mean)
