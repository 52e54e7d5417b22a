"""Writes docs/settings.md: every part and every setting, read from the code, each once.

python docs/settings.py
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from evoseek.config.registry import KINDS
from evoseek.config.sections import PartSettings, Section
from evoseek.config.settings_page import Setting, parts_of, settings_of

PAGE = Path(__file__).with_name("settings.md")

HEAD = """# Settings

Written by `python docs/settings.py`; a test holds it up to date. `evoseek list [KIND [NAME]]` prints the same.

A setting stands in a TOML file (`--config`), or is given as `--set table.key=value`. A table with a `name` belongs to a
part that can be chosen: `--set loss=sequence`, or `--set loss=my_module:MyLoss` for one of your own (`extend.md`
shows some).
"""
SYSTEMS = {name: {setting.name: setting for setting in settings_of("system", name)} for name in KINDS["system"].parts}
SETTINGS = {name: setting for settings in reversed(SYSTEMS.values()) for name, setting in settings.items()}
OWNERS = {setting.table: setting.owner for setting in SETTINGS.values()}


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_kinds(), *_tables(), *_defaults(), *_parts()])


def _kinds() -> Iterator[str]:
    yield "## What can be chosen\n\n| Kind | Name | What it is |\n|---|---|---|"
    for kind in KINDS:
        for name, sentence in parts_of(kind).items():
            yield f"| {kind} | `{name}` | {_cell(sentence)} |"
    yield ""


def _tables() -> Iterator[str]:
    """Yield the tables of every system, then the tables of some."""
    of = {table: tuple(name for name, own in SYSTEMS.items() if _has(own, table)) for table in OWNERS}
    for systems in sorted(set(of.values()), key=lambda names: (-len(names), names)):
        every = len(systems) == len(SYSTEMS)
        yield f"## Tables of {'every system' if every else ', '.join(f'`{name}`' for name in systems)}\n"
        for table in sorted(table for table in of if of[table] == systems):
            yield from _table(table, systems)


def _table(table: str, systems: Sequence[str]) -> Iterator[str]:
    """A table; what it has in common with others stands at the first of them."""
    yield f"### {f'[{table}]' if table else 'Before all tables'}\n"
    first = _first(table)
    rows = [setting for setting in SETTINGS.values() if setting.table == table and _is_common(setting)]
    if others := [other for other in sorted(OWNERS) if other != table and _first(other) == table]:
        yield f"The same settings are in {', '.join(f'`[{other}]`' for other in others)}.\n"
    if first != table:
        same = {_key(row): row for row in SETTINGS.values() if row.table == first}
        known = [row for row in rows if _key(row) in same and row.sentence == same[_key(row)].sentence]
        changed = [f"`{row.name} = {row.default}`" for row in known if row.default != same[_key(row)].default]
        default = f", by default with {', '.join(changed)}" if changed else ""
        yield f"The settings of `[{first}]`{default}.\n"
        rows = [row for row in rows if row not in known]
    if rows:
        yield from _rows(rows, systems)


def _base(table: str) -> type[Section]:
    """The most general class with settings of this table."""
    bases = OWNERS[table].__mro__[::-1]
    return next(b for b in bases if issubclass(b, Section) and b not in (Section, PartSettings) and b.model_fields)


def _first(table: str) -> str:
    """The first table with settings of the same class: the one that changes least of them."""

    def changes(other: str) -> tuple[int, int, str]:
        own = (vars(owner).get("__annotations__", {}) for owner in OWNERS[other].__mro__ if owner is not base)
        return len({key for keys in own for key in keys} & base.model_fields.keys()), other.count("."), other

    base = _base(table)
    return min((other for other, owner in OWNERS.items() if issubclass(owner, base)), key=changes)


def _is_common(setting: Setting) -> bool:
    """Whether all parts of the kind have it, if its table is a part's."""
    base = _base(setting.table)
    return not issubclass(base, PartSettings) or _key(setting) in base.model_fields


def _key(setting: Setting) -> str:
    return setting.name.rpartition(".")[2]


def _has(settings: dict[str, Setting], table: str) -> bool:
    return any(setting.table == table for setting in settings.values())


def _defaults() -> Iterator[str]:
    first = "The tables show the defaults of the first system that has a setting. Other systems differ in:"
    yield f"## Defaults of the systems\n\n{first}\n"
    for system, own in SYSTEMS.items():
        changed = [s for s in own.values() if s.default != SETTINGS[s.name].default and s.name != "run.system"]
        if changed:
            yield f"- `{system}`: " + ", ".join(f"`{s.name} = {s.default}`" for s in changed)
    yield ""


def _parts() -> Iterator[str]:
    """Yield the settings of parts beside the ones that all of a kind have; shared settings once."""
    yield "## Settings of parts\n\nBeside those that all parts of the kind have, as listed above.\n"
    for kind in KINDS:
        table = next((table for table in sorted(OWNERS) if table.rpartition(".")[2] == kind), "")
        common = {(_key(row), row.sentence) for row in SETTINGS.values() if row.table == table and _is_common(row)}
        owners: dict[tuple[str, str, str], list[str]] = {}
        rows: dict[tuple[str, str, str], Setting] = {}
        for name in KINDS[kind].parts if kind not in ("system", "tool") else ():
            for setting in settings_of(kind, name):
                if (setting.name, setting.sentence) not in common:
                    key = (setting.name, setting.default, setting.sentence)
                    owners.setdefault(key, []).append(name)
                    rows[key] = setting
        for names, keys in groupby(sorted(owners, key=lambda key: owners[key]), key=lambda key: owners[key]):
            yield f"### {kind} {', '.join(f'`{name}`' for name in names)}\n"
            yield from _rows([rows[key] for key in keys], ())


def _rows(settings: Sequence[Setting], systems: Sequence[str]) -> Iterator[str]:
    yield "| Setting | Default | May be | |\n|---|---|---|---|"
    for setting in settings:
        default = f"`{setting.default}`" if setting.default else ""
        owners = [name for name in systems if setting.name in SYSTEMS[name]]
        only = f" Only in {', '.join(owners)}." if len(owners) < len(systems) else ""
        yield f"| `{_key(setting)}` | {default} | {_cell(setting.allowed)} | {_cell(setting.sentence)}{only} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
