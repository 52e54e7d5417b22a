"""Memory of a run, by hand: a model of 1000 parameters that keeps 10 numbers of each token."""

import pytest

from evoseek.policy.shape import ModelShape
from evoseek.training.given import load_settings
from evoseek.training.memory_needs import memory_needs, told

SHAPE = ModelShape(parameters=1000, kv_numbers=10, longest=64)
SMALL = {"sampler.slots": 3, "rollout.max_total_tokens": 50}
SERVED = {"sampler.name": "vllm", "sampler.urls": ["http://127.0.0.1:1", "http://127.0.0.1:2"]}
CACHE = 3 * 50 * 10  # numbers


@pytest.mark.parametrize(
    ("options", "processes", "expected"),
    [
        (SMALL, 1, {"learner": 16_000, "rollouts": 4 * CACHE}),
        (SMALL, 2, {"learner": 8_000, "sampler": 4_000, "rollouts": 4 * CACHE}),
        (SMALL | {"policy.dtype": "bfloat16"}, 1, {"learner": 18_000, "rollouts": 2 * CACHE}),
        (SMALL | {"rollout.max_staleness": 1}, 1, {"learner": 16_000, "sampler": 4_000, "rollouts": 4 * CACHE}),
        (SMALL | {"lora.rank": 4}, 2, {"learner": 2_000, "sampler": 4_000, "rollouts": 4 * CACHE}),
        (SMALL | {"algorithm.kl_coefficient": 0.1}, 1, {"learner": 16_000, "reference": 4_000, "rollouts": 4 * CACHE}),
        (SERVED, 2, {"learner": 8_000}),
        (SERVED | {"rollout.max_staleness": 1}, 1, {"learner": 16_000}),
    ],
)
def test_each_process_needs(options, processes, expected):
    assert memory_needs(load_settings(options=options), SHAPE, processes) == expected


def test_two_players_need_twice_as_much():
    alone = memory_needs(load_settings(options=SMALL), SHAPE, 2)
    both = memory_needs(load_settings(system="dr-zero", options=SMALL), SHAPE, 2)
    assert both == {name: 2 * size for name, size in alone.items()}
    one = load_settings(system="dr-zero", options={**SMALL, "dr_zero.one_policy": True, "proposer.temperature": 1.0})
    assert memory_needs(one, SHAPE, 2) == alone


def test_in_words():
    assert told({"learner": 2**30, "sampler": 2**29}) == (
        "1.50 GiB in each process, activations apart: learner 1.00 + sampler 0.50"
    )
