"""Memory of a run, by hand: a model of 1000 parameters that keeps 10 numbers of each token, and leaves 20 for the
backward pass; 5 words, so that 2048 tokens have 10,240 logits. An adapter has 30 parameters a rank."""

import pytest

from evoseek.assembly.memory_needs import describe_needs, memory_needs, training_needs
from evoseek.assembly.sources import load_settings
from evoseek.models.machine import Machine
from evoseek.models.shape import ModelShape

SHAPE = ModelShape(parameters=1000, kv_numbers=10, longest=64, activations=20, vocabulary=5, layers=2, adapted=30)
SMALL = {"sampler.slots": 3, "rollout.max_total_tokens": 50, "learner.token_budget": 2048, "policy.device": "meta"}
SERVED = {
    "sampler.name": "vllm",
    "sampler.urls": ["http://127.0.0.1:1", "http://127.0.0.1:2"],
    "learner.token_budget": 2048,
    "policy.device": "meta",
}
CACHE = 3 * 50 * 10  # numbers
PASS = {"activations": 2048 * (20 * 4 + 5 * 12)}


@pytest.mark.parametrize(
    ("options", "processes", "expected"),
    [
        (SMALL, 1, {"learner": 16_000, "keys and values": 4 * CACHE}),
        (SMALL, 2, {"learner": 8_000, "sampler": 4_000, "keys and values": 4 * CACHE}),
        (
            SMALL | {"policy.dtype": "bfloat16"},
            1,
            {"learner": 18_000, "keys and values": 2 * CACHE, "activations": 2048 * (20 * 2 + 5 * 12)},
        ),
        (SMALL | {"rollout.max_staleness": 1}, 1, {"learner": 16_000, "sampler": 4_000, "keys and values": 4 * CACHE}),
        (
            SMALL | {"algorithm.kl_coefficient": 0.1},
            1,
            {"learner": 16_000, "reference": 4_000, "keys and values": 4 * CACHE},
        ),
        (
            SMALL | {"policy.device": "cpu"},
            1,
            {
                "process": 450 << 20,
                "learner": 16_000,
                "keys and values": 4 * CACHE,
                "freed memory": (4 * CACHE + 2048 * 140) // 4,  # of 140 bytes a token in PASS
            },
        ),
        (
            SMALL | {"credit.name": "gae"},
            2,
            {"learner": 8_000, "critic": 8_000, "sampler": 4_000, "keys and values": 4 * CACHE},
        ),
        (SERVED, 2, {"learner": 8_000}),
        (SERVED | {"rollout.max_staleness": 1}, 1, {"learner": 16_000}),
    ],
)
def test_each_process_needs(options, processes, expected):
    assert memory_needs(load_settings(options=options), SHAPE, processes) == PASS | expected


def test_an_adapter_keeps_more_for_the_backward_pass_and_checkpointing_less():
    adapter = memory_needs(load_settings(options=SMALL | {"lora.rank": 4}), SHAPE, 2)
    logits = 2048 * 5 * 12
    assert adapter["activations"] == 2048 * 28 * 4 + logits
    assert (adapter["learner"], adapter["sampler"]) == ((4_000 + 4 * 30 * 16) // 2, 4_000)
    less = memory_needs(load_settings(options=SMALL | {"learner.gradient_checkpointing": True}), SHAPE)
    assert less["activations"] == int(2048 * 20 / 12 * 4) + logits


def test_keys_and_values_are_those_of_the_rollouts_that_run_at_once_and_not_of_every_slot():
    a_step = {"questions.per_step": 2, "rollout.group_size": 3, "rollout.max_total_tokens": 50, "sampler.slots": 160}
    one = 50 * 10 * 4

    def held(**more):
        return memory_needs(load_settings(options=a_step | more), SHAPE)["keys and values"] // one

    assert held() == 6
    assert held(**{"rollout.max_staleness": 1}) == 12
    assert held(**{"evaluation.path": "q.jsonl", "evaluation.limit": 40}) == 40
    assert held(**{"evaluation.path": "q.jsonl"}) == 160
    four = memory_needs(load_settings(options=a_step), SHAPE, 4)["keys and values"] // one
    assert four == 2  # six, shared by four processes


def test_an_agent_that_only_answers_needs_its_weights_and_the_rollouts_of_its_questions():
    settings = load_settings(options=SMALL)
    assert memory_needs(settings, SHAPE, answers=2) == {
        "weights": 4_000,
        "keys and values": 2 * 50 * 10 * 4,
        "prefill": 2 * 50 * (10 * 4 + 50 * 17),  # 100 tokens, of which each sees 50
    }
    assert memory_needs(settings, SHAPE, answers=16)["keys and values"] == 4 * CACHE  # three slots


def test_a_process_that_answers_on_a_cpu_prefills_at_most_2048_tokens_at_once():
    settings = load_settings(options=SMALL | {"policy.device": "cpu", "rollout.max_total_tokens": 1000})
    assert memory_needs(settings, SHAPE, answers=3) == {
        "process": 490 << 20,
        "weights": 4_000,
        "keys and values": 3 * 1000 * 10 * 4,
        "prefill": 2048 * (10 * 4 + 1000 * 17),
        "freed memory": 3 * 1000 * 10 * 4 // 4,
    }


def test_a_cold_start_trains_all_weights_in_micro_batches_of_the_usual_size():
    options = SMALL | {"lora.rank": 4, "learner.token_budget": 64}
    after = {"learner": 4_000 + 4 * 30 * 16, "activations": 64 * (28 * 4 + 5 * 12), "keys and values": 4 * CACHE}
    assert memory_needs(load_settings(options=options), SHAPE) == after
    cold = load_settings(options=options | {"cold_start.questions": 100})
    assert memory_needs(cold, SHAPE) == {"learner": 16_000} | PASS
    assert training_needs(cold, SHAPE) == after
    first = {"cold_start.questions": 100, "environment.name": "search_first"}  # learns no demonstrations
    assert memory_needs(load_settings(options=options | first), SHAPE) == after


def test_two_players_need_twice_as_much():
    alone = memory_needs(load_settings(options=SMALL), SHAPE, 2)
    both = memory_needs(load_settings(system="dr-zero", options=SMALL), SHAPE, 2)
    assert both == {name: size if name == "activations" else 2 * size for name, size in alone.items()}
    adapters = load_settings(system="dr-zero", options=SMALL | {"lora.rank": 4})
    assert memory_needs(adapters, SHAPE) == memory_needs(load_settings(options=SMALL | {"lora.rank": 4}), SHAPE)
    one = load_settings(system="dr-zero", options={**SMALL, "dr_zero.one_policy": True, "proposer.temperature": 1.0})
    assert memory_needs(one, SHAPE, 2) == alone


def test_in_words():
    needs = {"learner": 2**30, "sampler": 2**29}
    here, elsewhere = Machine("cpu", 2**32), Machine("cuda", 2**32, is_here=False)
    assert describe_needs(needs, here) == "about 1.50 of 4.0 GiB that are free: learner 1.00 + sampler 0.50"
    assert describe_needs(needs, elsewhere) == "about 1.50 GiB: learner 1.00 + sampler 0.50"
