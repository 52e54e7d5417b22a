"""Train with a tool of your own: a search that shows the first words of each passage.
Needs nothing. The tiny model can write the call `search` alone; other models take any name."""

from dataclasses import replace
from pathlib import Path

from evoseek import LexicalIndex, Passage, Run, make_world

make_world("world", entities=200)
engine = LexicalIndex.open(Path("world", "index"))


async def search(query: str) -> list[Passage]:
    """Search, and read how the best passages begin."""
    (passages,) = await engine.search([query], 3)
    return [replace(passage, text=" ".join(passage.text.split()[:18])) for passage in passages]


settings = {"tools": [], "questions.path": "world/questions.jsonl", "questions.per_step": 4, "run.steps": 2}
run = Run("search-r1", "run", settings=settings, search=engine, tools=[search])
print("steps:", run.train())
