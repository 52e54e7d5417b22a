"""Showing what can be chosen, and every setting of it."""

from __future__ import annotations

from difflib import get_close_matches

from rich.console import Console
from rich.table import Table

from evoseek.errors import ConfigError
from evoseek.reference import parts_of, settings_of
from evoseek.registry import KINDS
from evoseek.report.printable import say


def show_parts(kind: str | None, name: str | None, *, console: Console) -> None:
    """Print the kinds, the parts of one, or the settings of one part. Raises ConfigError."""
    if kind is None:
        width = max(map(len, KINDS))
        for known, about in KINDS.items():
            say(console, f"{known:{width}}  {about.what}: {', '.join(about.parts) or 'none comes with evoseek'}")
        say(console, "Everywhere a name is accepted, package.module:Name of one of your own is, too.")
        return
    if kind not in KINDS:
        close = get_close_matches(kind, KINDS, 1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise ConfigError(f"There is no kind of part {kind!r}.{hint} There are {', '.join(KINDS)}.")
    if name is None:
        for known, sentence in parts_of(kind).items():
            say(console, f"{known}\n    {sentence}")
        return
    settings = settings_of(kind, name)
    if not settings:
        say(console, f"The {kind} {name} has no settings.")
        return
    table = Table("setting", "default", "may be", "what it is", box=None, pad_edge=False)
    for setting in settings:
        table.add_row(setting.name, setting.default, setting.allowed, setting.sentence)
    console.print(table)
