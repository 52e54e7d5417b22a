"""The nearest vectors: exactly, and by binary codes with exact rescoring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evoseek.search.encoders import Vectors, unit
from evoseek.search.manifest import EncoderRecord, VectorsRecord
from evoseek.search.vectors import VectorFiles, codes, hamming, sign_products, write_codes, write_ids
from evoseek.types import Passage


def files_of(folder: Path, vectors: Vectors, *, dtype: str = "float32", exact_rows: int = 20_000) -> VectorFiles:
    folder.mkdir(exist_ok=True)
    encoder = EncoderRecord(
        settings={}, query_prompt="", passage_prompt="", pooling="", dimension=vectors.shape[1], weights=""
    )
    record = VectorsRecord.model_validate({"encoder": encoder, "dtype": dtype})
    vectors.astype(dtype).tofile(folder / "vectors.bin")
    assert len(list(write_ids(folder, (Passage(f"p{row}é", "", "", "") for row in range(len(vectors)))))) == len(
        vectors
    )
    write_codes(folder, record)
    return VectorFiles(folder, record, exact_rows=exact_rows)


def test_codes_are_the_signs_relative_to_the_centre() -> None:
    """Bits 1011 0000 ... of the first, high to low in each byte; 70 numbers take two words."""
    vectors = np.zeros((2, 70), np.float32)
    vectors[0, [0, 2, 3, 65]] = 1
    found = codes(vectors, np.full(70, 0.5, np.float32))
    assert found.shape == (2, 2)
    assert found.T.copy().view(np.uint8)[0].tolist() == [0b10110000, *[0] * 7, 0b01000000, *[0] * 7]
    assert found[:, 1].tolist() == [0, 0]
    assert hamming(found, found[:, 1]).tolist() == [4, 0]


def test_hamming_over_several_blocks_equals_a_count_bit_by_bit() -> None:
    rng = np.random.default_rng(0)
    stored = rng.integers(0, 2**63, (3, 40_000), np.uint64)
    code = rng.integers(0, 2**63, 3, np.uint64)
    expected = [sum((int(a) ^ int(b)).bit_count() for a, b in zip(row, code, strict=True)) for row in stored.T[::997]]
    assert hamming(stored, code)[::997].tolist() == expected


def test_products_with_signs_are_sums_where_a_bit_is_set() -> None:
    """Of 70 numbers 0, 1, 2, ...: those at 0, 2, 3 and 65 sum to 70; over several blocks, too."""
    vectors = np.zeros((600, 70), np.float32)
    vectors[::2, [0, 2, 3, 65]] = 1
    found = sign_products(codes(vectors, np.full(70, 0.5, np.float32)), np.arange(70, dtype=np.float32))
    assert found.tolist() == [70, 0] * 300


@pytest.mark.parametrize("exact_rows", [10, 0])
def test_scores_are_inner_products_and_ties_keep_the_order(tmp_path: Path, exact_rows: int) -> None:
    vectors = unit(np.array([[1, 0], [3, 4], [0, 1], [3, 4]], np.float32))
    files = files_of(tmp_path / "data", vectors, exact_rows=exact_rows)
    (first, second) = files.nearest(unit(np.array([[0, 2], [1, 0]], np.float32)), 3)
    assert first == ([2, 1, 3], pytest.approx([1, 0.8, 0.8]))
    assert second == ([0, 1, 3], pytest.approx([1, 0.6, 0.6]))
    assert [files.id(row) for row in first[0]] == ["p2é", "p1é", "p3é"]
    assert files.nearest(np.zeros((1, 2), np.float32), 3) == [([], [])]
    assert files.nearest(vectors[:1], 0) == [([], [])]
    assert len(files.nearest(vectors[:1], 9)[0][0]) == 4


def test_of_many_equal_scores_the_first_are_found(tmp_path: Path) -> None:
    vectors = unit(np.array([[1, 0], [0, 1], [0, 1]] * 100, np.float32))
    rows, scores = files_of(tmp_path / "data", vectors).nearest(vectors[:1], 5)[0]
    assert (rows, scores) == ([0, 3, 6, 9, 12], [1] * 5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_binary_codes_with_rescoring_find_what_exact_search_finds(tmp_path: Path, dtype: str) -> None:
    """Clustered vectors, as texts have them, and queries near some of them: recall@3 against exact."""
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((300, 64))
    vectors = unit((centres[rng.integers(0, 300, 24_000)] + 0.7 * rng.standard_normal((24_000, 64))).astype(np.float32))
    queries = unit(vectors[:20] + 0.05 * rng.standard_normal((20, 64)).astype(np.float32))
    exact = files_of(tmp_path / "data", vectors, dtype=dtype, exact_rows=24_000).nearest(queries, 3)
    coded = files_of(tmp_path / "data", vectors, dtype=dtype).nearest(queries, 3)
    hits = [len(set(one[0]) & set(other[0])) for one, other in zip(exact, coded, strict=True)]
    assert sum(hits) / 60 >= 0.99
    files = files_of(tmp_path / "data", vectors, dtype=dtype, exact_rows=24_000)
    alone = [files.nearest(query[None], 3)[0] for query in queries]
    assert alone == exact


def test_of_many_equal_vectors_the_first_are_found(tmp_path: Path) -> None:
    """More equal ones than are compared with the query: the codes of all of them tie."""
    rng = np.random.default_rng(2)
    vectors = unit(rng.standard_normal((3_000, 64)).astype(np.float32))
    vectors[5::3] = vectors[2]
    rows, scores = files_of(tmp_path / "data", vectors, exact_rows=0).nearest(vectors[2:3], 4)[0]
    assert (rows, scores) == ([2, 5, 8, 11], pytest.approx([1, 1, 1, 1]))


def test_a_deep_ranking_by_codes_is_nearly_that_of_exact_search(tmp_path: Path) -> None:
    """The 100 best, which hybrid search fuses, of vectors without clusters, for which codes are worst."""
    rng = np.random.default_rng(3)
    vectors = unit(rng.standard_normal((24_000, 64)).astype(np.float32))
    exact = files_of(tmp_path / "data", vectors, exact_rows=24_000).nearest(vectors[:20], 100)
    coded = files_of(tmp_path / "data", vectors).nearest(vectors[:20], 100)
    hits = [len(set(one[0]) & set(other[0])) for one, other in zip(exact, coded, strict=True)]
    assert sum(hits) / 2_000 >= 0.85


def test_no_vectors_at_all(tmp_path: Path) -> None:
    files = files_of(tmp_path / "data", np.empty((0, 4), np.float32))
    assert (len(files), files.nearest(np.ones((1, 4), np.float32), 3)) == (0, [([], [])])


def test_as_many_are_found_as_are_asked_for_where_the_estimate_misleads(tmp_path: Path) -> None:
    """Each third distance is counted, and just those are 0: as if all vectors were as near."""
    rng = np.random.default_rng(4)
    vectors = np.abs(rng.standard_normal((3 * 8_192, 8))).astype(np.float32)
    vectors[::3] = vectors[0]
    rows, scores = files_of(tmp_path / "data", unit(vectors)).nearest(unit(vectors[:1]), 9_000)[0]
    assert len(rows) == len(set(rows)) == len(scores) == 9_000
