"""The loss of the settings, and what is around it."""

from evoseek.loss.aggregate import FixedLength
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.entropy import WithEntropy
from evoseek.loss.importance import WithImportance
from evoseek.loss.kl import WithKL
from evoseek.loss.reinforce import ReinforceLoss
from evoseek.loss.sequence import SequenceLoss
from evoseek.loss.wrapped import wrapped
from evoseek.registry import build
from evoseek.training.given import load_settings


def test_the_surrogate_and_what_is_around_it():
    def loss(name="clipped", *, own=None, **around):
        options = {"loss.name": name, **{f"loss.{key}": value for key, value in (own or {}).items()}}
        settings = load_settings(options=options | {f"algorithm.{key}": value for key, value in around.items()})
        return wrapped(build("loss", settings.loss, None), settings.algorithm)

    assert loss("sequence", own={"clip_low": 0.1, "clip_high": 0.3}) == SequenceLoss(0.1, 0.3)
    assert loss("reinforce", own={"aggregate": "sequence-sum"}) == ReinforceLoss("sequence-sum")
    token, clipped = ClippedLoss(), "token-mean"
    assert loss() == token
    assert loss(importance="truncate", importance_cap=3) == WithImportance(token, "token", "truncate", 0.0, 3.0)
    assert loss(importance="mask", importance_cap=4) == WithImportance(token, "token", "mask", 0.25, 4.0)
    assert loss("sequence", importance="mask").level == "sequence"
    assert loss(own={"aggregate": 512}) == ClippedLoss(0.2, 0.2, FixedLength(512))
    assert loss(kl_coefficient=0.01) == WithKL(token, 0.01, "k3", clipped)
    assert loss(kl_coefficient=0.01, kl_estimator="k1").estimator == "k1"
    assert loss(kl_coefficient=0.01, kl_in="reward") == token
    assert loss(entropy_coefficient=0.02) == WithEntropy(token, 0.02, clipped)


def test_kl_and_entropy_are_added_up_as_the_loss_adds_up_its_tokens():
    settings = load_settings(options={"algorithm.kl_coefficient": 0.5, "algorithm.entropy_coefficient": 0.25})
    inner = ReinforceLoss("sequence-sum")
    assert wrapped(inner, settings.algorithm) == WithEntropy(
        WithKL(inner, 0.5, "k3", "sequence-sum"), 0.25, "sequence-sum"
    )
