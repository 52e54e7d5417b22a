"""A solver and a proposer: what they share, that they learn apart, and that they come back from files."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.doubles.learners import learner_of
from tools.tiny.tokenizer import tiny_tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

from evoseek.assembly.context import load_run_policy
from evoseek.assembly.sources import load_settings
from evoseek.errors import ConfigError
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.likelihood import CrossEntropyLoss
from evoseek.models.load import load_policy, save_policy
from evoseek.models.policy import Policy
from evoseek.types import TrainingSample

pytest.importorskip("peft")

IDS = tuple(range(4, 16))


def load_pair(model: str, *, rank: int = 0, **directories: Path) -> tuple[Policy, Policy]:
    """The players, of which some are in these directories of a checkpoint."""
    lora = {"lora.rank": rank, "lora.alpha": 1.0} if rank else {}
    settings = load_settings(system="dr-zero", options={"policy.model": model, **lora})
    checkpoint = SimpleNamespace(part_directory=directories.get)
    solver = load_run_policy(settings, checkpoint, device="cpu")
    return solver, load_run_policy(settings, checkpoint, device="cpu", part="proposer", beside=solver)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a model of random weights."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.2,
    )
    directory = tmp_path_factory.mktemp("pair") / "base"
    save_policy(Policy(Qwen2ForCausalLM(config), tokenizer, "made"), directory)
    return str(directory)


def logits(policy: Policy) -> torch.Tensor:
    with torch.no_grad(), policy.active():
        return policy.model(torch.tensor([IDS])).logits


def train(policy: Policy) -> None:
    mask = tuple(position > 3 for position in range(len(IDS)))
    sample = TrainingSample(IDS, mask, (0.0,) * len(IDS), tuple(map(float, mask)))
    forward = LogprobModel(policy.model)
    learner = learner_of(forward, loss=CrossEntropyLoss(), learning_rate=0.05, active=policy.active)
    losses = [learner.update([sample])["loss"] for _ in range(3)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("rank", [2, 0], ids=["adapters", "models"])
def test_they_begin_as_the_same_policy_learn_apart_and_come_back_from_files(
    base: str, tmp_path: Path, rank: int
) -> None:
    solver, proposer = load_pair(base, rank=rank)
    assert (solver.model is proposer.model) == (rank > 0)
    assert (solver.adapter, proposer.adapter) == (("policy", "proposer") if rank else (None, None))
    assert torch.equal(logits(solver), logits(load_policy(base)))
    for policy, other in ((solver, proposer), (proposer, solver), (solver, proposer)):
        before, others = logits(policy), logits(other)
        train(policy)
        assert (logits(policy) - before).abs().max() > 0.01
        assert torch.equal(logits(other), others)
    assert (logits(solver) - logits(proposer)).abs().max() > 1e-3
    save_policy(solver, tmp_path / "policy")
    save_policy(proposer, tmp_path / "proposer")
    again = load_pair(base, policy=tmp_path / "policy", proposer=tmp_path / "proposer", rank=rank)
    assert (again[0].model is again[1].model) == (rank > 0)
    for old, new in zip((solver, proposer), again, strict=True):
        assert new.adapter == old.adapter
        assert torch.equal(logits(new), logits(old))
    assert {path.name for path in map(Path, (again[0].name, again[1].name))} == {"policy", "proposer"}


def test_new_adapters_are_the_same_for_both(base: str) -> None:
    solver, _ = load_pair(base, rank=2)
    weights = dict(solver.model.named_parameters())
    pairs = [(name, name.replace(".policy.", ".proposer.")) for name in weights if ".policy." in name]
    assert len(pairs) == 28  # A and B of two layers' seven targets
    assert all(torch.equal(weights[one], weights[other]) for one, other in pairs)


def test_an_adapter_under_any_name_begins_both_over_one_model(base: str, tmp_path: Path) -> None:
    _, proposer = load_pair(base, rank=2)
    train(proposer)
    save_policy(proposer, tmp_path)
    both = load_pair(str(tmp_path))
    assert [policy.adapter for policy in both] == ["policy", "proposer"]
    assert both[0].model is both[1].model
    assert all(torch.equal(logits(policy), logits(proposer)) for policy in both)


def test_one_of_them_may_be_begun_while_the_other_goes_on(base: str, tmp_path: Path) -> None:
    """As when one of the two was frozen and is in no checkpoint."""
    solver, _ = load_pair(base, rank=2)
    train(solver)
    save_policy(solver, tmp_path / "adapter")
    again, proposer = load_pair(base, policy=tmp_path / "adapter", rank=2)
    assert again.model is proposer.model
    assert torch.equal(logits(again), logits(solver))
    assert torch.equal(logits(proposer), logits(load_policy(base)))
    alone, other = load_pair(base, policy=Path(base), rank=2)
    assert (alone.adapter, other.adapter) == (None, "proposer")
    alone, other = load_pair(base, policy=tmp_path / "adapter", proposer=Path(base))
    assert (alone.adapter, other.adapter) == ("policy", None)
    assert alone.model is not other.model


def test_a_new_adapter_on_an_adapter_is_refused(base: str, tmp_path: Path) -> None:
    save_policy(load_pair(base, rank=2)[0], tmp_path)
    with pytest.raises(ConfigError, match=r"lora.rank is 2, .*is one already.*merge it"):
        load_pair(str(tmp_path), rank=2)
