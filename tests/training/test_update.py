"""Credit and mini-batches with scripted rollouts and a learner that records what it is given."""

import math
import random
from dataclasses import replace
from functools import partial

import pytest

from evoseek.credit import CriticCredit, group_advantages
from evoseek.learner.learner import StepBatch
from evoseek.loss.base import Totals
from evoseek.loss.clipped import ClippedLoss, SequenceLoss
from evoseek.loss.likelihood import ReinforceLoss
from evoseek.training.update import GroupUpdate, PPOUpdate, mean_metrics, scored_attempts, split_groups
from evoseek.types import Invalid, Question, Scored, Segment, StopReason, Trajectory, TrajectoryGroup

ONE_RIGHT = {"q0/0": "meri", "q0/1": "kalo", "q1/0": "kalo", "q1/1": "kalo"}
GRPO = partial(group_advantages, scale="std")
MEAN_ONLY = partial(group_advantages, scale="none")


def advantages(batch):
    """By question, one for each sample; every sample has the same on all of its action tokens and 0 elsewhere."""
    found = {}
    for sample in batch:
        (value,) = {a for a, acts in zip(sample.advantages, sample.loss_mask, strict=True) if acts}
        assert {a for a, acts in zip(sample.advantages, sample.loss_mask, strict=True) if not acts} == {0.0}
        found.setdefault(sample.group.rsplit("/", 1)[1], []).append(value)
    return found


def test_advantages_are_group_relative(groups_of, recorder):
    """Rewards 1, 0 (mean 0.5, std 0.7071): +-0.7071; rewards 0, 0: no signal."""
    metrics = GroupUpdate(recorder, GRPO, seed=0)(1, groups_of(ONE_RIGHT))
    (batch,) = recorder.batches
    found = advantages(batch)
    assert found["q0"] == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-5)
    assert found["q1"] == [0.0, 0.0]
    assert metrics == {"loss": 0.25, "learner/skipped_no_signal": 1.0}


def test_trap_failed_rollouts_leave_the_loss_and_the_baseline(groups_of, recorder):
    """Rewards [1, invalid, 0, 0] without std: 2/3, -, -1/3, -1/3."""
    texts = {"q0/0": "meri", "q0/2": "kalo", "q0/3": "kalo"} | {f"q1/{n}": "meri" for n in range(4)}
    GroupUpdate(recorder, MEAN_ONLY, seed=0)(1, groups_of(texts, group_size=4))
    assert advantages(recorder.batches[0])["q0"] == pytest.approx([2 / 3, -1 / 3, -1 / 3])


def test_members_without_an_advantage_are_left_out(groups_of, recorder):
    lone = partial(group_advantages, singleton="drop")
    texts = {"q0/0": "meri", "q0/1": "kalo", "q1/0": "kalo"}
    GroupUpdate(recorder, lone, seed=0)(1, groups_of(texts))
    assert advantages(recorder.batches[0]).keys() == {"q0"}


def test_the_loss_is_the_learners_own_unless_the_update_has_another(groups_of, recorder):
    other = ReinforceLoss()
    for loss in (None, other):
        GroupUpdate(recorder, GRPO, seed=0, loss=loss)(1, groups_of(ONE_RIGHT))
    assert recorder.losses == [None, other]


def test_what_was_sampled_is_what_is_trained_on(scripted, groups_of, recorder):
    groups = groups_of(ONE_RIGHT)
    GroupUpdate(recorder, GRPO, seed=0)(1, groups)
    given = {segment.token_ids for g in groups for t in g.trajectories for segment in t.segments if segment.logprobs}
    for sample in recorder.batches[0]:
        actions = tuple(t for t, acts in zip(sample.token_ids, sample.loss_mask, strict=True) if acts)
        assert actions in given
        assert {p for p, acts in zip(sample.rollout_logprobs, sample.loss_mask, strict=True) if acts} == {-0.5}


def test_a_penalty_in_the_reward_is_taken_off_before_the_baseline(groups_of, recorder):
    """Reference logprobs of -0.75 where the sampler had -0.5: each action token costs 0.1 x 0.25."""

    def complete(samples):
        return [replace(s, ref_logprobs=tuple(-0.75 if acts else 0.0 for acts in s.loss_mask)) for s in samples]

    texts = {"q0/0": "meri", "q0/1": "kalo , kalo", "q1/0": "meri", "q1/1": "meri"}
    update = GroupUpdate(recorder, MEAN_ONLY, seed=0, transforms=[complete], kl_coefficient=0.1)
    update(1, groups_of(texts))
    first, second = [sample for sample in recorder.batches[0] if sample.group.endswith("q0")]
    rewards = [1 - 0.025 * sum(first.loss_mask), -0.025 * sum(second.loss_mask)]
    assert sum(first.loss_mask) != sum(second.loss_mask)
    half = (rewards[0] - rewards[1]) / 2
    assert advantages(recorder.batches[0])["q0"] == pytest.approx([half, -half])


def test_a_penalty_is_taken_from_the_learners_own_logprobs_where_the_samples_have_them(groups_of, recorder):
    """The sampler recorded -0.5, but the learner finds -0.75, as the reference does: nothing has changed yet."""

    def complete(samples):
        own = [tuple(-0.75 if acts else 0.0 for acts in s.loss_mask) for s in samples]
        return [replace(s, old_logprobs=row, ref_logprobs=row) for s, row in zip(samples, own, strict=True)]

    update = GroupUpdate(recorder, MEAN_ONLY, seed=0, transforms=[complete], kl_coefficient=0.1)
    update(1, groups_of({"q0/0": "meri", "q0/1": "kalo , kalo", "q1/0": "meri", "q1/1": "meri"}))
    assert advantages(recorder.batches[0]) == {"q0": [0.5, -0.5], "q1": [0.0, 0.0]}


def test_without_masking_everything_after_the_prompt_is_trained_on(groups_of, recorder):
    update = GroupUpdate(recorder, GRPO, seed=0, mask_observations=False)
    groups = groups_of(ONE_RIGHT)
    prompt = len(groups[0].trajectories[0].segments[0].token_ids)
    update(1, groups)
    for sample in recorder.batches[0]:
        first = sample.loss_mask.index(True)
        assert all(sample.loss_mask[first:])
        assert not any(sample.loss_mask[:first])
    assert recorder.batches[0][0].loss_mask.index(True) == prompt


def test_unmasked_tokens_that_the_sampler_did_not_write_have_the_learners_own_record(scripted, recorder):
    """So that no ratio, weight or difference is taken to a logprob of 0 that nobody computed."""
    written = Segment("action", (5, 6), (-0.5, -0.25))
    segments = (Segment("prompt", (1, 2)), written, Segment("observation", (7, 8, 9)), written)
    question = Question("q", "?", ())
    made = Trajectory("t", question, "solver", segments, (), (), StopReason.ANSWERED)
    group = TrajectoryGroup("g", (made, made), (Scored(1.0), Scored(0.0)))

    def complete(samples):
        return [replace(s, old_logprobs=tuple(-9.0 if acts else 0.0 for acts in s.loss_mask)) for s in samples]

    GroupUpdate(recorder, GRPO, seed=0, transforms=[complete], mask_observations=False)(1, [group])
    assert recorder.batches[0][0].rollout_logprobs == (0.0, 0.0, -0.5, -0.25, -9.0, -9.0, -9.0, -0.5, -0.25)


def test_there_are_no_more_mini_batches_than_groups_and_always_one(groups_of, recorder):
    GroupUpdate(recorder, GRPO, seed=0, mini_batches=5)(1, groups_of(ONE_RIGHT))
    assert [len(batch) for batch in recorder.batches] == [2, 2]
    GroupUpdate(recorder, GRPO, seed=0, mini_batches=5)(2, [])
    assert recorder.batches[2:] == [[]]


def test_mini_batches_are_of_whole_groups_and_drawn_by_seed_and_step(groups_of, recorder):
    texts = {f"q{q}/{n}": "meri" if n else "kalo" for q in range(4) for n in range(2)}
    groups, orders = groups_of(texts, n=4), []
    for seed, step in ((0, 1), (0, 1), *((0, step) for step in range(2, 9)), *((seed, 1) for seed in range(1, 9))):
        recorder.batches.clear()
        metrics = GroupUpdate(recorder, GRPO, seed=seed, mini_batches=2)(step, groups)
        members = [[sample.group for sample in batch] for batch in recorder.batches]
        assert [len(batch) for batch in members] == [4, 4]
        assert [len(set(batch)) for batch in members] == [2, 2]
        assert set(members[0]).isdisjoint(members[1])
        assert metrics.keys() == {"loss", "learner/skipped_no_signal"}
        orders.append(str(members))
    assert orders[0] == orders[1]
    assert len(set(orders[1:9])) > 2
    assert len({orders[1], *orders[9:]}) > 2


def test_a_cut_into_one_keeps_the_order(groups_of, recorder):
    groups = groups_of(ONE_RIGHT)
    GroupUpdate(recorder, GRPO, seed=0)(1, groups)
    assert split_groups(recorder.batches[0], 1, random.Random(0)) == [recorder.batches[0]]


def test_metrics_of_several_updates():
    """A mean over the updates that have the number; sums of samples; the last of what is counted through a run."""
    first = {"loss": 1.0, "learner/skipped_no_signal": 1.0, "learner/samples": 4.0}
    second = {"learner/skipped_no_signal": 2.0, "learner/samples": 3.0}
    assert mean_metrics([first, second]) == {"loss": 1.0, "learner/skipped_no_signal": 2.0, "learner/samples": 7.0}


@pytest.mark.parametrize("part", ["mean", "max"])
def test_sampler_and_learner_are_compared_before_any_step(part):
    """After the first step of several the policy has changed, and so would the difference."""
    name = f"sampling/sampling_logp_difference/{part}"
    assert mean_metrics([{"loss": 1.0}, {"loss": 2.0, name: 0.25}, {"loss": 3.0, name: 4.0}]) == {
        "loss": 2.0,
        name: 0.25,
    }


def trajectory(*segments, name="k/0"):
    question = Question("q", "who ?", ("Meri",))
    return Trajectory(name, question, "solver", segments, (), (), StopReason.ANSWERED, policy_version=7)


SEARCHED = trajectory(
    Segment("prompt", (5, 9)),
    Segment("action", (20, 21), (-0.5, -0.25)),
    Segment("observation", (30,)),
    Segment("action", (40,), (-1.0,)),
)


def test_the_advantage_lies_on_action_tokens_only(recorder):
    group = TrajectoryGroup("k", (SEARCHED,), (Scored(0.5),))
    (sample,) = GroupUpdate(recorder, lambda rewards, _: rewards, seed=0).samples([group])
    assert sample.token_ids == (5, 9, 20, 21, 30, 40)
    assert sample.loss_mask == (False, False, True, True, False, True)
    assert sample.advantages == (0.0, 0.0, 0.5, 0.5, 0.0, 0.5)
    assert sample.rollout_logprobs == (0.0, 0.0, -0.5, -0.25, 0.0, -1.0)
    assert (sample.role, sample.group, sample.policy_version, sample.weight) == ("solver", "k", 7, 1.0)


def test_trap_invalid_members_and_those_without_an_action_make_no_sample():
    prompt_only = trajectory(Segment("prompt", (5,)))
    outcomes = (Scored(1.0), Invalid(StopReason.DEADLINE), Scored(0.0))
    (attempt,) = scored_attempts([TrajectoryGroup("k", (SEARCHED, SEARCHED, prompt_only), outcomes)])
    assert (len(attempt.samples), attempt.reward) == (1, 1.0)


REWRITTEN = trajectory(
    Segment("prompt", (5, 9)),
    Segment("action", (20, 21), (-0.5, -0.25)),
    Segment("observation", (30,)),
    Segment("action", (22,), (-0.5,)),
    Segment("prompt", (5, 9, 22, 31)),
    Segment("action", (40,), (-1.0,)),
)


class TestBranches:
    """An attempt whose context was rewritten before its last turn makes two samples."""

    GROUP = TrajectoryGroup("k", (REWRITTEN, SEARCHED), (Scored(1.0), Scored(0.0)))

    def test_they_hold_each_sampled_token_once_and_what_was_before_it(self):
        first, second = REWRITTEN.branches
        assert first.token_ids == (5, 9, 20, 21, 30, 22)
        assert second.token_ids == (5, 9, 22, 31, 40)
        assert second.loss_mask == (False, False, False, False, True)
        assert sum(branch.num_action_tokens for branch in REWRITTEN.branches) == REWRITTEN.num_action_tokens == 4

    def test_trap_they_share_one_reward_and_count_once_in_the_baseline(self, recorder):
        """Rewards 1 and 0: mean 1/2, not 2/3 as if each sample were an attempt."""
        seen = []

        def credit(rewards, groups):
            return seen.append(list(rewards)) or MEAN_ONLY(rewards, groups)

        samples = GroupUpdate(recorder, credit, seed=0, loss=ClippedLoss()).samples([self.GROUP])
        assert seen == [[1.0, 0.0]]
        assert [max(sample.advantages, key=abs) for sample in samples] == [0.5, 0.5, -0.5]
        assert {sample.group for sample in samples} == {"k"}

    @pytest.mark.parametrize(
        ("loss", "weights"),
        [
            (ClippedLoss(), [1.0, 1.0, 1.0]),
            (ClippedLoss(aggregate="sequence-sum"), [1.0, 1.0, 1.0]),
            (ClippedLoss(aggregate="sequence-mean-token-mean"), [0.75, 0.25, 1.0]),
            (SequenceLoss(), [0.75, 0.25, 1.0]),
        ],
    )
    def test_trap_a_loss_that_averages_sequences_counts_an_attempt_once(self, recorder, loss, weights):
        """Three of the four tokens are in the first branch; two sequences in all, not three."""
        samples = GroupUpdate(recorder, MEAN_ONLY, seed=0, loss=loss).samples([self.GROUP])
        named = [replace(sample, id=id) for sample, id in zip(samples, ("t0", "t0", "t1"), strict=True)]
        batch = StepBatch.of(named, loss)
        assert [sample.weight for sample in batch.samples] == weights
        assert (batch.totals, batch.metrics["learner/samples"]) == (Totals(tokens=7, sequences=2), 3.0)

    def test_an_advantage_for_each_turn_lies_on_the_tokens_of_the_turn(self, recorder):
        credit = lambda rewards, groups, trajectories: [[0.1, 0.2, 0.3], 0.4]  # noqa: E731
        first, second, other = GroupUpdate(recorder, credit, seed=0, loss=ClippedLoss()).samples([self.GROUP])
        assert first.advantages == (0.0, 0.0, 0.1, 0.1, 0.0, 0.2)
        assert second.advantages == (0.0, 0.0, 0.0, 0.0, 0.3)
        assert other.advantages == (0.0, 0.0, 0.4, 0.4, 0.0, 0.4)

    def test_a_critic_sees_the_actions_of_all_branches_as_one_sequence(self, recorder):
        """Values of 0, gamma 1/2: the last of four tokens has the reward 1, so the returns halve backwards."""
        update = PPOUpdate(
            learner=recorder,
            credit=CriticCredit(0.5, 1.0),
            seed=0,
            transforms=[lambda samples: [replace(s, values=(0.0,) * len(s.token_ids)) for s in samples]],
            critic=recorder,
            loss=ClippedLoss(),
        )
        first, second = update.samples([TrajectoryGroup("k", (REWRITTEN,), (Scored(1.0),))])
        assert first.returns == (0.0, 0.0, 0.125, 0.25, 0.0, 0.5)
        assert second.returns == (0.0, 0.0, 0.0, 0.0, 1.0)
