import errno
import os
from contextlib import suppress
from functools import partial, partialmethod
from pathlib import Path
from threading import Thread

import pytest
from tests.raising import raises

from evoseek.search.lexical import LexicalIndex
from evoseek.search.manifest import linked
from evoseek.types import Passage


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_the_files_of_an_index_have_the_permissions_of_new_ones(tmp_path, mask, mode):
    """Also those that tantivy makes for their owner alone."""
    before = os.umask(mask)
    try:
        index = LexicalIndex.build(tmp_path / "i", [Passage("a", "a", "", "Kalo")])
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "i" / index.manifest.data).iterdir()}
    assert modes == dict.fromkeys(modes, mode)


@pytest.mark.parametrize("name", ["manifest.json", "*/meta.json"])
def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path, name, monkeypatch):
    LexicalIndex.build(tmp_path / "i", [Passage("a", "a", "", "Kalo")])
    (closed,) = (tmp_path / "i").glob(name)
    methods = {name: getattr(Path, name) for name in ("read_bytes", "stat")}

    def refuse(method, path, *args, **options):  # chmod would not stop root
        if path == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return methods[method](path, *args, **options)

    for method in methods:
        monkeypatch.setattr(Path, method, partialmethod(partial(refuse, method)))
    with raises("disk.failed", match=r"cannot be read \(Permission denied\)\. Give this user access"):
        LexicalIndex.open(tmp_path / "i")


def test_files_that_appear_while_the_links_are_being_removed_do_no_harm(tmp_path, monkeypatch):
    """As a thread of tantivy's makes them, now and then."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").touch()

    def keep_making(folder: Path) -> None:
        with suppress(OSError):
            for number in range(4_000):
                (folder / f"{number}.lock").touch()

    for _ in range(10):
        with linked(tmp_path / "data") as folder:
            assert [path.name for path in folder.iterdir()] == ["a"]
            thread = Thread(target=keep_making, args=(folder,))
            thread.start()
        with suppress(OSError):
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        thread.join()
