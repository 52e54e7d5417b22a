"""`evoseek parts` and `evoseek recipes`: what can be chosen, every setting, and the settings that come by name."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from evoseek.cli.options import command
from evoseek.config.recipes import find_recipe, purpose
from evoseek.config.recipes import recipes as all_recipes
from evoseek.config.registry import KINDS
from evoseek.errors import ConfigError, did_you_mean
from evoseek.text.printable import say


@command("parts", only_reads=True)
def parts(
    kind: Annotated[str | None, typer.Argument(help="Kind of part, such as loss or reward.")] = None,
    name: Annotated[
        str | None, typer.Argument(help="Name of a part, or package.module:Name of one of your own.")
    ] = None,
) -> None:
    """List what can be chosen: the kinds of parts, the parts of a kind, or every setting of a part with its default."""
    from evoseek.config.settings_page import parts_of, settings_of

    console = Console()
    if kind is None:
        width = max(map(len, KINDS))
        for known, about in KINDS.items():
            say(console, f"{known:{width}}  {about.what}: {', '.join(about.parts)}")
        say(console, "Wherever a name is accepted, package.module:Name of your own part is accepted too.")
        return
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS)
        raise ConfigError(f"There is no kind of part {kind!r}.{hint} There are {', '.join(KINDS)}.")
    if name is None:
        for known, sentence in parts_of(kind).items():
            say(console, f"{known}\n    {sentence}")
        for known, path in KINDS[kind].packaged.items():
            say(console, f"{known}\n    In a package of its own: {path.partition('.')[0].replace('_', '-')}.")
        about = KINDS[kind]
        instead = f"; or, to be bound to each question, {', '.join(about.or_needs)}" if about.or_needs else ""
        say(console, f"Your own {kind} needs {', '.join(about.needs)}{instead}.")
        for attribute, effect in about.optional.items():
            say(console, f"Optional: {attribute}, {effect}.")
        return
    settings = settings_of(kind, name)
    if not settings:
        say(console, f"The {kind} {name} has no settings.")
        return
    table = Table("setting", "default", "may be", "what it is", box=None, pad_edge=False)
    for setting in settings:
        table.add_row(setting.name, setting.default, setting.allowed, setting.sentence)
    console.print(table)


@command("recipes", only_reads=True)
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
