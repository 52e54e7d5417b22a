from pathlib import Path

import pytest
from tests.raising import raises

from evoseek.assembly.sources import gather
from evoseek.config.project import find_project, keep_settings, open_project
from evoseek.errors import ConfigError

TEXT = """
[project]
documents = "docs"
run = "runs/one"
recipe = "dr-zero/tiny"

[run]
system = "dr-zero"
seed = 3

[search]
index = "index"

[policy]
model = "own"

[dr_zero]
iterations = 1
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "evoseek.toml").write_text(TEXT)
    (tmp_path / "below" / "deep").mkdir(parents=True)
    return tmp_path


def test_it_is_found_from_its_folder_and_from_below_with_paths_relative_to_it(folder):
    for start in (folder, folder / "below" / "deep"):
        project = find_project(start)
        assert (project.folder, project.documents, project.run) == (folder, folder / "docs", folder / "runs" / "one")
        assert (project.index, project.recipes) == (folder / "index", ("dr-zero/tiny",))
        assert project.lookup("policy.model") == "own"  # no such folder: it is a name
    (folder / "own").mkdir()
    assert find_project(folder).lookup("policy.model") == str(folder / "own")


def test_without_a_file_there_is_no_project(tmp_path):
    assert find_project(tmp_path) is None
    with pytest.raises(ConfigError, match=r"has no evoseek\.toml.*evoseek init"):
        open_project(tmp_path)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ("[project]\ndocument = 'a'", "project.document = 'a'"),
        ("[project]\nrun = 3", "run = 3"),
        ("[project]\nmax_words = '3'", "max_words = '3'"),
        ("[project]\nmax_words = true", "max_words = True"),
        ("[project]\nmax_words = 0", "max_words = 0"),
        ("[project]\nstemming = 'german'", "stemming = 'german'"),
        ("[project]\nstemming = ['english']", "stemming = ['english']"),
        ("[project]\nengine = 'bm25'", "engine = 'bm25'"),
        ("[project]\nencoder = 3", "encoder = 3"),
        ("project = 1", "= 1"),
    ],
)
def test_an_unknown_key_or_a_wrong_value_is_refused(tmp_path, own, words):
    (tmp_path / "evoseek.toml").write_text(own)
    with pytest.raises(ConfigError, match=r"Expected in \[project\]: documents, run and recipe") as error:
        find_project(tmp_path)
    assert words in str(error.value)


def test_a_home_folder_that_is_not_known_is_refused_with_its_path(tmp_path):
    (tmp_path / "evoseek.toml").write_text('[search]\nindex = "~no-such-user/index"\n')
    with raises("file.unknown_home", match="The path ~no-such-user/index begins with a home folder that is not known"):
        find_project(tmp_path)


def test_its_settings_lie_over_its_recipe_and_beneath_files_options_and_sets(folder):
    project = find_project(folder)
    settings = gather(project=project).read()
    assert settings.run.system == "dr-zero"
    assert (settings.dr_zero.iterations, settings.dr_zero.solver_steps) == (1, 20)  # the file's, and the recipe's
    assert settings.search.index == str(folder / "index")
    (folder / "more.toml").write_text("[dr_zero]\niterations = 2\n[run]\nseed = 4\n")
    given = gather([folder / "more.toml"], project=project, options={"search.index": "other"}, sets=["run.seed=5"])
    settings = given.read()
    assert (settings.dr_zero.iterations, settings.search.index, settings.run.seed) == (2, "other", 5)


def test_another_system_takes_what_suits_every_system_alone(folder):
    settings = gather(project=find_project(folder), system="search-r1").read()
    assert settings.run.system == "search-r1"
    assert (settings.search.index, settings.policy.model) == (str(folder / "index"), "own")
    assert settings.run.seed == 0


def test_it_can_be_given_as_a_config_file(folder):
    settings = gather(Path(folder / "evoseek.toml")).read()
    assert (settings.dr_zero.iterations, settings.dr_zero.solver_steps) == (1, 20)
    assert settings.search.index == str(folder / "index")


def test_settings_are_kept_in_the_file_beside_what_is_there(tmp_path):
    file = tmp_path / "evoseek.toml"
    file.write_text(
        '# mine\n[project]\nmax_words = 100  # of a passage\ndocuments = "docs"\n\n[run]\nseed = 3\nmax_words = 1'
    )
    keep_settings(file, {"project": {"max_words": 60, "engine": "hybrid"}, "search": {"top_k": 4}})
    assert file.read_text() == (
        '# mine\n[project]\nengine = "hybrid"\nmax_words = 60  # of a passage\ndocuments = "docs"\n\n[run]\nseed = 3\n'
        "max_words = 1\n\n[search]\ntop_k = 4\n"
    )
    keep_settings(file, {"search": {"top_k": 5}})
    assert file.read_text().endswith("[search]\ntop_k = 5\n")


@pytest.mark.parametrize("text", ["search = {index = 'i'}\n", "[search]\ntop_k = [\n[1]]\n", "[ search ]\ntop_k = 3\n"])
def test_a_file_that_is_written_otherwise_is_left_as_it_is(tmp_path, text):
    (tmp_path / "evoseek.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"by hand: \{'search': \{'top_k': 4\}\}"):
        keep_settings(tmp_path / "evoseek.toml", {"search": {"top_k": 4}})
    assert (tmp_path / "evoseek.toml").read_text() == text
