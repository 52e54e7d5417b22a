"""What bench/selfplay.py keeps of a step and draws."""

import pytest

from evoseek.assembly.sources import load_settings


@pytest.fixture(scope="module")
def selfplay(script):
    return script("selfplay")


def test_a_step_that_trains_the_solver_says_on_how_many_rollouts_and_how_many_questions_are_trainable(selfplay):
    solving = {"step": 9.0, "selfplay/iteration": 1.0, "solver/rollout/num": 160.0, "solver/frac_reward_zero_std": 0.75}
    assert selfplay.kept(solving)["solver/trained_on"] == 160
    assert selfplay.kept(solving)["solver/trainable"] == 0.25
    labelled = {"step": 9.0, "rollout/num": 80.0, "frac_reward_zero_std": 1.0}
    assert selfplay.kept(labelled)["solver/trained_on"] == 80
    assert selfplay.kept(labelled)["solver/trainable"] == 0
    both = {"step": 9.0, "selfplay/proposals": 32.0, "solver/rollout/num": 40.0, "proposer/rollout/num": 32.0}
    assert selfplay.kept(both)["solver/trained_on"] == 40
    assert "solver/trainable" not in selfplay.kept(both)


def test_attempts_at_the_questions_of_a_proposer_that_learns_or_writes_train_no_solver(selfplay):
    proposing = {"step": 2.0, "selfplay/iteration": 1.0, "selfplay/proposals": 32.0, "solver/rollout/num": 160.0}
    assert "solver/trained_on" not in selfplay.kept(proposing)
    assert selfplay.kept({"step": 0.0, "eval/reward": 0.3}) == {"step": 0.0, "eval/reward": 0.3}


def test_a_curve_is_over_the_rollouts_trained_on_and_joins_what_stands_at_one_number_of_them(selfplay):
    rows = [
        {"step": 1, "hops": 1.0},
        {"step": 2, "hops": 2.0},
        {"step": 3, "solver/trained_on": 160.0},
        {"step": 4, "solver/trained_on": 160.0},
        {"step": 5, "solver/trained_on": 160.0},
        {"step": 6, "hops": 3.0},
    ]
    assert selfplay.curve(rows, "hops") == ([0.0, 480.0], [1.5, 3.0])


def test_where_most_steps_have_a_value_a_curve_has_the_means_of_ten_steps(selfplay):
    rows = [{"step": step, "solver/trained_on": 10.0, "share": float(step)} for step in range(1, 21)]
    x, y = selfplay.curve(rows, "share")
    assert x == pytest.approx([55.0, 155.0])
    assert y == pytest.approx([5.5, 15.5])


def test_probes_are_told_with_the_seconds_of_all_steps_before(selfplay):
    timings = [{"step": 0}, {"step": 1, "step/seconds": 2.0}, {"step": 2, "step/seconds": 3.5}]
    rows = [{"step": 0, "eval/reward": 0.25}, {"step": 1}, {"step": 2, "eval/reward": 0.5}]
    result = {"timings": timings, "rows": rows}
    assert selfplay.probes(result) == [(0, 0.0, 0.25), (2, 5.5, 0.5)]
    assert [selfplay.at_seconds(result, seconds) for seconds in (0.0, 5.0, 5.5, 9.0)] == [0.25, 0.25, 0.5, 0.5]


def test_what_was_kept_is_kept_as_it_is(selfplay):
    row = {"step": 9.0, "selfplay/iteration": 1.0, "solver/rollout/num": 160.0, "solver/frac_reward_zero_std": 0.75}
    assert selfplay.kept(selfplay.kept(row)) == selfplay.kept(row)
    assert selfplay.kept(row)["solver/trainable"] == 0.25


def test_the_settings_of_every_arm_can_be_read(selfplay):
    arms = [arm for experiment in selfplay.EXPERIMENTS.values() for arm in experiment.values()]
    for arm in arms:
        paths = {"search.index": "i", **({"questions.path": "q"} if arm.system == "search-r1" else {})}
        settings = load_settings(arm.recipes, system=arm.system, options=paths, sets=arm.sets)
        assert settings.run.system == arm.system
        assert not getattr(settings, "stages", ())  # of which a loop runs only the first
    trained = selfplay.EXPERIMENTS["free"]["trained"]
    free = load_settings(trained.recipes, sets=trained.sets)
    assert (free.proposer.ratio, free.policy.model) == ((), "tiny-free")
