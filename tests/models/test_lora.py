"""Adapters: equal to a plain forward pass, apart from each other, frozen base, files, merged models, errors."""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.doubles.learners import learner_of
from tools.tiny.tokenizer import tiny_tokenizer
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from evoseek.errors import PolicyError
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.likelihood import CrossEntropyLoss
from evoseek.models.cpu_matmul import adapted_product
from evoseek.models.load import export_policy, load_policy, merged, save_policy
from evoseek.models.lora import add_adapter, inject_adapter, load_adapter
from evoseek.models.policy import Policy, base_of
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.types import Completion, SampleRequest, StopConditions, TrainingSample

LoraConfig = pytest.importorskip("peft").LoraConfig

IDS = torch.arange(3, 23)[None]


@pytest.fixture(scope="module")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base of random weights, on disk."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.2,
        tie_word_embeddings=True,
        evoseek_prompts="tiny",
    )
    directory = tmp_path_factory.mktemp("bases") / "base"
    save_policy(Policy(Qwen2ForCausalLM(config), tokenizer, "made"), directory)
    return directory


@pytest.fixture
def base(base_dir: Path) -> Policy:
    return load_policy(str(base_dir))


def adapter_on(policy: Policy, name: str, *targets: str, seed: int = 0) -> Policy:
    """An adapter on some layers alone, as another program makes it."""
    torch.manual_seed(seed)
    inject_adapter(policy.model, name, LoraConfig(r=2, lora_alpha=8, target_modules=list(targets)))
    return replace(policy, adapter=name)


def pair(base: Policy) -> tuple[Policy, Policy]:
    """A proposer and a solver over one base, both changed from it."""
    solver = add_adapter(base, "solver", rank=4, alpha=8.0, seed=1)
    proposer = adapter_on(base, "proposer", "q_proj", "down_proj", seed=2)
    change(base)
    return proposer, solver


def change(policy: Policy) -> None:
    """Let every adapter of the model differ from the base."""
    generator = torch.Generator().manual_seed(5)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.2, generator=generator)


def logits(policy: Policy) -> torch.Tensor:
    with torch.no_grad(), policy.active():
        return policy.model(IDS).logits


def weights(policy: Policy, containing: str) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in policy.model.named_parameters() if containing in name}


def trained(policy: Policy) -> set[str]:
    return {name for name, parameter in policy.model.named_parameters() if parameter.requires_grad}


def by_formula(policy: Policy, alpha: float) -> torch.Tensor:
    """Logits of the base after every weight W has become W + (alpha / rank) B A, written out."""
    plain = load_policy(policy.model.name_or_path)
    matrices = dict(policy.model.named_parameters())
    with torch.no_grad():
        for path, module in plain.model.named_modules():
            a = matrices.get(f"{path}.lora_A.{policy.adapter}.weight")
            if a is not None:
                b = matrices[f"{path}.lora_B.{policy.adapter}.weight"]
                module.weight += alpha / len(a) * b @ a
    return logits(plain)


def test_a_new_adapter_changes_nothing_and_a_trained_one_is_its_formula(base: Policy) -> None:
    before = logits(base)
    assert torch.equal(logits(add_adapter(base, "new", rank=3, alpha=6.0)), before)
    proposer, solver = pair(base)
    for policy in (proposer, solver):
        torch.testing.assert_close(logits(policy), by_formula(policy, 8.0), atol=1e-5, rtol=1e-5)
        assert (logits(policy) - before).abs().max() > 0.1
    assert (logits(proposer) - logits(solver)).abs().max() > 0.1


def test_an_adapter_on_a_large_model_is_multiplied_in_one_pass(base_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = pair(load_policy(str(base_dir)))
    monkeypatch.setattr("evoseek.models.lora.is_small", lambda _: False)
    quick = pair(load_policy(str(base_dir)))
    ranks: list[int] = []

    def counted(*inputs: Any) -> torch.Tensor:
        ranks.append(len(inputs[3]))
        return adapted_product(*inputs)

    monkeypatch.setattr("evoseek.models.lora.adapted_product", counted)
    for own, other in zip((*quick, base_of(quick[0])), (*usual, base_of(usual[0])), strict=True):
        torch.testing.assert_close(logits(own), logits(other))
    assert ranks == [2] * 4 + [4] * 14  # two layers, of each two or seven targets; none for the base
    copied = merged(quick[0])
    torch.testing.assert_close(logits(copied), logits(quick[0]))


def test_the_base_is_the_frozen_reference_to_the_bit(base: Policy) -> None:
    before = logits(base)
    proposer, solver = pair(base)
    with solver.active():  # nested, as when a reference is asked in the midst of an update
        assert torch.equal(logits(base_of(proposer)), before)
        assert torch.equal(base.model(IDS).logits, logits(solver))
    assert torch.equal(logits(base), before)
    assert base_of(solver).model is base.model


def test_only_the_active_adapter_requires_gradients(base: Policy) -> None:
    proposer, solver = pair(base)
    outside = trained(base)
    with solver.active():
        assert trained(base) == set(weights(base, ".solver."))
        with base.active():
            assert trained(base) == set()
        with torch.no_grad(), proposer.active():  # sampling: the flags are left alone
            assert trained(base) == set(weights(base, ".solver."))
        with proposer.active():
            names = set(weights(base, ".proposer."))
            assert trained(base) == names
            assert all("q_proj" in name or "down_proj" in name for name in names)
        assert trained(base) == set(weights(base, ".solver."))
    assert trained(base) == outside


def test_an_adapter_added_later_on_other_layers_is_switched_too(base: Policy) -> None:
    first = adapter_on(base, "first", "q_proj")
    before = logits(first)
    second = adapter_on(base, "second", "up_proj")
    change(base)
    for policy in (second, base):
        with policy.active():
            assert trained(base) == (set(weights(base, ".second.")) if policy is second else set())
    assert torch.equal(logits(base), before)
    assert (logits(second) - before).abs().max() > 0.1


def test_an_adapter_is_made_whatever_release_of_peft_transformers_asks_for(
    base: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers 5.24 asks for peft 0.22, which was not there when it came."""
    monkeypatch.setattr("transformers.integrations.peft.MIN_PEFT_VERSION", "999")
    policy = add_adapter(base, "new", rank=2, alpha=4.0)
    with policy.active():
        assert trained(base) == set(weights(base, ".new."))


def test_an_error_inside_switches_back(base: Policy) -> None:
    proposer, solver = pair(base)
    with solver.active():
        with pytest.raises(RuntimeError), proposer.active():
            raise RuntimeError
        assert torch.equal(base.model(IDS).logits, logits(solver))


def test_the_seed_gives_the_bits_and_leaves_the_global_random_state(base_dir: Path) -> None:
    torch.manual_seed(11)
    expected = torch.rand(1)
    made = []
    for seed in (3, 3, 4):
        torch.manual_seed(11)
        policy = add_adapter(load_policy(str(base_dir)), "a", rank=4, alpha=8.0, seed=seed)
        assert torch.equal(torch.rand(1), expected)
        made.append(weights(policy, "lora_A"))
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])
    assert not any(torch.equal(made[0][name], made[2][name]) for name in made[0])


def test_adapters_are_float32_and_evaluated_over_a_bfloat16_base(base_dir: Path) -> None:
    policy = add_adapter(load_policy(str(base_dir), dtype="bfloat16"), "a", rank=4, alpha=8.0)
    assert {tensor.dtype for tensor in weights(policy, "lora_").values()} == {torch.float32}
    assert not any(module.training for module in policy.model.modules())
    assert logits(policy).dtype == torch.bfloat16


# Sampling


async def roll(sampler: TorchSampler, name: str, turns: int = 3) -> list[tuple[list[int], Completion]]:
    ids, found = [5, 9, 11, 30, 7], []
    for turn in range(turns):
        request = SampleRequest(name, turn, tuple(ids), 6, 1.0, StopConditions(), seed=3)
        completion = await sampler.sample(request)
        found.append((list(ids), completion))
        ids += [*completion.token_ids, 8, 3, 20]
        for _ in range(len(name) % 3):
            await asyncio.sleep(0)
    sampler.release(name)
    return found


def plain_logprobs(policy: Policy, context: list[int], completion: Completion) -> torch.Tensor:
    ids = torch.tensor([[*context, *completion.token_ids]])
    with torch.no_grad(), policy.active():
        table = policy.model(ids).logits[0, len(context) - 1 : -1].log_softmax(-1)
    return table.gather(1, torch.tensor(completion.token_ids)[:, None]).squeeze(1)


def test_samplers_of_two_adapters_and_the_base_interleave_on_one_model(base: Policy) -> None:
    """All three at once, then each alone: the same tokens, and the logprobs of a plain pass of its own policy."""
    policies = [*pair(base), base]

    async def play(chosen: list[Policy]) -> list[list[tuple[list[int], Completion]]]:
        samplers = [TorchSampler(policy, slots=4, max_length=128) for policy in chosen]
        names = [f"t{'x' * number}" for number in range(6)]
        return await asyncio.gather(*(roll(sampler, name) for sampler in samplers for name in names))

    together = asyncio.run(play(policies))
    alone = [rollout for policy in policies for rollout in asyncio.run(play([policy]))]
    for number, (left, right) in enumerate(zip(together, alone, strict=True)):
        for (context, completion), (_, again) in zip(left, right, strict=True):
            assert completion.token_ids == again.token_ids
            expected = plain_logprobs(policies[number // 6], context, completion)
            assert torch.allclose(torch.tensor(completion.logprobs), expected, atol=1e-5, rtol=0)
    assert together[0][0][1].token_ids != together[6][0][1].token_ids


# Training


def samples() -> list[TrainingSample]:
    ids, mask = tuple(range(4, 16)), (False,) * 3 + (True,) * 4 + (False,) * 2 + (True,) * 3
    return [
        TrainingSample(ids[shift:], mask[shift:], (0.0,) * (12 - shift), tuple(map(float, mask[shift:])))
        for shift in range(3)
    ]


def test_training_one_policy_leaves_the_other_and_the_base_bit_for_bit(base: Policy) -> None:
    proposer, solver = pair(base)
    for policy, other in ((solver, proposer), (proposer, solver), (solver, proposer)):
        frozen = {name: p for name, p in weights(base, "").items() if f".{policy.adapter}." not in name}
        own, others_logits, base_logits = weights(base, f".{policy.adapter}."), logits(other), logits(base)
        with policy.active():
            learner = learner_of(
                LogprobModel(policy.model), loss=CrossEntropyLoss(), learning_rate=0.01, weight_decay=0.1
            )
            losses = [learner.update(samples())["loss"] for _ in range(3)]
        assert losses[-1] < losses[0]
        after = weights(base, "")
        assert all(torch.equal(after[name], tensor) for name, tensor in frozen.items())
        assert all(not torch.equal(after[name], tensor) for name, tensor in own.items())
        assert torch.equal(logits(other), others_logits)
        assert torch.equal(logits(base), base_logits)
        assert {name.split("/")[0] for name in learner.state_dict()[0]} == own.keys()


def test_the_learner_sees_the_adapter_in_body_and_head(base: Policy) -> None:
    """Its mean cross entropy is that of the model's own logits with the adapter on."""
    solver = pair(base)[1]
    sample = samples()[0]
    with solver.active():
        learner = learner_of(LogprobModel(solver.model), loss=CrossEntropyLoss(), learning_rate=0.0)
        loss = learner.update([sample])["loss"]
    ids = torch.tensor([sample.token_ids])
    with torch.no_grad(), solver.active():
        table = solver.model(ids).logits[0, :-1].log_softmax(-1)
    picked = table.gather(1, ids[0, 1:, None])[:, 0][torch.tensor(sample.loss_mask[1:])]
    assert loss == pytest.approx(-picked.mean().item(), abs=1e-5)


# Files


def test_each_adapter_is_saved_by_itself_and_loaded_by_its_name(base: Policy, tmp_path: Path) -> None:
    proposer, solver = pair(base)
    for policy in (proposer, solver):
        directory = tmp_path / str(policy.adapter)
        save_policy(policy, directory)
        assert len(load_file(directory / "adapter_model.safetensors")) == len(weights(policy, f".{policy.adapter}."))
        assert not list(directory.glob("*.bin"))
        loaded = load_policy(str(directory))
        assert (loaded.adapter, loaded.name) == (policy.adapter, str(directory))
        assert torch.equal(logits(loaded), logits(policy))
        assert loaded.model.config.evoseek_prompts == "tiny"
        assert loaded.tokenizer.encode("<search> Kalo </search>") == base.tokenizer.encode("<search> Kalo </search>")
        assert not any(module.training for module in loaded.model.modules())
        with torch.no_grad():  # transformers itself loads it too
            assert torch.equal(AutoModelForCausalLM.from_pretrained(directory)(IDS).logits, logits(policy))
    again = load_policy(str(tmp_path / "solver"))
    both = load_adapter(again, "proposer", tmp_path / "proposer")
    assert torch.equal(logits(both), logits(proposer))
    assert torch.equal(logits(again), logits(solver))


def test_saving_twice_gives_the_same_bytes(base: Policy, tmp_path: Path) -> None:
    solver = pair(base)[1]
    save_policy(solver, tmp_path / "one")
    save_policy(load_policy(str(tmp_path / "one")), tmp_path / "two")
    targets = json.loads((tmp_path / "one" / "adapter_config.json").read_text())["target_modules"]
    assert targets == sorted(targets)  # not in the order of a set, which differs from process to process
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_gathered_state_is_what_is_saved(base: Policy, tmp_path: Path) -> None:
    """As when the model is spread over processes: its own tensors are then not looked at."""
    solver = pair(base)[1]
    state = {name: parameter.detach().clone() for name, parameter in base.model.named_parameters()}
    for parameter in base.model.parameters():
        parameter.data.fill_(torch.nan)
    save_policy(solver, tmp_path, state)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    name = "model.layers.1.mlp.down_proj.lora_B"
    assert torch.equal(saved[f"base_model.model.{name}.weight"], state[f"{name}.solver.weight"])
    assert torch.isfinite(logits(load_policy(str(tmp_path)))).all()


def test_a_base_given_by_a_relative_path_is_found_from_elsewhere(
    base_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(base_dir.parent)
    policy = add_adapter(load_policy("./base"), "a", rank=2, alpha=4.0)
    save_policy(policy, tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    assert torch.equal(logits(load_policy("a")), logits(policy))


def test_the_base_of_an_adapted_model_is_saved_plain(base: Policy, base_dir: Path, tmp_path: Path) -> None:
    pair(base)
    save_policy(base, tmp_path)
    saved, original = load_file(tmp_path / "model.safetensors"), load_file(base_dir / "model.safetensors")
    assert saved.keys() == original.keys()
    assert all(torch.equal(saved[name], original[name]) for name in saved)


def test_a_merged_export_is_a_plain_model_and_the_live_one_stays(base: Policy, tmp_path: Path) -> None:
    proposer, solver = pair(base)
    before, expected, others = weights(base, ""), logits(solver), logits(proposer)
    export_policy(solver, tmp_path)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in tmp_path.iterdir()}
    assert not list(tmp_path.glob("adapter*"))
    plain = load_policy(str(tmp_path))
    assert plain.adapter is None
    assert plain.model.config.evoseek_prompts == "tiny"
    assert not [name for name in plain.model.state_dict() if "lora" in name or "base_layer" in name]
    torch.testing.assert_close(logits(plain), expected, atol=1e-5, rtol=1e-5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(base, "").items())
    assert torch.equal(logits(solver), expected)
    assert torch.equal(logits(proposer), others)
    assert merged(plain).model is plain.model


# Errors


def test_without_peft_the_remedy_is_said(base: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(PolicyError, match=r"pip install 'evoseek\[lora\]'"):
        add_adapter(base, "a", rank=4, alpha=8.0)


@pytest.mark.parametrize(
    ("name", "message"), [("a.b", "letters, digits"), ("solver", "has an adapter 'solver' already")]
)
def test_an_adapter_that_cannot_be_made(base: Policy, name: str, message: str) -> None:
    add_adapter(base, "solver", rank=2, alpha=4.0)
    with pytest.raises(PolicyError, match=message):
        add_adapter(base, name, rank=4, alpha=8.0)
    assert list(base.model.peft_config) == ["solver"]


def test_a_policy_without_an_adapter_has_no_frozen_base(base: Policy) -> None:
    with pytest.raises(PolicyError, match=r"no frozen base.*lora\.rank"):
        base_of(base)


def test_a_policy_that_names_an_adapter_its_model_lacks(base: Policy) -> None:
    stray = Policy(base.model, base.tokenizer, "stray", "other")
    with pytest.raises(PolicyError, match="'other', which its model does not have"), stray.active():
        pass
    add_adapter(base, "a", rank=2, alpha=4.0)
    with pytest.raises(PolicyError, match="'other', which its model does not have"), stray.active():
        pass


def test_an_adapter_over_a_base_that_is_nowhere_cannot_be_saved(base: Policy, tmp_path: Path) -> None:
    policy = add_adapter(base, "a", rank=2, alpha=4.0)
    base.model.name_or_path = ""
    with pytest.raises(PolicyError, match=r"made in memory.*save_policy"):
        save_policy(policy, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def edit(directory: Path, **values: object) -> None:
    path = directory / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def rewrite(directory: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(directory / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda d: edit(d, base_model_name_or_path="/nowhere/base"),
            r"needs its base '/nowhere/base'.*If it was moved",
        ),
        (lambda d: edit(d, base_model_name_or_path=str(d)), "is itself an adapter"),
        (lambda d: edit(d, base_model_name_or_path=None), "names no base"),
        (lambda d: edit(d, peft_type="IA3"), "other than plain LoRA"),
        (lambda d: edit(d, init_lora_weights="pissa"), "other than plain LoRA"),
        (lambda d: edit(d, target_modules=["nothing"]), "does not fit the base"),
        (lambda d: edit(d, r=3), "does not fit the base"),
        (lambda d: edit(d, target_modules=["q_proj"]), "does not fit the base"),
        (lambda d: (d / "adapter_config.json").write_text("{"), "cannot be used"),
        (lambda d: (d / "evoseek.json").write_text("7"), "cannot be used"),
        (lambda d: (d / "adapter_model.safetensors").unlink(), "cannot be used"),
        (lambda d: (d / "adapter_model.safetensors").write_bytes(b"x"), "cannot be used"),
        (lambda d: rewrite(d, lambda tensors: tensors.update({"base_model.model.lm_head.weight": IDS})), "lm_head"),
    ],
)
def test_an_adapter_directory_that_cannot_be_used(
    base: Policy, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    save_policy(pair(base)[1], tmp_path)
    damage(tmp_path)
    with pytest.raises(PolicyError, match=message):
        load_policy(str(tmp_path))


def test_an_adapter_on_the_output_head_is_refused(base: Policy, tmp_path: Path) -> None:
    save_policy(adapter_on(base, "a", "q_proj"), tmp_path)
    edit(tmp_path, target_modules=["q_proj", "lm_head"])
    head = "base_model.model.lm_head.lora_"
    vocabulary = len(base.tokenizer)
    parts = {f"{head}A.weight": torch.zeros(2, 32), f"{head}B.weight": torch.zeros(vocabulary, 2)}
    rewrite(tmp_path, lambda tensors: tensors.update(parts))
    with pytest.raises(PolicyError, match="changes the output head"):
        load_policy(str(tmp_path))


def test_an_adapter_of_another_program_has_pefts_usual_name(base: Policy, tmp_path: Path) -> None:
    solver = pair(base)[1]
    save_policy(solver, tmp_path)
    (tmp_path / "evoseek.json").unlink()
    for path in tmp_path.glob("token*"):
        path.unlink()
    loaded = load_policy(str(tmp_path))
    assert loaded.adapter == "default"
    assert torch.equal(logits(loaded), logits(solver))


def test_pickled_adapter_weights_are_not_read(base: Policy, tmp_path: Path) -> None:
    save_policy(pair(base)[1], tmp_path)
    torch.save(load_file(tmp_path / "adapter_model.safetensors"), tmp_path / "adapter_model.bin")
    (tmp_path / "adapter_model.safetensors").unlink()
    with pytest.raises(PolicyError, match="cannot be used"):
        load_policy(str(tmp_path))


def test_a_base_of_other_weights_is_told(base: Policy, base_dir: Path, tmp_path: Path) -> None:
    solver = pair(base)[1]
    save_policy(solver, tmp_path / "solver")
    other = load_policy(str(base_dir))
    other.model.model.norm.weight.data[0] += 0.1
    with pytest.raises(PolicyError, match=r"does not fit.*had other weights"):
        load_adapter(other, "solver", tmp_path / "solver")
    assert load_policy(str(tmp_path / "solver"), dtype="bfloat16").adapter == "solver"  # the same base, rounded


@pytest.mark.parametrize("saved", ["float16", "float32"])
def test_a_base_is_the_same_one_in_float16(base: Policy, base_dir: Path, tmp_path: Path, saved: str) -> None:
    """Though rounding to float16 and then to bfloat16 gives other values than rounding to bfloat16 at once."""
    other = {"float16": "float32", "float32": "float16"}[saved]
    policy = load_policy(str(base_dir), dtype=saved)
    save_policy(add_adapter(policy, "a", rank=2, alpha=4.0), tmp_path / "a")
    assert load_policy(str(tmp_path / "a"), dtype=other).adapter == "a"
    again = load_policy(str(base_dir), dtype=saved)
    again.model.model.norm.weight.data[0] += 0.1
    with pytest.raises(PolicyError, match="had other weights"):  # two of one type can still be told apart
        load_adapter(again, "a", tmp_path / "a")
