import errno
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.raising import raises

from evoseek.config.settings_tree import read_tree
from evoseek.errors import ConfigError
from evoseek.storage.files import (
    expanded,
    model_digest,
    nearest,
    new_file,
    read_regular,
    remove_directory,
    remove_leftovers,
    replace_directory,
    write_atomic,
)
from evoseek.text.rows import read_rows


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
    with files_limited_to(1000), raises("disk.failed", match=r"a\.json could not be written.*Free space"):
        write_atomic(path, "x" * 5000)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_a_new_file_appears_whole_and_replaces_nothing(tmp_path: Path) -> None:
    with new_file(tmp_path / "a") as file:
        file.write(b"whole")
        assert not (tmp_path / "a").exists()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("a", "link"):
        with pytest.raises(FileExistsError), new_file(tmp_path / name) as file:
            file.write(b"other")
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "b") as file:
        raise ZeroDivisionError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "link"]
    assert (tmp_path / "a").read_bytes() == b"whole"


def test_write_atomic_into_a_missing_folder_is_a_run_error(tmp_path: Path) -> None:
    with raises("disk.failed", match="could not be written"):
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


def test_every_file_of_a_replaced_directory_has_the_permissions_of_new_files(tmp_path: Path) -> None:
    with replace_directory(tmp_path / "model") as directory:
        (directory / "part").mkdir()
        for name in ("config.json", "part/model.safetensors"):
            (directory / name).touch()
            (directory / name).chmod(0o600)  # as safetensors leaves it
    (tmp_path / "new").touch()
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert {path.stat().st_mode for path in files} == {(tmp_path / "new").stat().st_mode}
    assert len(files) == 2


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


def test_replace_directory_that_cannot_take_the_place_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, replace = tmp_path / "d", os.replace
    target.mkdir()
    (target / "file").write_text("old")

    def interrupted(source: Path, place: Path) -> None:
        if place == target and source.name.endswith(".tmp") and (source / "file").read_text() == "new":
            raise KeyboardInterrupt
        replace(source, place)

    monkeypatch.setattr(os, "replace", interrupted)

    def write() -> None:
        with replace_directory(target) as directory:
            (directory / "file").write_text("new")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert (target / "file").read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["d"]


def test_leftovers_of_a_killed_process_are_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".step-1.0123456789ab.tmp").mkdir()
    (tmp_path / ".step-1.0123456789ab.tmp" / "file").write_text("half")
    (tmp_path / ".a.json.0123456789ab.tmp").write_text("half")
    (tmp_path / "mine.tmp").write_text("kept")
    (tmp_path / ".mine.tmp").write_text("kept")
    (tmp_path / ".hidden").write_text("kept")
    remove_leftovers(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".hidden", ".mine.tmp", "mine.tmp"]


KILLED = """
import signal, sys
from pathlib import Path
from evoseek.storage import files
files.os.replace = lambda *_: (print("writing", flush=True), signal.pause())
files.write_atomic(Path(sys.argv[1]), "half")
"""


def test_the_next_write_removes_what_a_killed_one_left_and_not_what_a_live_one_writes(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(target)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        write_atomic(target, "whole")
        remove_leftovers(tmp_path)
        assert len(list(tmp_path.glob(".a.json.*.tmp"))) == 1
        process.kill()
    write_atomic(tmp_path / "b.json", "other")
    assert len(list(tmp_path.glob(".a.json.*.tmp"))) == 1  # another file's
    write_atomic(target, "whole")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_a_large_file_of_a_model_is_told_by_its_size_and_by_blocks_of_it(tmp_path: Path) -> None:
    """A sparse file of 300 MiB: what is hashed of it are 16 MiB."""
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.truncate(300 * 2**20)
    (tmp_path / "config.json").write_text("{}")
    before = model_digest(tmp_path)
    (tmp_path / "README.md").write_text("of no matter")
    assert model_digest(tmp_path) == before
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    after = model_digest(tmp_path)
    assert after != before
    (tmp_path / "config.json").write_text("{ }")
    assert model_digest(tmp_path) != after


def test_remove_directory(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "file").write_text("x")
    remove_directory(tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


def test_a_home_folder_is_put_in_and_one_that_is_not_known_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/kalo")
    assert [expanded(path) for path in ("~/a", Path("~"), "b/~")] == [
        Path("/home/kalo/a"),
        Path("/home/kalo"),
        Path("b/~"),
    ]
    with raises("file.unknown_home", match=r"The path ~no-such-user/a begins with a home folder that is not known"):
        expanded("~no-such-user/a")
    assert nearest(Path("~no-such-user/a")) == ""


def test_the_nearest_path_is_hinted_at(tmp_path):
    (tmp_path / "demo" / "index").mkdir(parents=True)
    assert nearest(tmp_path / "demo" / "indx") == f" Did you mean {tmp_path / 'demo' / 'index'}?"
    assert nearest(tmp_path / "dem" / "index") == f" Did you mean {tmp_path / 'demo' / 'index'}?"
    assert nearest(tmp_path / "quite" / "other") == ""
    assert nearest(tmp_path / "demo") == ""


def test_a_file_can_be_private_from_its_first_byte(tmp_path):
    write_atomic(tmp_path / "secret", "x", mode=0o600)
    write_atomic(tmp_path / "open", "x")
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("secret", "open")]
    assert modes == [0o600, 0o666 & ~umask()]


def umask() -> int:
    os.umask(before := os.umask(0))
    return before


@pytest.mark.parametrize("is_there", [False, True])
def test_a_folder_that_cannot_be_flushed_leaves_no_new_file_that_the_same_command_would_refuse(
    tmp_path, monkeypatch, is_there
):
    """The error says that nothing was changed, and to run the same command again."""

    def failing(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) and os.path.samestat(os.fstat(descriptor), tmp_path.stat()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    fsync = os.fsync
    if is_there:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "old").touch()
    monkeypatch.setattr(os, "fsync", failing)
    with raises("disk.failed", match="could not be written"):
        write_atomic(tmp_path / "new.jsonl", "{}\n")
    with pytest.raises(OSError, match="Input/output error"), replace_directory(tmp_path / "model") as partial:
        (partial / "new").touch()
    found = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))]
    assert found == ["model", "model/old"][: 2 * is_there]


def test_pipes_and_devices_are_not_read_as_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "linked.toml").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe.toml", tmp_path / "linked.toml", Path("/dev/null")):
        with pytest.raises(OSError, match="a pipe or a device"):
            read_regular(path)
        with pytest.raises(ConfigError, match="a pipe or a device"):
            read_tree(path)
        with raises("rows.missing", match=r"cannot be read.*not a regular file"):
            read_rows(path, lambda row, number: row, noun="question", keys="question")
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "gone")
    (tmp_path / "a.toml").write_text("é")
    assert read_regular(tmp_path / "a.toml") == "é"
