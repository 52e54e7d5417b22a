import json
from pathlib import Path

import pytest

from evoseek.systems.zerosearch.system import noise_probability

CASES = json.loads((Path(__file__).parents[2] / "fixtures" / "noise_curriculum.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES)
def test_the_probability_equals_the_reference(case):
    found = noise_probability(case["step"], case["total_steps"], case["start"], case["end"], case["base"])
    assert found == pytest.approx(case["noise"], abs=1e-12)


def test_it_goes_from_start_to_end_and_stays_there():
    """Base 4 at half of the steps: (2 - 1) / 3 of the way."""
    assert noise_probability(0, 10, 0.2, 0.8) == 0.2
    assert noise_probability(5, 10, 0.2, 0.8) == pytest.approx(0.4)
    assert noise_probability(10, 10, 0.2, 0.8) == noise_probability(99, 10, 0.2, 0.8) == 0.8
