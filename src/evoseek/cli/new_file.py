"""The place of a file, or of a policy, that long work will end in."""

from __future__ import annotations

import os
from pathlib import Path

from evoseek.errors import ConfigError


def check_new_file(path: Path) -> None:
    """Before the work, make the folder of a file. Raises ConfigError if the file is there, or could not be written."""
    if path.exists():
        raise ConfigError(f"{path} is there already, and is left as it is. Give the name of a new file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder of {path} cannot be made ({error.strerror or error}). Give a file in another one."
        ) from error
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{path} cannot be written: {path.parent} is not for this user. Give a file in another one.")


def check_new(directory: Path) -> None:
    """Raise ConfigError for a folder that writing a policy would replace, or that cannot be made."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(
            f"{directory} is there already and is no empty folder; an export would replace it. Give a new folder."
        )
    blocking = next((parent for parent in directory.parents if parent.exists()), None)
    if blocking is not None and not blocking.is_dir():
        raise ConfigError(f"{directory} cannot be made: {blocking} is a file. Give a new folder.")
