"""What evoseek says about SkyRL's server, tried with a real one. Each test prints its numbers (`-rP` shows them)."""

import random
import time
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from evoseek.learner.learner import Learner, LearnerContext
from evoseek.learner.logprobs import LogprobModel, score, with_scores
from evoseek.learner.settings import LearnerSettings
from evoseek.loss.base import Totals
from evoseek.loss.clipped import ClippedLoss, SequenceLoss
from evoseek.loss.likelihood import ReinforceLoss
from evoseek.loss.terms import WithTerms
from evoseek.models.load import load_policy
from evoseek.models.lora import add_adapter
from evoseek.models.policy import base_of
from evoseek.models.source import tiny_policy_dir
from evoseek.run import Run
from evoseek.storage.metrics import read_metrics
from evoseek.training.probe import EXACT
from evoseek.types import TrainingSample
from evoseek_tinker import sdk
from evoseek_tinker.learner import RemoteForward, TinkerLearner, TinkerSettings
from evoseek_tinker.policy import TinkerPolicy
from evoseek_tinker.sdk import NewModel, RemoteModel, load_sdk
from evoseek_tinker.testing import SCALE

RANK = 4
SHOWN = ("reward", "loss", "grad_norm", "_logp_difference/mean", "probe_mean", "kl", "invalid_frac")
LOSSES = {
    "clipped": ClippedLoss(aggregate="sequence-mean-token-mean"),
    "sequence": SequenceLoss(clip_low=0.05, clip_high=0.05),
    "reinforce": ReinforceLoss(),
    "kl": WithTerms(ClippedLoss(), kl=0.2),
}
SYSTEMS = {
    "search-r1": {"run.steps": 3},
    "dspo": {"algorithm.mini_batches": 2, "algorithm.kl_coefficient": 0.01, "run.steps": 3},
    "dr-zero": {
        "selfplay.proposals_per_step": 12,
        "proposer.attempts": 4,
        "proposer.ratio": [1, 1],
        "dr_zero.iterations": 1,
        "dr_zero.proposer_steps": 1,
        "dr_zero.writing_steps": 1,
        "dr_zero.solver_steps": 1,
        "dr_zero.passages_per_writing_step": 5,
        "dr_zero.questions_per_passage": 2,
        "run.steps": 3,
    },
}
# Adam without moments: the weights change by -learning_rate x gradient / (|gradient| + eps).
RATE = 0.05
BARE = {"learning_rate": RATE, "weight_decay": 0.0}
EPS = 1.0


def samples_of(number):
    """Sequences of random tokens, of which those of the second half are actions."""
    rng = random.Random(number)

    def sample(length):
        mask = tuple(place >= length // 2 for place in range(length))
        advantage = rng.choice([-1.0, 0.5, 1.5])
        return TrainingSample(
            tuple(rng.randrange(3, 339) for _ in mask),
            mask,
            (0.0,) * length,
            tuple(advantage if acts else 0.0 for acts in mask),
        )

    return [sample(rng.randint(12, 60)) for _ in range(number)]


class Pair:
    """An adapter at a server and a copy of it here; `follow` gives the copy the server's weights."""

    def __init__(self, server):
        model = RemoteModel(
            load_sdk(), NewModel(str(tiny_policy_dir()), RANK, 0), api_key="tml-x", base_url=server.url, gradient="mean"
        )
        self.remote = TinkerPolicy.over(model, "tiny", "policy")
        self.local = add_adapter(load_policy("tiny"), "policy", rank=RANK, alpha=SCALE)
        self._server, self._saves = server, 0

    @property
    def weights(self):
        """The adapter's weights here."""
        return {name: value for name, value in self.local.model.named_parameters() if ".lora_" in name}

    def follow(self):
        self._saves += 1
        training = self.remote.remote._opened()
        saved = training.save_weights_for_sampler(f"test-{self._saves}").result().path
        found = {
            name.removeprefix("base_model.model.").replace(".weight", ".policy.weight"): value
            for name, value in self._server.weights(saved).items()
        }
        assert found.keys() == self.weights.keys()
        with torch.no_grad():
            for name, value in self.weights.items():
                value.copy_(found[name])

    def update(self, samples, loss, **settings):
        forward = RemoteForward(self.remote)
        own = TinkerSettings(name="tinker", gradient="mean", **settings)
        return TinkerLearner.build(own, LearnerContext(forward, loss, active=self.remote.active)).update(samples)

    def near(self, samples):
        """With rollout logprobs near those of the policy now: some ratios are clipped, and some are not."""
        rng = random.Random(5)
        rows = score(LogprobModel(self.local.model), samples, active=self.local.active, token_budget=512)
        noisy = [tuple(value + rng.uniform(-0.5, 0.5) for value in row) for row in rows]
        return [
            replace(sample, rollout_logprobs=row, old_logprobs=row) for sample, row in zip(samples, noisy, strict=True)
        ]


@pytest.fixture(scope="module")
def pair(server):
    """After three steps, so that no weight is 0."""
    made = Pair(server)
    for seed in (7, 8, 9):
        made.update(samples_of(seed), ReinforceLoss(), learning_rate=3e-3, weight_decay=0.0)
    made.follow()
    assert all(value.any() for value in made.weights.values())
    return made


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_that_of_the_local_learner(name, pair, monkeypatch):
    monkeypatch.setattr(sdk, "_EPS", EPS)
    monkeypatch.setattr("evoseek_tinker.learner.BETAS", (0.0, 0.0))
    samples, loss, local = pair.near(samples_of(8)), LOSSES[name], pair.local
    ours = with_scores(
        "ref_logprobs", samples, RemoteForward(pair.remote), active=base_of(pair.remote).active, token_budget=512
    )
    theirs = with_scores(
        "ref_logprobs", samples, LogprobModel(local.model), active=base_of(local).active, token_budget=512
    )
    local.model.zero_grad()
    with local.active():
        context = LearnerContext(LogprobModel(local.model), loss)
        learner = Learner(LearnerSettings(learning_rate=0.1, token_budget=8192), context)
        learner.accumulate(theirs, Totals(sum(sum(one.loss_mask) for one in theirs), len(theirs)))
    expected = {name: value.grad.clone() for name, value in pair.weights.items()}
    before = {name: value.detach().clone() for name, value in pair.weights.items()}

    metrics = pair.update(ours, loss, **BARE)
    pair.follow()
    moved = {name: (before[name] - value.detach()) / RATE for name, value in pair.weights.items()}
    found = {name: value / (1 - value.abs()) for name, value in moved.items()}

    largest = max(float(value.abs().max()) for value in expected.values())
    off = max(float((found[name] - expected[name]).abs().max()) for name in expected) / largest
    both = [torch.cat([one[name].flatten() for name in expected]) for one in (found, expected)]
    norm, distance = float(both[1].norm()), float((both[0] - both[1]).norm() / both[1].norm())
    print(f"{name}: norm {norm:.4g} (the server's {metrics['grad_norm']:.4g}), distance {distance:.1e}, most {off:.1e}")
    assert largest > 1e-3
    assert distance < 1e-4
    assert off < 1e-4
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_run_that_is_stopped_after_a_step_trains_to_its_end(system, common, tmp_path):
    settings = common | SYSTEMS[system]
    if system == "dr-zero":
        settings.pop("questions.path")
    for steps in (1, settings["run.steps"]):
        began = time.monotonic()
        run = Run(system, tmp_path / "run", settings=settings | {"run.steps": steps}, console=Console(quiet=True))
        assert run.train() == steps
        print(f"up to step {steps}: {time.monotonic() - began:.0f} seconds")
    rows = read_metrics(run.directory.metrics)
    for row in rows:
        print({name: f"{value:.3g}" for name, value in row.items() if name.endswith(SHOWN) and value is not None})
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["sampling/probe_mean"] < EXACT for row in rows)
    assert all(value < EXACT for row in rows for name, value in row.items() if name.endswith("_logp_difference/mean"))
    trained = {name for row in rows for name, value in row.items() if name.endswith("grad_norm") and value}
    assert trained == ({"proposer/grad_norm", "solver/grad_norm"} if system == "dr-zero" else {"grad_norm"})
