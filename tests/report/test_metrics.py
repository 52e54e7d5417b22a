import json

import pytest

from evoseek.errors import DataError, RunError
from evoseek.report.metrics import JsonlMetrics, ManyMetrics, read_metrics


def test_rows_are_appended_and_come_back(tmp_path):
    path = tmp_path / "m.jsonl"
    JsonlMetrics(path).write(1, {"reward": 0.5})
    JsonlMetrics(path).write(2, {"reward": float("nan"), "loss": float("inf")})
    assert read_metrics(path) == [{"step": 1, "reward": 0.5}, {"step": 2, "reward": None, "loss": None}]
    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_missing_and_damaged(tmp_path):
    path = tmp_path / "m.jsonl"
    assert read_metrics(path) == []
    for row in ("[1]", '{"reward": 1.0}', '{"step": 1, "reward": "much"}'):
        path.write_text(f'{{"step": 1}}\n{row}\n')
        with pytest.raises(DataError, match=r"m\.jsonl:2 is not a row of a step and its numbers"):
            read_metrics(path)
    with pytest.raises(RunError, match="cannot be written"):
        JsonlMetrics(tmp_path / "none" / "m.jsonl").write(1, {})


def test_a_row_that_is_being_written_is_left_out(tmp_path):
    path = tmp_path / "m.jsonl"
    JsonlMetrics(path).write(1, {"reward": 0.5})
    with path.open("a") as file:
        file.write('{"step": 2, "rew')
    assert read_metrics(path) == [{"step": 1, "reward": 0.5}]


def test_every_sink_gets_every_row_as_it_was_given(tmp_path):
    sinks = [JsonlMetrics(tmp_path / name) for name in ("one.jsonl", "other.jsonl")]
    many = ManyMetrics(sinks)
    many.write(1, {"reward": 0.5})
    many.write(2, {"reward": 0.75, "loss": -1.0})
    expected = [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.75, "loss": -1.0}]
    assert [read_metrics(sink.path) for sink in sinks] == [expected] * 2
    ManyMetrics([]).write(1, {"reward": 0.5})
