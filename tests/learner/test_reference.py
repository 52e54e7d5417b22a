"""Scoring under frozen models: the numbers, their order, and that nothing is changed by it."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from transformers import PreTrainedModel, Qwen2ForTokenClassification

from evoseek.errors import TrainingError
from evoseek.learner.batch import MicroBatch
from evoseek.learner.distributed import Ranks
from evoseek.learner.logprobs import LogprobModel, ValueModel
from evoseek.learner.reference import score, with_scores
from evoseek.models.lora import add_adapter
from evoseek.models.policy import Policy, base_of
from evoseek.types import TrainingSample

Make = Callable[..., list[TrainingSample]]


def plain(model: PreTrainedModel, sample: TrainingSample, temperature: float = 1.0) -> torch.Tensor:
    """[T] logprobs of one sample from the model's own logits, 0 off the mask."""
    ids = torch.tensor([sample.token_ids])
    with torch.no_grad():
        table = (model(ids).logits[0, :-1] / temperature).log_softmax(-1)
    found = torch.nn.functional.pad(table.gather(1, ids[0, 1:, None])[:, 0], (1, 0))
    return found * torch.tensor(sample.loss_mask)


def check(rows: list[tuple[float, ...]], expected: list[torch.Tensor]) -> None:
    assert len(rows) == len(expected)
    for row, want in zip(rows, expected, strict=True):
        torch.testing.assert_close(torch.tensor(row), want, atol=1e-5, rtol=0)


@pytest.mark.parametrize("token_budget", [1, 30, 10**6])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_scores_are_a_plain_forward_pass_in_the_samples_order(
    model: PreTrainedModel, make_samples: Make, token_budget: int, temperature: float
) -> None:
    samples = make_samples(9)
    samples.append(samples[2])  # the same object twice
    samples.insert(4, replace(samples[0], loss_mask=(False,) * len(samples[0].loss_mask)))  # nothing to score
    rows = score(LogprobModel(model, temperature=temperature), samples, token_budget=token_budget)
    check(rows, [plain(model, sample, temperature) for sample in samples])
    assert [len(row) for row in rows] == [len(sample.token_ids) for sample in samples]
    assert not any(rows[4])


def test_no_samples_and_no_actions(model: PreTrainedModel, make_samples: Make) -> None:
    silent = replace(make_samples(1)[0], loss_mask=(False,) * len(make_samples(1)[0].loss_mask))
    assert score(LogprobModel(model), [], token_budget=100) == []
    assert score(LogprobModel(model), [silent], token_budget=100) == [(0.0,) * len(silent.token_ids)]


def test_scoring_touches_no_weight_and_leaves_no_gradient(model: PreTrainedModel, make_samples: Make) -> None:
    before = copy.deepcopy(model.state_dict())
    with_scores("ref_logprobs", make_samples(5), LogprobModel(model), token_budget=40)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_each_function_fills_its_own_field(model: PreTrainedModel, make_samples: Make) -> None:
    samples = make_samples(4)
    other = copy.deepcopy(model)
    other.lm_head.weight.data *= 1.5
    filled = with_scores("ref_logprobs", samples, LogprobModel(other), token_budget=50)
    filled = with_scores("old_logprobs", filled, LogprobModel(model), token_budget=50)
    check([sample.ref_logprobs for sample in filled], [plain(other, sample) for sample in samples])
    check([sample.old_logprobs for sample in filled], [plain(model, sample) for sample in samples])
    bare = [replace(sample, old_logprobs=None) for sample in samples]
    assert [replace(sample, ref_logprobs=None, old_logprobs=None) for sample in filled] == bare


def test_values_are_the_heads_at_the_state_before_each_action(model: PreTrainedModel, make_samples: Make) -> None:
    torch.manual_seed(1)
    config = copy.deepcopy(model.config)
    config.num_labels = 1
    critic = Qwen2ForTokenClassification(config).eval()
    samples = make_samples(6)
    for sample in with_scores("values", samples, ValueModel(critic), token_budget=40):
        with torch.no_grad():
            heads = critic(torch.tensor([sample.token_ids])).logits[0, :, 0]
        expected = [float(heads[t - 1]) if on else 0.0 for t, on in enumerate(sample.loss_mask)]
        assert sample.values == pytest.approx(expected, abs=1e-5)


def test_the_trained_model_with_its_adapter_off_is_the_reference(model: PreTrainedModel, make_samples: Make) -> None:
    pytest.importorskip("peft")
    samples = make_samples(5)
    expected = [plain(model, sample) for sample in samples]
    policy = add_adapter(Policy(model, None, "made"), "solver", rank=2, alpha=8.0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    forward = LogprobModel(model)
    rows = score(forward, samples, token_budget=60, active=base_of(policy).active)
    check(rows, expected)
    adapted = score(forward, samples, token_budget=60, active=policy.active)
    assert (
        max(abs(a - b) for left, right in zip(rows, adapted, strict=True) for a, b in zip(left, right, strict=True))
        > 0.1
    )
    with policy.active():
        check(adapted, [plain(model, sample) for sample in samples])


def test_the_policy_is_active_in_every_pass_and_no_longer(model: PreTrainedModel, make_samples: Make) -> None:
    events: list[str] = []

    @contextmanager
    def active() -> Iterator[None]:
        events.append("on")
        yield
        events.append("off")

    model.model.register_forward_hook(lambda *_: events.append("recorded" if torch.is_grad_enabled() else "pass"))
    forward = LogprobModel(model)
    events.clear()
    score(forward, make_samples(3), token_budget=1, active=active)
    assert (events[0], events[-1]) == ("on", "off")
    assert set(events[1:-1]) == {"pass"}


class Scripted(Ranks):
    """One of two ranks; `gather` gives what the ranks are scripted to have said, with this one's own in its place."""

    def gather(self, value: object) -> list[object]:
        said.setdefault(self.rank, value)
        return [said.get(rank, []) for rank in range(self.size)]


said: dict[int, object] = {}


def test_ranks_share_the_work_and_make_equally_many_passes(model: PreTrainedModel, make_samples: Make) -> None:
    said.clear()
    samples = make_samples(5)
    passes: list[int] = []
    forward = LogprobModel(model)
    model.model.register_forward_hook(lambda *_: passes.append(1))
    results = []
    for rank in (1, 0):  # five micro-batches: three for rank 0, two and one for company for rank 1
        passes.clear()
        try:
            results.append(score(forward, samples, token_budget=1, ranks=Scripted(rank, 2, torch.device("cpu"))))
        except ValueError:
            assert rank == 1  # rank 0 had not spoken yet
        assert len(passes) == 3
    check(results[0], [plain(model, sample) for sample in samples])


def memory_for(forward: LogprobModel, tokens: int) -> list[int]:
    """Passes over more padded tokens than that run out of memory; the sizes of those tried."""
    tried: list[int] = []

    def check(_: object, arguments: tuple[MicroBatch]) -> None:
        tried.append(arguments[0].token_ids.numel())
        if tried[-1] > tokens:
            raise torch.OutOfMemoryError("no room")

    forward.register_forward_pre_hook(check)
    return tried


def test_when_memory_runs_out_smaller_parts_give_the_same_scores(model: PreTrainedModel, make_samples: Make) -> None:
    samples = make_samples(9)
    forward = LogprobModel(model)
    expected = [plain(model, sample) for sample in samples]
    tried = memory_for(forward, 40)
    check(score(forward, samples, token_budget=160), expected)
    assert tried[0] > 40 >= max(tried[-4:])


def test_a_sample_too_large_for_memory_is_told_with_the_remedy(model: PreTrainedModel, make_samples: Make) -> None:
    forward = LogprobModel(model)
    tried = memory_for(forward, 0)
    with pytest.raises(TrainingError, match=r"1 samples \(no room\)\. Lower learner\.token_budget"):
        score(forward, make_samples(4), token_budget=200)
    assert len(tried) > 1
    with pytest.raises(TrainingError, match=r"no room"):
        score(forward, make_samples(4), token_budget=200, ranks=Scripted(0, 2, torch.device("cpu")))


def test_bfloat16_stays_near(model: PreTrainedModel, make_samples: Make) -> None:
    samples = make_samples(4)
    forward = LogprobModel(model)
    exact, rough = (score(forward, samples, token_budget=100, bf16=bf16) for bf16 in (False, True))
    assert exact != rough
    for left, right in zip(exact, rough, strict=True):
        assert left == pytest.approx(right, abs=0.2)
