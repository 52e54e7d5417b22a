import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evoseek.errors import RunError
from evoseek.files import remove_directory, remove_leftovers, replace_directory, write_atomic


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Writing a file beyond `size` bytes fails in the operating system, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_write_atomic_replaces_text_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, "é")
    assert path.read_bytes() == "é".encode()
    write_atomic(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, "old")
    with files_limited_to(1000), pytest.raises(RunError, match=r"a\.json could not be written.*Free space"):
        write_atomic(path, "x" * 5000)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_write_atomic_into_a_missing_folder_is_a_run_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="could not be written"):
        write_atomic(tmp_path / "none" / "a.json", "x")


def test_replace_directory_appears_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "runs" / "d"
    for content in ("one", "two"):
        with replace_directory(target) as directory:
            (directory / "sub").mkdir()
            (directory / "sub" / "file").write_text(content)
            assert not target.exists() or (target / "sub" / "file").read_text() == "one"
        assert (target / "sub" / "file").read_text() == content
    assert [entry.name for entry in target.parent.iterdir()] == ["d"]


def test_replace_directory_that_fails_leaves_the_old_one_and_passes_the_error_on(tmp_path: Path) -> None:
    target = tmp_path / "d"
    with replace_directory(target) as directory:
        (directory / "file").write_text("old")

    def fill_the_disk() -> None:
        with replace_directory(target) as directory:
            (directory / "file").write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fill_the_disk()
    assert (target / "file").read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["d"]


def test_leftovers_of_a_killed_process_are_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".step-1.0123.tmp").mkdir()
    (tmp_path / ".step-1.0123.tmp" / "file").write_text("half")
    (tmp_path / ".a.json.0123.tmp").write_text("half")
    (tmp_path / "mine.tmp").write_text("kept")
    (tmp_path / ".hidden").write_text("kept")
    remove_leftovers(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".hidden", "mine.tmp"]


def test_remove_directory(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "file").write_text("x")
    remove_directory(tmp_path / "d")
    assert list(tmp_path.iterdir()) == []
