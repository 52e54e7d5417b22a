"""Work on many items, batch by batch."""

import asyncio
from pathlib import Path

import pytest

from evoseek.curation.batches import BatchProgress, BatchWork, Made
from evoseek.errors import EvoseekError, RunError
from evoseek.storage.jsonl import ResumableJsonl


def work(*, fails: str = "", max_failed: float = 1.0) -> BatchWork[str, str]:
    """Each item is written, but for those of `fails`; two at once."""

    async def one(item: str, number: int) -> str:
        return f"{number}{item}"

    def made_of(results):
        failed = [result for result in results if result[-1] in fails]
        rows = [{"item": result} for result in results if result not in failed]
        return Made(rows, {"kept": len(rows)}, ["broken"] * len(failed), len(results))

    return BatchWork(one, made_of, 2, "items", max_failed)


def rows(file: ResumableJsonl) -> list[str]:
    return list(file.rows(lambda row: row["item"], "item"))


def test_a_file_is_filled_and_resumed_where_it_ends_and_its_progress_is_told(tmp_path: Path):
    file, told = ResumableJsonl(tmp_path / "out.jsonl"), list[tuple[int, int]]()
    stops = iter([False, True])
    reached = asyncio.run(work(fails="b").fill("abcde", file, should_stop=lambda: next(stops)))
    assert (reached, rows(file)) == (BatchProgress(2, {"kept": 1}, {"broken": 1}), ["1a"])
    for _ in range(2):  # the second time there is nothing left to do
        reached = asyncio.run(work(fails="b").fill("abcde", file, progress=lambda *done: told.append(done)))
        assert (reached, rows(file)) == (BatchProgress(5, {"kept": 4}, {"broken": 1}), ["1a", "3c", "4d", "5e"])
    assert told == [(3, 5), (4, 5), (5, 5)]


def test_nothing_of_a_batch_that_failed_is_written_and_it_can_be_made_again(tmp_path: Path):
    file = ResumableJsonl(tmp_path / "out.jsonl")
    with pytest.raises(EvoseekError, match=r"2 of 2 attempts failed, after 2 items.*2 times\): broken.*to resume"):
        asyncio.run(work(fails="cd", max_failed=0.1).fill("abcd", file))
    assert rows(file) == ["1a", "2b"]
    assert asyncio.run(work(max_failed=0.1).fill("abcd", file)) == BatchProgress(4, {"kept": 4}, {})
    assert rows(file) == ["1a", "2b", "3c", "4d"]


def test_a_file_that_another_version_began_is_refused(tmp_path: Path):
    file = ResumableJsonl(tmp_path / "out.jsonl")
    file.append_batch([{"item": "1a"}], {"questions": 1})
    with pytest.raises(RunError, match="begun by another version"):
        asyncio.run(work().fill("ab", file))
