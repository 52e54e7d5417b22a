"""The static encoder: on weights worked out by hand, and on those of the package."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from evoseek.errors import ConfigError
from evoseek.search.encoders import StaticEncoder, encoder_of, make_encoder, package_file


def written(folder: Path) -> StaticEncoder:
    save_file({"weight": np.array([[1, 0], [0, 2], [4, 4]], np.float16)}, folder / "w.safetensors")
    tokenizer = Tokenizer(models.WordLevel({"kalo": 0, "river": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "t.json"))
    return StaticEncoder(folder / "w.safetensors", folder / "t.json")


def test_a_text_is_the_mean_of_its_tokens_at_unit_length(tmp_path: Path) -> None:
    """kalo kalo river: (2, 2) / 3; river: (0, 2)."""
    encoder = written(tmp_path)
    found = encoder.queries(["kalo  kalo\nriver", "river", ""])
    assert found == pytest.approx(np.array([[0.5**0.5, 0.5**0.5], [0, 1], [0, 0]]))
    assert (found.dtype, encoder.record.dimension, encoder.record.pooling) == (np.float32, 2, "mean")
    assert np.array_equal(encoder.passages(["kalo  kalo\nriver"])[0], found[0])


def test_the_record_follows_from_the_weights(tmp_path: Path) -> None:
    record = written(tmp_path).record
    assert written(tmp_path).record == record
    save_file({"weight": np.zeros((3, 2), np.float16)}, tmp_path / "w.safetensors")
    assert StaticEncoder(tmp_path / "w.safetensors", tmp_path / "t.json").record != record


@pytest.mark.skipif(find_spec("wordllama") is None, reason="the package with the weights is not installed")
def test_the_package_tells_like_from_unlike() -> None:
    encoder = make_encoder("static")
    found = encoder.queries(["The queen of the country", "a monarch who reigned", "to repair a bicycle"])
    assert found.shape == (3, 256)
    assert found[0] @ found[1] > found[0] @ found[2] + 0.1
    assert encoder_of(encoder.record, Path("index")).record == encoder.record


def test_a_package_that_is_not_installed_is_told_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"package no_such_package.*is not installed.*evoseek\[static\]"):
        package_file("no_such_package", "w", extra="static")
