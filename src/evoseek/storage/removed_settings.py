"""Settings that earlier releases had: what a config that one of them saved says in the settings of today."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Removed:
    """A setting that is gone: its old default, and why, with what to do instead; or the name that it has now."""

    default: object = None
    reason: str = ""
    moved: str = ""

    @property
    def words(self) -> str:
        """What a user who sets it should know."""
        return f"it is now {self.moved}" if self.moved else f"it was removed: {self.reason.rstrip('.')}"


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
    """Return a saved config without the settings that are gone and had their old defaults, or any value; what was moved
    has its new name."""
    tree = _copied(saved)
    for name, gone in removed_settings().items():
        *path, key = name.split(".")
        value = _table(tree, path).get(key, _MISSING)
        if value is _MISSING or not (gone.moved or with_any_value or value == gone.default):
            continue
        del _table(tree, path)[key]
        if path and not _table(tree, path):
            _table(tree, path[:-1]).pop(path[-1])
        if gone.moved:
            *path, key = gone.moved.split(".")
            for number, part in enumerate(path):
                _table(tree, path[:number]).setdefault(part, {})
            _table(tree, path).setdefault(key, value)
    return tree


def _copied(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _copied(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
        for key, value in tree.items()
    }


def _table(tree: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """A table of the tree; an empty one of its own if there is none."""
    for part in path:
        below: object = tree.get(part)
        tree = cast("dict[str, Any]", below) if isinstance(below, dict) else {}
    return tree
