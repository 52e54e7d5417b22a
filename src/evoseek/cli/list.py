"""`evoseek list`: what can be chosen, every setting, and the recipes."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from evoseek.cli.options import command
from evoseek.config.registry import KINDS
from evoseek.config.settings_tree import ABLATIONS, find_recipe, purpose, recipes
from evoseek.errors import ConfigError, did_you_mean
from evoseek.text.printable import say

RECIPES = "recipes"


@command("list", only_reads=True)
def list_choices(
    kind: Annotated[str | None, typer.Argument(help="Kind of part, such as loss or reward; or recipes.")] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            help="Part whose settings to list: its name, or package.module:Name; or recipe to print; `ablations` lists "
            "the recipes of the papers' experiments."
        ),
    ] = None,
) -> None:
    """List the kinds of parts, the parts of a kind, every setting of a part with its default, or the recipes that
    --config takes by name.

    Examples: evoseek list loss clipped, evoseek list recipes
    """
    console = Console()
    if kind is None:
        lines = {known: f"{about.what}: {', '.join(about.parts)}" for known, about in KINDS.items()}
        _say_columns(console, lines | {RECIPES: "settings for --config, by name"})
        say(console, "Wherever a name is accepted, package.module:Name of your own part is accepted too.")
    elif kind == RECIPES and name is not None and f"{name}/" != ABLATIONS:
        say(console, find_recipe(name).read_text(encoding="utf-8").rstrip())
    elif kind == RECIPES:
        _list_recipes(console, name or "")
    elif kind not in KINDS:
        hint = did_you_mean(kind, (*KINDS, RECIPES))
        raise ConfigError(f"There is no kind of part {kind!r}.{hint} Give one of {', '.join(KINDS)} and {RECIPES}.")
    elif name is None:
        _list_parts(console, kind)
    else:
        _list_settings(console, kind, name)


def _say_columns(console: Console, lines: dict[str, str]) -> None:
    width = max(map(len, lines))
    for name, words in lines.items():
        say(console, f"{name:{width}}  {words}")


def _list_recipes(console: Console, name: str) -> None:
    lines = {recipe: purpose(path) for recipe, path in recipes().items() if recipe.startswith(ABLATIONS) == bool(name)}
    _say_columns(console, lines)
    if not name:
        say(console, f"{len(recipes()) - len(lines)} more repeat experiments: `evoseek list recipes ablations`.")


def _list_parts(console: Console, kind: str) -> None:
    from evoseek.config.settings_page import parts_of

    about = KINDS[kind]
    for name, sentence in parts_of(kind).items():
        say(console, f"{name}\n    {sentence}")
    for name, path in about.packaged.items():
        say(console, f"{name}\n    In a package of its own: {path.partition('.')[0].replace('_', '-')}.")
    instead = f"; or, to be bound to each question, {', '.join(about.or_needs)}" if about.or_needs else ""
    say(console, f"Your own {kind} needs {', '.join(about.needs)}{instead}.")
    for attribute, effect in about.optional.items():
        say(console, f"Optional: {attribute}, {effect}.")


def _list_settings(console: Console, kind: str, name: str) -> None:
    from evoseek.config.settings_page import settings_of

    settings = settings_of(kind, name)
    if not settings:
        say(console, f"The {kind} {name} has no settings.")
        return
    table = Table("setting", "default", "may be", "what it is", box=None, pad_edge=False)
    for setting in settings:
        table.add_row(setting.name, setting.default, setting.allowed, setting.sentence)
    console.print(table)
