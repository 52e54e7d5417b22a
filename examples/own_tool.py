"""Train with a tool of your own: a search that shows the first words of each passage.
Needs nothing. The tiny model can write the call `search` alone; a model with tool calls takes any name."""

from pathlib import Path

from evoseek import LexicalIndex, Question, Run, ToolCall, ToolResult, make_world

QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
ABOUT = {"name": "search", "description": "Search, and read how the best passages begin.", "parameters": QUERY}


class FirstWords:
    """Implements evoseek.Tool. `schema` describes the call to models that call tools by their chat template."""

    name, schema = "search", {"type": "function", "function": ABOUT}

    def __init__(self, engine: LexicalIndex) -> None:
        self.engine = engine

    def for_question(self, question: Question, trajectory_id: str) -> "FirstWords":
        """Return the tool of one rollout: a new object if it keeps something between calls."""
        return self

    async def __call__(self, call: ToolCall) -> ToolResult:
        """Run a call. Raise ToolError for a failure: the rollout is then left out of training."""
        query = str(call.arguments.get("query"))
        (passages,) = await self.engine.search([query], 3)
        shown = " ".join(" ".join(passage.contents.split()[:20]) for passage in passages)
        return ToolResult(call, shown, tuple(passages), queries=(query,))


make_world("world", entities=200)
engine = LexicalIndex.open(Path("world", "index"))
settings = {"tools": [], "questions.path": "world/questions.jsonl", "questions.per_step": 4, "run.steps": 2}
run = Run("search-r1", "run", settings=settings, search=engine, tools=[FirstWords(engine)])
print("steps:", run.train())
