"""Settings that were changed but have no effect are refused; which settings may change during a run."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatch
from typing import Literal

from evoseek.errors import ConfigError
from evoseek.settings import Needs, Section, each_setting, lookup, read_settings, tables


def check_effect(settings: Section, keys: Iterable[str], *, ignored: Iterable[str] = ()) -> None:
    """Raises ConfigError if one of these settings (dotted names) has no effect. Switches in `ignored` are not
    checked."""
    rows = [row for row in _rows(settings) if row[1] not in ignored]
    for key in keys:
        for pattern, switch, needs in rows:
            if fnmatch(key, pattern) and not (switch and needs.holds(lookup(settings, switch))):
                raise ConfigError(_words(settings, key, switch, needs))


def changeable(settings: Section, when: Literal["in_stage", "on_resume"]) -> list[str]:
    """The settings that may change during a run, as patterns of dotted names."""
    rows = ((at, name) for at, table in tables(settings) for name in str(getattr(table, when)).split())
    return [f"{at}.{name}" if at else name for at, name in rows]


def changed(settings: Section) -> list[str]:
    """The settings that differ from their system's defaults; those of another part than the default one, from its own.
    A table that is a single setting and a list of parts are kept whole."""
    defaults = read_settings(type(settings), {"run": {"system": lookup(settings, "run.system")}})
    before = {name: getattr(table, key) for name, table, key in each_setting(defaults)}
    return [
        name
        for name, table, key in each_setting(settings)
        if before.get(name, _default(table, key)) != getattr(table, key)
    ]


def _default(table: Section, key: str) -> object:
    """The default that a table has for one of its settings."""
    return type(table).model_fields[key].get_default(call_default_factory=True)


def _rows(settings: Section) -> list[tuple[str, str, Needs]]:
    """Every pattern of names with the dotted name of its switch."""
    rows: list[tuple[str, str, Needs]] = []
    for prefix, table in tables(settings):
        for needs in type(table).effects():
            switch = (
                needs.switch if "." in needs.switch or not needs.switch or not prefix else f"{prefix}.{needs.switch}"
            )
            for key in needs.keys.split():
                rows.append((f"{prefix}.{key}" if prefix else key, switch, needs))
    return rows


def _words(settings: Section, key: str, switch: str, needs: Needs) -> str:
    if not switch:
        return f"{key} is set, but it has no effect here. {needs.instead} Leave {key} out."
    value = lookup(settings, switch)
    return (
        f"{key} is set, but it has no effect here: it needs {switch} to be {needs.words}, and that is {value!r}. "
        f"{needs.instead} Leave {key} out, or set {switch} so."
    ).replace("  ", " ")
