import json

import pytest
from evoseek.config import MANY, SYSTEMS, Config, load_config, may_differ_on_resume

from evoseek.errors import ConfigError
from evoseek.runs import changes, flatten


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
        ("learning_rate", "did you mean critic.learning_rate or learner.learning_rate or proposer.learning_rate?"),
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


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_brings_its_own_defaults_and_whatever_is_given_goes_before_them(tmp_path, system):
    config = load_config(system=system)
    assert config.run.system == system
    resolved = flatten(config.resolved())
    own = {key: resolved[key] for key in SYSTEMS[system]}
    assert own == SYSTEMS[system]
    assert {key: value for key, value in resolved.items() if key not in own and key != "run.system"} == {
        key: value for key, value in flatten(Config().resolved()).items() if key not in own and key != "run.system"
    }
    file = tmp_path / "c.toml"
    file.write_text(f"[run]\nsystem = '{system}'\nsteps = 7\n[policy]\nmodel = 'x'\n[proposer]\nscale = 'none'\n")
    config = load_config(file)
    assert (config.run.steps, config.policy.model, config.proposer.scale) == (7, "x", "none")
    assert load_config(file, system=system, sets=["policy.model=y"]).policy.model == "y"


def test_the_defaults_of_dr_zero_and_ssp():
    """Dr. Zero ends with its phases; Search Self-play is REINFORCE on 1 - mean for the proposer, verified, with GRPO of
    five attempts for the solver."""
    dr_zero, ssp = load_config(system="dr-zero"), load_config(system="ssp")
    assert dr_zero.run.steps == MANY
    assert (dr_zero.proposer.ratio, dr_zero.proposer.attempts) == ((4.0, 3.0, 2.0, 1.0), 5)
    assert (dr_zero.proposer.difficulty, dr_zero.proposer.group_by, dr_zero.proposer.singleton) == (
        "linear",
        "requested",
        "zero",
    )
    assert (ssp.proposer.difficulty, ssp.proposer.advantage, ssp.proposer.rejected_reward) == ("failure", "raw", 0.0)
    assert (ssp.proposer.attempts, ssp.ssp.fill, ssp.ssp.reset_every, ssp.ssp.train) == (5, "replay-reset", 10, "both")
    assert (ssp.verification.from_passages, ssp.verification.noise_passages) == (True, 4)
    assert (ssp.filters.min_searches, ssp.filters.repeated_queries) == (1, True)


def test_a_system_that_is_named_twice_has_to_be_the_same(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("[run]\nsystem = 'ssp'\n")
    with pytest.raises(ConfigError, match=r"'dr-zero' was asked for, but .*c\.toml holds settings for 'ssp'"):
        load_config(file, system="dr-zero")
    for given in ({"sets": ["run.system=ssp"]}, {"options": {"run.system": "ssp"}}):
        with pytest.raises(ConfigError, match=r"run\.system is set to 'ssp', but .* those of 'dr-zero'"):
            load_config(system="dr-zero", **given)


@pytest.mark.parametrize("name", ["dr_zero", "3", "[1]", "{}"])
def test_an_unknown_system_is_refused_by_name(tmp_path, name):
    file = tmp_path / "c.toml"
    file.write_text(f"[run]\nsystem = {name if name != 'dr_zero' else repr(name)}\n")
    with pytest.raises(ConfigError, match="The systems are: search-r1, dspo, zerosearch, deepresearcher, dr-zero, ssp"):
        load_config(file)


@pytest.mark.parametrize(
    "text",
    [
        "proposer.ratio=[]",
        "proposer.ratio=[0, 0]",
        "proposer.ratio=[1, -1]",
        "proposer.attempts=0",
        "proposer.temperature=0",
        "proposer.difficulty=hard",
        "filters.near_duplicates=1.5",
        "filters.min_words=0",
        "verification.noise_passages=-1",
        "verification.passages=all",
        "selfplay.label=gold",
        "selfplay.evidence_weight=-0.1",
        "dr_zero.writing_steps=0",
        "dr_zero.writing_temperature=0.001",
        "ssp.fill=refill",
        "ssp.reset_every=0",
        "ssp.train=neither",
    ],
)
def test_settings_of_self_play_that_mean_nothing_are_refused(text):
    with pytest.raises(ConfigError, match=text.partition("=")[0]):
        load_config(system="ssp", sets=[text])


def test_of_several_files_the_later_one_wins_table_by_table(tmp_path):
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text("[run]\nsystem = 'ssp'\nsteps = 3\nseed = 1\n")
    second.write_text("[run]\nsteps = 4\n[proposer]\nattempts = 2\n")
    config = load_config([first, second], sets=["run.seed=5"])
    assert (config.run.system, config.run.steps, config.run.seed) == ("ssp", 4, 5)
    assert (config.proposer.attempts, config.proposer.difficulty) == (2, "failure")  # the system's
    with pytest.raises(ConfigError, match=r"asked for, but .*a\.toml and .*b\.toml holds settings for 'ssp'"):
        load_config([first, second], system="dspo")


def test_a_system_that_nobody_names_is_the_fallback(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("[run]\nsystem = 'dr-zero'\n")
    assert load_config(fallback="ssp").run.system == "ssp"
    assert load_config([], fallback="ssp").proposer.advantage == "raw"
    assert load_config(file, fallback="ssp").run.system == "dr-zero"
    assert load_config(system="dspo", fallback="ssp").run.system == "dspo"
    file.write_text("[run]\nsystem = ['ssp']\n")
    with pytest.raises(ConfigError, match=r"no system \['ssp'\]"):
        load_config(file)


@pytest.mark.parametrize("ratio", ["[]", "[0, 0]", "[1, -1]", "[1e308, 1e308]"])
def test_shares_of_hops_that_are_none_are_refused(ratio):
    with pytest.raises(ConfigError, match=r"proposer\.ratio"):
        load_config(sets=[f"proposer.ratio={ratio}"])


def test_a_resumed_run_may_reach_the_web_in_another_way_but_shows_as_much_of_it():
    may = may_differ_on_resume(load_config(system="deepresearcher"))
    assert {"run.steps", "web.url", "web.rate_per_s", "web.replay", "browse.timeout_s", "browse.allow_private"} <= may
    shown = {"web.max_queries", "browse.max_urls", "browse.only_found", "browse.page_words"}
    assert not may & (shown | {"reader.model", "search.top_k", "rollout.final_answer"})
    assert may < flatten(Config().resolved()).keys()


@pytest.mark.parametrize("system", SYSTEMS)
def test_who_is_asked_may_change_and_is_no_matter_for_a_run_from_before_there_was_a_choice(system):
    config = load_config(system=system, sets=["asked.base_url=http://x/v1"])
    before = {name: section for name, section in config.resolved().items() if name != "asked"}
    assert changes(before, config.resolved(), may_differ_on_resume(config)) == ""
