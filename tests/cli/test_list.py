"""`evoseek list`: kinds, parts, settings. Recipes: tests/config/test_settings_tree_recipe_names.py."""

import pytest
from typer.testing import CliRunner

from evoseek.cli.main import app
from evoseek.config.registry import KINDS
from evoseek.errors import ConfigError


def listed(*words):
    done = CliRunner().invoke(app, ["list", *words], env={"COLUMNS": "200"})
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_kinds_with_their_parts_and_recipes():
    lines = dict(line.split(maxsplit=1) for line in listed().splitlines()[:-1])
    assert lines.keys() == {*KINDS, "recipes"}
    assert all(name in lines["loss"] for name in KINDS["loss"].parts)


@pytest.mark.parametrize("kind", ["search", "sampler", "credit"])
def test_the_parts_of_a_kind_and_what_one_of_your_own_needs(kind):
    text = listed(kind)
    about = KINDS[kind]
    assert all(f"\n{name}\n" in f"\n{text}" for name in (*about.parts, *about.packaged))
    assert f"Your own {kind} needs {about.needs[0]}" in " ".join(text.split())
    assert all(f"Optional: {name}" in text for name in about.optional)


def test_every_setting_of_a_part_with_its_default():
    assert [line.split()[:2] for line in listed("loss", "clipped").splitlines()[1:3]] == [
        ["clip_low", "0.2"],
        ["clip_high", "0.2"],
    ]
    assert "The credit raw has no settings." in listed("credit", "raw")


@pytest.mark.parametrize(
    ("words", "said"),
    [(["los"], "no kind of part 'los'. Did you mean loss?"), (["loss", "clippd"], "no loss 'clippd'")],
)
def test_a_name_of_nothing(words, said):
    with pytest.raises(ConfigError, match=said):
        listed(*words)
