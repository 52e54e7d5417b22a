"""A file of JSON lines: whatever ends the process, what was written before is there, and it is resumed without a gap or
a double."""

import hashlib
import json
import os
import resource
import signal
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.raising import raises

from evoseek.errors import ConfigError, RunError
from evoseek.storage.jsonl import ResumableJsonl, open_growing_file

SETTINGS = {"policy": {"model": "tiny"}, "run": {"seed": 0}}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
batches = st.lists(st.dictionaries(texts, st.integers() | texts, max_size=2), max_size=3)


def same(row):
    return row


def read(file: ResumableJsonl) -> list:
    return list(file.rows(same, "row"))


def opened(path: Path, begun_with=SETTINGS):
    return open_growing_file(path, begun_with)


@contextmanager
def new_file():
    with TemporaryDirectory() as folder:
        yield Path(folder, "f.jsonl")


@contextmanager
def room_for(size: int):
    """No file can be longer: as on a full disk some bytes are written, and then there is an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "f.jsonl"


@pytest.fixture
def begun(path: Path) -> Path:
    """Two batches of two rows."""
    with opened(path) as file:
        file.append_batch([{"n": 1}, {"n": "zwölf"}], {"done": 2})
        file.append_batch([{"n": 3}, {"n": 4}], {"done": 4})
    return path


def test_a_setting_that_came_later_had_its_default_when_the_file_was_begun(begun: Path) -> None:
    later = {**SETTINGS, "writer": {"name": "rules"}}
    with open_growing_file(begun, later, later) as file:
        assert file.reached == {"done": 4}
    other = open_growing_file(begun, {**SETTINGS, "writer": {"name": "mine"}}, later)
    with pytest.raises(ConfigError, match=r"writer\.name was 'rules', now 'mine'"), other:
        pass


def test_a_row_is_a_line_as_the_encoder_spells_it(tmp_path: Path) -> None:
    file = ResumableJsonl(tmp_path / "f.jsonl")
    file.append([{"a": 1, "b": "ö"}, {}])
    ResumableJsonl(file.path, json.JSONEncoder(separators=(",", ":"))).append([{"a": 1, "b": 2}])
    assert file.path.read_bytes() == b'{"a": 1, "b": "\\u00f6"}\n{}\n{"a":1,"b":2}\n'
    assert read(file) == [{"a": 1, "b": "ö"}, {}, {"a": 1, "b": 2}]


def test_a_file_that_is_not_there_is_one_without_rows(tmp_path: Path) -> None:
    file = ResumableJsonl(tmp_path / "f.jsonl")
    assert (read(file), file.size, file.position()) == ([], 0, 0)
    assert file.digest() == file.digest(0) == hashlib.sha256(b"").hexdigest()
    file.cut_back(0, hashlib.sha256(b"").hexdigest())
    assert not file.path.exists()
    file.append([])
    assert file.path.read_bytes() == b""


@given(batches, batches, batches, st.data())
@settings(deadline=None, max_examples=60)
def test_killed_at_any_byte_of_the_last_write_all_earlier_rows_are_there(earlier, last, later, data) -> None:
    with new_file() as path:
        file = ResumableJsonl(path)
        file.append(earlier)
        before = file.size
        file.append(last)
        os.truncate(path, data.draw(st.integers(before, file.size)))
        left = read(file)
        whole = left[len(earlier) :]
        assert left[: len(earlier)] == earlier
        assert whole == last[: len(whole)]
        file.append(later)
        assert read(file) == left + later


@given(batches, batches, batches)
@settings(deadline=None, max_examples=40)
def test_cut_back_is_never_written(kept, cut, later) -> None:
    with new_file() as path:
        file, other = ResumableJsonl(path), ResumableJsonl(path.with_name("other.jsonl"))
        for one in (file, other):
            one.append(kept)
        position, digest = file.position(), file.digest()
        file.append(cut)
        file.cut_back(position, digest)
        assert (file.size, file.digest()) == (position, digest) == (other.size, other.digest())
        for one in (file, other):
            one.append(later)
        assert path.read_bytes() == other.path.read_bytes()


@given(st.lists(batches, min_size=1, max_size=3), batches, st.data())
@settings(deadline=None, max_examples=30)
def test_a_growing_file_killed_at_any_byte_of_the_last_batch_is_resumed_to_all_of_it(earlier, later, data) -> None:
    with new_file() as path:
        with opened(path) as file:
            for number, batch in enumerate(earlier, 1):
                before = file.size
                file.append_batch(batch, {"done": number})
        whole = path.read_bytes()
        os.truncate(path, data.draw(st.integers(before, len(whole))))
        with opened(path) as file:
            assert path.read_bytes() == whole
            assert file.reached == {"done": len(earlier)}
            file.append_batch(later, {"done": 99})
            assert read(file) == [row for batch in (*earlier, later) for row in batch]


def test_a_torn_line_longer_than_a_block_is_cut_off(tmp_path: Path) -> None:
    file = ResumableJsonl(tmp_path / "f.jsonl")
    for start, kept in ((b'{"n": 1}\n', [{"n": 1}]), (b"", [])):
        file.path.write_bytes(start + b'{"n": "' + b"x" * (2 * 2**20 + 5))
        assert read(file) == kept
        file.append([{"n": 2}])
        assert file.path.read_bytes() == start + b'{"n": 2}\n'


def test_the_digest_is_of_so_many_bytes(tmp_path: Path) -> None:
    data = b"0123456789" * 300_000  # more than is read at a time
    (tmp_path / "f.jsonl").write_bytes(data)
    file = ResumableJsonl(tmp_path / "f.jsonl")
    assert file.digest() == hashlib.sha256(data).hexdigest()
    for length in (0, 7, 2**20, 2**21 + 1):
        assert file.digest(length) == hashlib.sha256(data[:length]).hexdigest()


@pytest.mark.parametrize(
    ("text", "make", "why"),
    [
        ("{]", same, "JSONDecodeError"),
        ("[" * 200_000, same, "RecursionError"),
        ("{}", lambda row: row["step"], "KeyError: 'step'"),
        ("[]", lambda row: row[0], "IndexError"),
        ("1", lambda row: row["step"], "TypeError"),
        ("1", lambda row: row.step, "AttributeError"),
    ],
)
def test_a_damaged_row_is_named(tmp_path: Path, text, make, why) -> None:
    file = ResumableJsonl(tmp_path / "f.jsonl")
    file.path.write_text(f'{{"step": 1}}\n{text}\n')
    with raises("rows.invalid", match=rf"f\.jsonl:2 is not a row \({why}.*remove the line to read the rest"):
        list(file.rows(lambda row: None if row == {"step": 1} else make(row), "row"))


def test_a_folder_in_place_of_the_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").mkdir()
    with raises("rows.unreadable", match=r"rows\.jsonl cannot be read \(Is a directory\)"):
        list(ResumableJsonl(tmp_path / "rows.jsonl").rows(dict, "row"))


@pytest.mark.parametrize(
    ("now", "code", "value"),
    [
        (b"", "rows.removed", "holds 0 bytes, but it held 20 "),
        (b'{"step": 1}\n{"step"', "rows.removed", "holds 19 bytes, but it held 20 "),
        (b'{"step": 7}\n{"n":2}\n{"n":3}\n', "rows.changed", r"first 20 bytes of .*f\.jsonl differ from"),
    ],
)
def test_a_file_that_lost_or_changed_rows_is_not_cut_back(tmp_path: Path, now: bytes, code: str, value: str) -> None:
    file = ResumableJsonl(tmp_path / "f.jsonl")
    file.path.write_bytes(b'{"step": 1}\n{"n":2}\n')
    position, digest = file.position(), file.digest()
    file.path.write_bytes(now)
    with raises(code, match=value + r".*Restore the file from a copy, or start again"):
        file.cut_back(position, digest)
    assert file.path.read_bytes() == now


def test_a_full_disk_is_said_and_leaves_whole_lines(tmp_path: Path) -> None:
    file = ResumableJsonl(tmp_path / "f.jsonl")
    file.append([{"n": 1}])
    with room_for(file.size + 5), pytest.raises(RunError, match=r"f\.jsonl cannot be written \(File too large\).*Free"):
        file.append([{"n": 2}, {"n": 3}])
    assert file.path.read_bytes() == b'{"n": 1}\n'
    file.append([{"n": 2}])
    assert read(file) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("again", [True, False])
def test_a_batch_that_a_full_disk_did_not_take_is_added_again_or_by_whoever_resumes(path: Path, again: bool) -> None:
    with opened(path) as file:
        file.append_batch([{"n": "x" * 9000}], {"done": 1})
        whole = path.read_bytes()
        with room_for(file.size + 5), raises("disk.failed", match="File too large"):  # the state is shorter
            file.append_batch([{"n": 2}, {"n": 3}], {"done": 3})
        assert file.reached == {"done": 1}
        assert path.read_bytes() == whole
        if again:
            file.append_batch([{"n": 2}, {"n": 3}], {"done": 3})
    with opened(path) as file:
        assert file.reached == {"done": 3}
        assert path.read_bytes() == whole + b'{"n": 2}\n{"n": 3}\n'


@pytest.mark.parametrize("place", ["none/f.jsonl", ""])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    with raises("disk.failed", match=r"cannot be written \((No such file|Is a dir).*run the same command again"):
        ResumableJsonl(tmp_path / place).append([{}])


def test_the_state_holds_the_last_batch_and_the_digest_of_what_stands_before_it(begun: Path) -> None:
    assert begun.read_bytes() == '{"n": 1}\n{"n": "zwölf"}\n{"n": 3}\n{"n": 4}\n'.encode()
    state = json.loads(begun.with_name("f.jsonl.state.json").read_text())
    first = '{"n": 1}\n{"n": "zwölf"}\n'.encode()
    seal = state.pop("sha256")
    assert state == {
        "settings": SETTINGS,
        "reached": {"done": 4},
        "place": len(first),
        "before": hashlib.sha256(first).hexdigest(),
        "lines": '{"n": 3}\n{"n": 4}\n',
    }
    assert seal == hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def test_what_somebody_else_wrote_is_left_as_it_is(begun: Path) -> None:
    foreign = begun.with_name("notes.jsonl")
    foreign.write_text("mine\n")
    with raises("rows.no_state"), opened(foreign):
        pass
    assert foreign.read_text() == "mine\n"
    with raises("file.not_writable"), opened(begun.parent):
        pass


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda whole: whole + b"mine\n", "rows.changed"),
        (lambda whole: whole[:-2] + b"5\n", "rows.changed"),
        (lambda whole: whole[:10], "rows.removed"),
        (lambda whole: b"", "rows.removed"),
        (lambda whole: b"mine\n" * 20, "rows.changed"),
    ],
)
def test_a_file_that_does_not_hold_what_its_state_says_is_refused(begun: Path, change, code: str) -> None:
    other = change(begun.read_bytes())
    begun.write_bytes(other)
    with raises(code), opened(begun):
        pass
    assert begun.read_bytes() == other


def test_other_settings_are_named(begun: Path) -> None:
    with (
        raises("rows.other_settings", match=r"run\.seed was 0, now 1"),
        opened(begun, {**SETTINGS, "run": {"seed": 1}}),
    ):
        pass
    with raises("rows.other_settings"), opened(begun, {"searches": "0" * 64}):
        pass


def test_one_process_at_a_time(begun: Path) -> None:
    with opened(begun), raises("rows.locked"), opened(begun):
        pass
    with opened(begun):
        pass


def test_a_file_that_was_removed_is_begun_anew(begun: Path) -> None:
    begun.unlink()
    with opened(begun, {"run": {"seed": 7}}) as file:
        assert file.reached == {}
        file.append_batch([{"n": 1}], {"done": 1})
    assert begun.read_bytes() == b'{"n": 1}\n'


@pytest.mark.parametrize("text", ["", "[]", '{"settings": {}}', "\x00", json.dumps({"place": "3"})])
def test_a_damaged_state_is_said(begun: Path, text: str) -> None:
    begun.with_name(f"{begun.name}.state.json").write_text(text)
    with raises("rows.state_damaged"), opened(begun):
        pass


def test_a_folder_that_cannot_be_made_is_said(begun: Path) -> None:
    with raises("disk.failed", match="cannot be written"), opened(begun / "x.jsonl"):
        pass
