"""Every recipe loads, by itself and over the recipes for models that it may be combined with, and changes something."""

from pathlib import Path

import pytest

from evoseek.assemble.algorithm import check_settings
from evoseek.assemble.selfplay_settings import check_selfplay
from evoseek.config import load_config, read_tree
from evoseek.runs import flatten
from evoseek.systems.dr_zero import Schedule

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))
MODELS = ("tiny", "3b", "7b")
SELFPLAY = [path for path in RECIPES if path.parent.name in ("dr_zero", "ssp")]
VARIATIONS = [
    path for path in RECIPES if path.parent.name in ("dr_zero", "ssp", "zerosearch") and path.stem not in MODELS
]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_it_loads_by_itself(path):
    config = load_config(path)
    if path.parent.name != "algorithms":
        assert config.run.system == path.parent.name.replace("_", "-")
    (check_selfplay if path in SELFPLAY else check_settings)(config)


@pytest.mark.parametrize("path", VARIATIONS, ids=name_of)
@pytest.mark.parametrize("model", MODELS)
def test_it_goes_over_the_recipe_of_a_model_and_changes_that_alone_which_it_names(path, model):
    base = path.with_name(f"{model}.toml")
    before, after = (flatten(load_config(files).resolved()) for files in (base, [base, path]))
    (check_selfplay if path in SELFPLAY else check_settings)(load_config([base, path]))
    changed = {key for key in after if after[key] != before[key]}
    assert changed <= flatten(read_tree(path)).keys()
    assert changed or (path.stem, model) in {("hops_4321", "3b"), ("hops_4321", "7b")}  # which have that ratio


@pytest.mark.parametrize("path", [path for path in SELFPLAY if path.parent.name == "dr_zero"], ids=name_of)
def test_dr_zeros_phases_are_all_reached(path):
    for files in (path, [path.with_name("3b.toml"), path]):
        config = load_config(files)
        made = config.dr_zero
        phases = Schedule(made.iterations, made.proposer_steps, made.writing_steps, made.solver_steps)
        assert config.run.steps >= phases.steps


@pytest.mark.parametrize("folder", ["deepresearcher", "dr_zero", "ssp", "zerosearch"])
def test_the_readme_tells_of_every_recipe(folder):
    text = (ROOT / "recipes" / folder / "README.md").read_text()
    for path in RECIPES:
        if path.parent.name == folder:
            assert f"`{path.name}`" in text
