"""The pull towards a policy that sees more: by hand, against the gradient of the KL itself, and where there is none."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evoseek.credit.advantages import group_advantages
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.likelihood import ReinforceLoss
from evoseek.selfplay.distillation import SelfDistillation
from evoseek.training.update import GroupUpdate
from evoseek.types import TrainingSample

# prompt 1 2, written 3 4, read 5, written 6
SAMPLE = TrainingSample(
    (1, 2, 3, 4, 5, 6),
    (False, False, True, True, False, True),
    (0.0, 0.0, -8.0, -8.0, 0.0, -8.0),
    (0.0,) * 6,
    group="step-000001/q",
    old_logprobs=(0.0, 0.0, -0.5, -1.0, 0.0, -2.0),
)


def score_by(logprob):
    """Reference logprobs by `logprob(the tokens before, the token)` at every action token."""

    def score(samples):
        rows = [
            tuple(logprob(s.token_ids[:t], s.token_ids[t]) if acts else 0.0 for t, acts in enumerate(s.loss_mask))
            for s in samples
        ]
        return [replace(s, ref_logprobs=row) for s, row in zip(samples, rows, strict=True)]

    return score


def by_context(before, token):
    return -((sum(before) * 7 + token) % 13) / 4


def test_numbers_by_hand():
    """The teacher says -0.25, -1.5 and -9: differences 0.25, -0.5 and -7, which is cut to -3; times 0.1."""
    seen = []

    def told(before, token):
        seen.append((before, token))
        return {3: -0.25, 4: -1.5, 6: -9.0}[token]

    distillation = SelfDistillation(score_by(told), lambda _: (9, 8, 7), coefficient=0.1, clip=3.0)
    (row,) = distillation([SAMPLE])
    assert row == pytest.approx([0.0, 0.0, 0.025, -0.05, 0.0, -0.3])
    assert seen == [((9, 8, 7), 3), ((9, 8, 7, 3), 4), ((9, 8, 7, 3, 4, 5), 6)]


def test_without_a_path_there_is_no_pull_and_nothing_is_scored():
    scored = []

    def score(samples):
        scored.extend(samples)
        return score_by(lambda *_: -1.0)(samples)

    samples = [replace(SAMPLE, group=name) for name in ("known", "unknown", "known")]
    distillation = SelfDistillation(score, lambda s: (9,) if s.group == "known" else None, coefficient=1.0)
    pull, none = [0.0, 0.0, -0.5, 0.0, 0.0, 1.0], [0.0] * 6
    assert distillation(samples) == [pull, none, pull]
    assert [sample.token_ids for sample in scored] == [(9, 3, 4, 5, 6)] * 2
    assert distillation([]) == []


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=5),
    st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=8),
    st.floats(0.01, 10.0),
)
def test_where_the_teacher_sees_no_more_nothing_is_pulled(prompt, rest, coefficient):
    rest = [(True, 3), *rest]
    ids = (*prompt, *(token for _, token in rest))
    mask = (False,) * len(prompt) + tuple(acts for acts, _ in rest)
    score = score_by(by_context)
    (own,) = score([TrainingSample(ids, mask, (0.0,) * len(ids), (0.0,) * len(ids))])
    sample = replace(own, old_logprobs=own.ref_logprobs, ref_logprobs=None)
    assert SelfDistillation(score, lambda _: prompt, coefficient)([sample]) == [[0.0] * len(ids)]
    (row,) = SelfDistillation(score, lambda _: (*prompt, 5), coefficient)([sample])
    assert not any(value for value, acts in zip(row, mask, strict=True) if not acts)


def test_its_expectation_is_the_gradient_of_the_reverse_kl():
    """Over every token that the student may draw, weighted by its probability: exactly - 0.3 x the gradient."""
    logits = torch.tensor([0.4, -1.0, 1.2, 0.1], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([-0.2, 0.9, 0.3, -1.5], dtype=torch.float64).log_softmax(0)
    student = logits.log_softmax(0)
    (expected,) = torch.autograd.grad((student.exp() * (student - teacher)).sum(), logits, retain_graph=True)
    rows = [(0.0, student[a].item()) for a in range(4)]
    samples = [TrainingSample((0, a), (False, True), rows[a], (0.0, 0.0), old_logprobs=rows[a]) for a in range(4)]
    score = score_by(lambda _, token: teacher[token].item())
    rows = SelfDistillation(score, lambda _: (1,), coefficient=0.3)(samples)
    objective = sum(student[a].exp().detach() * rows[a][1] * student[a] for a in range(4))
    (got,) = torch.autograd.grad(objective, logits)
    torch.testing.assert_close(got, -0.3 * expected, atol=1e-12, rtol=1e-12)


def test_it_is_added_to_the_credit_and_trains_groups_that_have_none(groups_of, recorder):
    """The sampler says -0.5 and the teacher -0.3 at every token: 0.5 x 0.2 = 0.1, on top of +-0.5 in q0, 0 in q1."""
    texts = {"q0/0": "meri", "q0/1": "kalo", "q1/0": "kalo", "q1/1": "kalo"}
    distillation = SelfDistillation(score_by(lambda *_: -0.3), lambda _: (1, 2), coefficient=0.5)
    credit = lambda rewards, groups: group_advantages(rewards, groups, scale="none")  # noqa: E731
    update = GroupUpdate(recorder, credit, seed=0, distillation=distillation)
    groups = groups_of(texts)
    update(1, groups)
    (batch,) = recorder.batches
    assert update.samples(groups) == batch
    for sample, credit_of in zip(batch, (0.5, -0.5, 0.0, 0.0), strict=True):
        for advantage, acts in zip(sample.advantages, sample.loss_mask, strict=True):
            assert advantage == pytest.approx(credit_of + 0.1 if acts else 0.0)
        assert all(loss.contributes(sample) for loss in (ClippedLoss(), ReinforceLoss()))
    assert math.isclose(sum(batch[2].advantages), 0.1 * sum(batch[2].loss_mask))
