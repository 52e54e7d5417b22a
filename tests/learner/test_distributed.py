import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evoseek.errors import ConfigError, PolicyError
from evoseek.learner import distributed
from evoseek.learner.distributed import ALONE, gathered, join_ranks, leave_ranks
from evoseek.types import (
    Action,
    Episode,
    Invalid,
    Passage,
    ProposerTask,
    Question,
    Scored,
    Segment,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
    TrajectoryGroup,
)

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
        assert result["joined"] == [0, 10, 20, 30]
        assert result["first"] == (rank == 0)


def test_ranks_that_wait_for_different_things_end_with_an_error_and_do_not_hang(run_ranks: RunRanks) -> None:
    answer = run_ranks(2, "gone", fails=True)
    assert answer["statuses"][1] == 3
    assert answer["statuses"][0] == 2
    assert answer["results"][0].startswith("EndedElsewhereError: Another process of this run ended")
    assert answer["output"] == ""


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("gathers", [0, 2, 3])
def test_what_fails_on_one_rank_while_setting_up_ends_all(run_ranks: RunRanks, rank: int, gathers: int) -> None:
    answer = run_ranks(3, "one_fails", rank=rank, gathers=gathers, fails=True)
    assert answer["statuses"] == [2, 2, 2], answer
    for number, result in enumerate(answer["results"]):
        other = f"EndedElsewhereError: Rank {rank} failed"
        assert result.startswith("ConfigError: the reason" if number == rank else other)


def test_no_rank_leaves_before_all_are_done(run_ranks: RunRanks) -> None:
    left = run_ranks(2, "idle")["results"]
    assert abs(left[0] - left[1]) < 0.5


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=15)
@given(json_values)
def test_alone_a_rank_hears_itself(value: object) -> None:
    assert ALONE.gather(value) == [value]


HOSTILE = {"\ud800": ["\ufdd0", None, 10**40, 0.1, {"</s>": True}], "1": -0.0}
SEARCHED = ToolResult(
    ToolCall("\ud800", HOSTILE), "\u2028", (Passage("a#0", "a", "Kalo", "Meri", score=5e-324, page=3),), 0.25
)
DOWN = Invalid(StopReason.TOOL_FAILED, "down")


def rollout(id: str, role: str, logprobs: tuple[float, ...] = (-1 / 3, float("-inf")), **changes: object) -> Trajectory:
    question = Question("t1", "kalo", ("meri",), HOSTILE)
    segments = Segment("prompt", (1, 2)), Segment("action", (3, 2**40), logprobs, 5)
    actions = Action("<search> \ud800", (SEARCHED.call,)), Action("", problem="cut")
    given = {"stop_reason": StopReason.ANSWERED, "answer": "1", "policy_version": 4, **changes}
    return Trajectory(id, question, role, segments, actions, (SEARCHED,), **given)


TASK = Question("t.1", "Kalo", (), {}, ProposerTask(2, Passage("a#0", "a", "Kalo", "Meri", page=3), False, "t"))
FAILED = rollout("f", "proposer", stop_reason=StopReason.TOOL_FAILED, answer=None, failure="down")
SOLVERS = TrajectoryGroup("g", (rollout("g/0", "solver"), FAILED), (Scored(0.1 + 0.2, {"f1": 1 / 3}), DOWN))
CHECKS = (rollout("c", "reader"), Scored(1.0)), (FAILED, DOWN)


@pytest.mark.parametrize(
    "episode",
    [
        Episode(FAILED, Scored(0.25), Question("q", "who ?", ("meri",)), None, CHECKS, SOLVERS, ((FAILED, DOWN),)),
        Episode(replace(rollout("p", "proposer"), question=TASK), Scored(0.0), rejected="duplicate"),
        Episode(FAILED, DOWN),
    ],
    ids=["whole", "rejected", "failed"],
)
def test_records_come_back_as_they_were(episode: Episode) -> None:
    """Through JSON, as from another rank."""
    assert gathered(ALONE, [episode], list[Episode]) == [[episode]]
    assert repr(gathered(ALONE, [episode], list[Episode])) == repr([[episode]])


@given(st.lists(st.floats(), max_size=9))
def test_numbers_come_back_to_the_bit(numbers: list[float]) -> None:
    sent = Trajectory("t", Question("q", "", ()), "", (Segment("action", (), tuple(numbers)),), (), (), DOWN.reason)
    (back,) = gathered(ALONE, sent, Trajectory)
    assert list(map(repr, back.rollout_logprobs)) == list(map(repr, numbers))


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


NOT_THERE = r"but this machine.* has cpu.*policy\.device=cpu"


@pytest.mark.parametrize(
    ("variables", "device", "error", "words"),
    [
        *(
            ({name: value for name, value in TORCHRUN.items() if name != missing}, "cpu", ConfigError, "has only .*")
            for missing in TORCHRUN
        ),
        ({**TORCHRUN, "WORLD_SIZE": "two"}, "cpu", ConfigError, "'WORLD_SIZE': 'two'.*Expected.*torchrun --nproc-per"),
        (TORCHRUN, "mps", ConfigError, "'mps'. Expected cpu or cuda"),
        ({}, "banana", PolicyError, f"got the device 'banana', {NOT_THERE}"),
        ({}, "cuda:99", PolicyError, f"got the device 'cuda:99', {NOT_THERE}"),
    ],
)
def test_what_processes_cannot_join_with_is_refused(environment, variables, device, error, words) -> None:
    environment(**variables)
    with pytest.raises(error, match=words):
        join_ranks(device)


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_partner_that_never_comes_is_not_waited_for_for_long(
    environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch, rank: str
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment(**{**TORCHRUN, "RANK": rank, "LOCAL_RANK": rank, "MASTER_PORT": str(port)})
    monkeypatch.setattr(distributed, "ARRIVAL", timedelta(seconds=1))
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=rf"process {rank} of 2, but not all .* 127\.0\.0\.1:{port}"):
        join_ranks("cpu")
    assert time.monotonic() - begun < 15


@pytest.mark.skipif(torch.cuda.device_count() > 7, reason="this machine has as many GPUs")
def test_more_processes_than_gpus_are_refused(environment: Callable[..., None]) -> None:
    environment(**{**TORCHRUN, "LOCAL_RANK": "7", "RANK": "7", "WORLD_SIZE": "8"})
    with pytest.raises(ConfigError, match=r"Local rank 7 has no GPU"):
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
