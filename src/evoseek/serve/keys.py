"""The keys of a server: each a digest, with the folders that it may see and its rate.

[sales]
sha256 = "9f86d081884c7d65..."    # of the key, never the key itself
folders = ["sales", "prices"]     # without this line: everything
per_minute = 30                   # requests other than GET; without this line: any number
"""

from __future__ import annotations

import hmac
import os
import re
import tomllib
from collections.abc import Sequence
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.types import Scope

from evoseek.errors import ConfigError, first_problem

KEY_VARIABLE = "EVOSEEK_KEY"
_SHORTEST_KEY = 16
IN_SCOPE = "evoseek.key"
_MAKE = "the output of `openssl rand -hex 24`"
_Folder = Annotated[str, Field(pattern=r"^[^/].*[^/]$|^[^/]$")]


class Key(BaseModel):
    """A key of a server, by its digest. `folders` of the corpus, or files, are all that it may see (None: everything);
    it may send `per_minute` requests other than GET (None: any)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = ""
    sha256: str = Field(default="", pattern=r"^[0-9a-f]{64}$")
    folders: Annotated[tuple[_Folder, ...], Field(min_length=1)] | None = None
    per_minute: int | None = Field(default=None, ge=1)

    @classmethod
    def of(cls, text: str) -> Key:
        """Return the key of this text, which may see everything."""
        digest = _digest(text)
        return cls(name=digest[:8], sha256=digest)


EVERYBODY = Key()
"""Who asks a server without keys."""


def key_of(request: Request | Scope) -> Key:
    """Return the key of a request that the `Guard` passed."""
    return (request.scope if isinstance(request, Request) else request)[IN_SCOPE]


def find_key(keys: Sequence[Key], authorization: str) -> Key | None:
    """Return the key that a header holds, if it is one of these; every comparison takes the same time."""
    scheme, _, given = authorization.partition(" ")
    digest = _digest(given.strip())
    found = [key for key in keys if hmac.compare_digest(digest, key.sha256)]
    return found[0] if found and scheme.lower() == "bearer" else None


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def read_keys(file: Path | None, *, host: str) -> list[Key]:
    """Return the keys of a file (TOML as above, or plain keys, one a line), or else the key in the environment variable
    EVOSEEK_KEY; an address that only this machine reaches needs none. Raises ConfigError."""
    try:
        text = file.read_text(encoding="utf-8") if file else os.environ.get(KEY_VARIABLE, "")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The keys in {file} cannot be read: {error}. Give a text file with one key in each line.",
            code="serve.keys_unreadable",
        ) from error
    is_table = file is not None and file.suffix.lower() == ".toml"
    keys = _of_table(text, file) if file and is_table else _of_lines(text, str(file) if file else KEY_VARIABLE)
    if file and not keys:
        raise ConfigError(f"{file} holds no key. Write one into it, such as {_MAKE}.", code="serve.no_key")
    if not keys and not is_loopback(host):
        raise ConfigError(
            f"The address {host} is reachable from other machines, so a key is needed. Give one with --key-file FILE "
            f"or the environment variable {KEY_VARIABLE}; or listen at 127.0.0.1.",
            code="serve.open",
        )
    return keys


def _of_lines(text: str, source: str) -> list[Key]:
    keys = [line.strip() for line in text.splitlines() if line.strip()]
    if any(
        re.match(r"sha256\s*=", key) for key in keys
    ):  # as keys, its lines could be guessed and would see everything
        raise ConfigError(
            f"{source} holds tables of keys, but its name does not end in .toml. Rename it.", code="serve.keys_invalid"
        )
    if any(len(key) < _SHORTEST_KEY or not key.isascii() or " " in key for key in keys):
        raise ConfigError(
            f"A key of {source} has fewer than {_SHORTEST_KEY} characters, or spaces or other characters than ASCII. "
            f"Use a long random key, such as {_MAKE}.",
            code="serve.weak_key",
        )
    return [Key.of(key) for key in keys]


def _of_table(text: str, file: Path) -> list[Key]:
    try:
        keys = [Key.model_validate({"sha256": "", **row, "name": name}) for name, row in tomllib.loads(text).items()]
        if len({key.sha256 for key in keys}) < len(keys):
            raise ValueError("two tables have the same key")
        return keys
    except (ValueError, TypeError) as error:
        what = first_problem(error) if isinstance(error, ValueError) else error
        raise ConfigError(
            f"The keys in {file} cannot be used: {what}. Expected a table for each key, with `sha256` (64 characters), "
            '`folders` = ["one", "two/three"] if it may not see everything, and `per_minute` if it has a rate.',
            code="serve.keys_invalid",
        ) from error
