"""The tiny policy that the package carries: what later training rests on it can do, several hops are left to learn."""

import pytest
from tools.tiny.skills import Skill, measure_skills

from evoseek.models.load import load_policy
from evoseek.models.source import tiny_policy_dir
from evoseek.world.world import World

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def skills() -> dict[tuple[str, float], Skill]:
    found = measure_skills(load_policy("tiny"), seed=31, tries=30, temperatures=(0.0, 0.7))
    return {(skill.name, skill.temperature): skill for skill in found}


def test_it_is_small_and_holds_no_pickle() -> None:
    files = list(tiny_policy_dir().iterdir())
    assert sum(path.stat().st_size for path in files) < 10_000_000
    assert {path.suffix for path in files} == {".json", ".md", ".safetensors"}


def test_as_a_solver_it_answers_one_hop_and_stops_there(skills: dict[tuple[str, float], Skill]) -> None:
    for name in ("solve", "solve, second phrasing"):
        assert skills[name, 0.0].share(1) >= 0.8
        assert skills[name, 0.0].share(3, 4) <= 0.1


def test_as_a_proposer_it_is_mostly_valid(skills: dict[tuple[str, float], Skill]) -> None:
    assert skills["propose", 0.7].share(1, 2, 3) >= 0.6
    assert skills["trace", 0.7].share(1, 2) >= 0.5


def test_the_same_measurement_gives_the_same_numbers() -> None:
    policy = load_policy("tiny")
    first, again = (measure_skills(policy, seed=3, tries=3, temperatures=(0.7,)) for _ in range(2))
    assert first == again


def test_it_was_measured_on_names_it_never_saw() -> None:
    trained = {word for name in World.generate(0, 600, "pretrain").names for word in name.split()}
    assert not trained & {word for name in World.generate(31, 400, "train").names for word in name.split()}
