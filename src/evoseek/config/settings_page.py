"""The reference of parts and settings, generated from the parts themselves, for `evoseek list` and
docs/settings.md."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from evoseek.config.registry import KINDS, find, settings_class
from evoseek.config.sections import PartSettings, Section, each_setting, read_settings

_FAR = 1e6


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: its dotted name, its possible values, its default in TOML, its description, and the class of its
    table."""

    name: str
    allowed: str
    default: str
    sentence: str
    owner: type[Section]

    @property
    def table(self) -> str:
        return self.name.rpartition(".")[0]


def sentence_of(part: Any) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(part) or "").split("\n\n")[0].split())


def parts_of(kind: str) -> dict[str, str]:
    """Return the built-in parts of a kind, each with the first paragraph of its docstring. If a class has several
    names, its `by_name` tells what to describe."""
    parts = {name: find(kind, name) for name in KINDS[kind].parts}
    return {name: sentence_of(getattr(part, "by_name", {}).get(name, part)) for name, part in parts.items()}


def settings_of(kind: str, name: str) -> list[Setting]:
    """Return the settings of a part: all tables of a system, else the part's own table. Raises ConfigError."""
    model = settings_class(kind, name) or PartSettings
    if kind == "system":
        return list(_described(read_settings(model, {"run": {"system": name}})))
    return [setting for setting in _described(model(name=name)) if setting.name != "name"]


def _described(settings: Section) -> Iterator[Setting]:
    for name, table, key in each_setting(settings):
        info = type(table).model_fields[key]
        sentence = info.description or _sentence_of_list(info)
        yield Setting(name, _allowed(info), _toml(getattr(table, key)), sentence, type(table))


def _sentence_of_list(info: FieldInfo) -> str:
    inner = get_args(info.annotation)[0]
    return sentence_of(get_args(inner)[0]) if get_args(inner) else ""


def _toml(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item.name if isinstance(item, PartSettings) else item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, float) else f"{value:g}"


def _allowed(info: FieldInfo) -> str:
    words = _type(info.annotation)
    bounds = [_bound(mark) for mark in info.metadata]
    return " ".join(filter(None, (words, *bounds)))


def _bound(mark: object) -> str:
    for kind, key, word in ((Ge, "ge", "from"), (Gt, "gt", "above"), (Le, "le", "to"), (Lt, "lt", "below")):
        if isinstance(mark, kind) and abs(bound := getattr(mark, key)) < _FAR:
            return f"{word} {bound:g}"
    return ""


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(json.dumps(value) for value in arguments)
    if origin in (Union, UnionType):
        return " | ".join(_type(argument) for argument in arguments if argument is not NoneType)
    if origin is tuple:
        return "list"
    if origin is dict:
        return "table"
    if hasattr(annotation, "__metadata__"):
        return _type(arguments[0])
    return {bool: "true | false", int: "integer", float: "number", str: "text"}.get(annotation, str(annotation))
