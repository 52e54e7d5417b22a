"""Which settings follow a model of known sizes on a machine of known memory, worked out by hand."""

import json
from pathlib import Path

import pytest

from evoseek.assembly.model_defaults import (
    apply_model_defaults,
    follow_endpoint,
    learning_rate,
    search_first,
    slots,
)
from evoseek.assembly.sources import gather, load_settings
from evoseek.config.registry import KINDS
from evoseek.config.sections import with_setting
from evoseek.models.machine import Machine, find_machine
from evoseek.models.shape import ModelShape
from evoseek.storage.runs import flatten

GIB = 2**30
SIZES = {
    "small": (576, 1536, 30, 9, 3, 49152),
    "3b": (2048, 11008, 36, 16, 2, 151936),
}
NAMES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "vocab_size"),
)


@pytest.fixture
def model(tmp_path):
    """Makes a directory with nothing but a config.json."""

    def make(size, **more):
        folder = tmp_path / size
        folder.mkdir(exist_ok=True)
        sizes = dict(zip(NAMES, SIZES[size], strict=True))
        sizes |= {"tie_word_embeddings": True, "max_position_embeddings": 8192}
        (folder / "config.json").write_text(json.dumps(sizes | more))
        return f"policy.model={folder}"

    return make


def on(device, gib, **more):
    """A machine; a device that is given is taken. Its CPU does not multiply bfloat16, unless `more` says so."""

    def machine(given):
        own = given or device
        return Machine(own, gib * GIB, **{"has_bfloat16": own != "cpu", **more})

    return machine


def chosen(config, machine, saved=None):
    """The config, and what of it was chosen."""
    followed, words = apply_model_defaults(config, machine, saved)
    before, after = flatten(config.resolved()), flatten(followed.resolved())
    return followed, {key: after[key] for key in after if after[key] != before[key]}, words


def test_a_device_that_this_machine_lacks_has_no_free_memory(model):
    config = load_settings(sets=[model("small"), "policy.device=xpu:7"])
    words = apply_model_defaults(config, find_machine)[1]
    assert "; xpu:7, which is not on this machine. Settings" in words
    assert "GiB" not in words


@pytest.mark.parametrize("system", KINDS["system"].parts)
@pytest.mark.parametrize("name", ["tiny", "tiny-reader", "tiny-weak", "tiny-free", "tiny-web"])
def test_for_the_policies_of_the_package_nothing_changes_and_nothing_is_said(system, name):
    config = load_settings(system=system, options={"policy.model": name})

    def nobody_asks(device):
        raise AssertionError(device)

    assert apply_model_defaults(config, nobody_asks) == (config, "")


def test_a_small_model_on_a_cpu(model):
    followed, changed, words = chosen(load_settings(sets=[model("small")]), on("cpu", 22))
    # (22 GiB - 134.5M x 16 bytes) / 4 over 11,520 x 4 bytes x 2048 tokens: 57.0, so 32; and 4 x 8 rollouts a step
    assert changed == {
        "learner.learning_rate": 1.5e-5,
        "questions.per_step": 4,
        "rollout.max_tokens_per_turn": 128,
        "rollout.max_total_tokens": 2048,
        "rollout.max_tool_calls": 4,
        "rollout.max_malformed": 2,
        "rollout.final_answer": True,
        "rollout.max_turns": 8,
        "sampler.slots": 32,
    }
    assert followed.policy.device == "cpu"
    assert "135 million parameters; cpu with 22.0 GiB free" in words
    assert "  sampler.slots = 32" in words
    assert '  policy.device = "cpu"' in words


def test_a_large_model_on_a_gpu_with_all_weights_or_an_adapter(model):
    followed, _, _ = chosen(load_settings(sets=[model("3b")]), on("cuda", 78))
    rollout, learner = followed.rollout, followed.learner
    assert (followed.policy.device, followed.policy.dtype, learner.bf16) == ("cuda", "bfloat16", True)
    assert (learner.learning_rate, learner.token_budget, followed.questions.per_step) == (1e-6, 8192, 64)
    assert (rollout.max_tokens_per_turn, rollout.max_total_tokens, rollout.max_turns) == (500, 4096, 8)
    # (83.75e9 - 3.086e9 x 18) / 4 = 7.05e9, over 18,432 x 2 x 4096 = 151e6: 46, so 32
    assert followed.sampler.slots == 32
    adapter, _, _ = chosen(load_settings(sets=[model("3b"), "lora.rank=32"]), on("cuda", 78))
    assert (adapter.policy.dtype, adapter.learner.learning_rate) == ("bfloat16", 1e-5)
    assert adapter.sampler.slots == 64  # (83.75e9 - 3.086e9 x 2) / 4 over 151e6: 128, and 64 is the most


def test_on_a_cpu_bfloat16_is_taken_if_it_is_multiplied(model):
    followed, _, words = chosen(load_settings(sets=[model("small")]), on("cpu", 22, has_bfloat16=True))
    assert followed.policy.dtype == "bfloat16"
    assert words.count('  policy.dtype = "bfloat16"\n') == 1
    followed, _, words = chosen(load_settings(sets=[model("small")]), on("cpu", 22))
    assert followed.policy.dtype == "float32"
    assert words.count('  policy.dtype = "float32"  # cpu has no bfloat16\n') == 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_type_that_is_given_is_taken(model, dtype):
    config = load_settings(sets=[model("small"), f"policy.dtype={dtype}"])
    followed, _, words = chosen(config, on("cpu", 22, has_bfloat16=dtype == "float32"))
    assert followed.policy.dtype == dtype
    assert "dtype" not in words


def test_auto_is_as_if_nothing_was_given_also_over_a_recipe(model):
    auto = load_settings(Path("search-r1/3b"), sets=[model("small"), "policy.device=cpu", "policy.dtype=auto"])
    assert chosen(auto, on("cpu", 22, has_bfloat16=True))[0].policy.dtype == "bfloat16"
    tiny = load_settings(sets=["policy.dtype=auto"])
    assert apply_model_defaults(tiny, on("cpu", 22)) == (load_settings(), "")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_type_of_a_resumed_run_wins_over_the_machine(model, dtype):
    config = load_settings(sets=[model("small")])
    begun = chosen(config, on("cpu", 22, has_bfloat16=dtype == "bfloat16"))[0]
    assert begun.policy.dtype == dtype
    assert chosen(config, on("cpu", 22, has_bfloat16=dtype == "float32"), begun.resolved())[0] == begun
    assert chosen(config, on("cuda", 78, has_bfloat16=dtype == "float32"), begun.resolved())[0] == begun


def test_several_processes_and_cards_without_bfloat16_have_float32(model):
    config = load_settings(sets=[model("3b"), "lora.rank=8"])
    for machine, why in (
        (on("cpu", 22, has_bfloat16=True, processes=2), "2 processes share the weights in it"),
        (on("cuda", 78, processes=8), "8 processes share the weights in it"),
        (on("cuda", 78, has_bfloat16=False), "cuda has no bfloat16"),
    ):
        followed, _, words = chosen(config, machine)
        assert followed.policy.dtype == "float32"
        assert f"  # {why}\n" in words


def test_a_small_model_has_float32(model):
    config = load_settings(sets=[model("small", num_hidden_layers=1, vocab_size=1000)])
    assert chosen(config, on("cpu", 22, has_bfloat16=True))[0].policy.dtype == "float32"


def test_what_is_given_stays_and_the_rest_follows_from_it(model):
    sets = [model("small"), "policy.device=cpu", "rollout.max_tool_calls=10", "rollout.max_total_tokens=8192"]
    followed, changed, words = chosen(load_settings(sets=[*sets, "learner.learning_rate=3e-4"]), on("cuda", 22))
    assert (followed.policy.device, followed.learner.learning_rate, followed.rollout.max_turns) == ("cpu", 3e-4, 14)
    assert followed.sampler.slots == 8  # a quarter as many as with 2048 tokens: 14.2
    assert not changed.keys() & {"learner.learning_rate", "policy.device"}
    assert "learning_rate" not in words


@pytest.mark.parametrize(("dtype", "weight", "number"), [("float32", 16, 4), ("bfloat16", 18, 2)])
def test_slots_are_what_weights_masters_gradients_and_moments_leave(dtype, weight, number):
    """1000 weights, 10 numbers of keys and values a token, rollouts of 100 tokens; four in a quarter of the rest."""
    shape, settings = ModelShape(1000, 10, None), load_settings(options={"policy.dtype": dtype})
    settings = with_setting(settings, "rollout.max_total_tokens", 100)
    needed = (450 << 20) + 1000 * weight + 4 * 4 * 10 * 100 * number
    assert slots(settings, Machine("cpu", needed), shape) == 4
    assert slots(settings, Machine("cpu", needed - 1), shape) == 2


def test_processes_on_a_cpu_share_its_memory_and_the_rollouts():
    shape, options = ModelShape(1000, 10, None), {"rollout.max_total_tokens": 100}
    settings = load_settings(options=options | {"questions.per_step": 4, "rollout.group_size": 4})
    each = (450 << 20) + 1000 * 16 // 2 + 1000 * 4 + 4 * 4 * 10 * 100 * 4
    assert slots(settings, Machine("cpu", 2 * each, processes=2), shape) == 4
    assert slots(settings, Machine("cpu", 2 * each - 2, processes=2), shape) == 2
    assert slots(settings, Machine("cpu", 99 * each, processes=2), shape) == 8


def test_an_adapter_that_is_trained_further_is_one(model, tmp_path):
    base = model("small").partition("=")[2]
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base, "r": 16}))
    config = load_settings(sets=[f"policy.model={adapter}"])
    followed, _, _ = chosen(config, on("cpu", 22))
    fresh, _, _ = chosen(load_settings(sets=[f"policy.model={base}", "lora.rank=16"]), on("cpu", 22))
    assert followed.learner.learning_rate == fresh.learner.learning_rate == 1.5e-4
    assert followed.trained == fresh.trained == "an adapter of rank 16"
    assert followed.sampler.slots == fresh.sampler.slots


def test_what_a_system_sets_stays(model):
    followed, _, _ = chosen(load_settings(system="deepresearcher", sets=[model("small")]), on("cuda", 78))
    assert (followed.rollout.max_turns, followed.rollout.max_malformed) == (12, 0)
    ssp, changed, _ = chosen(load_settings(system="ssp", sets=[model("small")]), on("cpu", 22))
    assert (ssp.selfplay.proposals_per_step, ssp.proposer.max_turns, ssp.proposer.max_tokens_per_turn) == (4, 8, 128)
    assert "questions.per_step" not in changed
    assert ssp.sampler.slots == 16  # 4 proposals x 5 attempts


def test_no_more_tokens_than_the_model_was_made_for_and_a_slot_even_where_memory_is_short(model):
    config = load_settings(sets=[model("small", max_position_embeddings=512)])
    followed, _, _ = chosen(config, on("cpu", 1))
    assert (followed.rollout.max_total_tokens, followed.sampler.slots) == (512, 1)


def test_a_resumed_run_has_what_was_chosen_though_the_machine_has_changed(model):
    config = load_settings(sets=[model("small")])
    begun, _, _ = chosen(config, on("cpu", 22))
    resumed, _, words = chosen(config, on("cuda", 78), begun.resolved())
    assert resumed == begun
    assert "are those that the run was begun with" in words


def test_a_resolved_config_leaves_nothing_to_choose(model, tmp_path):
    begun, _, _ = chosen(load_settings(sets=[model("small")]), on("cpu", 22))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(begun.resolved()))
    assert apply_model_defaults(load_settings(path), on("cuda", 78)) == (begun, "")


def test_a_model_of_unknown_sizes_is_said_to_be_one(model, tmp_path):
    model("small")
    (tmp_path / "small" / "config.json").write_text('{"n_embd": 768}')
    followed, changed, words = chosen(load_settings(sets=[f"policy.model={tmp_path / 'small'}"]), on("cpu", 22))
    assert "set learner.learning_rate and sampler.slots yourself" in words
    assert "sampler.slots" not in changed
    assert followed.rollout.max_malformed == 2


def test_the_critic_follows_where_there_is_one(model):
    config = load_settings(sets=[model("3b"), "credit.name=gae"])
    assert apply_model_defaults(config, on("cuda", 78))[0].critic.learning_rate == 1e-5


def test_learning_rates_by_size():
    sizes = (0.135e9, 0.5e9, 1.5e9, 3.1e9, 7e9)
    assert [learning_rate(int(size), adapter=False) for size in sizes] == [1.5e-5, 7e-6, 3e-6, 1e-6, 1e-6]
    assert [learning_rate(int(size), adapter=True) for size in sizes] == [1.5e-4, 7e-5, 3e-5, 1e-5, 1e-5]


def test_a_model_behind_an_endpoint_is_told_of_malformed_turns_too_unless_somebody_says_otherwise():
    followed = follow_endpoint(load_settings())
    rollout = followed.rollout
    assert (rollout.max_tool_calls, rollout.max_malformed, rollout.final_answer, rollout.max_turns) == (4, 2, True, 8)
    assert followed.sampler == load_settings().sampler
    given = follow_endpoint(load_settings(sets=["rollout.max_malformed=0", "rollout.max_tool_calls=7"])).rollout
    assert (given.max_malformed, given.max_turns) == (0, 9)


def first(*sets, system="search-r1"):
    """What is chosen for a model that answers untrained."""
    given = gather([], system=system, sets=sets)
    before, after = flatten(given.read().resolved()), flatten(search_first(given.read(), given.states).resolved())
    return {key: after[key] for key in after if after.get(key) != before.get(key)}


def test_an_untrained_model_is_asked_search_first(model):
    small, big, named = model("small"), model("3b"), "environment.name=search_first"
    assert first(small) == {
        "environment.name": "search_first",
        "policy.format": "tags",
        "rollout.max_tool_calls": 0,
    }
    assert first(big) == {"environment.name": "search_first"}
    assert first(small, "rollout.max_tool_calls=2") == {
        "environment.name": "search_first",
        "policy.format": "tags",
    }
    endpoint = ("answerer.model=a", "answerer.base_url=http://127.0.0.1:1")
    assert first(*endpoint) == {"environment.name": "search_first"}
    assert first(small, named) == {"policy.format": "tags", "rollout.max_tool_calls": 0}
    for stated in ("environment.name=solver", 'environment="solver"', "tools=[]"):
        assert first(small, stated) == {}
    assert first("policy.model=tiny") == {}
    assert (
        first(small, "agent.name=tests.doubles.agents:own_loop") == {}
    )  # whose calls keep the format that training would have
    assert first(small, system="deepresearcher") == {}


def test_a_run_is_asked_as_it_was_trained(model, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps({"policy": {"model": str(tmp_path / "small")}}))
    model("small")
    assert first(f"policy.model={run}") == {}
    protocol = {"environment": {"name": "search_first"}, "rollout": {"max_tool_calls": 2}}
    (run / "config.json").write_text(json.dumps({"policy": {"model": str(tmp_path / "small")}, **protocol}))
    assert first(f"policy.model={run}") == {"environment.name": "search_first", "rollout.max_tool_calls": 2}
    assert first(f"policy.model={run}", "environment.name=solver") == {}
