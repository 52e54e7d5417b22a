"""Settings that earlier releases had: what a config that one of them saved says in the settings of today."""

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
    """A setting that is gone: its old default, and why, with what to do instead."""

    default: object = None
    reason: str = ""

    @property
    def words(self) -> str:
        """What a user who sets it should know."""
        return f"it was removed: {self.reason.rstrip('.')}"


@cache
def removed_settings() -> Mapping[str, Removed]:
    """Return every setting that is gone, by its dotted name."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {name: Removed(**entry) for name, entry in table.items()}


def removed_words(name: str) -> str:
    """Return what to know about a setting, or a table, that is gone; "" if there never was one of this name."""
    every = removed_settings().items()
    return "; ".join(dict.fromkeys(gone.words for key, gone in every if f"{key}.".startswith(f"{name}.")))


def in_settings_of_today(saved: Mapping[str, Any], *, with_any_value: bool = False) -> dict[str, Any]:
    """Return a saved config without the settings that are gone and had their old defaults, or any value."""
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
    """Return a table of the tree; an empty one of its own if there is none."""
    for part in path:
        below: object = tree.get(part)
        tree = cast("dict[str, Any]", below) if isinstance(below, dict) else {}
    return tree
