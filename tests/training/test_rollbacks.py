"""Rollbacks: when a reward has collapsed, by numbers worked out by hand, and what the loop does then."""

import asyncio

import pytest

from evoseek.training.loop import TrainingLoop
from evoseek.training.rollbacks import Rollback, Rollbacks
from evoseek.training.rollout_metrics import StepReport
from evoseek.training.stages import Began, Stages

GOOD, BAD = (0.5, 0.7, 0.6, 0.5, 0.7), (0.2, 0.3, 0.3, 0.3, 0.3)  # means .6 and .28


def after(*rewards, limit=1, history=()):
    found = Rollbacks(limit, list(history))
    for step, reward in enumerate(rewards, 1):
        found.observe(step, {"answer_reward": reward, "reward": -1.0})
    return found


def test_less_than_half_of_the_best_five_steps_is_a_collapse():
    found = after(*GOOD, *BAD)
    assert found.collapsed() == (
        "The mean reward of answers over steps 6 to 10 is 0.280, less than half of the 0.600 over steps 1 to 5."
    )
    assert found.good == 0
    assert after(0.1, *GOOD, *BAD).good == 1
    assert after(0.1, *GOOD, *BAD).collapsed().endswith("over steps 2 to 6.")


@pytest.mark.parametrize(
    "rewards",
    [
        (*GOOD, 0.3, 0.3, 0.3, 0.3, 0.3),  # exactly half
        (*GOOD, 0.2, 0.2, 0.2, 0.2),  # too few steps
        (1, 0, 0, 0, 0, 0, 0, 0, 0, 0),  # .2 +- .2 and 0: chance explains it
        BAD + GOOD,
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    ],
)
def test_what_is_none(rewards):
    assert after(*rewards).collapsed() is None


def test_chance_explains_at_most_twice_the_standard_error_of_both():
    """Of 1, .25, .25, .25, .25 the error is .15, of 1, 0, 0, 0, .9 it is .234; of five zeros 0."""
    assert after(1, 0.25, 0.25, 0.25, 0.25, 0, 0, 0, 0, 0).collapsed() is not None
    assert after(1, 0, 0, 0, 0.9, 0, 0, 0, 0, 0).collapsed() is None


def test_none_is_left():
    assert after(*GOOD, *BAD, limit=0).collapsed() is None
    assert after(*GOOD, *BAD, history=[Rollback(3, 0)]).collapsed() is None
    assert after(*GOOD, *BAD, limit=2, history=[Rollback(3, 0)]).collapsed() is not None


def test_the_weights_to_keep_are_those_before_the_best_steps():
    assert after().good is None
    assert after(*GOOD[:4]).good == 0
    assert after(*GOOD, limit=0).good is None
    assert after(*BAD, *GOOD).good == 5


def test_what_counts_begins_anew_and_each_halves_the_rate():
    found = after(*GOOD, *BAD, limit=3)
    assert found.rate_factor == 1
    found.count(10, 0)
    assert (found.history, found.rewards, found.rate_factor) == ([Rollback(10, 0)], [], 0.5)
    assert found.collapsed() is None
    again = Rollbacks.of(3, {"rollbacks": found.state()})
    assert again == found
    again.count(30, 10)
    assert again.rate_factor == 0.25


def test_rows_since_the_last_rollback_and_of_the_current_stage_are_restored():
    rows = [{"step": step, "answer_reward": step / 10} for step in range(5)] + [{"step": 5, "answer_reward": None}]
    found = Rollbacks(1, [Rollback(2, 0)])
    found.restore_rows(rows, None)
    assert found.rewards == [(3, 0.3), (4, 0.4)]
    found.restore_rows(rows, Stages((), [Began("a", 1, ""), Began("b", 4, "")]))
    assert found.rewards == [(4, 0.4)]
    found = Rollbacks(1)
    found.restore_rows(rows, None)
    assert found.rewards == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]


def test_steps_without_a_reward_are_passed_over():
    found = Rollbacks(1)
    for step, metrics in enumerate(({"answer_reward": 1.0}, {"answer_reward": float("nan")}, {"reward": 1.0})):
        found.observe(step + 1, metrics)
    found.observe(0, {"answer_reward": 1.0})
    assert found.rewards == [(1, 1.0)]


class Recorder:
    """A system, checkpoints and sinks in one, with these rewards; a rollback goes to step 3."""

    def __init__(self, rewards, rollbacks):
        self.rewards, self.rollbacks, self.events, self.said = rewards, rollbacks, [], []

    async def step(self, step):
        return StepReport({"answer_reward": self.rewards[step - 1]}, {}, (), 10)

    def save(self, step):
        self.events.append(("save", step))

    def roll_back(self, step):
        self.events.append(("roll back", step))
        self.rollbacks.count(step, 3)
        return 3

    def write(self, step, metrics):
        pass

    def run(self, **options):
        options = {"start": 0, "steps": 12, "checkpoint_every": 4} | options
        loop = TrainingLoop(self, self, self, self, rollbacks=self.rollbacks, notify=self.said.append, **options)
        return asyncio.run(loop.run()), loop.has_turned


def test_the_loop_ends_with_a_collapse_whose_checkpoint_takes_the_place_of_its_own():
    recorder = Recorder((*GOOD, *BAD, 0, 0), Rollbacks(1))
    assert recorder.run(checkpoint_every=5) == (10, True)
    assert recorder.events == [("save", 0), ("save", 5), ("roll back", 10)]
    assert recorder.said == [
        "Step 10: The mean reward of answers over steps 6 to 10 is 0.280, less than half of the 0.600 over steps 1 to "
        "5. Training goes on with the weights of step 3, at half of the learning rate (run.rollbacks: 0 left)."
    ]


def test_without_rollbacks_it_goes_on_and_saves_nothing_before_its_first_step():
    recorder = Recorder((*GOOD, *BAD, 0, 0), Rollbacks(0))
    assert recorder.run() == (12, False)
    assert recorder.events == [("save", 4), ("save", 8), ("save", 12)]
