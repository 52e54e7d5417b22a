"""Showing the recipes that come with the package."""

from __future__ import annotations

from rich.console import Console

from evoseek.recipes.catalogue import find_recipe, purpose, recipes
from evoseek.report.printable import say


def show_recipes(name: str | None, *, console: Console) -> None:
    """Print one recipe's file, or every recipe's name and purpose."""
    if name is not None:
        say(console, find_recipe(name).read_text(encoding="utf-8").rstrip())
        return
    known = recipes()
    width = max(map(len, known))
    for recipe, path in known.items():
        say(console, f"{recipe:{width}}  {purpose(path)}")
