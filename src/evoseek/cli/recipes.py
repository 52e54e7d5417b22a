"""`evoseek recipes`: the settings that come with the package, by name."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from evoseek.recipes.catalogue import find_recipe, purpose
from evoseek.recipes.catalogue import recipes as all_recipes
from evoseek.report.printable import say


def recipes(
    name: Annotated[str | None, typer.Argument(help="Name of a recipe, whose file is printed.")] = None,
) -> None:
    """List the recipes that --config takes by name, or print one of them."""
    console = Console()
    if name is not None:
        say(console, find_recipe(name).read_text(encoding="utf-8").rstrip())
        return
    known = all_recipes()
    width = max(map(len, known))
    for recipe, path in known.items():
        say(console, f"{recipe:{width}}  {purpose(path)}")
