"""Writes docs/settings.md: every part and every setting, read from the code.

python docs/settings.py
"""

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from evoseek.reference import Setting, parts_of, settings_of
from evoseek.registry import KINDS

PAGE = Path(__file__).with_name("settings.md")

HEAD = """# Settings

Written by `python docs/settings.py`; a test holds it up to date. `evoseek parts [KIND [NAME]]` prints the same.

A setting stands in a TOML file (`--config`), or is given as `--set table.key=value`. A table with a `name` belongs to a
part that can be chosen: `--set loss=sequence`, or `--set loss=my_module:MyLoss` for one of your own (`extend.md`
shows some). Each system has the tables below that are its own, and no others.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_kinds(), *_systems(), *_others()])


def _kinds() -> Iterator[str]:
    yield "## What can be chosen\n\n| Kind | Name | What it is |\n|---|---|---|"
    for kind in KINDS:
        for name, sentence in parts_of(kind).items():
            yield f"| {kind} | `{name}` | {_cell(sentence)} |"
    yield ""


def _systems() -> Iterator[str]:
    first, *others = KINDS["system"].parts
    base = {setting.name: setting for setting in settings_of("system", first)}
    yield f"## Settings of `{first}`\n"
    yield from _tables(list(base.values()))
    for name in others:
        own = settings_of("system", name)
        new = [setting for setting in own if setting.name not in base]
        changed = [s for s in own if s.name in base and s.default != base[s.name].default and s.name != "run.system"]
        missing = sorted({s.table for s in base.values()} - {s.table for s in own})
        yield f"## `{name}`: what is different\n"
        if missing:
            yield f"It has no {', '.join(f'[{table}]' for table in missing)}.\n"
        if changed:
            yield "Other defaults: " + ", ".join(f"`{s.name} = {s.default}`" for s in changed) + ".\n"
        yield from _tables(new)


def _others() -> Iterator[str]:
    yield "## Settings of other parts\n\nBeside those that all parts of the kind have, as listed above.\n"
    common = {setting.name for setting in settings_of("system", next(iter(KINDS["system"].parts)))}
    for kind in KINDS:
        for name in KINDS[kind].parts if kind not in ("system", "tool") else ():
            own = [s for s in settings_of(kind, name) if f"{kind}.{s.name}" not in common]
            if own:
                yield f"### {kind} `{name}`\n"
                yield from _rows(own)


def _tables(settings: list[Setting]) -> Iterator[str]:
    for table, rows in groupby(sorted(settings, key=attrgetter("table")), key=attrgetter("table")):
        yield f"### {f'[{table}]' if table else 'Before all tables'}\n"
        yield from _rows(list(rows))


def _rows(settings: list[Setting]) -> Iterator[str]:
    yield "| Setting | Default | May be | |\n|---|---|---|---|"
    for setting in settings:
        key = setting.name.rpartition(".")[2]
        default = f"`{setting.default}`" if setting.default else ""
        yield f"| `{key}` | {default} | {_cell(setting.allowed)} | {_cell(setting.sentence)} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
