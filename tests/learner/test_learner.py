import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.doubles.learners import learner_of
from transformers import PreTrainedModel

from evoseek.errors import TrainingError
from evoseek.learner.batch import MicroBatch, make_batch, split_by_tokens
from evoseek.learner.learner import Learner
from evoseek.learner.logprobs import LogprobModel, score
from evoseek.loss.base import Loss, LossInputs, Totals
from evoseek.loss.clipped import ClippedLoss, SequenceLoss
from evoseek.loss.likelihood import CrossEntropyLoss, ReinforceLoss
from evoseek.types import TrainingSample

Make = Callable[..., list[TrainingSample]]


def totals_of(samples: list[TrainingSample]) -> Totals:
    return Totals(sum(sum(sample.loss_mask) for sample in samples), len(samples))


def gradient(model: PreTrainedModel, samples: list[TrainingSample], **options: object) -> list[torch.Tensor]:
    """The gradient that the learner accumulates for the samples, one tensor for each parameter."""
    model.zero_grad()
    forward = LogprobModel(model, temperature=options.pop("temperature", 1.0))
    learner = learner_of(forward, **{"loss": ClippedLoss(), "learning_rate": 0.1, **options})
    learner.accumulate(samples, totals_of(samples))
    return [parameter.grad.clone() for parameter in model.parameters()]


def weights(model: PreTrainedModel) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def sgd(model: PreTrainedModel, *, learning_rate: float, **_: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=learning_rate)


class BrokenLoss(CrossEntropyLoss):
    """Gives NaN in the first `times` calls, then works."""

    def __init__(self, times: int) -> None:
        super().__init__()
        object.__setattr__(self, "left", times)

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        result = super().__call__(inputs, totals)
        if self.left == 0:
            return result
        object.__setattr__(self, "left", self.left - 1)
        return Loss(result.loss * math.nan, result.metrics)


class InfiniteLoss(CrossEntropyLoss):
    """Its gradient is finite."""

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        result = super().__call__(inputs, totals)
        return Loss(result.loss + math.inf, result.metrics)


def test_the_gradient_is_exactly_zero_at_every_position_that_predicts_a_prompt_or_observation_token(
    model: PreTrainedModel, make_samples: Make
) -> None:
    """Seen at the last hidden states, whose gradient at position t comes from the prediction of token t + 1 alone."""
    kept: list[torch.Tensor] = []

    def keep(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
        if output.requires_grad:
            output.retain_grad()
            kept.append(output)

    model.model.norm.register_forward_hook(keep)
    samples = make_samples(8)
    learner = learner_of(
        LogprobModel(model), loss=ClippedLoss(clip_low=9, clip_high=9), learning_rate=0.1, token_budget=10**6
    )
    learner.accumulate(samples, totals_of(samples))
    (states,) = kept  # one row, the samples one after the other, each cut after its last action token
    ordered = split_by_tokens(samples, 10**6)[0]
    predicts = []
    for sample in ordered:
        last = max(t for t, on in enumerate(sample.loss_mask) if on)
        predicts += [*sample.loss_mask[1 : last + 1], False]
    norms = states.grad[0].abs().amax(dim=-1).tolist()
    assert len(norms) == len(predicts)
    assert [norm > 0.0 for norm in norms] == predicts
    assert {norm for norm, on in zip(norms, predicts, strict=True) if not on} == {0.0}


def test_what_stands_beside_prompt_and_observation_tokens_changes_no_bit_of_the_gradient(
    model: PreTrainedModel, make_samples: Make
) -> None:
    samples = make_samples(8)
    junk = [
        replace(
            sample,
            advantages=tuple(a if on else 1e6 for a, on in zip(sample.advantages, sample.loss_mask, strict=True)),
            rollout_logprobs=tuple(
                p if on else -1e6 for p, on in zip(sample.rollout_logprobs, sample.loss_mask, strict=True)
            ),
        )
        for sample in samples
    ]
    for clean, dirty in zip(gradient(model, samples), gradient(model, junk), strict=True):
        assert torch.equal(clean, dirty)


def test_the_gradient_equals_the_formula_written_out(model: PreTrainedModel, make_samples: Make) -> None:
    """Clipped loss, token mean, temperature 0.7, one sample after the other through the model's own logits."""
    samples = make_samples(6)
    got = gradient(model, samples, temperature=0.7, loss=ClippedLoss(0.2, 0.3))
    model.zero_grad()
    total = torch.tensor(0.0)
    for sample in samples:
        log_p = (model(torch.tensor([sample.token_ids])).logits[0] / 0.7).log_softmax(-1)
        for t, on in enumerate(sample.loss_mask):
            if on:
                ratio = (log_p[t - 1, sample.token_ids[t]] - sample.rollout_logprobs[t]).exp()
                advantage = sample.advantages[t]
                total = total - torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.3) * advantage)
    (total / totals_of(samples).tokens).backward()
    for want, have in zip((p.grad for p in model.parameters()), got, strict=True):
        torch.testing.assert_close(have, want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("aggregate", ["token-mean", "sequence-mean-token-mean", "sequence-sum", 8], ids=str)
def test_the_gradient_does_not_depend_on_the_split_into_micro_batches(
    model: PreTrainedModel, make_samples: Make, aggregate: object
) -> None:
    samples = make_samples(9)
    loss = ClippedLoss(aggregate=aggregate)
    whole = gradient(model, samples, loss=loss, token_budget=10**6)
    scale = max(g.abs().max().item() for g in whole)
    for budget in (1, 30, 60):  # each sample alone; two or three; more
        for one, split in zip(whole, gradient(model, samples, loss=loss, token_budget=budget), strict=True):
            assert (one - split).abs().max().item() <= 1e-6 * max(1.0, scale)


def test_samples_without_advantage_are_counted_in_the_denominator_but_not_computed(
    model: PreTrainedModel, make_samples: Make
) -> None:
    samples = make_samples(4)
    silent = replace(samples[0], advantages=(0.0,) * len(samples[0].token_ids))
    rows: list[int] = []
    learner = learner_of(LogprobModel(model), loss=ClippedLoss(9, 9), learning_rate=0.0, max_grad_norm=math.inf)
    learner.forward.register_forward_hook(lambda _, inputs, output: rows.append(len(inputs[0].weights)))
    alone = learner.update(samples)
    both = learner.update([*samples, silent])
    assert rows == [4, 4]
    share = totals_of(samples).tokens / totals_of([*samples, silent]).tokens
    assert both["grad_norm"] == pytest.approx(alone["grad_norm"] * share, rel=1e-5)
    assert both["loss"] == pytest.approx(alone["loss"] * share, rel=1e-5)
    assert both["entropy"] == pytest.approx(alone["entropy"])
    assert (both["learner/samples"], both["learner/samples_without_gradient"]) == (5.0, 1.0)


@pytest.mark.parametrize("samples", ["all zero variance", "none"])
def test_trap_a_step_without_signal_is_skipped_and_counted_and_divides_by_nothing(
    model: PreTrainedModel, make_samples: Make, samples: str
) -> None:
    batch = [] if samples == "none" else [replace(s, advantages=(0.0,) * len(s.token_ids)) for s in make_samples(3)]
    learner = learner_of(LogprobModel(model), loss=ClippedLoss(), learning_rate=0.1, weight_decay=0.5)
    before = weights(model)
    for count in (1.0, 2.0):
        metrics = learner.update(batch)
        assert metrics["learner/skipped_no_signal"] == count
        assert all(math.isfinite(value) for value in metrics.values())
    assert learner.step == 0
    assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))


def test_a_non_finite_step_leaves_the_weights_and_three_in_a_row_stop_training(
    model: PreTrainedModel, make_samples: Make
) -> None:
    samples = make_samples(3)
    learner = learner_of(LogprobModel(model), loss=BrokenLoss(2), learning_rate=0.1, token_budget=10**6)
    before = weights(model)
    for count in (1.0, 2.0):
        metrics = learner.update(samples)
        assert metrics["learner/skipped_non_finite"] == count
        assert "loss" not in metrics
        assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))
    learner.update(samples)  # a good one: the count in a row begins anew
    assert learner.step == 1
    learner.loss = BrokenLoss(3)
    learner.update(samples)
    learner.update(samples)
    with pytest.raises(TrainingError, match=r"3 optimizer steps in a row.*Lower the learning rate"):
        learner.update(samples)
    assert learner.skipped_non_finite == 5


def test_supervised_learning_memorises(model: PreTrainedModel, make_samples: Make) -> None:
    samples = make_samples(4)
    learner = learner_of(
        LogprobModel(model), loss=CrossEntropyLoss(), learning_rate=0.01, warmup_steps=5, weight_decay=0.0
    )
    losses = [learner.update(samples)["loss"] for _ in range(60)]
    assert losses[0] > 2.0
    assert losses[-1] < 0.1


def test_metrics_and_warmup(model: PreTrainedModel, make_samples: Make) -> None:
    samples = make_samples(6)
    learner = learner_of(LogprobModel(model), loss=ClippedLoss(), learning_rate=0.001, warmup_steps=4, token_budget=40)
    metrics = learner.update(samples)
    assert {"loss", "grad_norm", "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean"} <= metrics.keys()
    assert 0.0 < metrics["entropy"] <= math.log(23)
    assert metrics["learning_rate"] == pytest.approx(0.00025)
    assert learner.update(samples)["learning_rate"] == pytest.approx(0.0005)


def test_the_gradient_norm_is_clipped(model: PreTrainedModel, make_samples: Make) -> None:
    """With SGD of rate 1 the weights move by the clipped gradient."""
    learner = learner_of(LogprobModel(model), loss=ClippedLoss(), learning_rate=1.0, max_grad_norm=0.01, optimizer=sgd)
    before = weights(model)
    metrics = learner.update(make_samples(6))
    moved = math.sqrt(sum(((a - b) ** 2).sum().item() for a, b in zip(before, weights(model), strict=True)))
    assert metrics["grad_norm"] > 0.01
    assert moved == pytest.approx(0.01, rel=1e-3)


def test_bfloat16_autocast_stays_near(model: PreTrainedModel, make_samples: Make) -> None:
    samples = make_samples(6)
    exact = learner_of(LogprobModel(model), loss=CrossEntropyLoss(), learning_rate=0.0).update(samples)
    rough = learner_of(LogprobModel(model), loss=CrossEntropyLoss(), learning_rate=0.0, bf16=True).update(samples)
    assert rough["loss"] == pytest.approx(exact["loss"], rel=0.02)
    assert rough["loss"] != exact["loss"]


def test_bfloat16_autocast_reaches_samples_that_share_a_prompt(model: PreTrainedModel, make_samples: Make) -> None:
    """Rotary positions are in float32, and attention to a shared prompt takes a path that autocast does not."""
    samples = make_samples(6, shared=20)
    (part,) = split_by_tokens(samples, 10**6)
    assert max(map(len, make_batch(part, torch.device("cpu")).row.seen)) > 1
    exact = learner_of(LogprobModel(model), loss=CrossEntropyLoss(), learning_rate=0.0).update(samples)
    rough = learner_of(LogprobModel(model), loss=CrossEntropyLoss(), learning_rate=0.0, bf16=True).update(samples)
    assert rough["loss"] == pytest.approx(exact["loss"], rel=0.02)
    assert rough["grad_norm"] == pytest.approx(exact["grad_norm"], rel=0.1)


def test_trap_a_step_that_leaves_weights_that_are_not_finite_stops_training(
    model: PreTrainedModel, make_samples: Make
) -> None:
    """Loss and gradient are finite; it is the step itself that overflows."""
    learner = learner_of(LogprobModel(model), loss=ClippedLoss(), learning_rate=1e39)
    with pytest.raises(TrainingError, match=r"step 1 \(learning rate 1e\+39\).*not finite.*Lower the learning rate"):
        learner.update(make_samples(3))


class LittleMemory(LogprobModel):
    """Runs out of memory, as a GPU does, for micro-batches of more than `most` samples; half of the time only in the
    backward pass, when a part of the gradient is there already."""

    most = 2
    passes = 0

    def forward(self, batch: MicroBatch) -> LossInputs:
        inputs = super().forward(batch)
        self.passes += 1
        if len(batch.weights) > self.most and self.passes % 2:
            raise torch.OutOfMemoryError("out of memory")
        if len(batch.weights) > self.most:
            inputs.logprobs.register_hook(self.fail)
        return inputs

    def fail(self, gradient: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("out of memory")


def test_out_of_memory_halves_the_micro_batches_and_repeats_the_step_with_the_same_gradient(
    model: PreTrainedModel, make_samples: Make
) -> None:
    samples = make_samples(9)
    start = weights(model)
    learner_of(LogprobModel(model), loss=ClippedLoss(), learning_rate=0.1, optimizer=sgd).update(samples)
    expected = weights(model)
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), start, strict=True):
            parameter.copy_(value)
    learner = learner_of(LittleMemory(model), loss=ClippedLoss(), learning_rate=0.1, optimizer=sgd, token_budget=256)
    learner.update(samples)
    assert learner.token_budget < 256
    assert learner.step == 1
    for want, have in zip(expected, weights(model), strict=True):
        torch.testing.assert_close(have, want, atol=1e-6, rtol=1e-5)


def test_a_sample_that_does_not_fit_into_memory_ends_training_with_the_remedy(
    model: PreTrainedModel, make_samples: Make
) -> None:
    forward = LittleMemory(model)
    forward.most = 0
    before = weights(model)
    with pytest.raises(TrainingError, match=r"Memory ran out.*Lower learner.token_budget"):
        learner_of(forward, loss=ClippedLoss(), learning_rate=0.1).update(make_samples(3))
    assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))


def test_the_last_batch_of_a_run_that_is_not_finite_is_dumped(
    model: PreTrainedModel, make_samples: Make, tmp_path: Path
) -> None:
    samples, dump = make_samples(2), tmp_path / "non_finite.json"
    learner = learner_of(LogprobModel(model), loss=BrokenLoss(99), learning_rate=0.1, dump=dump)
    learner.update(samples)
    learner.update(samples)
    assert not dump.exists()
    with pytest.raises(TrainingError, match=re.escape(str(dump))):
        learner.update(samples)
    found = json.loads(dump.read_text())
    assert [tuple(sample["token_ids"]) for sample in found["samples"]] == [sample.token_ids for sample in samples]
    assert math.isnan(found["loss"])


# Several terms in one step


def terms_of(make_samples: Make) -> list[tuple[list[TrainingSample], object]]:
    return [(make_samples(9, seed=1), ClippedLoss()), (make_samples(5, seed=2), ReinforceLoss())]


def reset(model: PreTrainedModel, values: list[torch.Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(value)


def plain(forward: LogprobModel, **options: object) -> Learner:
    """Moves the weights by minus the gradient."""
    settings = {"loss": None, "learning_rate": 1.0, "max_grad_norm": math.inf, "optimizer": sgd, **options}
    return learner_of(forward, **settings)


def test_the_gradient_of_several_terms_is_the_sum_of_theirs_each_divided_by_its_own_counts(
    model: PreTrainedModel, make_samples: Make
) -> None:
    terms, start = terms_of(make_samples), weights(model)
    alone = [gradient(model, samples, loss=loss) for samples, loss in terms]
    model.zero_grad()
    learner = plain(LogprobModel(model), token_budget=60)
    step, (first, second) = learner.update_together(terms)
    for before, after, one, other in zip(start, weights(model), *alone, strict=True):
        torch.testing.assert_close(before - after, one + other, atol=1e-5, rtol=1e-5)
    norm = math.sqrt(sum(((one + other) ** 2).sum().item() for one, other in zip(*alone, strict=True)))
    assert step["grad_norm"] == pytest.approx(norm, rel=1e-5)
    assert step.keys() == {"grad_norm", "learning_rate", "learner/skipped_no_signal", "learner/skipped_non_finite"}
    for number, (own, (samples, loss)) in enumerate(zip((first, second), terms, strict=True)):
        reset(model, start)
        expected = plain(LogprobModel(model), loss=loss, token_budget=60).update(samples)
        assert own == {name: value for name, value in expected.items() if name not in step}, number
    assert learner.step == 1


def test_a_term_without_gradient_is_left_out_and_without_any_the_step_is_skipped(
    model: PreTrainedModel, make_samples: Make
) -> None:
    (samples, loss), (others, other_loss) = terms_of(make_samples)
    silent = [replace(sample, advantages=(0.0,) * len(sample.token_ids)) for sample in others]
    start = weights(model)
    expected = plain(LogprobModel(model), loss=loss).update(samples)
    alone = weights(model)
    reset(model, start)
    learner = plain(LogprobModel(model))
    step, (own, left_out) = learner.update_together([(samples, loss), (silent, other_loss)])
    assert own | step == expected
    assert all(torch.equal(a, b) for a, b in zip(alone, weights(model), strict=True))
    assert left_out == {"learner/samples": 5.0, "learner/samples_without_gradient": 5.0}
    for count, terms in enumerate(([(silent, other_loss), (silent, loss)], []), start=1):
        step, owns = learner.update_together(terms)
        assert step == {"learner/skipped_no_signal": float(count), "learner/skipped_non_finite": 0.0}
        assert owns == [left_out] * len(terms)
    assert learner.step == 1


@pytest.mark.parametrize("broken", [0, 1])
def test_one_term_that_is_not_finite_skips_the_step_for_all(
    model: PreTrainedModel, make_samples: Make, tmp_path: Path, broken: int
) -> None:
    terms, before = terms_of(make_samples), weights(model)
    terms[broken] = (terms[broken][0], InfiniteLoss())
    learner = plain(LogprobModel(model), dump=tmp_path / "dump.json")
    step, owns = learner.update_together(terms)
    assert step == {"learning_rate": 1.0, "learner/skipped_no_signal": 0.0, "learner/skipped_non_finite": 1.0}
    assert [set(own) for own in owns] == [{"learner/samples", "learner/samples_without_gradient"}] * 2
    assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))
    learner.update_together(terms)
    with pytest.raises(TrainingError, match="3 optimizer steps in a row"):
        learner.update_together(terms)
    assert len(json.loads((tmp_path / "dump.json").read_text())["samples"]) == 9 + 5


@pytest.mark.parametrize("order", [1, -1])
def test_out_of_memory_in_any_term_repeats_all_of_them(model: PreTrainedModel, make_samples: Make, order: int) -> None:
    """The first run of it leaves a part of the gradient, which must not count twice."""
    terms, start = terms_of(make_samples)[::order], weights(model)
    terms[0] = (terms[0][0][:2], terms[0][1])  # fits
    plain(LogprobModel(model)).update_together(terms)
    expected = weights(model)
    reset(model, start)
    learner = plain(LittleMemory(model), token_budget=256)
    learner.update_together(terms)
    assert learner.token_budget < 256
    for want, have in zip(expected, weights(model), strict=True):
        torch.testing.assert_close(have, want, atol=1e-5, rtol=1e-5)
    learner.forward.most = 0
    with pytest.raises(TrainingError, match="Memory ran out"):
        learner.update_together(terms)


# A fresh start


def test_restart_is_a_new_learner_for_the_same_weights_whose_counts_run_on(
    model: PreTrainedModel, make_samples: Make
) -> None:
    def make() -> Learner:
        return learner_of(LogprobModel(model), loss=ClippedLoss(), learning_rate=0.01, warmup_steps=4)

    samples, learner = make_samples(6), make()
    learner.update([])
    for _ in range(3):
        learner.update(samples)
    start = weights(model)
    learner.restart()
    metrics = [learner.update(samples) for _ in range(2)]
    found = weights(model)
    reset(model, start)
    fresh = make()
    expected = [fresh.update(samples) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(found, weights(model), strict=True))
    assert metrics == [row | {"learner/skipped_no_signal": 1.0} for row in expected]
    assert learner.step == 2


def clipped_gradient(
    model: PreTrainedModel, samples: list[TrainingSample], *, bf16: bool = True
) -> tuple[torch.Tensor, dict[str, float]]:
    model.zero_grad()
    learner = learner_of(LogprobModel(model), loss=SequenceLoss(3e-4, 4e-4), learning_rate=0.1, bf16=bf16)
    metrics = learner.accumulate(samples, totals_of(samples))
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]), metrics


def test_under_bf16_the_rounding_is_not_clipped_as_if_it_were_a_change_of_policy(
    model: PreTrainedModel, make_samples: Make
) -> None:
    """A float32 sampler's record, and no update yet. The ratio to that record is off by bf16's rounding, some 0.01 a
    token, so a clip of 3e-4 cuts a third of the sequences; the ratio to the learner's own logprobs is 1."""
    forward = LogprobModel(model)
    samples = [sample for sample in make_samples(40) if any(sample.loss_mask)]
    rows = score(forward, samples, token_budget=100)
    record = [replace(s, rollout_logprobs=row, old_logprobs=row) for s, row in zip(samples, rows, strict=True)]
    exact, _ = clipped_gradient(model, record, bf16=False)
    cosine = torch.nn.functional.cosine_similarity

    noisy, metrics = clipped_gradient(model, record)
    assert metrics["clip_ratio/region_mean"] > 0.2
    assert noisy.norm() / exact.norm() < 0.85
    assert cosine(noisy, exact, dim=0) < 0.85

    own, metrics = clipped_gradient(model, [replace(sample, old_logprobs=None) for sample in record])
    assert metrics["clip_ratio/region_mean"] == 0.0
    assert own.norm() / exact.norm() == pytest.approx(1.0, abs=0.02)
    assert cosine(own, exact, dim=0) > 0.998

    in_bf16 = score(forward, samples, token_budget=8192, bf16=True)
    scored = [replace(sample, old_logprobs=row) for sample, row in zip(record, in_bf16, strict=True)]
    again, metrics = clipped_gradient(model, scored)
    assert metrics["clip_ratio/region_mean"] == 0.0
    torch.testing.assert_close(again, own, atol=1e-3, rtol=0)

    differences = [
        abs(a - b) for s, row in zip(record, in_bf16, strict=True) for a, b in zip(s.rollout_logprobs, row, strict=True)
    ]
    tokens = sum(sum(sample.loss_mask) for sample in samples)
    name = "sampling/sampling_logp_difference"
    assert metrics[f"{name}/mean"] == pytest.approx(sum(differences) / tokens, rel=1e-3)
    assert metrics[f"{name}/max"] == pytest.approx(max(differences), rel=1e-3)


@pytest.mark.parametrize("token_budget", [1, 8192])
def test_the_largest_difference_is_over_all_micro_batches(
    model: PreTrainedModel, make_samples: Make, token_budget: int
) -> None:
    samples = [sample for sample in make_samples(6) if any(sample.loss_mask)]
    rows = score(LogprobModel(model), samples, token_budget=100)
    shifts = [0.25, 0.5, 2.0] + [0.125] * (len(samples) - 3)
    shifted = [
        replace(
            s, rollout_logprobs=tuple(value - shift if on else 0.0 for value, on in zip(row, s.loss_mask, strict=True))
        )
        for s, row, shift in zip(samples, rows, shifts, strict=True)
    ]
    learner = learner_of(LogprobModel(model), loss=ReinforceLoss(), learning_rate=0.1, token_budget=token_budget)
    metrics = learner.accumulate(shifted, totals_of(shifted))
    assert metrics["sampling/sampling_logp_difference/max"] == pytest.approx(2.0, abs=1e-4)


def test_without_old_logprobs_the_ratio_is_to_the_steps_own(model: PreTrainedModel, make_samples: Make) -> None:
    samples = make_samples(6)
    own = LogprobModel(model)(make_batch([replace(sample, old_logprobs=None) for sample in samples], model.device))
    assert own.logprobs.requires_grad
    assert not own.old_logprobs.requires_grad
    assert torch.equal(own.old_logprobs, own.logprobs)
    batch = make_batch(samples, model.device)
    assert LogprobModel(model)(batch).old_logprobs is batch.old_logprobs
