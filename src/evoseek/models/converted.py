"""Policies that are converted before use: GGUF files, the format of llama.cpp, and directories whose numbers are larger
than requested. Quantised weights in a GGUF file become ordinary numbers, so that they can be trained and saved as
safetensors.

Each is converted once, into a cache of model directories, and then mapped: pages of the file serve as memory. The name
of an entry says its source, the source's state (size and time of each file) and the type of numbers. Weights begin at
multiples of 64 bytes, as in torch's own allocations: the last bits of a product depend on this.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import redirect_stderr, suppress
from copy import deepcopy
from functools import cache
from glob import escape
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from huggingface_hub import try_to_load_from_cache
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from evoseek.errors import EvoseekError, PolicyError
from evoseek.models.source import is_gguf
from evoseek.storage.files import expanded, json_digest, remove_directory, replace_directory

_SOURCE = "source.txt"  # of an entry: the path of its source
_FORMAT = 1  # of an entry
BOUNDARY, _BLOCK = 64, 1 << 24  # bytes


def entry_of(source: str, dtype: str) -> Path | None:
    """Return the cache's folder for a model with numbers of this type, which need not exist; None for a model that is
    not converted."""
    try:
        place = place_of(source)
        if place is None or not (is_gguf(source) or (dtype != "float32" and _dtype_of(place) == "float32")):
            return None
        files = sorted(place.glob("*.*")) if place.is_dir() else [place]
        state = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        kept = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "evoseek")
        cache = expanded(os.environ.get("EVOSEEK_CACHE") or kept) / "models"
    except (OSError, ValueError, EvoseekError):  # not found; or there is no home folder
        return None
    parts = (json_digest(part)[:12] for part in (str(place), [_FORMAT, transformers.__version__, state]))
    return cache.absolute() / "-".join((place.name[:80], *parts, dtype))


def find_entry(source: str) -> Path | None:
    """Return an entry of a GGUF file, with numbers of any type, to read its config and tokenizer quickly."""
    entry = entry_of(source, "*") if is_gguf(source) else None
    return next(entry.parent.glob(f"{escape(entry.name[:-1])}*"), None) if entry else None


def write_entry(entry: Path, source: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write an entry, whole or not at all, and remove entries whose source is gone or changed. Raises OSError, and the
    libraries' errors for a full disk."""
    place = str(place_of(source))
    with replace_directory(entry) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        for file in partial.glob("*.safetensors"):
            _align(file)
        (partial / _SOURCE).write_text(place, encoding="utf-8")
    for other in entry.parent.glob(f"*/{_SOURCE}"):
        with suppress(OSError, ValueError):  # of another process, or damaged
            path = other.read_text(encoding="utf-8")
            is_older = path == place and other.parent.name.split("-")[-2] != entry.name.split("-")[-2]
            if is_older or not Path(path).exists():
                remove_directory(other.parent)


def place_of(source: str) -> Path | None:
    """Return the file or folder of a source, without links; for a name on the hub, its place in the cache, or None."""
    path = expanded(source).resolve()
    found = None if path.exists() else try_to_load_from_cache(source, "config.json")
    return path if path.exists() else Path(found).parent if isinstance(found, str) else None


def _dtype_of(directory: Path) -> object:
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    return config.get("dtype", config.get("torch_dtype")) if isinstance(config, dict) else None


def _align(file: Path) -> None:
    """Lengthen the header of a safetensors file so that its data begin on a boundary."""
    with file.open("r+b") as opened:
        begin = 8 + int.from_bytes(opened.read(8), "little")
        room = -begin % BOUNDARY
        for end in range(file.stat().st_size, begin, -_BLOCK):
            start = max(begin, end - _BLOCK)
            opened.seek(start)
            block = opened.read(end - start)
            opened.seek(start + room)
            opened.write(block)
        opened.seek(begin)
        opened.write(b" " * room)
        opened.seek(0)
        opened.write((begin + room - 8).to_bytes(8, "little"))


def load_gguf(source: str, dtype: torch.dtype, kind: Any, **changes: object) -> Any:
    """Load as `kind.from_pretrained` with `output_loading_info`: a model with the file's weights, and the report.

    The model is rebuilt as an ordinary one, since transformers' own refers to the quantised file and can be neither
    trained nor saved. `changes` apply to the model's configuration. Raises PolicyError without gguf.
    """
    with redirect_stderr(StringIO()):  # a progress bar that no setting of transformers turns off
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            **_place(source), **_unpacked(), config=deepcopy(_config(source)), dtype=dtype, output_loading_info=True
        )
    read, report = loaded
    if report["missing_keys"]:
        return read, report
    config = deepcopy(_config(source))
    config.update(changes)
    with torch.device("meta"):
        plain: Any = type(kind.from_config(config))
    return plain.from_pretrained(
        None,
        config=config,
        state_dict=read.state_dict(),
        dtype=dtype,
        attn_implementation="sdpa",
        output_loading_info=True,
    )


def load_gguf_tokenizer(source: str) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a GGUF file, with its chat template. Raises PolicyError without gguf."""
    return AutoTokenizer.from_pretrained(**_place(source))


def gguf_config(source: str) -> Mapping[str, object]:
    """Read a GGUF file's configuration from its header; empty if it is damaged. Raises PolicyError without gguf."""
    if entry := find_entry(source):
        with suppress(OSError, ValueError):
            return json.loads((entry / "config.json").read_text(encoding="utf-8"))
    try:
        return cast("Mapping[str, object]", _config(source).to_dict())
    except PolicyError:
        raise
    except Exception:  # errors for a damaged file are not documented; loading reports them
        return {}


@cache
def _config(source: str) -> PreTrainedConfig:
    """Read the config, and keep it: reading the header takes seconds, since it holds the vocabulary."""
    config = AutoConfig.from_pretrained(**_place(source))
    config.__dict__.pop("quantization_config", None)
    return config


def _place(source: str) -> dict[str, str]:
    if find_spec("gguf") is None:
        raise PolicyError(
            f"'{source}' is a GGUF file, and reading it needs gguf, which is not installed. Install it with `pip "
            "install 'evoseek[gguf]'`, or give a directory with safetensors weights."
        )
    path = expanded(source).absolute()
    return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}


def _unpacked() -> dict[str, Any]:
    """Return the option that unpacks all weights, which later versions of transformers need."""
    later = getattr(transformers, "GgufConfig", None)
    return {"quantization_config": later(dequantize=True)} if later else {}
