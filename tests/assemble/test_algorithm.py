import pytest
from evoseek.assemble.algorithm import make_loss
from evoseek.assemble.together import check_settings
from evoseek.config import load_config

from evoseek.errors import ConfigError
from evoseek.loss.aggregate import FixedLength
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.entropy import WithEntropy
from evoseek.loss.importance import WithImportance
from evoseek.loss.kl import WithKL
from evoseek.loss.reinforce import ReinforceLoss
from evoseek.loss.sequence import SequenceLoss


def test_the_surrogate_and_what_is_around_it():
    def loss(**options):
        return make_loss(load_config(options={f"algorithm.{key}": value for key, value in options.items()}))

    assert loss(loss="sequence", clip_low=0.1, clip_high=0.3) == SequenceLoss(0.1, 0.3)
    assert loss(loss="reinforce", aggregate="sequence-sum") == ReinforceLoss("sequence-sum")
    token, clipped = ClippedLoss(), "token-mean"
    assert loss(importance="truncate", importance_cap=3) == WithImportance(token, "token", "truncate", 0.0, 3.0)
    assert loss(importance="mask", importance_cap=4) == WithImportance(token, "token", "mask", 0.25, 4.0)
    assert loss(importance="mask", loss="sequence").level == "sequence"
    assert loss(aggregate=512) == ClippedLoss(0.2, 0.2, FixedLength(512))
    assert loss(kl_coefficient=0.01) == WithKL(token, 0.01, "k3", clipped)
    assert loss(kl_coefficient=0.01, kl_estimator="k1").estimator == "k1"
    assert loss(kl_coefficient=0.01, kl_in="reward") == token
    assert loss(entropy_coefficient=0.02) == WithEntropy(token, 0.02, clipped)


@pytest.mark.parametrize("system", ["zerosearch", "deepresearcher"])
def test_systems_that_train_on_all_groups_have_no_filter(system):
    with pytest.raises(ConfigError, match=f"{system} trains on all groups"):
        check_settings(load_config(system=system, options={"algorithm.filter_limit": 2}))
