import random
from dataclasses import replace

import pytest
import torch

from evoseek.assembly.settings import TrainingSettings
from evoseek.config.sections import check_settings, read_settings
from evoseek.errors import ConfigError, TrainingError
from evoseek.learner.learner import Learner, LearnerContext
from evoseek.learner.logprobs import LogprobModel, score, with_scores
from evoseek.learner.settings import LearnerSettings
from evoseek.loss.base import Loss, LossFn, Totals
from evoseek.loss.clipped import ClippedLoss, SequenceLoss
from evoseek.loss.likelihood import ReinforceLoss
from evoseek.loss.terms import WithTerms
from evoseek.models.load import load_policy
from evoseek.models.lora import add_adapter
from evoseek.models.policy import base_of
from evoseek_tinker.learner import RemoteForward, TinkerLearner, TinkerSettings
from evoseek_tinker.policy import TinkerPolicy
from evoseek_tinker.sdk import NewModel, RemoteModel
from evoseek_tinker.testing import SCALE, ScriptedTinker

BUDGET = {"token_budget": 512}


@pytest.fixture(scope="module")
def local():
    """An adapter of rank 2 over the tiny policy, whose weights are all random."""
    policy = add_adapter(load_policy("tiny"), "policy", rank=2, alpha=SCALE)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for value in weights_of(policy).values():
            value.copy_(0.02 * torch.randn(value.shape, generator=generator))
    return policy


def weights_of(policy):
    return {name: value for name, value in policy.model.named_parameters() if ".lora_" in name}


def remote(service=None, like=None, **options):
    """A TinkerPolicy at a double, with the weights of a local policy."""
    service = service or ScriptedTinker()
    model = RemoteModel(service, NewModel("tiny", 2, 0), api_key="tml-secret", **options)
    policy = TinkerPolicy.over(model, "tiny", "policy")
    if like is not None:
        policy.remote.logprobs([[1, 2]])
        with torch.no_grad():
            for name, value in weights_of(like).items():
                service.trainings[-1].parameters[name].copy_(value)
    return policy, service


def learner_of(policy, loss, dump=None, **settings):
    own = TinkerSettings(name="tinker", **{"learning_rate": 0.01, "max_grad_norm": 1e6, **settings})
    return TinkerLearner.build(own, LearnerContext(RemoteForward(policy), loss, active=policy.active, dump=dump))


@pytest.fixture(scope="module")
def samples_near(local):
    """Samples whose logprobs are near those of the local policy: some ratios are clipped, and some are not."""

    def make(samples):
        rng = random.Random(5)
        rows = score(LogprobModel(local.model), samples, active=local.active, **BUDGET)
        near = [
            tuple(
                value + rng.uniform(-0.5, 0.5) if acts else 0.0
                for value, acts in zip(row, sample.loss_mask, strict=True)
            )
            for sample, row in zip(samples, rows, strict=True)
        ]
        return [replace(s, rollout_logprobs=row, old_logprobs=row) for s, row in zip(samples, near, strict=True)]

    return make


def local_gradient(local, samples, loss):
    local.model.zero_grad()
    with local.active():
        context = LearnerContext(LogprobModel(local.model), loss)
        learner = Learner(LearnerSettings(learning_rate=0.1, token_budget=8192), context)
        totals = Totals(sum(sum(sample.loss_mask) for sample in samples), len(samples))
        metrics = learner.accumulate([sample for sample in samples if loss.contributes(sample)], totals)
    return {name: value.grad.clone() for name, value in weights_of(local).items()}, metrics


LOSSES: dict[str, LossFn] = {
    "clipped": ClippedLoss(aggregate="sequence-mean-token-mean"),
    "sequence": SequenceLoss(clip_low=0.05, clip_high=0.05),
    "reinforce": ReinforceLoss(),
    "kl": WithTerms(ClippedLoss(), kl=0.2),
}


@pytest.mark.parametrize("gradient", ["sum", "mean"])
@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_that_of_the_local_learner(name, gradient, local, make_samples, samples_near):
    samples, loss = samples_near(make_samples(9)), LOSSES[name]
    policy, service = remote(ScriptedTinker(gradient=gradient), local, gradient=gradient)
    ours = with_scores("ref_logprobs", samples, RemoteForward(policy), active=base_of(policy).active, **BUDGET)
    theirs = with_scores("ref_logprobs", samples, LogprobModel(local.model), active=base_of(local).active, **BUDGET)
    for own, other in zip(ours, theirs, strict=True):
        assert own.ref_logprobs == pytest.approx(other.ref_logprobs, abs=1e-5)
    expected, numbers = local_gradient(local, theirs, loss)
    metrics = learner_of(policy, loss).update(ours)
    found = service.trainings[-1].gradient
    assert found.keys() == expected.keys()
    largest = max(float(value.abs().max()) for value in expected.values())
    assert largest > 1e-3
    assert all(torch.allclose(found[key], expected[key], rtol=0, atol=1e-4 * largest) for key in expected)
    assert metrics["loss"] == pytest.approx(numbers["loss"], rel=1e-4)
    own = {key: value for key, value in numbers.items() if key not in ("entropy", "loss")}
    assert {key: metrics[key] for key in own} == pytest.approx(own, rel=1e-3, abs=1e-6)
    assert "entropy" not in metrics


def test_cross_entropy_would_be_another_loss_where_the_server_divides_by_the_weights(local, make_samples, samples_near):
    samples, loss = samples_near(make_samples(9)), LOSSES["clipped"]
    expected, _ = local_gradient(local, samples, loss)
    policy, service = remote(ScriptedTinker(gradient="mean"), local)
    with pytest.raises(TrainingError, match=r"Set learner\.gradient to mean"):
        learner_of(policy, loss).update(samples)
    found = service.trainings[-1].gradient
    cosines = [torch.cosine_similarity(found[key].flatten(), expected[key].flatten(), 0) for key in expected]
    assert float(torch.stack(cosines).mean()) < 0.9


def test_two_terms_are_one_step_on_their_sum(local, make_samples, samples_near):
    one, other = samples_near(make_samples(5)), samples_near(make_samples(4, seed=1))
    first, second = LOSSES["clipped"], LOSSES["reinforce"]
    expected = [local_gradient(local, samples, loss)[0] for samples, loss in ((one, first), (other, second))]
    policy, service = remote(like=local)
    step, terms = learner_of(policy, first).update_together([(one, first), (other, second), ([], second)])
    found = service.trainings[-1].gradient
    both = {key: expected[0][key] + expected[1][key] for key in found}
    largest = max(float(value.abs().max()) for value in both.values())
    assert all(torch.allclose(found[key], both[key], rtol=0, atol=1e-4 * largest) for key in found)
    assert step["learning_rate"] == 0.01
    assert [term["learner/samples"] for term in terms] == [5, 4, 0]
    assert service.calls.count("optim_step") == 1


def test_the_first_step_of_a_batch_has_the_ratio_one(local, make_samples, samples_near):
    samples = [replace(sample, old_logprobs=None) for sample in samples_near(make_samples(6))]
    policy, _ = remote(like=local)
    metrics = learner_of(policy, ClippedLoss()).update(samples)
    assert metrics["clip_ratio/region_mean"] == 0.0
    assert metrics["sampling/sampling_logp_difference/mean"] > 0.1


def test_the_numbers_of_the_settings_reach_the_optimizer(make_samples):
    policy, service = remote()
    own = {"learning_rate": 0.02, "warmup_steps": 4, "weight_decay": 0.3}
    learner = learner_of(policy, ReinforceLoss(), max_grad_norm=0.5, **own)
    learner.update(make_samples(3))
    step = service.trainings[-1].last_step
    assert (step.learning_rate, step.beta1, step.beta2, step.eps) == (0.005, 0.9, 0.999, 1e-8)
    assert (step.weight_decay, step.grad_clip_norm) == (0.3, 0.5)
    assert learner.update(make_samples(3))["learning_rate"] == 0.01


def test_nothing_is_sent_for_samples_without_a_gradient(make_samples):
    policy, service = remote()
    flat = [replace(sample, advantages=(0.0,) * len(sample.token_ids)) for sample in make_samples(3)]
    metrics = learner_of(policy, ClippedLoss()).update(flat)
    assert metrics["learner/skipped_no_signal"] == 1
    assert service.calls == []


class NotFinite(ReinforceLoss):
    def __call__(self, inputs, totals):
        result = super().__call__(inputs, totals)
        return Loss(result.loss * float("nan"), {})


def test_a_loss_that_is_not_finite_is_never_sent_back(make_samples, tmp_path):
    policy, service = remote()
    learner = learner_of(policy, NotFinite(), dump=tmp_path / "dump.json")
    assert [learner.update(make_samples(2))["learner/skipped_non_finite"] for _ in range(2)] == [1, 2]
    with pytest.raises(TrainingError, match="3 optimizer steps in a row"):
        learner.update(make_samples(2))
    assert set(service.calls) == {"create_lora_training_client", "forward"}
    assert (tmp_path / "dump.json").exists()


class OneSlope(ReinforceLoss):
    """A finite loss, of which one token's slope is none."""

    def __call__(self, inputs, totals):
        result = super().__call__(inputs, totals)
        last = inputs.logprobs[inputs.loss_mask][-1]
        return Loss(result.loss + 0.0 * (last - last.detach()).sqrt(), {})


def test_a_slope_that_is_not_finite_is_never_sent_back(make_samples):
    policy, service = remote()
    assert learner_of(policy, OneSlope()).update(make_samples(2))["learner/skipped_non_finite"] == 1
    assert "forward_backward" not in service.calls


@pytest.mark.parametrize("name", ["forward", "forward_backward", "optim_step", "create_lora_training_client"])
def test_a_failure_of_the_service_stops_training_and_never_names_the_key(name, make_samples):
    def fails(call):
        if call == name:
            raise RuntimeError("the key tml-secret is out of credit")

    policy, _ = remote(ScriptedTinker(fails=fails))
    with pytest.raises(
        TrainingError, match=r"failed at .*: RuntimeError: the key \*\*\* is out.*resumes from the last"
    ):
        learner_of(policy, ClippedLoss()).update(make_samples(2))


def test_a_saved_state_goes_on_as_if_nothing_had_happened(make_samples):
    policy, service = remote()
    learner = learner_of(policy, ReinforceLoss(), warmup_steps=10)
    learner.update(make_samples(3))
    _, values = learner.state_dict()
    learner.update(make_samples(3, seed=1))
    state = str(values["state"])
    assert state == "tinker://0/weights/evoseek-000001"
    again, _ = remote(service, state=state)
    resumed = learner_of(again, ReinforceLoss(), warmup_steps=10)
    resumed.load_state_dict({}, values)
    resumed.update(make_samples(3, seed=1))
    one, other = (training.parameters for training in service.trainings)
    assert all(torch.equal(one[key], other[key]) for key in one)
    assert resumed.step == learner.step == 2


def test_a_restart_keeps_the_weights_and_forgets_the_optimizer(make_samples):
    policy, service = remote()
    learner = learner_of(policy, ReinforceLoss())
    learner.update(make_samples(3))
    learner.restart()
    one, other = service.trainings
    assert all(torch.equal(one.parameters[key], other.parameters[key]) for key in one.parameters)
    assert one.optimizer.state
    assert not other.optimizer.state
    assert learner.step == 0
    learner.update(make_samples(3, seed=1))
    assert other.optimizer.state


def test_a_critic_is_refused():
    with pytest.raises(ConfigError, match="trains a policy"):
        TinkerLearner.build(TinkerSettings(), LearnerContext(LogprobModel(load_policy("tiny").model), ClippedLoss()))


def settings_with(**given):
    tree = {"learner": {"name": "tinker"}, "sampler": {"name": "tinker"}, "lora": {"rank": 4}}
    for dotted, value in given.items():
        table, _, key = dotted.partition("__")
        tree.setdefault(table, {})[key] = value
    return read_settings(TrainingSettings, tree)


def test_the_plain_settings_are_accepted():
    check_settings(settings_with())


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("sampler__name", "torch", r"Set sampler\.name to tinker, too"),
        ("lora__rank", 0, r"lora\.rank is 0, which trains all weights"),
        ("lora__alpha", 16.0, r"lora\.alpha = 16\.0 has no effect"),
        ("policy__dtype", "bfloat16", r"policy\.dtype has no effect"),
        ("policy__model", "model.gguf", "reads no GGUF file"),
        ("credit__name", "gae", r"no critic, but credit\.name is gae"),
        ("algorithm__entropy_coefficient", 0.01, r"algorithm\.entropy_coefficient is above 0"),
        ("rollout__temperature", 0.7, r"rollout\.temperature is 0\.7"),
        ("evaluation__temperature", 0.5, r"evaluation\.temperature is 0\.5"),
    ],
)
def test_what_the_service_cannot_do_is_refused_by_the_settings(key, value, said):
    with pytest.raises(ConfigError, match=said):
        check_settings(settings_with(**{key: value}))


def test_a_key_in_the_place_of_its_variable_is_refused_and_not_repeated():
    with pytest.raises(ConfigError, match=r"learner\.api_key_env does not name") as caught:
        check_settings(settings_with(learner__api_key_env="tml-secret"))
    assert "secret" not in str(caught.value)


def test_a_service_without_a_key_is_refused_before_anything_is_sent(monkeypatch):
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    service = ScriptedTinker()

    class Mine(TinkerLearner):
        @classmethod
        def sdk(cls):
            return service

    with pytest.raises(ConfigError, match=r"TINKER_API_KEY .*is not set"):
        Mine.load_policy(settings_with(), None, "policy")
    assert service.keys == []
