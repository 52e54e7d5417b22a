import json

import pytest

from evoseek.config import Config, load_config
from evoseek.errors import ConfigError


def test_later_sources_win(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("[run]\nsteps = 1\nseed = 1\n[policy]\nmodel = 'a'\n")
    config = load_config(file, options={"run.steps": 2, "run.seed": None, "policy.model": "b"}, sets=["run.steps=3"])
    assert (config.run.steps, config.run.seed, config.policy.model) == (3, 1, "b")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("learner.learning_rate=1e-4", 1e-4),
        ("policy.model=/some/path", "/some/path"),
        ('policy.model="quoted=text"', "quoted=text"),
        ("learner.betas=[0.9, 0.95]", (0.9, 0.95)),
    ],
)
def test_set_takes_toml_values_and_bare_texts(text, value):
    section, key = text.partition("=")[0].split(".")
    assert getattr(getattr(load_config(sets=[text]), section), key) == value


def test_resolved_config_is_a_config_file(tmp_path):
    config = load_config(sets=["run.steps=7", "evaluation.temperature=0"])
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config.resolved()))
    assert load_config(file) == config


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("learner.learning_rat", "did you mean learner.learning_rate?"),
        ("learnr.learning_rate", "did you mean learner?"),
        ("learning_rate", "did you mean critic.learning_rate or learner.learning_rate?"),
        ("token_budget", "did you mean learner.token_budget?"),
    ],
)
def test_unknown_keys_name_the_nearest(key, hint):
    with pytest.raises(ConfigError) as caught:
        load_config(sets=[f"{key}=1"])
    assert hint in str(caught.value)


def test_a_key_like_no_other_gets_no_hint():
    with pytest.raises(ConfigError, match=r"unknown setting zzz[.]"):
        load_config(sets=["zzz.qqqq=1"])


def test_a_value_where_a_table_is():
    with pytest.raises(ConfigError, match="not a table"):
        load_config(sets=["run=3", "run.steps=4"])


@pytest.mark.parametrize(
    "text",
    [
        "learner.learning_rate=inf",
        "learner.learning_rate=nan",
        "learner.learning_rate=1e9",
        "learner.betas=[0.9, 1.0]",
        "rollout.temperature=1e-9",
        "rollout.temperature=100",
        "rollout.slots=1000000000000",
        "rollout.max_total_tokens=1000000000000",
        "evaluation.temperature=0.001",
        "run.seed=100000000000000000000",
        f"run.steps={'9' * 5000}",
        f"learner.betas={'[' * 100_000}",
    ],
)
def test_numbers_beyond_any_use_are_refused(text):
    with pytest.raises(ConfigError, match=text.partition("=")[0]):
        load_config(sets=[text])


@pytest.mark.parametrize(
    ("name", "text", "phrase"),
    [
        ("c.json", "[1]", "it holds list"),
        ("c.json", "[" * 100_000, "recursion"),
        ("c.toml", "a = " + "[" * 100_000, "recursion"),
    ],
)
def test_a_file_that_holds_no_settings(tmp_path, name, text, phrase):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=phrase):
        load_config(tmp_path / name)


def test_defaults_are_valid_and_frozen():
    with pytest.raises(Exception, match="frozen"):
        Config().run.steps = 3


def test_one_of_several_kinds_of_value_is_asked_for_by_the_settings_own_name():
    with pytest.raises(ConfigError, match=r"algorithm\.aggregate is 0: .*algorithm\.aggregate is 0: ") as caught:
        load_config(sets=["algorithm.aggregate=0"])
    assert "literal[" not in str(caught.value)
