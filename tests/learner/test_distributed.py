import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import ConfigError
from evoseek.learner.distributed import ALONE, join_ranks, leave_ranks

RunRanks = Callable[..., dict]
TORCHRUN = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets torchrun's variables to those given, and removes the others."""

    def put(**variables: str) -> None:
        for name in TORCHRUN:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return put


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_rank_hears_the_same(run_ranks: RunRanks, size: int) -> None:
    results = run_ranks(size, "collectives")["results"]
    for rank, result in enumerate(results):
        assert result["gather"] == [{"rank": r, "text": "é" * 9 * r, "pair": [1, 2]} for r in range(size)]
        assert result["sum"] == {"a": sum(0.1 + r for r in range(size)), "b": 1.0 + (size - 1) * 1e30}
        assert result["any"] == [True, False]
        assert result["first"] == (rank == 0)


def test_ranks_that_wait_for_different_things_end_with_an_error_and_do_not_hang(run_ranks: RunRanks) -> None:
    answer = run_ranks(2, "gone", fails=True)
    assert answer["statuses"][1] == 3
    assert answer["statuses"][0] == 1
    assert "RuntimeError" in answer["output"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_alone_a_rank_hears_itself(value: object) -> None:
    assert ALONE.gather(value) == [value]


def test_alone_values_come_back_as_they_would_from_another_rank() -> None:
    assert ALONE.gather({"pair": (1, 2)}) == [{"pair": [1, 2]}]
    with pytest.raises(TypeError):
        ALONE.gather(object())


@pytest.mark.parametrize(
    "variables", [{}, {"MASTER_ADDR": "host", "MASTER_PORT": "1"}, {**TORCHRUN, "WORLD_SIZE": "1"}]
)
def test_one_process_is_alone(environment: Callable[..., None], variables: dict[str, str]) -> None:
    environment(**variables)
    ranks = join_ranks("cpu")
    assert (ranks.rank, ranks.size, ranks.device) == (0, 1, torch.device("cpu"))
    leave_ranks()


@pytest.mark.parametrize("missing", TORCHRUN)
def test_a_half_present_environment_is_refused(environment: Callable[..., None], missing: str) -> None:
    environment(**{name: value for name, value in TORCHRUN.items() if name != missing})
    with pytest.raises(ConfigError, match=r"only a part.*expected.*torchrun --nproc-per-node"):
        join_ranks("cpu")


def test_an_environment_that_is_no_number_is_refused(environment: Callable[..., None]) -> None:
    environment(**{**TORCHRUN, "WORLD_SIZE": "two"})
    with pytest.raises(ConfigError, match="'WORLD_SIZE': 'two'"):
        join_ranks("cpu")


def test_a_device_without_an_engine_is_refused(environment: Callable[..., None]) -> None:
    environment(**TORCHRUN)
    with pytest.raises(ConfigError, match=r"'mps' for several processes, expected cpu or cuda"):
        join_ranks("mps")


@pytest.mark.skipif(torch.cuda.device_count() > 7, reason="this machine has as many GPUs")
def test_more_processes_than_gpus_are_refused(environment: Callable[..., None]) -> None:
    environment(**{**TORCHRUN, "LOCAL_RANK": "7", "RANK": "7", "WORLD_SIZE": "8"})
    with pytest.raises(ConfigError, match=r"Local rank 7 has no GPU of its own"):
        join_ranks("cuda")


def test_python_m_evoseek_is_the_command_line() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "evoseek", "train", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "120"},
        check=True,
    )
    assert "Train a policy" in result.stdout
