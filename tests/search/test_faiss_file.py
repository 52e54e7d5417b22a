"""A FAISS file with its corpus, as users of Search-R1 have them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from tests.search.spelling import LetterEncoder

from evoseek.errors import SearchIndexError, ToolError
from evoseek.search.encoders import unit
from evoseek.search.faiss_file import FaissFile, FaissSettings

faiss = pytest.importorskip("faiss")

VECTORS = unit(np.array([[1, 0, 0, 0], [0, 1, 0, 0], [3, 4, 0, 0]], np.float32))
ROWS = [{"id": str(row), "contents": f'"Title {row}"\ntext {row} é'} for row in range(3)]


def written(folder: Path, index: object, rows: list[dict[str, str]] = ROWS) -> tuple[Path, Path]:
    index.add(VECTORS)
    faiss.write_index(index, str(folder / "x.index"))
    (folder / "c.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    return folder / "x.index", folder / "c.jsonl"


def test_it_is_searched_with_the_given_encoder(tmp_path: Path) -> None:
    """b = (0, 1, 0, 0): 1 with row 1, 4/5 with row 2, 0 with row 0."""
    engine = FaissFile(*written(tmp_path, faiss.IndexFlatIP(4)), LetterEncoder())
    (found, other) = asyncio.run(engine.search(["b", "a\ud800"], 2))
    assert [(p.id, p.title, p.text) for p in found] == [("1", "Title 1", "text 1 é"), ("2", "Title 2", "text 2 é")]
    assert [p.score for p in found] == pytest.approx([1, 0.8])
    assert [p.id for p in other] == ["0", "2"]
    assert [len(passages) for passages in engine.find_all(["a", "b"], 9)] == [3, 3]
    assert (engine.find_all(["a"], 0), engine.find_all([], 3), len(engine)) == ([[]], [], 3)


def test_distances_are_negated(tmp_path: Path) -> None:
    """Squared distance of (0, 1) and (.6, .8): .36 + .04."""
    engine = FaissFile(*written(tmp_path, faiss.IndexFlatL2(4)), LetterEncoder())
    assert [p.score for p in engine.find_all(["b"], 2)[0]] == pytest.approx([0, -0.4])


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    file, corpus = written(tmp_path, faiss.IndexFlatIP(4), ROWS[:2])
    with pytest.raises(SearchIndexError, match=r"has 3 vectors, and .* has 2 lines"):
        FaissFile(file, corpus, LetterEncoder())
    file, corpus = written(tmp_path, faiss.IndexFlatIP(4))
    wide = LetterEncoder()
    wide.record = wide.record.model_copy(update={"dimension": 5})
    with pytest.raises(SearchIndexError, match="vectors of 4 numbers, and the encoder makes 5"):
        FaissFile(file, corpus, wide)
    with pytest.raises(SearchIndexError, match=r"c\.jsonl cannot be read .*write_index"):
        FaissFile(corpus, corpus, LetterEncoder())
    with pytest.raises(SearchIndexError, match="Expected a file of JSON lines"):
        FaissFile(file, tmp_path / "none.jsonl", LetterEncoder())


@pytest.mark.parametrize("row", ["{", '{"id": "0"}', "[1]"])
def test_a_line_that_is_no_document_is_a_failure(tmp_path: Path, row: str) -> None:
    file, corpus = written(tmp_path, faiss.IndexFlatIP(4))
    corpus.write_text(f"{row}\n" * 3)
    with pytest.raises(ToolError):
        FaissFile(file, corpus, LetterEncoder()).find_all(["b"], 1)


def test_both_files_must_be_named() -> None:
    assert [problem.partition(", but ")[2].partition(" is")[0] for problem in FaissSettings().problems()] == [
        "search.file",
        "search.corpus",
    ]
