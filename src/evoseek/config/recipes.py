"""Recipes by name: `dr-zero/3b` is the TOML file of that name below this folder, which `--config` takes."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from evoseek.config.trust import check_owner
from evoseek.errors import ConfigError
from evoseek.storage.files import nearest

FOLDER = Path(__file__).parents[1] / "recipes"
ABLATIONS = "ablations/"
"""Begins the names of recipes that repeat an experiment: what a paper compares its own settings with."""


def recipes() -> dict[str, Path]:
    """Every recipe by its name, in alphabetical order."""
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in sorted(FOLDER.rglob("*.toml"))}


def find_recipe(name: str) -> Path:
    """The file of a recipe. Raises ConfigError if there is none of that name."""
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
    """The path of a config file, or of the recipe with this name if there is no such file. Raises ConfigError, also for
    another user's file that has the name of a recipe."""
    if not file.exists() or file.is_dir():
        return find_recipe(file.as_posix())
    if file.as_posix() in recipes():
        check_owner(file, "found in place of the recipe of this name", f"give it as {file.absolute()}")
    return file


def purpose(recipe: Path) -> str:
    """The purpose of a recipe: its first line, which is a comment."""
    with recipe.open(encoding="utf-8") as lines:
        return lines.readline().strip("# \n")
