"""Policies in GGUF files, the format of llama.cpp. Weights that are quantised in the file become ordinary numbers when
it is read, so that they can be trained and saved as safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import redirect_stderr
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from io import StringIO
from typing import Any, cast

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase

from evoseek.errors import PolicyError
from evoseek.storage.files import expanded


def load_gguf(source: str, dtype: torch.dtype, kind: Any, **changes: object) -> Any:
    """What `kind.from_pretrained` gives with `output_loading_info`: a model of the file's weights, and the report.

    The model is rebuilt as an ordinary one: what transformers reads refers to the quantised file, and can be neither
    trained nor saved. `changes` are to the model's configuration. Raises PolicyError without gguf.
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
    """The tokenizer of a GGUF file, with its chat template. Raises PolicyError without gguf."""
    return AutoTokenizer.from_pretrained(**_place(source))


def gguf_config(source: str) -> Mapping[str, object]:
    """Read a GGUF file's configuration from its header; empty if it is damaged. Raises PolicyError without gguf."""
    try:
        return cast("Mapping[str, object]", _config(source).to_dict())
    except PolicyError:
        raise
    except Exception:  # the errors for a damaged file are not documented; they are reported when it is loaded
        return {}


@cache
def _config(source: str) -> PreTrainedConfig:
    """Kept, since to read the header takes seconds: it holds the vocabulary."""
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
