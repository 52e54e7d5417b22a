import subprocess
import sys
from pathlib import Path

import pytest

from evoseek.assembly.sources import load_settings
from evoseek.config.settings_tree import FOLDER, find_config, find_recipe, recipes
from evoseek.errors import ConfigError


def test_a_recipe_is_named_by_its_system_and_file():
    assert recipes()["dr-zero/3b"] == FOLDER / "dr-zero" / "3b.toml"
    assert {name.partition("/")[0] for name in recipes()} == {
        *("ablations", "algorithms", "deepresearcher", "dr-zero", "search-r1", "sft", "ssp", "zerosearch")
    }


def test_a_recipe_is_a_config_as_its_file_is_and_files_go_over_it(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[run]\nsteps = 7\n")
    assert load_settings(Path("dr-zero/3b")) == load_settings(FOLDER / "dr-zero" / "3b.toml")
    config = load_settings([Path("dr-zero/3b"), Path("ablations/dr-zero/parabolic"), file])
    assert (config.run.system, config.run.steps, config.proposer.difficulty) == ("dr-zero", 7, "parabolic")


def test_a_file_of_the_same_name_goes_before_the_recipe_and_a_folder_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ssp" / "7b").mkdir(parents=True)
    (tmp_path / "ssp" / "3b").write_text("")
    assert find_config(Path("ssp/3b")) == Path("ssp/3b")
    assert find_config(Path("ssp/7b")) == FOLDER / "ssp" / "7b.toml"


@pytest.mark.parametrize(
    "name", ["dr-zero/3bb", "dr-zero/3b.toml", "recipes/dr_zero/3b.toml", "/nowhere/ssp/x.toml", "q"]
)
def test_a_name_of_nothing_is_refused_with_the_nearest(name):
    with pytest.raises(ConfigError, match=rf"no recipe '{name}'.*`evoseek list recipes`") as caught:
        load_settings(Path(name))
    assert ("dr-zero/3b" in str(caught.value)) == ("3b" in name)


def test_a_recipe_that_repeats_an_experiment_is_told_by_its_new_name():
    with pytest.raises(ConfigError, match=r"The recipe ssp/sqlm is now ablations/ssp/sqlm\."):
        load_settings(Path("ssp/sqlm"))


def test_a_recipe_is_found_by_its_name_alone_not_by_a_way_out_of_the_folder():
    with pytest.raises(ConfigError, match="no recipe"):
        find_recipe("../recipes/dr-zero/3b")


def test_the_command_lists_every_recipe_with_its_purpose_and_prints_one_without_torch(tmp_path):
    code = "import sys; from evoseek.cli.main import app; app(standalone_mode=False); assert 'torch' not in sys.modules"

    def said(*words):
        program = [sys.executable, "-c", code, "list", "recipes", *words]
        return subprocess.run(program, capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    *lines, last = said().splitlines()
    assert 20 <= len(lines) <= 27
    assert "`evoseek list recipes ablations`" in last
    listed = dict(line.split(maxsplit=1) for line in (*lines, *said("ablations").splitlines()))
    assert listed.keys() == recipes().keys()
    assert listed["ablations/dr-zero/majority"].startswith(
        "A control: the solver's most frequent answer counts as right"
    )
    assert said("ablations/dr-zero/majority") == (FOLDER / "ablations" / "dr-zero" / "majority.toml").read_text()


def test_the_pass_rates_in_the_text_about_ssp_are_those_of_its_table():
    text = (FOLDER / "ssp" / "README.md").read_text(encoding="utf-8")
    arms = ("| both roles", "| `solver_only` |")
    last = [row.split("|")[5].split()[-1] for row in text.splitlines() if row.startswith(arms)]
    assert "pass rate {} against {}".format(*last) in text
