"""Whose files may name code, servers and keys: this user's files, and files in folders that EVOSEEK_TRUST lists.

A file that nobody named (a project file in a folder above, a module in the working folder) must belong to this user or
to root. Others may have made a run's config or an index, and nothing stored in it could prove its origin. So it may
name code, a server or a key only if the user's own settings name the same. Servers at this machine's own address are no
exception, even without a key: a server receives the documents' text, and another user may run it.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from evoseek.errors import ConfigError

VARIABLE = "EVOSEEK_TRUST"
_RUN = ("program", "arguments")  # settings that are, or become, a command
_SEND = ("url", "urls", "base_url", "allow_private", "api_key_env", "key_env")  # where data go, with which key
_named: set[str] = set()


def is_import_path(name: str) -> bool:
    """Return whether a name has the form package.module:Name."""
    module, colon, rest = name.partition(":")
    return bool(colon) and all(word.isidentifier() for word in (*module.split("."), *rest.split(".")))


def check_owner(path: Path, what: str, instead: str) -> None:
    """Raise ConfigError for a file or folder of another user, or a link to one. The message says `what` it is, and what
    to do `instead`."""
    owner = next((uid for uid in (path.lstat().st_uid, path.stat().st_uid) if uid not in (os.geteuid(), 0)), None)
    if owner is not None and not _is_trusted(path):
        folder = path.absolute() if path.is_dir() else path.absolute().parent
        raise ConfigError(
            f"{path} is {what} and belongs to {_name(owner)}, while this process runs as {_name(os.geteuid())}. It can "
            f"run any code, so it is not used unless you allow it: {instead}, or, if you trust all that lies in "
            f"{'it' if path.is_dir() else 'its folder'}, set {VARIABLE}={shlex.quote(str(folder))}."
        )


def allow_code(settings: object) -> None:
    """Record that the user's own settings name this code and these servers and keys."""
    _named.update(_code_in(settings))


def check_code(settings: object, file: Path) -> None:
    """Raise ConfigError if settings in a file of unknown origin name code, a server or a key that the user's own
    settings do not."""
    if foreign := foreign_code(settings, file):
        raise ConfigError(
            f"{file} names code to run, or servers and keys: {', '.join(foreign)}. The file may come from somebody "
            "else, so these are not used unless you allow them. Read the file. If you trust all that lies in its "
            f"folder, set {VARIABLE}={shlex.quote(str(file.absolute().parent))}, or, for a run, name the same in your "
            "own evoseek.toml (for `evoseek train` also with --config or --set)."
        )


def foreign_code(settings: object, file: Path) -> list[str]:
    """Return the code, servers and keys that settings in a file name but the user's own settings do not."""
    return [] if _is_trusted(file) else sorted(set(_code_in(settings)) - _named)


def names_code(settings: object, name: str = "") -> bool:
    """Return whether settings, or the value of the setting `name`, name code, a server or a key."""
    return next(_code_in(settings, name), None) is not None


def _code_in(settings: object, name: str = "") -> Iterator[str]:
    """Yield import paths of parts, and commands, addresses and keys by dotted names, anywhere in settings."""
    key = name.rpartition(".")[2]
    if key in (*_RUN, *_SEND) and settings:
        yield f"{name} = {json.dumps(settings, default=str)}"
    elif isinstance(settings, Mapping):
        for below, value in cast("Mapping[str, object]", settings).items():
            yield from _code_in(value, f"{name}.{below}" if name else below)
    elif isinstance(settings, list | tuple):
        for value in cast("list[object]", settings):
            yield from _code_in(value, name)
    elif isinstance(settings, str) and key != "model" and is_import_path(settings):  # qwen:latest is a model
        yield settings


def _is_trusted(path: Path) -> bool:
    listed = (Path(folder).expanduser() for folder in os.environ.get(VARIABLE, "").split(os.pathsep) if folder)
    return any(path.resolve().is_relative_to(folder.resolve()) for folder in listed)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
