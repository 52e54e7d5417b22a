"""Watching a rollout while it happens."""

from __future__ import annotations

from collections.abc import Callable

from evoseek.types import Action, ToolResult

Watch = Callable[[Action | ToolResult], None]
"""Is given every record of a rollout as soon as it exists: each turn's Action, and each ToolResult as it arrives (of
concurrent calls the quickest first). It sees what the trajectory will hold, changes none of it, and must not raise."""


def unwatched(record: Action | ToolResult) -> None:
    """A Watch that does nothing."""
