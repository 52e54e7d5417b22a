"""Settings that are gone: what a run that was begun before is resumed with, and what a user reads who sets one."""

import json

import pytest

from evoseek.assembly.sources import load_settings
from evoseek.errors import ConfigError
from evoseek.storage import removed_settings as module
from evoseek.storage.removed_settings import Removed, in_settings_of_today, removed_settings, removed_words
from evoseek.storage.runs import RunDirectory, changes

GONE = {
    "run.old": Removed(0, "Nobody used it; leave it out."),
    "gone.deep.x": Removed(None, "It had no effect."),
}


@pytest.fixture
def gone(monkeypatch):
    monkeypatch.setattr(module, "removed_settings", lambda: GONE)


def test_what_is_gone_is_no_setting_of_today_and_says_why():
    known = load_settings().resolved()
    for name, removed in removed_settings().items():
        table, _, key = name.rpartition(".")
        assert key not in (known.get(table) or {}), name
        assert removed.reason, name


def test_a_saved_config_keeps_what_is_not_at_its_old_default(gone):
    saved = {"run": {"old": 0, "seed": 1}, "gone": {"deep": {"x": None}}, "search": "auto"}
    today = {"run": {"seed": 1}, "gone": {}, "search": "auto"}
    assert in_settings_of_today(saved) == today
    assert saved["run"] == {"old": 0, "seed": 1}
    assert in_settings_of_today({"run": {"old": 2}}) == {"run": {"old": 2}}
    assert changes(saved, today) == ""
    assert changes({"run": {"old": 2}}, {"run": {}}) == "run.old was 2, now None"


def test_a_run_with_them_resumes_at_the_old_default_alone(gone, tmp_path):
    config = load_settings().resolved()
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**config, "run": {**config["run"], "old": 0}}))
    assert load_settings(file) == load_settings()
    run = RunDirectory(tmp_path)
    (run.path / "checkpoints" / "step-1").mkdir(parents=True)
    (run.path / "checkpoints" / "step-1" / "state.json").write_text("{}")
    run.claim(load_settings(file).resolved(), is_dry=True)
    file.write_text(json.dumps({**config, "run": {**config["run"], "old": 2}}))
    with pytest.raises(ConfigError, match=r"unknown setting run.old \(it was removed: Nobody used it; leave it out\)"):
        load_settings(file)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("run.old=0", r"unknown setting run.old \(it was removed: Nobody used it; leave it out\)"),
        ("gone.deep.x=1", r"unknown setting gone \(it was removed: It had no effect\)"),
    ],
)
def test_a_user_who_sets_one_reads_why_it_is_gone(gone, setting, words):
    with pytest.raises(ConfigError, match=words):
        load_settings(sets=[setting])


def test_a_name_that_never_was_says_nothing(gone):
    assert removed_words("run.olds") == removed_words("ru") == ""
