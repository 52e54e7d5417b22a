"""Selects the attention function of a model, among those registered with transformers, for a block."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from transformers import PreTrainedConfig


@contextmanager
def attention_named(config: PreTrainedConfig, name: str) -> Generator[None]:
    """Let the model of this (text) configuration use the attention registered under `name`, within the block."""
    settings = cast("Any", config)
    usual = settings._attn_implementation
    settings._attn_implementation = name
    try:
        yield
    finally:
        settings._attn_implementation = usual
