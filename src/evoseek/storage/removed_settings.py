"""Settings that earlier releases had, and how to read the configs that these releases saved."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Removed:
    """A removed setting: its old default, why it was removed, and what to do instead."""

    default: object = None
    reason: str = ""

    @property
    def words(self) -> str:
        """What a user who sets it should know."""
        return f"it was removed: {self.reason.rstrip('.')}"


@cache
def removed_settings() -> Mapping[str, Removed]:
    """Return every removed setting by its dotted name."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {name: Removed(**entry) for name, entry in table.items()}


def removed_words(name: str) -> str:
    """Return what a user should know about a removed setting or table; "" if this name never existed."""
    every = removed_settings().items()
    return "; ".join(dict.fromkeys(gone.words for key, gone in every if f"{key}.".startswith(f"{name}.")))


def in_settings_of_today(saved: Mapping[str, Any], *, with_any_value: bool = False) -> dict[str, Any]:
    """Return a saved config without removed settings that had their old defaults, or with any value."""
    tree = deepcopy(dict(saved))
    for name, gone in removed_settings().items():
        *path, key = name.split(".")
        table = _table(tree, path)
        if key in table and (with_any_value or table[key] == gone.default):
            del table[key]
            if path and not table:
                _table(tree, path[:-1]).pop(path[-1])
    return tree


def _table(tree: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Return a table of the tree, or a new empty one."""
    for part in path:
        below: object = tree.get(part)
        tree = cast("dict[str, Any]", below) if isinstance(below, dict) else {}
    return tree
