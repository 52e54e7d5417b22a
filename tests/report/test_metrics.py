import json

import pytest

from evoseek.errors import DataError, RunError
from evoseek.report.metrics import JsonlMetrics, read_metrics


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
    path.write_text('{"step": 1}\n{"ste')
    with pytest.raises(DataError, match=":2 is damaged"):
        read_metrics(path)
    with pytest.raises(RunError, match="cannot be written"):
        JsonlMetrics(tmp_path / "none" / "m.jsonl").write(1, {})
