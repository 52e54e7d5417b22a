"""Settings as nested mappings: TOML files, recipes by name and `--set key=value`, merged in order.

A recipe is a file of the package: `--config dr-zero/3b` reads the TOML file of that name below `FOLDER`.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from evoseek.config.trust import check_owner
from evoseek.errors import ConfigError
from evoseek.storage.files import nearest, read_regular

Tree = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "recipes"
ABLATIONS = "ablations/"
"""Prefix of the names of recipes that repeat a paper's ablations."""


def merge(tree: Tree, over: Mapping[str, Any]) -> Tree:
    """Merge `over` over `tree`, table by table. A text instead of a table is a part's name."""
    merged = dict(tree)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, str):
            value = {"name": value}
        if isinstance(below, str) and isinstance(value, Mapping):
            below = {"name": below}
        if isinstance(value, Mapping):
            under = cast(Tree, below) if isinstance(below, dict) else {}
            table = cast("Mapping[str, Any]", value)
            if under.get("name", table.get("name")) != table.get("name", under.get("name")):
                under = {}  # the settings of another part
            merged[key] = merge(under, table)
        else:
            merged[key] = value
    return merged


def read_tree(file: Path) -> Tree:
    """Read a TOML file, or the config.json of a run, as nested mappings. Raises ConfigError."""
    try:
        text = read_regular(file, "utf-8-sig")  # some editors begin a file with a byte-order mark
        tree = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
        if not isinstance(tree, dict):
            raise ValueError(f"it holds {type(tree).__name__}, not an object of settings")
        return cast(Tree, tree)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"The config file {file} cannot be read: {error}. It must be a TOML file with tables such as [learner] (or "
            "the config.json of an earlier run)."
        ) from error


def tree_of(options: Mapping[str, object], sets: Iterable[str] = ()) -> Tree:
    """Nest settings by dotted names (None: not given), with `key=value` texts merged over them."""
    tree = nested({key: value for key, value in options.items() if value is not None})
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set got {text!r}, expected key=value, as in --set learner.learning_rate=1e-4.")
        tree = merge(tree, _setting(key.strip(), _parse_value(value.strip())))
    return tree


def nested(settings: Mapping[str, object]) -> Tree:
    """Nest settings that are given by dotted names."""
    tree: Tree = {}
    for dotted, value in settings.items():
        tree = merge(tree, _setting(dotted, value))
    return tree


def words_of(settings: Mapping[str, object]) -> str:
    """Return settings by dotted names as command-line options, " --set key=value ...", quoted for a shell."""
    return "".join(f" --set {shlex.quote(f'{key}={_worded(value)}')}" for key, value in settings.items())


def _worded(value: object, *, inner: bool = False) -> str:
    """Return a value in the form that `_parse_value` reads; a text that is not `inner` needs no quotes."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return f"{{{', '.join(f'{key} = {_worded(one, inner=True)}' for key, one in items if one is not None)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_worded(one, inner=True) for one in cast('list[object]', value))}]"
    return value if isinstance(value, str) and not inner else json.dumps(value, ensure_ascii=False)


def _setting(dotted: str, value: object) -> Tree:
    *tables, key = dotted.split(".")
    tree: Tree = {key: value}
    for table in reversed(tables):
        tree = {table: tree}
    return tree


def _parse_value(text: str) -> object:
    """Parse a TOML value; anything else is a text, so that paths need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def recipes() -> dict[str, Path]:
    """Return every recipe by its name, in alphabetical order."""
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in sorted(FOLDER.rglob("*.toml"))}


def find_recipe(name: str) -> Path:
    """Return the file of a recipe. Raises ConfigError for an unknown name."""
    known = recipes()
    if name not in known:
        if f"{ABLATIONS}{name}" in known:
            raise ConfigError(f"The recipe {name} is now {ABLATIONS}{name}. Give that name.")
        near = get_close_matches(name.removeprefix("recipes/").removesuffix(".toml"), known)
        hint = f"The nearest are {', '.join(near)}; `evoseek" if near else "`evoseek"
        meant = nearest(Path(name))
        raise ConfigError(f"There is no config file and no recipe {name!r}.{meant} {hint} list recipes` lists them.")
    return known[name]


def find_config(file: Path) -> Path:
    """Return the path of a config file or, if there is none, of the recipe with this name. Raises ConfigError, also for
    another user's file with the name of a recipe."""
    if not file.exists() or file.is_dir():
        return find_recipe(file.as_posix())
    if file.as_posix() in recipes():
        check_owner(file, "found in place of the recipe of this name", f"give it as {file.absolute()}")
    return file


def purpose(recipe: Path) -> str:
    """Return the purpose of a recipe: its first line, which is a comment."""
    with recipe.open(encoding="utf-8") as lines:
        return lines.readline().strip("# \n")
