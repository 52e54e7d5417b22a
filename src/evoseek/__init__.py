"""evoseek: language-model search agents that teach themselves.

`Run` trains, evaluates and asks. The other names are the records, parts and errors that programs use most; all records
are in `evoseek.types`, all protocols in `evoseek.protocols`, all errors in `evoseek.errors`. Each name is imported when
it is first used, so that importing this package loads nothing else (no torch).
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import alone takes as long as all else here
if TYPE_CHECKING:
    from evoseek.agent.answer import Answerer
    from evoseek.errors import ConfigError, DataError, EvoseekError, ToolError
    from evoseek.eval.comparison import compare_folders
    from evoseek.protocols import RewardFn, SearchEngine, Tool
    from evoseek.questions.questions import load_questions, save_questions
    from evoseek.run import Run
    from evoseek.search.indexing import IndexPlan, build_index
    from evoseek.search.lexical import LexicalIndex
    from evoseek.types import Invalid, Passage, Question, Scored, ToolCall, ToolResult, Trajectory
    from evoseek.world.world import make_world

_MODULES = {
    "agent.answer": ("Answerer",),
    "errors": ("ConfigError", "DataError", "EvoseekError", "ToolError"),
    "eval.comparison": ("compare_folders",),
    "protocols": ("RewardFn", "SearchEngine", "Tool"),
    "questions.questions": ("load_questions", "save_questions"),
    "run": ("Run",),
    "search.indexing": ("IndexPlan", "build_index"),
    "search.lexical": ("LexicalIndex",),
    "types": ("Invalid", "Passage", "Question", "Scored", "ToolCall", "ToolResult", "Trajectory"),
    "world.world": ("make_world",),
}

__version__ = "0.2.0"
__all__ = ["Answerer", "ConfigError", "DataError", "EvoseekError", "IndexPlan", "Invalid", "LexicalIndex", "Passage"]
__all__ += ["Question", "RewardFn", "Run", "Scored", "SearchEngine", "Tool", "ToolCall", "ToolError", "ToolResult"]
__all__ += ["Trajectory", "__version__", "build_index", "compare_folders", "load_questions", "make_world"]
__all__ += ["save_questions"]


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return found


def __dir__() -> list[str]:
    """List the names for editors and consoles."""
    return __all__
