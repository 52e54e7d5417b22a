"""Settings: typed tables that the parts own, read from TOML and the command line, saved beside every output.

A `Section` is a table. If a table belongs to a part that can be chosen (`loss`, `reward`, ...), it has a `name`, and
the other keys are the part's own `Settings`:

    [loss]
    name = "sequence"          # or "mine.loss:CISPO"
    clip_low = 3e-4

`read_settings` merges given values over a model's defaults, table by table. `check_effect` refuses settings that were
changed but have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatch
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from evoseek.config.registry import KINDS, find, settings_class
from evoseek.config.settings_tree import Tree, merge
from evoseek.errors import ConfigError
from evoseek.storage.removed_settings import removed_words

_Model = TypeVar("_Model", bound="Section")

MANY = 10_000_000  # steps, tokens: above any use, below what overflows
COLDEST, HOTTEST = 0.01, 10.0


def _greedy_or_drawn(temperature: float) -> float:
    if temperature != 0 and not COLDEST <= temperature <= HOTTEST:
        raise ValueError(f"must be 0 (greedy) or from {COLDEST} to {HOTTEST:g}")
    return temperature


Count = Annotated[int, Field(ge=1, le=MANY)]
Share = Annotated[float, Field(ge=0, le=MANY)]
Temperature = Annotated[float, Field(ge=COLDEST, le=HOTTEST)]
AnyTemperature = Annotated[float, AfterValidator(_greedy_or_drawn)]


@dataclass(frozen=True, slots=True)
class Needs:
    """Settings (names of this table, or patterns) that have an effect only if another one, the `switch`, has certain
    values.

    `switch` is a name in the same table or, with a dot, in the whole settings. `wanted` are these values. (True,)
    stands for any value that is not empty, 0 or false; (False,) for any that is. `instead` may name what is used
    otherwise. If `own_has_none`, the settings have no effect on a user's own part either.
    """

    keys: str
    switch: str
    wanted: tuple[object, ...] = (True,)
    instead: str = ""
    own_has_none: bool = False

    def holds(self, value: object) -> bool:
        """Return whether the switch has one of the wanted values; a user's own part may need any setting."""
        if isinstance(value, str) and ":" in value and self.wanted not in ((True,), (False,)):
            return not self.own_has_none
        return bool(value) is self.wanted[0] if self.wanted in ((True,), (False,)) else value in self.wanted

    @property
    def words(self) -> str:
        if self.wanted in ((True,), (False,)):
            return "set" if self.wanted[0] else "left out"
        return " or ".join(map(str, self.wanted))


class Section(BaseModel):
    """A table of settings. Unknown keys and numbers that are not finite are errors.

    `effects` declares which settings need others; `problems` reports contradictions, with the remedy. `in_stage` and
    `on_resume` name settings ("*": all) that may change during a run: in a stage, or on resuming.
    """

    in_stage: ClassVar[str] = ""
    on_resume: ClassVar[str] = ""
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Return the settings that have an effect only if another one is set."""
        return ()

    def problems(self) -> Iterator[str]:
        """Describe contradictions within this table, each with its remedy."""
        yield from ()

    def resolved(self) -> dict[str, object]:
        """Return every setting, defaults included, as plain JSON values."""
        return self.model_dump(mode="json")


class PartSettings(Section):
    """The table of a part that is chosen by `name`."""

    name: str = Field(default="", description="Part: a built-in name, or package.module:Name.")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Marks the table of a part of a kind. `base` holds the settings common to all parts of the kind."""

    kind: str
    base: type[PartSettings]

    def of(self, name: str) -> type[PartSettings]:
        found = settings_class(self.kind, name) or self.base
        if not (isinstance(found, type) and issubclass(found, self.base)):
            raise ConfigError(
                f"The {self.kind} {name} has settings of the wrong kind: its class `Settings` has to be derived from "
                f"{self.base.__module__}.{self.base.__qualname__}, with typed fields."
            )
        return found

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Turn a text or a mapping into the settings of the part that it names."""
        return core_schema.no_info_before_validator_function(self._validated, handler(source))

    def _validated(self, value: Any) -> Any:
        if isinstance(value, Section):
            return value
        reader = _Reader(self.base)
        made = reader.part(self, _as_table(value), self.kind)
        if reader.problems:
            raise ConfigError(f"The settings of the {self.kind} are not valid: {'; '.join(reader.problems)}.")
        return made


def part(name: str, **settings: object) -> Any:
    """Return a field whose default is this part, with some of its settings."""
    return Field(default={"name": name, **settings}, validate_default=True)


def parts(*names: str) -> Any:
    """Return a field whose default is a list of parts, given by name."""
    return Field(default=tuple({"name": name} for name in names), validate_default=True)


def table(**settings: object) -> Any:
    """Return a field whose default is another table, in which some settings differ from that table's own defaults."""
    return Field(default=settings, validate_default=True)


def read_settings(model: type[_Model], *trees: Mapping[str, Any], source: str = "") -> _Model:
    """Merge trees of given values over a model's defaults; a later tree wins over an earlier one.

    If a table names a part other than the default, it starts from that part's own defaults. A setting that is itself a
    table, such as questions.where, is replaced as a whole. `source` names the files in errors. Raises ConfigError with
    all mistakes.
    """
    given: Tree = {}
    mappings = list(_mappings(model))
    for tree in trees:
        for path in mappings:
            given = _without(given, tree, path)
        given = merge(given, tree)
    reader = _Reader(model)
    settings = reader.section(model, None, given, "")
    if reader.problems:
        where = f" (from {source}, the options and --set)" if source else ""
        raise ConfigError(
            f"The settings{where} are not valid: {'; '.join(dict.fromkeys(reader.problems))}. `evoseek list` lists "
            "every setting with its default."
        )
    return cast(_Model, settings)


def _mappings(model: type[Section]) -> Iterator[tuple[str, ...]]:
    """Yield the settings that are tables themselves, as paths; not the tables of parts."""
    for key, info in model.model_fields.items():
        if get_origin(info.annotation) is dict:
            yield (key,)
        elif isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            yield from ((key, *path) for path in _mappings(info.annotation))


def _without(tree: Tree, over: Mapping[str, Any], path: Sequence[str]) -> Tree:
    key, *rest = path
    below, above = tree.get(key), over.get(key)
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return tree
    others = {name: value for name, value in tree.items() if name != key}
    tables = cast("tuple[Tree, Mapping[str, Any]]", (below, above))
    return {**others, key: _without(*tables, rest)} if rest else others


def check_settings(settings: Section) -> None:
    """Raise ConfigError for settings that are valid separately, but not together."""
    for _, table in tables(settings):
        for problem in table.problems():
            raise ConfigError(problem)


def tables(settings: Section, prefix: str = "") -> Iterator[tuple[str, Section]]:
    """Yield every table with its dotted name; the whole has the name ""."""
    yield prefix, settings
    for key in type(settings).model_fields:
        value: object = getattr(settings, key)
        many = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
        for one in many:
            if isinstance(one, Section):
                yield from tables(one, f"{prefix}.{key}" if prefix else key)


def each_setting(settings: Section, prefix: str = "") -> Iterator[tuple[str, Section, str]]:
    """Yield every setting: dotted name, table, and name in the table. A list of parts is a single setting."""
    below: dict[str, Section] = {}
    for key in type(settings).model_fields:
        if isinstance(value := getattr(settings, key), Section):
            below[key] = value
        else:
            yield f"{prefix}{key}", settings, key
    for key, table in below.items():
        yield from each_setting(table, f"{prefix}{key}.")


def lookup(settings: Section, dotted: str) -> Any:
    """Return the value of a setting by its dotted name; None if a table on the way lacks it."""
    value: Any = settings
    for key in dotted.split("."):
        value = getattr(value, key, None)
    return value


def is_given(settings: Section, dotted: str) -> bool:
    """Return whether a setting was given by the user or by the defaults of its system."""
    table, _, key = dotted.rpartition(".")
    owner = lookup(settings, table) if table else settings
    return isinstance(owner, Section) and key in owner.model_fields_set


def defaults_of(settings: _Model) -> _Model:
    """Return the defaults of the same parts, with nothing else given."""
    return read_settings(type(settings), _named(settings))


def with_setting(settings: _Model, dotted: str, value: object) -> _Model:
    """Return the settings with one changed, which then counts as given. The value is not validated; a new part has its
    own defaults."""
    key, _, rest = dotted.partition(".")
    inner = with_setting(getattr(settings, key), rest, value) if rest else value
    if rest == "name" and (choice := _choice(type(settings).model_fields[key].metadata)) and isinstance(value, str):
        inner = inner if value == getattr(settings, key).name else choice.of(value)(name=value)
    return settings.model_copy(update={key: inner})


def check_effect(settings: Section, keys: Iterable[str], *, ignored: Iterable[str] = ()) -> None:
    """Raise ConfigError if one of these settings (dotted names) has no effect. Switches in `ignored` are not
    checked."""
    rows = [row for row in _effects(settings) if row[1] not in ignored]
    for key in keys:
        for pattern, switch, needs in rows:
            if fnmatch(key, pattern) and not (switch and needs.holds(lookup(settings, switch))):
                raise ConfigError(_no_effect(settings, key, switch, needs))


def changeable(settings: Section, when: Literal["in_stage", "on_resume"]) -> list[str]:
    """Return the settings that may change during a run, as patterns of dotted names."""
    rows = ((at, name) for at, table in tables(settings) for name in str(getattr(table, when)).split())
    return [f"{at}.{name}" if at else name for at, name in rows]


def changed(settings: Section) -> list[str]:
    """Return the settings that differ from the defaults of their system, or of their part if that is not the default
    one. A table that is a single setting and a list of parts are kept whole."""
    defaults = read_settings(type(settings), {"run": {"system": lookup(settings, "run.system")}})
    before = {name: getattr(table, key) for name, table, key in each_setting(defaults)}
    return [
        name
        for name, table, key in each_setting(settings)
        if before.get(name, type(table).model_fields[key].get_default(call_default_factory=True)) != getattr(table, key)
    ]


def _effects(settings: Section) -> list[tuple[str, str, Needs]]:
    rows: list[tuple[str, str, Needs]] = []
    for prefix, table in tables(settings):
        for needs in type(table).effects():
            switch = (
                needs.switch if "." in needs.switch or not needs.switch or not prefix else f"{prefix}.{needs.switch}"
            )
            for key in needs.keys.split():
                rows.append((f"{prefix}.{key}" if prefix else key, switch, needs))
    return rows


def _no_effect(settings: Section, key: str, switch: str, needs: Needs) -> str:
    if not switch:
        return f"{key} is set, but it has no effect here. {needs.instead} Leave {key} out."
    value = lookup(settings, switch)
    return (
        f"{key} is set, but it has no effect here: it needs {switch} to be {needs.words}, and that is {value!r}. "
        f"{needs.instead} Leave {key} out, or set {switch} so."
    ).replace("  ", " ")


@dataclass(slots=True)
class _Reader:
    """Makes tables from given values and collects the problems."""

    root: type[Section]
    problems: list[str] = field(default_factory=list[str])

    def section(self, model: type[Section], default: object, given: object, at: str) -> Section | None:
        if not isinstance(given, Mapping):
            self.problems.append(f"{at} is {given!r}: expected a table of settings, such as [{at}]")
            return None
        own, explicit = cast(Tree, given), _explicit(default)
        values: Tree = {**explicit, **own}
        for key, info in model.model_fields.items():
            if _is_table(info):
                below = explicit.get(key, info.get_default(call_default_factory=True))
                values[key] = self._table(info, below, own.get(key), f"{at}.{key}" if at else key)
                if values[key] is None:  # its problem has been recorded
                    del values[key]
        return self._validated(model, values, at)

    def part(self, choice: Chosen, table: Tree, at: str) -> Any:
        """Return the settings of the part that a table names; None if they cannot be made."""
        name = table.get("name")
        if not isinstance(name, str) or not name:
            self.problems.append(
                f"{at}.name is {name!r}: expected the name of a {choice.kind} (`evoseek list {choice.kind}`)"
            )
            return None
        return self.section(choice.of(name), None, table, at)

    def _table(self, info: FieldInfo, below: object, given: object, at: str) -> Any:
        """Return the value for a field that holds a table, a part or a list of parts."""
        if choice := _choice(info.metadata):
            over = self._over(below, given, at)
            return None if over is None else self.part(choice, over, at)
        if choice := _choice_of_items(info):
            return self._parts(choice, below if given is None else given, at)
        if isinstance(given, Section):
            return given
        return self.section(cast("type[Section]", info.annotation), below, {} if given is None else given, at)

    def _parts(self, choice: Chosen, given: object, at: str) -> Any:
        """Return a list of parts, each given as a name or a table. A single one needs no list."""
        items = cast("Sequence[object]", given) if isinstance(given, list | tuple) else [given]
        parts = [(number, self._over({}, item, at)) for number, item in enumerate(items)]
        made = [self.part(choice, table, f"{at}.{number}") for number, table in parts if table is not None]
        return tuple(made) if None not in made else None

    def _over(self, below: object, given: object, at: str) -> Tree | None:
        if given is None:
            return _as_table(below)
        if not isinstance(given, str | Mapping | PartSettings):
            self.problems.append(f"{at} is {given!r}: expected a name, or a table such as [{at}] with a name")
            return None
        return merge({"": _as_table(below)}, {"": _as_table(given)})[""]

    def _validated(self, model: type[Section], values: Tree, at: str) -> Section | None:
        try:
            return model.model_validate(values)
        except ValidationError as error:
            self.problems += [self._describe(model, values, at, problem) for problem in error.errors()]
            return None

    def _describe(self, model: type[Section], values: Tree, at: str, problem: Mapping[str, Any]) -> str:
        words = [str(word) for word in problem["loc"] if isinstance(word, int) or word.isidentifier()]
        key = ".".join([at, *words] if at else words)
        if problem["type"] == "extra_forbidden":
            if gone := removed_words(key):
                return f"unknown setting {key} ({gone})"
            hints = list(self._hints(model, values, at, key))
            return f"unknown setting {key}" + (f" ({'; '.join(hints)})" if hints else "")
        return f"{key} is {problem['input']!r}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"

    def _hints(self, model: type[Section], values: Tree, at: str, key: str) -> Iterator[str]:
        """Yield hints for an unknown setting: systems that have it, the same name in other tables, a similar name, or
        the settings of the part."""
        if systems := _systems_with(key):
            yield f"it is for {' or '.join(systems)}"
        own = [f"{at}.{name}" if at else name for name in model.model_fields]
        known, name = [*own, *setting_names(self.root)], _last(key)
        same = [setting for setting in known if _last(setting) == name]
        if meant := same or ([] if systems else _nearest(name, own) or _nearest(name, known)):
            yield f"did you mean {' or '.join(dict.fromkeys(meant))}?"
        elif issubclass(model, PartSettings):
            yield f"{values['name']} has {', '.join(model.model_fields)}"


def _named(table: Section) -> Tree:
    names: Tree = {"name": table.name} if isinstance(table, PartSettings) else {}
    below = ((key, getattr(table, key)) for key in type(table).model_fields)
    return names | {key: tree for key, one in below if isinstance(one, Section) and (tree := _named(one))}


def _nearest(name: str, settings: Sequence[str]) -> list[str]:
    close = get_close_matches(name, {_last(setting) for setting in settings}, 1, 0.75)
    return [setting for setting in settings if _last(setting) in close]


def _last(dotted: str) -> str:
    return dotted.rpartition(".")[2]


def _systems_with(key: str) -> list[str]:
    return [name for name in KINDS["system"].parts if key in setting_names(find("system", name).Settings)]


def _as_table(value: object) -> Tree:
    if isinstance(value, PartSettings):
        return {**_explicit(value), "name": value.name}
    return {"name": value} if isinstance(value, str) else dict(cast("Mapping[str, Any]", value))


def _explicit(default: object) -> Tree:
    if isinstance(default, Section):
        return {key: getattr(default, key) for key in default.model_fields_set}
    return dict(cast("Mapping[str, Any]", default or {}))


def _choice(marks: Sequence[object]) -> Chosen | None:
    return next((mark for mark in marks if isinstance(mark, Chosen)), None)


def _choice_of_items(info: FieldInfo) -> Chosen | None:
    items: Sequence[object] = getattr(info.annotation, "__args__", ())
    return _choice(getattr(items[0], "__metadata__", ())) if items else None


def _is_table(info: FieldInfo) -> bool:
    is_section = isinstance(info.annotation, type) and issubclass(info.annotation, Section)
    return is_section or _choice_of_items(info) is not None


def setting_names(model: type[Section], prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every setting and table; of a part, only settings common to its kind."""
    for key, info in model.model_fields.items():
        yield f"{prefix}{key}"
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            yield from setting_names(info.annotation, f"{prefix}{key}.")
