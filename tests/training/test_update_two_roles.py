"""Two roles in one step: losses and gradients by hand, and which groups meet in which mini-batch."""

import itertools
import math
from functools import partial

import pytest
import torch
from tests.doubles.learners import learner_of
from torch import nn

from evoseek.credit import group_advantages, raw_advantages
from evoseek.loss.base import LossInputs
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.likelihood import ReinforceLoss
from evoseek.training.update import GroupUpdate, TwoRoleUpdate
from evoseek.types import Invalid, Question, Scored, Segment, StopReason, Trajectory, TrajectoryGroup

UNIFORM = -math.log(4)


class Words(nn.Module):
    """The smallest policy: four words, each drawn by a logit of its own whatever came before; at first uniform."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(4))


class Forward:
    packing_limit = 0

    def __init__(self):
        self.model = Words()

    def __call__(self, batch):
        logprobs = self.model.logits.log_softmax(-1)[batch.token_ids].masked_fill(~batch.loss_mask, 0.0)
        return LossInputs(
            logprobs=logprobs,
            rollout_logprobs=batch.rollout_logprobs,
            old_logprobs=batch.old_logprobs,
            advantages=batch.advantages,
            loss_mask=batch.loss_mask,
            weights=batch.weights,
            entropies=torch.zeros_like(logprobs),
        )


def sgd(model, *, learning_rate, **_):
    return torch.optim.SGD(model.parameters(), lr=learning_rate)


def make_learner():
    """Moves the weights by minus the gradient. Its own loss is not to be used."""
    return learner_of(Forward(), loss=None, learning_rate=1.0, max_grad_norm=math.inf, optimizer=sgd)


NUMBERS = itertools.count()


def rollout(role, *spans, logprob=UNIFORM):
    """A prompt, then what was written, each time after a tool's result but for the first."""
    segments = [Segment("prompt", (0,))]
    for number, span in enumerate(spans):
        segments += [Segment("observation", (3, 3))] * (number > 0)
        segments.append(Segment("action", span, (logprob,) * len(span)))
    return Trajectory(f"t{next(NUMBERS)}", Question("q", "?", ()), role, tuple(segments), (), (), StopReason.ANSWERED)


def group(key, *members):
    """Of (trajectory, reward); a reward of None is an invalid member."""
    outcomes = [Invalid(StopReason.DEADLINE) if reward is None else Scored(reward) for _, reward in members]
    return TrajectoryGroup(key, tuple(trajectory for trajectory, _ in members), tuple(outcomes))


def two_roles(learner, **options):
    """REINFORCE for the proposer, GRPO without std for the solver."""
    raw, scaled = ReinforceLoss("sequence-sum"), ClippedLoss(aggregate="token-mean")
    roles = {
        "proposer": GroupUpdate(learner, lambda rewards, _: raw_advantages(rewards), seed=0, loss=raw),
        "solver": GroupUpdate(learner, partial(group_advantages, scale="none"), seed=0, loss=scaled),
    }
    return TwoRoleUpdate(learner, roles, seed=0, **options)


PROPOSALS = [
    group("p0", (rollout("proposer", (1, 1), (2,)), 0.6)),
    group("p1", (rollout("proposer", (3, 1)), 0.0)),
]
SOLUTIONS = [
    group(
        "s0",
        (rollout("solver", (0,), (1,), logprob=UNIFORM - math.log(1.1)), 1.0),
        (rollout("solver", (2, 2, 3)), 0.0),
    )
]
# -(0.6 / 2 rollouts) x the sum over the tokens 1, 1, 2 of (one at the token - 1/4)
PROPOSER_GRADIENT = torch.tensor([0.225, -0.375, -0.075, 0.225])
# -(1 / 5 tokens) x (0.5 x ratio 1.1 x the same of the tokens 0, 1; - 0.5 x the same of 2, 2, 3)
SOLVER_GRADIENT = torch.tensor([-0.13, -0.13, 0.18, 0.08])


@pytest.mark.parametrize(
    ("groups", "gradient"),
    [
        ({"proposer": PROPOSALS}, PROPOSER_GRADIENT),
        ({"solver": SOLUTIONS}, SOLVER_GRADIENT),
        ({"solver": SOLUTIONS, "proposer": PROPOSALS}, PROPOSER_GRADIENT + SOLVER_GRADIENT),
    ],
    ids=["proposer", "solver", "both"],
)
def test_the_gradient_is_the_sum_of_the_roles_own(groups, gradient):
    """Losses: 0.6 x 3 ln 4 / 2, a sum over tokens; -(1.1 x 0.5 x 2 - 0.5 x 3) / 5, a mean over them."""
    learner = make_learner()
    metrics = two_roles(learner)(1, groups)
    torch.testing.assert_close(learner.model.logits.detach(), -gradient, atol=1e-6, rtol=0)
    assert metrics["grad_norm"] == pytest.approx(gradient.norm().item(), abs=1e-6)
    expected = {"proposer": 0.9 * math.log(4), "solver": 0.08}
    assert {name: metrics[f"{name}/loss"] for name in groups} == pytest.approx(
        {name: expected[name] for name in groups}
    )
    assert learner.step == 1


def test_metrics_are_named_after_the_role_and_a_role_without_groups_has_none():
    both = two_roles(make_learner())(1, {"proposer": PROPOSALS, "solver": SOLUTIONS})
    assert both["proposer/learner/samples"] == both["solver/learner/samples"] == 2.0
    assert both["proposer/learner/samples_without_gradient"] == 1.0
    assert both["solver/clip_ratio/region_mean"] == 0.0
    unnamed = {"grad_norm", "learning_rate", "learner/skipped_no_signal", "learner/skipped_non_finite"}
    assert {name for name in both if not name.startswith(("proposer/", "solver/"))} == unnamed
    alone = two_roles(make_learner())(1, {"proposer": [], "solver": SOLUTIONS})
    assert {name.split("/")[0] for name in alone} == {"solver", "grad_norm", "learning_rate", "learner"}
    invalid = [group("p0", (rollout("proposer", (1,)), None))]
    assert two_roles(make_learner())(1, {"proposer": invalid, "solver": SOLUTIONS}) == alone


def test_a_role_without_signal_leaves_the_other_to_learn():
    learner = make_learner()
    metrics = two_roles(learner)(1, {"proposer": PROPOSALS[1:], "solver": SOLUTIONS})
    torch.testing.assert_close(learner.model.logits.detach(), -SOLVER_GRADIENT, atol=1e-6, rtol=0)
    assert "proposer/loss" not in metrics
    assert metrics["learner/skipped_no_signal"] == 0.0


def test_a_step_without_any_signal_is_counted_once():
    for groups in ({}, {"proposer": PROPOSALS[1:]}):
        learner = make_learner()
        assert two_roles(learner, mini_batches=3)(1, groups)["learner/skipped_no_signal"] == 1.0
        assert not learner.model.logits.any()


def test_groups_of_a_role_that_is_not_trained_are_left_alone():
    update = two_roles(learner := make_learner())
    del update.roles["proposer"]
    update(1, {"proposer": PROPOSALS, "solver": SOLUTIONS})
    torch.testing.assert_close(learner.model.logits.detach(), -SOLVER_GRADIENT, atol=1e-6, rtol=0)


class Recorder:
    """A learner that keeps the terms it is given; loss and count are the number of the call."""

    def __init__(self):
        self.steps = []

    def update_together(self, terms):
        self.steps.append([sorted({sample.group for sample in samples}) for samples, _ in terms])
        number = float(len(self.steps))
        own = [{"loss": number, "learner/samples": float(len(samples))} for samples, _ in terms]
        return {"grad_norm": number, "learner/skipped_no_signal": number}, own


def proposals(count):
    return [group(f"p{number}", (rollout("proposer", (1,)), 1.0)) for number in range(count)]


def solutions(count):
    return [group(f"s{n}", *((rollout("solver", (1,)), float(i)) for i in range(2))) for n in range(count)]


def test_every_mini_batch_has_whole_groups_of_both_roles():
    recorder = Recorder()
    metrics = two_roles(recorder, mini_batches=2)(1, {"proposer": proposals(6), "solver": solutions(4)})
    assert [[len(names) for names in step] for step in recorder.steps] == [[3, 2], [3, 2]]
    for role, count in ((0, 6), (1, 4)):
        assert len({name for step in recorder.steps for name in step[role]}) == count
    assert metrics == {
        "grad_norm": 1.5,
        "learner/skipped_no_signal": 2.0,
        "proposer/loss": 1.5,
        "proposer/learner/samples": 6.0,
        "solver/loss": 1.5,
        "solver/learner/samples": 8.0,
    }


def test_there_are_no_more_mini_batches_than_the_role_with_fewest_groups_has():
    recorder = Recorder()
    two_roles(recorder, mini_batches=4)(1, {"proposer": proposals(3), "solver": solutions(9)})
    assert [[len(names) for names in step] for step in recorder.steps] == [[1, 3]] * 3
    recorder = Recorder()
    two_roles(recorder, mini_batches=4)(1, {"proposer": [], "solver": solutions(9)})
    assert [[len(names) for names in step] for step in recorder.steps] == [[3], [2], [2], [2]]


def test_mini_batches_follow_from_seed_and_step_whatever_the_order_of_roles():
    def steps(step, groups):
        recorder = Recorder()
        two_roles(recorder, mini_batches=2)(step, groups)
        return recorder.steps

    groups = {"proposer": proposals(8), "solver": solutions(8)}
    assert steps(1, groups) == steps(1, dict(reversed(groups.items())))
    assert steps(1, groups) != steps(2, groups)
