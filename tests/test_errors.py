"""One text for a disk that fails, whichever library says so."""

import errno
import sys

import pytest

from evoseek.cli import main as command_line
from evoseek.errors import disk_text, is_of_disk

FULL = (
    "Failed to acquire Lockfile: IoError(Os { code: 28, kind: StorageFull, message: 'No space left on device' }). None"
)
BROKEN = "An IO error occurred: 'Input/output error (os error 5)'"


def caused(error: Exception) -> Exception:
    """An error of a library that hides this one."""
    try:
        raise RuntimeError("it did not work") from error
    except RuntimeError as hidden:
        return hidden


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "x", "/a/b"), "/a/b cannot be read or written (No space left on device). Free space"),
        (OSError(errno.EIO, "x"), "A file cannot be read or written (Input/output error). Check the disk"),
        (
            OSError(errno.EROFS, "x", "/a"),
            "/a cannot be read or written (Read-only file system). Give this user access",
        ),
        (OSError(FULL), "A file cannot be read or written (No space left on device). Free space"),
        (ValueError(BROKEN), "A file cannot be read or written (Input/output error). Check the disk"),
        (caused(OSError(errno.EMFILE, "x")), "A file cannot be read or written (Too many open files). Raise the limit"),
    ],
)
def test_errors_of_a_disk_have_one_text_and_a_remedy(error, said):
    assert is_of_disk(error)
    assert disk_text(error).startswith(said)
    assert disk_text(error, "The index cannot be opened").startswith(
        f"The index cannot be opened {said[said.find('(') :]}"
    )


@pytest.mark.parametrize(
    "error", [KeyError("os"), OSError(errno.ECONNREFUSED, "x"), ValueError("code: 28"), OSError("x")]
)
def test_other_errors_are_not_taken_for_those_of_a_disk(error):
    assert not is_of_disk(error)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "x"), OSError(errno.EIO, "x", "/a"), ValueError(FULL)])
def test_the_command_line_does_not_call_a_failing_disk_a_bug(monkeypatch, capsys, error):
    def fail() -> None:
        raise error

    monkeypatch.setattr(command_line, "app", fail)
    monkeypatch.setattr(sys, "argv", ["evoseek"])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert "bug" not in said
    assert said == f"evoseek: {disk_text(error)}\n"
