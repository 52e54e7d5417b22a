"""The log of what a server was asked."""

import json
from dataclasses import asdict

import pytest

from evoseek.questions import asked as module
from evoseek.questions.asked import Asked, AskedLog


def test_a_long_log_is_put_aside_and_a_full_disk_ends_no_answer(tmp_path, monkeypatch, caplog):
    log = AskedLog(tmp_path / "asked.jsonl")
    log.add(Asked("", "1", "failed", 0.0, "one?"))
    monkeypatch.setattr(module, "_MAX_BYTES", 10)
    log.add(Asked("", "2", "failed", 0.0, "two?"))
    assert [one.question for one in log.read()] == ["two?"]
    assert [one.question for one in AskedLog(tmp_path / "asked.1.jsonl").read()] == ["one?"]
    AskedLog(tmp_path / "none" / "asked.jsonl").add(Asked("", "3", "failed", 0.0))
    assert "A question was not logged" in caplog.text


@pytest.mark.parametrize("count", [0, 3, 501])
def test_the_last_questions_are_shown_newest_first(tmp_path, count):
    log = AskedLog(tmp_path / "asked.jsonl")
    rows = [json.dumps(asdict(Asked("k", str(number), "answered", 1.0))) for number in range(count)]
    log.path.write_text("".join(f"{row}\n" for row in rows))
    found = log.overview([])
    assert (found["asked"], len(found["questions"])) == (count, min(count, 500))
    assert [one["id"] for one in found["questions"]][:1] == [str(count - 1)] * bool(count)
