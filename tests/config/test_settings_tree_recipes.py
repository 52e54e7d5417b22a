"""Every recipe loads, by itself and over the recipes for models that it may be combined with, and changes something."""

from pathlib import Path

import pytest

from evoseek.assembly.sources import load_settings
from evoseek.config.sections import changed, check_effect, check_settings, lookup
from evoseek.config.settings_tree import FOLDER, purpose, read_tree, recipes
from evoseek.errors import ConfigError
from evoseek.storage.runs import flatten

RECIPES = sorted(recipes().values())
MODELS = ("tiny", "3b", "7b")
OF_MODELS = (*MODELS, "smollm2")
SELFPLAY = [path for path in RECIPES if path.parent.name in ("dr-zero", "ssp")]
VARIATIONS = [
    path for path in RECIPES if path.parent.name in ("dr-zero", "ssp", "zerosearch") and path.stem not in OF_MODELS
]


def name_of(path: Path) -> str:
    return path.relative_to(FOLDER).with_suffix("").as_posix()


def check(settings):
    check_settings(settings)
    check_effect(settings, changed(settings))


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_it_loads_by_itself_unless_it_has_to_lie_over_another_one(path):
    if over := read_tree(path).get("over"):
        with pytest.raises(ConfigError, match=f"{name_of(path)} goes over another recipe, {over[0]}"):
            load_settings(path)
        for beneath in over:
            check(load_settings([Path(beneath), path]))
    config = load_settings(path, options={"policy.model": "tiny"} if over else {})
    if path.parent.name != "algorithms":
        assert config.run.system == path.parent.name
    check(config)


@pytest.mark.parametrize("path", VARIATIONS, ids=name_of)
@pytest.mark.parametrize("model", MODELS)
def test_it_goes_over_the_recipe_of_a_model_and_changes_that_alone_which_it_names(path, model):
    base = FOLDER / path.parent.name / f"{model}.toml"
    before, after = (flatten(load_settings(files).resolved()) for files in (base, [base, path]))
    check(load_settings([base, path]))
    different = {key for key in after if after[key] != before.get(key)}
    named = {key: value for key, value in flatten(read_tree(path)).items() if key != "over"}
    parts = tuple(key.removesuffix("name") for key in named if key.endswith(".name"))  # another has other settings
    assert {key for key in different if not key.startswith(parts)} <= named.keys()
    assert different or (path.stem, model) in {("hops_4321", "3b"), ("hops_4321", "7b")}  # which have that ratio


@pytest.mark.parametrize("path", [path for path in SELFPLAY if path.parent.name == "dr-zero"], ids=name_of)
def test_dr_zeros_phases_are_all_reached(path):
    for files in (path, [FOLDER / "dr-zero" / "3b.toml", path]):
        config = load_settings(files, options={"policy.model": "tiny"} if "over" in read_tree(path) else {})
        assert config.run.steps >= config.dr_zero.steps


def test_self_play_of_the_small_model_is_worked_out_for_two_cores_and_begins_as_its_warm_start():
    config, warm = (load_settings(FOLDER / name) for name in ("dr-zero/smollm2.toml", "sft/smollm2.toml"))
    phases = config.dr_zero
    assert phases.steps == 18
    proposals, attempts = config.selfplay.proposals_per_step, config.proposer.attempts
    trained = phases.proposer_steps * proposals * (1 + attempts)
    written = phases.writing_steps * phases.passages_per_writing_step * phases.questions_per_passage
    solved = phases.solver_steps * config.questions.per_step * config.rollout.group_size
    assert (trained, written, solved) == (480, 240, 576)
    assert (config.policy, config.search.top_k) == (warm.policy, warm.search.top_k)
    assert config.proposer.ratio == (1, 1)
    cache = 2 * config.sampler.slots * config.rollout.max_total_tokens * 2 * 30 * 3 * 64 * 4
    assert round(cache / 1e9, 1) == 1.4


@pytest.mark.parametrize("folder", ["deepresearcher", "dr-zero", "ssp", "zerosearch"])
def test_the_readme_tells_of_every_recipe(folder):
    text = (FOLDER / folder / "README.md").read_text()
    for path in RECIPES:
        if path.parent.name == folder:
            assert f"`{path.name}`" in text


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_its_first_line_says_in_a_sentence_what_it_is_for(path):
    assert path.read_text().startswith(f"# {purpose(path)}\n")
    assert purpose(path).endswith(".")


# Parameters, and keys and values of a token: 2 x layers x key/value heads x 128, from the models' configurations.
SIZES = {"3b": (3.09e9, 2 * 36 * 2 * 128), "7b": (7.62e9, 2 * 28 * 4 * 128)}
# GPUs that the recipe is for, GB of each, and policies that are trained.
MACHINES = {
    "search-r1/3b": (1, 80, 1),
    "search-r1/7b": (2, 141, 1),
    "zerosearch/3b": (1, 80, 1),
    "zerosearch/7b": (2, 141, 1),
    "dr-zero/3b": (1, 141, 2),
    "dr-zero/7b": (1, 80, 2),
    "ssp/3b": (1, 141, 1),
    "ssp/7b": (1, 80, 1),
    "deepresearcher/7b": (8, 141, 1),
}
LARGE = [path for path in RECIPES if name_of(path) in MACHINES]


def test_every_recipe_for_a_large_model_is_for_a_machine():
    assert {name_of(path) for path in RECIPES if path.stem in ("3b", "7b")} == MACHINES.keys()


@pytest.mark.parametrize("path", LARGE, ids=name_of)
def test_its_weights_and_slots_fit_into_memory(path):
    """Without activations, for which a tenth is left."""
    config = load_settings(path)
    gpus, memory, policies = MACHINES[name_of(path)]
    parameters, values = SIZES[path.stem]
    size = 4 if config.policy.dtype == "float32" else 2
    if config.lora.rank:
        weights = size * parameters  # once, for all adapters; gradients and moments are of these alone
    else:
        weights = policies * 12 * parameters + 4 * parameters  # weights and two moments; gradients of one at a time
        weights = weights / gpus + (size * parameters if gpus > 1 else 0)  # shared, and the sampler's own copy
        weights += size * parameters if config.algorithm.kl_coefficient > 0 else 0  # the reference
    cache = policies * config.sampler.slots * config.rollout.max_total_tokens * values * size
    assert weights + cache < 0.9 * memory * 1e9


@pytest.mark.parametrize("path", LARGE, ids=name_of)
def test_no_rollout_runs_out_of_time_for_having_queued_or_at_ten_tokens_a_second(path):
    config = load_settings(path)
    rollout, play = config.rollout, path in SELFPLAY
    if play:
        rollouts = config.selfplay.proposals_per_step * config.proposer.attempts
        if config.run.system == "ssp":  # one sampler for proposals, readings and solvers
            rollouts += 2 * config.selfplay.proposals_per_step
        if phases := lookup(config, "dr_zero"):
            rollouts = max(rollouts, phases.passages_per_writing_step * phases.questions_per_passage)
    else:
        rollouts = config.questions.per_step * rollout.group_size
    turns = -(-rollouts // (MACHINES[name_of(path)][0] * config.sampler.slots))
    assert turns * rollout.deadline_s < rollout.wait_s
    assert min(rollout.max_turns * rollout.max_tokens_per_turn, rollout.max_total_tokens) <= 10 * rollout.deadline_s
