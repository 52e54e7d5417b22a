"""Errors: a code each, whose texts a person reads in errors.txt; and one text for a disk that fails.

python -m tests.test_errors    # writes errors.txt again, from the sources
"""

import ast
import errno
import inspect
import pickle
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.raising import raises

from evoseek import errors
from evoseek.cli import main as command_line
from evoseek.errors import CutReplyError, EvoseekError, SearchIndexError, disk_text, is_of_disk

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "evoseek"
TEXTS = TESTS / "errors.txt"
CLASSES = {name: one for name, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, EvoseekError)}

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


def text_of(node: ast.expr) -> str:
    """A message as its source writes it, with {expressions} where values stand."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(text_of, parts))
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
        case ast.Call(func=ast.Name(id="disk_text"), args=[_, what]):
            return f"{text_of(what)} ({{reason}}). {{remedy}}"
        case _:
            return f"{{{ast.unparse(node)}}}"


def coded() -> Iterator[tuple[str, str, str, str]]:
    """The code, class, module and text of each error in the sources that has a code of its own."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).with_suffix("").as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES and node.args:
                given = [key.value for key in node.keywords if key.arg == "code"]
                if given and not isinstance(given[0], ast.Constant):
                    continue  # that of the error behind it
                code = given[0].value if given else CLASSES[node.func.id].code
                if given or "." in code:
                    yield code, node.func.id, module, text_of(node.args[0])


def snapshot() -> str:
    lines = ["The errors that have a code, and their texts. Made by: python -m tests.test_errors", ""]
    for code, name, module, text in sorted(coded()):
        lines.append(f"{code} ({name}, {module})")
        lines += textwrap.wrap(" ".join(text.split()), 116, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines) + "\n"


def test_the_texts_of_errors_are_those_that_a_person_has_read():
    assert TEXTS.read_text() == snapshot(), "read what changed, then run: python -m tests.test_errors"


def test_every_code_is_checked_by_a_test():
    examples = {Path(__file__), TESTS / "raising.py"}
    checked = "".join(path.read_text() for path in {*TESTS.rglob("*.py")} - examples)
    assert not {code for code, *_ in coded() if f'"{code}"' not in checked}


def test_an_error_has_its_code_or_that_of_its_class_in_another_process_too():
    error = pickle.loads(pickle.dumps(SearchIndexError("There is none.", code="index.missing")))
    assert (type(error), str(error), error.code) == (SearchIndexError, "There is none.", "index.missing")
    assert SearchIndexError("It is damaged.").code == ""
    cut = CutReplyError("It was cut.", "He was")
    assert (cut.code, cut.text) == ("reply.cut", "He was")


def test_an_error_with_another_code_is_not_taken_for_the_one_expected():
    with pytest.raises(AssertionError), raises("index.missing"):
        raise SearchIndexError("It is damaged.", code="index.damaged")


if __name__ == "__main__":
    TEXTS.write_text(snapshot())
