"""evoseek: language-model search agents that teach themselves.

`Run` is a run or an agent; it is imported when it is named. Other records are in `evoseek.types`, what can be injected
in `evoseek.protocols`, what can go wrong in `evoseek.errors`. Importing this package loads nothing heavy (no torch).
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import alone takes as long as all else here
if TYPE_CHECKING:
    from evoseek.run import Run

__version__ = "0.2.0"
__all__ = ["Run", "__version__"]


def __getattr__(name: str) -> object:
    """Import `Run` when it is first named."""
    if name != "Run":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from evoseek.run import Run

    return Run
