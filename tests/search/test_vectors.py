"""The nearest vectors, exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evoseek.search.encoders import Vectors, unit
from evoseek.search.manifest import EncoderRecord, VectorsRecord
from evoseek.search.vectors import VectorFiles, write_ids
from evoseek.types import Passage


def files_of(folder: Path, vectors: Vectors, *, dtype: str = "float32") -> VectorFiles:
    folder.mkdir(exist_ok=True)
    encoder = EncoderRecord(
        settings={}, query_prompt="", passage_prompt="", pooling="", dimension=vectors.shape[1], weights=""
    )
    record = VectorsRecord.model_validate({"encoder": encoder, "dtype": dtype})
    vectors.astype(dtype).tofile(folder / "vectors.bin")
    assert len(list(write_ids(folder, (Passage(f"p{row}é", "", "", "") for row in range(len(vectors)))))) == len(
        vectors
    )
    return VectorFiles(folder, record)


def test_scores_are_inner_products_and_ties_keep_the_order(tmp_path: Path) -> None:
    vectors = unit(np.array([[1, 0], [3, 4], [0, 1], [3, 4]], np.float32))
    files = files_of(tmp_path / "data", vectors)
    (first, second) = files.nearest(unit(np.array([[0, 2], [1, 0]], np.float32)), 3)
    assert first == ([2, 1, 3], pytest.approx([1, 0.8, 0.8]))
    assert second == ([0, 1, 3], pytest.approx([1, 0.6, 0.6]))
    assert [files.id(row) for row in first[0]] == ["p2é", "p1é", "p3é"]
    assert files.nearest(np.zeros((1, 2), np.float32), 3) == [([], [])]
    assert files.nearest(vectors[:1], 0) == [([], [])]
    assert len(files.nearest(vectors[:1], 9)[0][0]) == 4


def test_scores_that_are_equal_when_they_are_rounded_keep_the_order(tmp_path: Path) -> None:
    files = files_of(tmp_path / "data", np.array([[0.500001, 0], [0.500003, 0], [0.4, 0]], np.float32))
    [(rows, _)] = files.nearest(np.array([[1, 0]], np.float32), 1)
    assert rows == [0]


def test_of_many_equal_scores_the_first_are_found(tmp_path: Path) -> None:
    vectors = unit(np.array([[1, 0], [0, 1], [0, 1]] * 100, np.float32))
    rows, scores = files_of(tmp_path / "data", vectors).nearest(vectors[:1], 5)[0]
    assert (rows, scores) == ([0, 3, 6, 9, 12], [1] * 5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("k", [3, 100, 20_000])
def test_the_nearest_of_several_blocks_are_those_of_a_sort(tmp_path: Path, dtype: str, k: int) -> None:
    """A query asked alone finds what it finds beside others."""
    rng = np.random.default_rng(1)
    vectors = unit(rng.standard_normal((40_000, 16)).astype(np.float32)).astype(dtype)
    vectors[39_000:] = vectors[7]
    queries = unit(rng.standard_normal((5, 16)).astype(np.float32))
    files = files_of(tmp_path / "data", vectors, dtype=dtype)
    found = files.nearest(queries, k)
    for query, (rows, scores) in zip(queries, found, strict=True):
        truth = np.round(vectors.astype(np.float32) @ query, 5)
        assert (rows, scores) == (np.argsort(-truth, kind="stable")[:k].tolist(), (-np.sort(-truth)[:k]).tolist())
    assert [files.nearest(query[None], k)[0] for query in queries] == found


def test_no_vectors_at_all(tmp_path: Path) -> None:
    files = files_of(tmp_path / "data", np.empty((0, 4), np.float32))
    assert (len(files), files.nearest(np.ones((1, 4), np.float32), 3)) == (0, [([], [])])


def test_the_nearest_within_spans_are_those_of_the_rows_alone(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    files = files_of(tmp_path / "data", vectors)
    spans = [(3, 5), (20, 31)]
    rows = [row for start, end in spans for row in range(start, end)]
    best = sorted(rows, key=lambda row: -float(vectors[row] @ vectors[0]))[:4]
    assert files.nearest(vectors[:1], 4, spans)[0][0] == best
    assert sorted(files.nearest(vectors[:1], 99, spans)[0][0]) == rows
    assert files.nearest(vectors[:1], 4, []) == [([], [])]
