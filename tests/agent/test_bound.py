"""The file of a bound on wrong answers."""

from dataclasses import asdict

import pytest

from evoseek.agent.bound import Bound
from evoseek.errors import DataError


def test_a_bound_is_read_as_it_was_written(tmp_path):
    bound = Bound(0.1, 0.95, 0.8125, 46, 1, 90, "a-model 1f")
    bound.write(tmp_path / "bound.json")
    assert Bound.read(tmp_path / "bound.json") == bound


@pytest.mark.parametrize(
    ("name", "value"),
    [("most_wrong", 7.0), ("confidence", 0.0), ("above", float("nan")), ("above", -5.0), ("shown", -1)],
)
def test_a_bound_that_promises_nonsense_is_refused(tmp_path, name, value):
    Bound(**(asdict(Bound(0.1, 0.95, 0.8125, 46, 1, 90)) | {name: value})).write(tmp_path / "bound.json")
    with pytest.raises(DataError, match="Write it again"):
        Bound.read(tmp_path / "bound.json")


@pytest.mark.parametrize("text", [None, "", "{}", '{"most_wrong": 0.1, "exec": "x"}', "\udc80"])
def test_another_file_is_refused(tmp_path, text):
    path = tmp_path / "bound.json"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match="Write it again with `evoseek eval --most-wrong`"):
        Bound.read(path)
