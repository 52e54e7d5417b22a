"""Settings from a user: files, a command's options and `--set`, over the defaults of a system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from evoseek.assembly.settings import TrainingSettings
from evoseek.config.project import TABLE, Project, read_project
from evoseek.config.registry import check_name, find
from evoseek.config.sections import read_settings, setting_names, with_setting
from evoseek.config.settings_tree import FOLDER, Tree, find_config, merge, nested, read_tree, tree_of
from evoseek.config.trust import allow_code, check_code, is_import_path
from evoseek.errors import ConfigError
from evoseek.storage.removed_settings import in_settings_of_today
from evoseek.storage.runs import RunDirectory, flatten

OVER = "over"
"""Key of a config file: recipes that it needs one of beneath it, unless a model is given."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file of settings, and the recipes that it needs one of beneath it."""

    path: Path
    tree: Tree
    over: Sequence[str] = ()
    is_saved: bool = False


@dataclass(frozen=True)
class SettingsSources:
    """The sources of a command's settings: a system, and trees of values, later over earlier. They are merged and
    validated once, when they are first read.

    `source` names the files. `of_project` is what a project gives to a run, by dotted names, which the run records.
    `saved` are the files that a run saved.
    """

    system: str
    trees: tuple[Tree, ...]
    source: str
    of_project: Mapping[str, object] | None = None
    saved: tuple[_File, ...] = ()

    def over(self, options: Mapping[str, object]) -> SettingsSources:
        """Lay these settings, by dotted names, over the files and beneath the options of the command line. Settings
        that were read already are changed, not read again."""
        *files, last = self.trees
        made = replace(self, trees=(*files, nested(options), last))
        if "settings" in vars(self):
            above, changed = replace(self, trees=(last,)), self.settings
            for key, value in options.items():
                changed = changed if above.states(key) else with_setting(changed, key, value)
            vars(made)["settings"] = changed
        return made

    def states(self, dotted: str) -> bool:
        """Return whether a file or an option sets a setting."""
        return self.stated(dotted) is not None

    def stated(self, dotted: str) -> object:
        """Return the value of a setting as the files and options give it; None for the default. A part's name may stand
        for its table."""
        flat = (flatten(tree) for tree in reversed(self.trees))
        values = (tree.get(dotted, tree.get(dotted.removesuffix(".name"))) for tree in flat)
        return next((value for value in values if value is not None), None)

    def has(self, dotted: str) -> bool:
        return dotted in setting_names(find("system", self.system).Settings)

    def read(self) -> TrainingSettings:
        return self.settings

    @cached_property
    def settings(self) -> TrainingSettings:
        """The settings, frozen. Raises ConfigError."""
        stated = _stated(self.trees[-1])
        if isinstance(stated, str) and stated != self.system:
            raise ConfigError(
                f"run.system is {stated!r}, but the other settings belong to {self.system!r}. Name the system as the "
                "command's argument, or in the config file."
            )
        model: type[TrainingSettings] = find("system", self.system).Settings
        base = {"run": {"system": self.system}}
        try:
            return read_settings(model, base, *self.trees, source=self.source)
        except ConfigError:
            for file in self.saved:
                _check_readable(model, base, file)
            raise


def _check_readable(model: type[TrainingSettings], base: Tree, saved: _File) -> None:
    try:
        read_settings(model, base, saved.tree)
    except ConfigError as error:
        raise ConfigError(
            f"{saved.path} was saved with settings that this version of evoseek does not read. {error} Resume the "
            "run with the version that began it, or remove these settings from the file to use this version's fixed "
            "values."
        ) from error


def gather(
    files: Path | Sequence[Path] = (),
    *,
    system: str | None = None,
    fallback: str = "search-r1",
    options: Mapping[str, object] | None = None,
    sets: Iterable[str] = (),
    project: Project | None = None,
) -> SettingsSources:
    """Gather settings: files (or recipes by name; the last wins), over them options (dotted names; None means not
    given), over them `key=value` texts. The system is the one named here, or else in a file, or else `fallback`. A
    project's file brings its recipes. Beneath all lie the settings of `project`; for another system than the project's,
    only the settings that suit every system.

    Raises ConfigError, also for a run's config (JSON) that names code that no other settings name.
    """
    paths = [files] if isinstance(files, Path) else list(files)
    last = tree_of(options or {}, sets)
    allow_code([system, last])
    below = _read(project.file) if project is not None else ()
    read = {path: _read(path) for path in sorted(paths, key=_is_saved)}  # a run's config last: it is checked
    above = [file for path in paths for file in read[path]]
    _check_beneath([*below, *above], last)
    trees = tuple(file.tree for file in above)
    source = " and ".join(map(str, paths))
    chosen = _choose(system, trees, source)
    if project is not None:
        own = _choose(None, (file.tree for file in below), str(project.file))
        chosen = chosen or own
        trees = (*([file.tree for file in below] if chosen == own else [shared_settings(project)]), *trees)
        source = " and ".join([str(project.file), *map(str, paths)])
    saved = tuple(file for file in above if file.is_saved)
    return SettingsSources(chosen or fallback, (*trees, last), source, saved=saved)


def load_settings(files: Path | Sequence[Path] = (), **given: Any) -> TrainingSettings:
    """Gather and read settings, with the arguments of `gather`. Raises ConfigError."""
    return gather(files, **given).read()


def read_saved(run: RunDirectory) -> TrainingSettings:
    """Read the settings of a run without importing code, to look at it, not to use it. Parts named by an import path
    become the defaults; of a user's own system only the tables that every system has are read. Raises RunError, or
    ConfigError for settings of another version."""
    tree = in_settings_of_today(run.read_config(), with_any_value=True)
    stated = _stated(tree)
    system = stated if isinstance(stated, str) else "search-r1"
    tree = {**_without_code(tree), "run": tree.get("run", {})}
    if is_import_path(system):
        shared = ("run", "policy", "evaluation", "reward", "credit")
        return read_settings(TrainingSettings, {key: tree[key] for key in shared if key in tree})
    tree.pop("objects", None)
    return read_settings(find("system", system).Settings, tree)


def _without_code(tree: Tree) -> Tree:
    kept: Tree = {}
    for key, value in tree.items():
        table = cast("Tree", value) if isinstance(value, dict) else None
        items = cast("list[object]", value) if isinstance(value, list) else None
        if table is not None and not _names_code(table):
            kept[key] = _without_code(table)
        elif items is not None:
            kept[key] = [item for item in items if not _names_code(item)]
        elif table is None and (key == "model" or not _names_code(value)):
            kept[key] = value
    return kept


def _names_code(value: object) -> bool:
    name = cast("Tree", value).get("name") if isinstance(value, dict) else value
    return isinstance(name, str) and is_import_path(name)


def allow_project(project: Project | None) -> None:
    """Trust the code that the user's project and its recipes name: a run's config may name it, too. Raises
    ConfigError."""
    if project is not None:
        _read(project.file)


def shared_settings(project: Project) -> Tree:
    """Return the settings of a project that suit every system: what is searched, and the model."""
    return {key: project.settings[key] for key in ("policy", "search") if key in project.settings}


def flat_settings(project: Project, system: str) -> dict[str, object]:
    """Return, by dotted names, the settings that a project with its recipes gives to a run of this system. Raises
    ConfigError."""
    trees = [file.tree for file in _read(project.file)]
    tree: Tree = {}
    for below in trees if _choose(None, trees, "") in (None, system) else (shared_settings(project),):
        tree = merge(tree, below)
    return flatten(tree)


def edited(project: Project, before: Mapping[str, object] | None, system: str) -> dict[str, object]:
    """Return, by dotted names, a project's settings that changed since it gave them to a run of this system
    (`flat_settings`; None: unknown, so all). A removed setting has its default. Raises ConfigError."""
    stated = project.lookup("run.system") or system
    if before is not None and before.get("run.system", stated) != stated:
        return {"run.system": stated}
    now, before = flat_settings(project, system), before or {}
    edits = {key: value for key, value in now.items() if key not in before or before[key] != value}
    if gone := before.keys() - now.keys():
        model: type[TrainingSettings] = find("system", system).Settings
        defaults = flatten(read_settings(model, {"run": {"system": system}}).resolved())
        edits |= {key: defaults[key] for key in sorted(gone) if key in defaults}
    return edits


def _read(file: Path) -> tuple[_File, ...]:
    """Read the settings of a file, after the recipes that it names if it is a project's."""
    path = find_config(file)
    tree = read_tree(path)
    if _is_saved(path):
        tree = in_settings_of_today(tree)
        tree.pop("objects", None)  # parts given as objects; a run is resumed with the same
        check_code(tree, path)
        return (_File(path, tree, is_saved=True),)
    over = cast("list[str]", tree.pop(OVER, None) or [])
    allow_code(tree)
    if TABLE not in tree:
        return (_File(path, tree, over),)
    project = read_project(tree, path.absolute())
    beneath = (below for recipe in project.recipes for below in _read(Path(recipe)))
    return (*beneath, _File(path, project.settings, over))


def _check_beneath(files: Sequence[_File], last: Tree) -> None:
    """Raise ConfigError for a file that needs another one beneath it (its key `over`) if neither that nor a model is
    given: its settings would train the tiny policy."""
    if any("model" in cast(Tree, tree.get("policy") or {}) for tree in (*(file.tree for file in files), last)):
        return
    paths = [file.path for file in files]
    for file in files:
        if file.over and not any(find_config(Path(name)) in paths for name in file.over):
            is_recipe = file.path.is_relative_to(FOLDER)
            name = file.path.relative_to(FOLDER).with_suffix("") if is_recipe else file.path
            raise ConfigError(
                f"{name} goes over another recipe, {' or '.join(file.over)}, which is missing, so no model is named. "
                f"Give `--config {file.over[0]}` before it, or a model (--model)."
            )


def _is_saved(path: Path) -> bool:
    return path.suffix == ".json"


def _choose(named: str | None, trees: Iterable[Tree], source: str) -> str | None:
    merged: Tree = {}
    for tree in trees:
        merged = merge(merged, tree)
    stated = _stated(merged)
    if named is not None and stated is not None and named != stated:
        raise ConfigError(
            f"The system {named!r} was asked for, but {source} holds settings for {stated!r} (run.system). Name the "
            "same system in both, or take run.system out of the file."
        )
    system = named or stated
    if system is not None:
        check_name("system", str(system))
    return cast("str | None", system)


def _stated(tree: Tree) -> object:
    run = cast("object", tree.get("run"))
    return cast(Tree, run).get("system") if isinstance(run, dict) else None
