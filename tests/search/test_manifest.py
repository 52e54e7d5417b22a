from contextlib import suppress
from pathlib import Path
from threading import Thread

from evoseek.search.manifest import linked


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
