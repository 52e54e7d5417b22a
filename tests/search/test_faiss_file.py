"""Vectors that were published as a FAISS file."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from evoseek.errors import ConfigError, DataError
from evoseek.search.dense import DenseIndex
from evoseek.search.encoders import Vectors, make_encoder
from evoseek.search.indexing import FaissFile, IndexPlan, build_index

TEXTS = ["Kalo is a city by the sea.", "Meri is its mayor.", "Supa is a river.", "A mill stands at the Supa."]


def faiss_file(path: Path, vectors: Vectors, *, kind: bytes = b"IxFI") -> Path:
    """As FAISS writes it."""
    count, dimension = vectors.shape
    head = struct.pack("<4siqqqBiQ", kind, dimension, count, 1 << 20, 1 << 20, 1, 0, vectors.size)
    path.write_bytes(head + vectors.astype("<f4").tobytes())
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    lines = (json.dumps({"id": str(number), "contents": f'"T{number}"\n{text}'}) for number, text in enumerate(TEXTS))
    path = tmp_path / "wiki.jsonl"
    path.write_text("\n".join(lines))
    return path


def build(corpus: Path, vectors: Path | None) -> DenseIndex:
    plan = IndexPlan(engine="dense", vectors=vectors)
    build_index(corpus, corpus.parent / "index", plan, console=Console(file=io.StringIO()))
    return DenseIndex.open(corpus.parent / "index")


def test_an_index_of_published_vectors_is_that_of_embedding(corpus: Path) -> None:
    own = build(corpus, None)
    known = np.concatenate(list(own._vectors.blocks()))
    own_files, identity = own.manifest.files, own.manifest.identity
    published = build(corpus, faiss_file(corpus.with_name("flat.index"), known))
    assert published.manifest.files["vectors.bin"] == own_files["vectors.bin"]
    assert published.manifest.files["codes.bin"] == own_files["codes.bin"]
    assert published.manifest.identity == identity


def test_files_that_do_not_fit_are_refused(corpus: Path) -> None:
    encoder = make_encoder("static")
    known = encoder.passages([f"T{number}\n{text}" for number, text in enumerate(TEXTS)])
    at = corpus.with_name("flat.index")
    with pytest.raises(ConfigError, match=r"holds 3 vectors, and the corpus 4 passages.*--max-words"):
        build(corpus, faiss_file(at, known[:3]))
    with pytest.raises(ConfigError, match=r"have 100 numbers, those of the encoder 256"):
        FaissFile(faiss_file(at, known[:, :100]), encoder)
    with pytest.raises(ConfigError, match=r"not those that the encoder makes .* cosines are 1\.00, 0\."):
        build(corpus, faiss_file(at, known[[0, 2, 1, 3]]))
    with pytest.raises(DataError, match=r"begins with b'IxHN'"):
        FaissFile(faiss_file(at, known, kind=b"IxHN"), encoder)
    faiss_file(at, known)
    at.write_bytes(at.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"Expected a whole file"):
        FaissFile(at, encoder)
    with pytest.raises(DataError, match=r"cannot be read: No such file"):
        FaissFile(at.with_name("none"), encoder)
    with pytest.raises(ConfigError, match=r"--vectors has no effect"):
        IndexPlan(vectors=at).make_encoder()
