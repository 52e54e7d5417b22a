"""Settings as a user gives them."""

import json
from pathlib import Path

import pytest

from evoseek.assembly import sources
from evoseek.assembly.sources import edited, flat_settings, gather, load_settings
from evoseek.config.project import open_project
from evoseek.config.settings_tree import FOLDER
from evoseek.errors import ConfigError

SYSTEMS = ("search-r1", "dspo", "zerosearch", "deepresearcher", "dr-zero", "ssp")


def test_later_sources_win(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("[run]\nsteps = 1\nseed = 1\n[policy]\nmodel = 'a'\n")
    options = {"run.steps": 2, "run.seed": None, "policy.model": "b"}
    settings = load_settings(file, options=options, sets=["run.steps=3"])
    assert (settings.run.steps, settings.run.seed, settings.policy.model) == (3, 1, "b")


def test_a_setting_that_is_a_table_is_replaced_as_a_whole(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("[questions]\nbalance_by = 'hops'\nshares = {1 = 1, 2 = 2}\nwhere = {kind = 'a'}\n")
    asked = load_settings(file, sets=["questions.shares.3=1", "questions.shares.4=2", "questions.where={}"]).questions
    assert (asked.balance_by, asked.shares, asked.where) == ("hops", {"3": 1, "4": 2}, {})


def test_a_text_that_is_a_list_becomes_what_the_setting_is():
    assert load_settings(system="dr-zero", sets=["proposer.ratio=[1, 2]"]).proposer.ratio == (1, 2)


@pytest.mark.parametrize("system", SYSTEMS)
def test_resolved_settings_are_a_config_file(tmp_path, system):
    settings = load_settings(system=system, sets=["run.steps=7", "evaluation.temperature=0"])
    file = tmp_path / "config.json"
    file.write_text(json.dumps(settings.resolved()))
    assert load_settings(file) == settings


@pytest.mark.parametrize("text", ["run=3", "run.system=3"])
def test_what_is_no_table_and_what_is_no_name_is_said(text, tmp_path):
    key = text.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"{key} is 3: "):
        load_settings(sets=[text])
    file = tmp_path / "c.toml"
    file.write_text("run = 3\n")
    with pytest.raises(ConfigError, match=r"\(from .*c\.toml, the options and --set\) are not valid: run is 3: "):
        load_settings(file)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_brings_its_own_defaults_and_whatever_is_given_goes_before_them(tmp_path, system):
    assert load_settings(system=system).run.system == system
    file = tmp_path / "c.toml"
    file.write_text(f"[run]\nsystem = '{system}'\nsteps = 7\n[policy]\nmodel = 'x'\n[search]\ntop_k = 4\n")
    settings = load_settings(file)
    assert (settings.run.steps, settings.policy.model, settings.search.top_k) == (7, "x", 4)
    assert load_settings(file, system=system, sets=["policy.model=y"]).policy.model == "y"


def test_a_system_that_is_named_twice_has_to_be_the_same(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("[run]\nsystem = 'ssp'\n")
    with pytest.raises(ConfigError, match=r"'dr-zero' was asked for, but .*c\.toml holds settings for 'ssp'"):
        load_settings(file, system="dr-zero")
    for given in ({"sets": ["run.system=ssp"]}, {"options": {"run.system": "ssp"}}):
        with pytest.raises(ConfigError, match=r"run\.system is 'ssp', but .* belong to 'dr-zero'"):
            load_settings(system="dr-zero", **given)
    assert load_settings(system="ssp", sets=["run.system=ssp"]).run.system == "ssp"


@pytest.mark.parametrize("name", ["dr_zero", "3", "[1]", "{}"])
def test_an_unknown_system_is_refused_by_name(tmp_path, name):
    file = tmp_path / "c.toml"
    file.write_text(f"[run]\nsystem = {name if name != 'dr_zero' else repr(name)}\n")
    with pytest.raises(ConfigError, match="Choose one of search-r1, dspo, "):
        load_settings(file)


def test_of_several_files_the_later_one_wins_table_by_table(tmp_path):
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text("[run]\nsystem = 'ssp'\nsteps = 3\nseed = 1\n")
    second.write_text("[run]\nsteps = 4\n[proposer]\nattempts = 2\n")
    settings = load_settings([first, second], sets=["run.seed=5"])
    assert (settings.run.system, settings.run.steps, settings.run.seed) == ("ssp", 4, 5)
    assert (settings.proposer.attempts, settings.proposer.difficulty) == (2, "failure")  # the system's
    with pytest.raises(ConfigError, match=r"asked for, but .*a\.toml and .*b\.toml holds settings for 'ssp'"):
        load_settings([first, second], system="dspo")


def test_a_system_that_nobody_names_is_the_fallback(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("[run]\nsystem = 'dr-zero'\n")
    assert load_settings(fallback="ssp").run.system == "ssp"
    assert load_settings([], fallback="ssp").proposer.credit.name == "raw"
    assert load_settings(file, fallback="ssp").run.system == "dr-zero"
    assert load_settings(system="dspo", fallback="ssp").run.system == "dspo"
    file.write_text("[run]\nsystem = ['ssp']\n")
    with pytest.raises(ConfigError, match=r"no system .\['ssp'\]"):
        load_settings(file)


def test_a_recipe_is_named_and_files_go_over_it(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("[run]\nsteps = 7\n")
    given = gather([Path("dr-zero/3b"), file])
    assert (given.system, given.source) == ("dr-zero", f"dr-zero/3b and {file}")
    assert given.read().run.steps == 7
    assert load_settings(Path("dr-zero/3b")) == load_settings(FOLDER / "dr-zero" / "3b.toml")


def test_what_is_stated_is_known_before_it_is_read_and_changed_without_reading_again(monkeypatch):
    given = gather(options={"search.index": "i"}, sets=["reward=judge", "evaluation.path=q"])
    assert given.states("reward.name")
    assert [given.stated(name) for name in ("reward.name", "loss.name", "search.index")] == ["judge", None, "i"]
    assert given.has("questions.path")
    assert not gather(system="dr-zero").has("questions.path")
    assert given.over({"run.seed": 3, "evaluation.path": "other"}).read() == load_settings(
        options={"search.index": "i"}, sets=["reward=judge", "evaluation.path=q", "run.seed=3"]
    )
    read = given.read()
    monkeypatch.setattr(sources, "read_settings", None)
    changed = given.over({"reward.name": "set_f1", "run.seed": 3, "evaluation.path": "other"}).read()
    assert (changed.reward.name, changed.run.seed, changed.evaluation.path) == ("judge", 3, "q")
    assert type(read.reward) is type(changed.reward)


def test_a_run_with_settings_that_are_gone_is_refused_by_their_names_and_resumes_without_them(tmp_path):
    config, file = load_settings(system="dspo").resolved(), tmp_path / "config.json"
    old = {**config, "search": {**config["search"], "depth": 5}, "gone": {"x": 1}}
    file.write_text(json.dumps(old))
    with pytest.raises(ConfigError) as caught:
        load_settings(file, sets=["run.steps=3"])
    assert f"{file} was saved with settings that this version of evoseek does not read" in str(caught.value)
    assert all(words in str(caught.value) for words in ("search.depth", "setting gone", "remove these settings"))
    file.write_text(json.dumps(config))
    assert load_settings(file, sets=["run.steps=3"]).run.steps == 3


def test_a_system_is_named_by_its_import_path_too_and_saved_so(tmp_path):
    path = "evoseek.systems.dspo:DSPO"
    settings = load_settings(system=path, sets=["dspo.limit=2"])
    assert (settings.run.system, settings.dspo.limit, settings.loss.name) == (path, 2, "sequence")
    file = tmp_path / "config.json"
    file.write_text(json.dumps(settings.resolved()))
    assert load_settings(file) == settings


def test_a_project_may_name_the_model_for_a_recipe_that_goes_over_another(tmp_path):
    file, recipe = tmp_path / "evoseek.toml", '[project]\nrecipe = "ablations/zerosearch/constant_noise"\n'
    file.write_text(recipe)
    with pytest.raises(ConfigError, match="goes over another recipe"):
        gather(project=open_project(tmp_path))
    file.write_text(f'{recipe}[policy]\nmodel = "mine"\n')
    assert gather(project=open_project(tmp_path)).read().policy.model == "mine"


def test_what_was_edited_in_a_project_since_a_run_was_begun(tmp_path):
    def project(text):
        (tmp_path / "evoseek.toml").write_text(text)
        return open_project(tmp_path)

    own = project('[run]\nsystem = "search-r1"\nsteps = 3\nmax_minutes = 7.0\n')
    before = flat_settings(own, "search-r1")
    assert before == {"run.system": "search-r1", "run.steps": 3, "run.max_minutes": 7.0}
    assert edited(own, before, "search-r1") == {}
    assert edited(own, None, "search-r1") == before
    earlier = {"run.system": "search-r1", "run.steps": 2, "run.seed": 4, "run.of_an_earlier_version": 1}
    assert edited(own, earlier, "search-r1") == {"run.steps": 3, "run.max_minutes": 7.0, "run.seed": 0}
    unnamed = project("[run]\nsteps = 3\n")
    assert edited(unnamed, {"run.system": "search-r1", "run.steps": 3}, "search-r1") == {"run.system": "search-r1"}
    other = project('[run]\nsystem = "dspo"\nsteps = 9\n')
    assert edited(other, before, "search-r1") == {"run.system": "dspo"}
    assert edited(other, {"run.steps": 3}, "search-r1") == {"run.steps": 120}  # its default
