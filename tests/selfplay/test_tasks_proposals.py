"""Tasks by number, and the proposers' groups: HRPO's keys against advantages that another implementation made."""

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.credit import group_advantages
from evoseek.errors import ConfigError
from evoseek.rollout.environments import passage_task
from evoseek.selfplay.tasks import TaskSource, check_groups, proposal_groups, solver_groups
from evoseek.training.update import GroupUpdate
from evoseek.types import (
    Episode,
    Invalid,
    Outcome,
    Passage,
    ProposerTask,
    Question,
    Scored,
    Segment,
    StopReason,
    Trajectory,
    TrajectoryGroup,
)

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "group_advantages.json").read_text())["cases"]
DOWN = Invalid(StopReason.TOOL_FAILED, "the engine is down")


def make(id: str, item: str, requested: int) -> Question:
    return replace(passage_task(id, Passage(item, item, "", item), requested), text=item)


def source(items: int = 5, ratio: tuple[float, ...] = (4, 3, 2, 1), **options: object) -> TaskSource[str]:
    return TaskSource([f"p{n}" for n in range(items)], make, ratio, **{"seed": "0/training", **options})


def content(tasks: list[Question]) -> list[tuple[str, object]]:
    return [(task.text, task.task.requested) for task in tasks]


def test_a_task_is_worded_marked_and_named():
    (first, second) = source()(3, 2, "000007")
    assert (first.id, second.id) == ("000007-0000", "000007-0001")
    item = first.task.passage.id
    assert first == replace(make("000007-0000", item, first.task.requested), task=replace(first.task, id="000007-0000"))


def test_copies_of_a_task_differ_in_their_id_alone():
    tasks = source(copies=3)(0, 2, "k")
    assert [task.id for task in tasks] == ["k-0000.0", "k-0000.1", "k-0000.2", "k-0001.0", "k-0001.1", "k-0001.2"]
    assert [task.task.id for task in tasks] == ["k-0000"] * 3 + ["k-0001"] * 3
    assert content(tasks[:3]) == content(tasks[:1]) * 3
    assert content(tasks[::3]) == content(source()(0, 2, "k"))


@given(st.integers(1, 9), st.integers(0, 30), st.lists(st.integers(1, 7), max_size=6))
def test_what_a_number_stands_for_does_not_depend_on_the_batch_it_is_drawn_in(items, first, counts):
    tasks, apart, place = source(items), [], first
    for count in counts:
        apart += content(tasks(place, count, f"{place}"))
        place += count
    assert apart == content(tasks(first, place - first, "k"))


@given(st.integers(1, 12), st.integers(0, 4))
def test_every_item_comes_once_an_epoch(items, epoch):
    drawn = [task.text for task in source(items)(epoch * items, items, "k")]
    assert sorted(drawn) == sorted(f"p{n}" for n in range(items))


def test_epochs_and_seeds_have_orders_of_their_own():
    epochs = [tuple(text for text, _ in content(source(20)(20 * epoch, 20, "k"))) for epoch in range(5)]
    assert len(set(epochs)) == 5
    assert content(source(20)(0, 20, "k")) != content(source(20, seed="0/writing")(0, 20, "k"))


def test_numbers_are_requested_by_their_shares():
    """4:3:2:1 of 4000, within four standard errors; a share of 0 never."""
    counts = Counter(requested for _, requested in content(source()(0, 4000, "k")))
    for hops, share in enumerate((0.4, 0.3, 0.2, 0.1), 1):
        assert counts[hops] / 4000 == pytest.approx(share, abs=4 * (share * (1 - share) / 4000) ** 0.5)
    assert {requested for _, requested in content(source(ratio=(0, 1, 0, 2))(0, 500, "k"))} == {2, 4}


def test_without_shares_no_number_is_requested_and_the_items_are_the_same():
    free, drawn = source(ratio=(), copies=2)(3, 9, "k"), source(copies=2)(3, 9, "k")
    assert {task.task.requested for task in free} == {0}
    assert [(task.id, task.text) for task in free] == [(task.id, task.text) for task in drawn]


def episode(number: int, outcome: Outcome, requested: int = 1, task: str = "t", solvers=None, failed=()) -> Episode:
    """Of a proposal with two tokens; the last of them tells it apart."""
    question = Question(f"{task}.{number}", "task", (), task=ProposerTask(requested, id=task))
    segments = (Segment("prompt", (1, 2)), Segment("action", (3, 100 + number), (-0.5, -0.5)))
    proposal = Trajectory(f"p/{number}", question, "proposer", segments, (), (), StopReason.ANSWERED)
    return Episode(proposal, outcome, solvers=solvers, replaced=tuple((proposal, invalid) for invalid in failed))


def advantages_of(episodes: list[Episode], by: str, **options: str) -> list[float | None]:
    """Of each proposal, in the episodes' order; None for one that is not trained on."""
    update = GroupUpdate(learner=None, credit=partial(group_advantages, **options), seed=0)
    found = {sample.token_ids[-1]: sample.advantages for sample in update.samples(proposal_groups(episodes, by))}
    assert all(row[:2] == (0.0, 0.0) and row[2] == row[3] for row in found.values())
    return [found[100 + number][-1] if 100 + number in found else None for number in range(len(episodes))]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_hrpo_compares_proposals_of_equal_requested_hops(case):
    episodes = [
        episode(number, Scored(reward), int(hops), task=f"t{number}")
        for number, (reward, hops) in enumerate(zip(case["rewards"], case["groups"], strict=True))
    ]
    found = advantages_of(episodes, "requested", singleton="raw")
    assert found == pytest.approx(case["advantages"], abs=1e-6)
    alone = [Counter(case["groups"])[hops] == 1 for hops in case["groups"]]
    for singleton, value in (("zero", 0.0), ("drop", None)):
        expected = [value if single else given for single, given in zip(alone, found, strict=True)]
        assert advantages_of(episodes, "requested", singleton=singleton) == expected


def test_proposals_without_a_requested_number_are_compared_with_one_another():
    """Of 1, 0, 0 and 1/2 the mean is 3/8; the passages differ."""
    episodes = [episode(n, Scored(reward), 0, task=f"t{n}") for n, reward in enumerate((1.0, 0.0, 0.0, 0.5))]
    assert [group.key for group in proposal_groups(episodes, "requested")] == ["requested-0"]
    assert advantages_of(episodes, "requested", scale="none") == [0.625, -0.375, -0.375, 0.125]


def test_nested_sampling_compares_proposals_from_the_same_passage():
    """Mean and std (1 / sqrt 2) of two; hops do not matter, and one alone is compared with nobody."""
    rewards = {"a": (1.0, 0.0), "b": (0.5, 0.5), "c": (0.75,)}
    pairs = [(task, reward) for task, values in rewards.items() for reward in values]
    episodes = [episode(n, Scored(reward), requested=n, task=task) for n, (task, reward) in enumerate(pairs)]
    half = 0.5**0.5
    assert advantages_of(episodes, "task") == pytest.approx([half, -half, 0, 0, 0], abs=1e-5)
    assert advantages_of(episodes, "task", scale="none") == [0.5, -0.5, 0.0, 0.0, 0.0]


def test_invalid_proposals_are_in_a_group_but_in_no_statistic():
    outcomes = [Scored(1.0), DOWN, Scored(0.0), Scored(0.0)]
    episodes = [episode(number, outcome, failed=[DOWN] * number) for number, outcome in enumerate(outcomes)]
    (group,) = proposal_groups(episodes, "requested")
    assert group.key == "requested-1"
    assert group.outcomes == tuple(outcomes)
    assert [trajectory.id for trajectory, _ in group.replaced] == ["p/1", "p/2", "p/2", "p/3", "p/3", "p/3"]
    found = advantages_of(episodes, "requested", scale="none")
    assert found == [pytest.approx(2 / 3), None, pytest.approx(-1 / 3), pytest.approx(-1 / 3)]


def test_groups_are_bound_by_key_whatever_the_order():
    episodes = [episode(n, Scored(float(n)), requested=1 + n % 3) for n in range(7)]
    groups = {group.key: [t.id for t in group.trajectories] for group in proposal_groups(episodes, "requested")}
    assert groups == {
        "requested-1": ["p/0", "p/3", "p/6"],
        "requested-2": ["p/1", "p/4"],
        "requested-3": ["p/2", "p/5"],
    }
    again = {
        group.key: sorted(t.id for t in group.trajectories) for group in proposal_groups(episodes[::-1], "requested")
    }
    assert again == groups
    assert [group.key for group in proposal_groups(episodes, "task")] == ["task-t"]


def test_solvers_are_grouped_by_question_where_there_are_any():
    solvers = TrajectoryGroup("k/q", (), ())
    assert solver_groups([episode(0, DOWN), episode(1, Scored(1.0), solvers=solvers), episode(2, Scored(0.0))]) == [
        solvers
    ]


def test_readings_are_a_group_a_proposal_beside_the_others_and_bound_to_their_outcomes():
    def checked(number: int, *outcomes: Outcome) -> Episode:
        question = Question(f"t{number}", "who ?", ("Meri",))
        readings = [
            Trajectory(f"step-1/t{number}/{name}", question, "reader", (), (), (), StopReason.ANSWERED)
            for name in ("closed-book", "reading-0")
        ]
        return replace(episode(number, Scored(0.0)), checks=tuple(zip(readings, outcomes, strict=True)))

    episodes = [checked(0, Scored(0.0), Scored(1.0)), episode(1, DOWN), checked(2, Scored(1.0), DOWN)]
    groups = check_groups(episodes)
    assert {group.key: group.outcomes for group in groups} == {
        "step-1/t0/checks": (Scored(0.0), Scored(1.0)),
        "step-1/t2/checks": (Scored(1.0), DOWN),
    }
    assert [reading.id for reading in groups[1].trajectories] == ["step-1/t2/closed-book", "step-1/t2/reading-0"]
    assert {reading.role for group in groups for reading in group.trajectories} == {"reader"}
    trained = [*proposal_groups(episodes, "requested"), *solver_groups(episodes)]
    assert {trajectory.role for group in trained for trajectory in group.trajectories} == {"proposer"}


def test_an_item_without_room_for_its_task_gives_its_place_to_the_next_one():
    fitting = source(can_ask=lambda task: task.text not in ("p1", "p3"))
    texts = [task.text for task in fitting(0, 5, "k")]
    assert set(texts) == {"p0", "p2", "p4"}
    usual = [task.text for task in source()(0, 5, "k")]
    assert all(now == before for now, before in zip(texts, usual, strict=True) if before in ("p0", "p2", "p4"))
    with pytest.raises(ConfigError, match=r"None of the 5 .* room to write"):
        source(can_ask=lambda task: False)(0, 1, "k")
