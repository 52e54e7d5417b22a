"""What is trained, from settings: learners, credit, and what a batch is completed by."""

from inspect import getclosurevars

import pytest
import torch

from evoseek.assembly.sources import load_settings
from evoseek.credit import CriticCredit, LeaveOneOutCredit
from evoseek.errors import ConfigError
from evoseek.learner.distributed import Ranks
from evoseek.learner.logprobs import score
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.likelihood import ValueLoss
from evoseek.loss.terms import WithTerms
from evoseek.models.load import load_policy, save_policy
from evoseek.models.lora import add_adapter
from evoseek.questions.questions import save_questions
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.runs import RunDirectory
from evoseek.training.plan import TrainingContext
from evoseek.training.stages import check_run
from evoseek.training.train import training_loop
from evoseek.training.trainer import computes_alike, load_trainable, reads_rows, without_old_logprobs
from evoseek.training.update import PPOUpdate
from evoseek.types import Passage, Question, TrainingSample


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("places")
    passages = [Passage(f"{n}#0", str(n), "kiwi", f"kiwi {'kiwi ' * n}") for n in range(4)]
    LexicalIndex.build(root / "index", passages)
    save_questions(root / "q.jsonl", [Question(str(n), "kiwi", ("kiwi",)) for n in range(6)])
    questions = str(root / "q.jsonl")
    return {"search.index": str(root / "index"), "questions.path": questions, "evaluation.path": questions}


def loop_of(places, tmp_path, system="search-r1", **options):
    options = {key.replace("__", "."): value for key, value in options.items()}
    settings, run = load_settings(system=system, options=places | options), RunDirectory(tmp_path)
    with run.locked(), training_loop(settings, run, notify=print) as loop:
        return loop


def test_credit(places, tmp_path):
    credit = {
        name: loop_of(places, tmp_path / name, questions__per_step=2, credit__name=name).system.update.credit
        for name in ("leave-one-out", "raw", "whitened")
    }
    assert isinstance(credit["leave-one-out"], LeaveOneOutCredit)
    rewards, groups = [1.0, 0.0, None, 0.0], ["a", "a", "b", "b"]
    assert credit["raw"](rewards, groups) == rewards
    assert credit["whitened"](rewards, groups)[0] == pytest.approx(2 / 3 / (1 / 3) ** 0.5)


def test_ppo_gets_a_critic_of_its_own(places, tmp_path):
    options = {"questions__per_step": 2, "credit__name": "gae", "algorithm__mini_batches": 3}
    critic = {"learning_rate": 7e-4, "warmup_steps": 5, "critic_warmup_steps": 2}
    options |= {f"critic__{key}": value for key, value in critic.items()} | {"credit__gamma": 0.9, "credit__lam": 0.8}
    loop = loop_of(places, tmp_path, **options)
    update = loop.system.update
    assert isinstance(update, PPOUpdate)
    assert (update.credit, update.critic_warmup_steps, update.mini_batches) == (CriticCredit(0.9, 0.8), 2, 3)
    assert update.critic.loss == ValueLoss()
    assert (update.critic.base_rates[0], update.critic.settings.warmup_steps) == (7e-4, 5)
    assert update.learner.base_rates[0] == load_settings().learner.learning_rate
    assert update.critic.model is not update.learner.model
    assert loop.checkpoints.parts.keys() == {"policy", "critic"}


def test_the_reference_is_a_frozen_copy_or_with_an_adapter_the_base(places, tmp_path):
    common = {"questions__per_step": 2, "algorithm__kl_coefficient": 0.01, "rollout__temperature": 0.75}
    loop = loop_of(places, tmp_path / "full", **common)
    (complete,) = loop.system.update.compared
    reference = scored_by(complete)["given"]
    assert scored_by(complete)["field"] == "ref_logprobs"
    assert reference.temperature == 0.75
    assert reference.model is not loop.system.update.learner.model
    assert not any(parameter.requires_grad for parameter in reference.model.parameters())
    loop = loop_of(places, tmp_path / "lora", **common, lora__rank=2)
    (complete,) = loop.system.update.compared
    assert scored_by(complete)["given"] is loop.system.update.learner.forward
    assert scored_by(complete)["active"].__self__.adapter is None
    trained = loop.system.update.learner.trained
    assert 0 < sum(parameter.numel() for parameter in trained) < 100_000


def test_an_adapter_that_is_trained_on_is_measured_against_itself_and_not_its_base(places, tmp_path):
    base = load_policy("tiny")
    adapted = add_adapter(base, "mine", rank=2, alpha=4)
    with torch.no_grad(), adapted.active():
        for name, parameter in adapted.model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.05)
    save_policy(adapted, tmp_path / "adapter")
    options = {"policy__model": str(tmp_path / "adapter"), "questions__per_step": 2}
    loop = loop_of(places, tmp_path / "run", **options, algorithm__kl_coefficient=0.01)
    (complete,) = loop.system.update.compared
    mask = (False, True, True, True)
    sample = TrainingSample((5, 9, 11, 12), mask, (0.0,) * 4, (0.0,) * 4)
    own = loop.system.update.learner
    with own.active():
        (expected,) = score(own.forward, [sample], token_budget=99)
    assert complete([sample])[0].ref_logprobs == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ConfigError, match="is one already"):
        loop_of(places, tmp_path / "other", **options, lora__rank=2)


def test_the_critic_of_an_adapter_has_its_bases_body(places, tmp_path):
    save_policy(add_adapter(load_policy("tiny"), "mine", rank=2, alpha=4), tmp_path / "adapter")
    options = {"policy__model": str(tmp_path / "adapter"), "questions__per_step": 2}
    loop = loop_of(places, tmp_path / "run", **options, credit__name="gae")
    critic = loop.system.update.critic.model
    assert all(parameter.requires_grad for parameter in critic.parameters())
    assert not any("lora" in name for name, _ in critic.named_parameters())


def test_without_masking_the_learner_computes_what_the_sampler_has_no_record_of(places, tmp_path):
    update = loop_of(places, tmp_path, questions__per_step=2, algorithm__mask_observations=False).system.update
    (complete,) = update.transforms
    assert scored_by(complete)["field"] == "old_logprobs"
    assert scored_by(complete)["given"] is update.learner.forward
    assert update.compared == [without_old_logprobs]


def scored_by(transform):
    """What a transform that scores samples was made of: field, forward pass, settings, and when it is active."""
    return getclosurevars(transform).nonlocals


def names(transforms):
    """What transforms of samples fill in, or do."""
    return [scored_by(one)["field"] if one is not without_old_logprobs else one for one in transforms]


BF16 = {"questions__per_step": 2, "learner__bf16": True}
IN_REWARD = {"algorithm__kl_in": "reward", "algorithm__kl_coefficient": 0.1}
IN_LOSS = {"algorithm__kl_coefficient": 0.1}


@pytest.mark.parametrize(
    ("options", "before", "compared"),
    [
        ({"algorithm__mini_batches": 1}, [], [without_old_logprobs]),
        ({"algorithm__mini_batches": 2}, [], ["old_logprobs"]),
        ({"algorithm__mini_batches": 2, "credit__name": "gae"}, ["values"], ["old_logprobs"]),
        (IN_REWARD, ["old_logprobs", "ref_logprobs"], [without_old_logprobs]),
        (IN_LOSS | {"algorithm__mini_batches": 2}, [], ["old_logprobs", "ref_logprobs"]),
    ],
)
def test_where_the_learner_computes_otherwise_ratios_and_penalties_are_to_its_own_logprobs(
    places, tmp_path, options, before, compared
):
    update = loop_of(places, tmp_path / "bf16", **BF16, **options).system.update
    assert (names(update.transforms), names(update.compared)) == (before, compared)
    scoring = [scored_by(one) for one in (*update.transforms, *update.compared) if one is not without_old_logprobs]
    assert all(made["settings"].bf16 for made in scoring)
    float32 = loop_of(places, tmp_path / "float32", questions__per_step=2, **options).system.update
    assert names(float32.transforms) == [name for name in before if name != "old_logprobs"]
    assert names(float32.compared) == compared[1:]


@pytest.mark.parametrize(("mini_batches", "compared"), [(1, [without_old_logprobs]), (3, ["old_logprobs"])])
def test_importance_weights_are_taken_to_the_learners_own_logprobs_of_each_mini_batch(
    places, tmp_path, mini_batches, compared
):
    own = {"algorithm__importance": "truncate", "algorithm__mini_batches": mini_batches}
    update = loop_of(places, tmp_path / "run", questions__per_step=4, **own).system.update
    assert (names(update.transforms), names(update.compared)) == ([], compared)


def test_all_weights_in_bfloat16_have_masters_and_ratios_to_their_own_logprobs(places, tmp_path):
    loop = loop_of(places, tmp_path / "run", questions__per_step=2, policy__dtype="bfloat16")
    learner = loop.system.update.learner
    assert names(loop.system.update.compared) == [without_old_logprobs]
    assert {parameter.dtype for parameter in learner.model.parameters()} == {torch.bfloat16}
    assert {master.dtype for master in learner.trained} == {torch.float32}
    assert learner.forward.packing_limit > 0
    with pytest.raises(ConfigError, match=r"float16.* Set policy\.dtype to bfloat16"):
        loop_of(places, tmp_path / "half", questions__per_step=2, policy__dtype="float16")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "all weights in float32 on cpu."),
        ({"policy__dtype": "bfloat16"}, "all weights in bfloat16 on cpu, through float32 masters."),
        ({"policy__dtype": "bfloat16", "lora__rank": 2}, "an adapter in float32 over a base in bfloat16 on cpu."),
    ],
)
def test_a_run_tells_what_it_trains_and_how(places, tmp_path, options, words):
    told = []
    options = {key.replace("__", "."): value for key, value in options.items()} | {"questions.per_step": 2}
    run = RunDirectory(tmp_path)
    with run.locked(), training_loop(load_settings(options=places | options), run, notify=told.append):
        pass
    assert [line for line in told if line.startswith("Training")] == [
        f"Training {words} Samples are packed into one row, without padding."
    ]


@pytest.mark.parametrize(
    ("size", "options", "expected"),
    [
        (2, {}, True),
        (1, {}, False),
        (2, {"lora.rank": 2}, False),
        (2, {"policy.dtype": "bfloat16"}, False),
        (2, {"learner.name": "evoseek_tinker.learner:TinkerLearner"}, False),
    ],
)
def test_weights_that_several_processes_share_are_left_unread_until_they_are_spread(size, options, expected):
    """Unless it is an adapter that is trained, or by a learner that may not read them."""
    settings, ranks = load_settings(options=options), Ranks(0, size, torch.device("cpu"))
    assert reads_rows(settings, ranks) == expected
    if "learner.name" not in options:
        policy = load_trainable(settings, None, device="cpu", ranks=ranks)
        assert bool(policy.deferred_weights) == (policy.model.device.type == "meta") == expected


def test_with_servers_no_process_reads_more_than_its_rows(places):
    settings = {"sampler.name": "vllm", "sampler.urls": ["http://127.0.0.1:1", "http://127.0.0.1:2"]}
    for own, expected in (({}, False), (settings, True)):
        context = TrainingContext(load_settings(options=places | own), ranks=Ranks(0, 2, torch.device("cpu")))
        with context.closing:
            assert bool(context.agent.policy.deferred_weights) == expected


def test_an_adapter_on_a_bfloat16_base_has_its_own_logprobs_too(places, tmp_path):
    loop = loop_of(places, tmp_path, questions__per_step=2, policy__dtype="bfloat16", lora__rank=2)
    assert names(loop.system.update.compared) == [without_old_logprobs]


def test_sampler_and_learner_compute_alike_only_in_float32_and_in_one_process():
    def alike(size, **options):
        return computes_alike(load_settings(options=options), Ranks(0, size, torch.device("cpu")))

    assert alike(1)
    assert not alike(2)
    assert not alike(1, **{"learner.bf16": True})
    assert not alike(1, **{"policy.dtype": "bfloat16"})


def test_a_sampler_whose_rollouts_go_on_during_an_update_has_a_policy_of_its_own(places, tmp_path):
    options = {"questions__per_step": 2, "rollout__max_staleness": 1}
    settings = load_settings(options=places | {key.replace("__", "."): value for key, value in options.items()})
    run = RunDirectory(tmp_path / "own")
    with run.locked(), training_loop(settings, run, notify=print) as loop:
        sampler = loop.system.rollouts.roller.sampler
        learner = loop.system.update.learner
        trained, sampled = learner.model, sampler._policy.model
        assert trained is not sampled
        with torch.no_grad():
            trained.lm_head.weight.add_(1.0)
        assert not torch.equal(trained.lm_head.weight, sampled.lm_head.weight)
        loop.system.publish(1)
        assert torch.equal(trained.lm_head.weight, sampled.lm_head.weight)
        assert sampler.policy_version == 1
    shared = loop_of(places, tmp_path / "shared", questions__per_step=2).system
    assert shared.update.learner.model is shared.rollouts.roller.sampler._policy.model


def test_rollouts_ahead_are_corrected_unless_something_else_is_asked_for(places, tmp_path):
    importance = {
        (n, given): load_settings(
            options={"rollout.max_staleness": n} | ({"algorithm.importance": given} if given else {})
        ).algorithm.importance
        for n in (0, 1)
        for given in ("", "none", "mask")
    }
    assert importance == {
        (0, ""): "none",
        (0, "none"): "none",
        (0, "mask"): "mask",
        (1, ""): "truncate",
        (1, "none"): "none",
        (1, "mask"): "mask",
    }
    system = loop_of(places, tmp_path, questions__per_step=2, rollout__max_staleness=1).system
    assert system.update.learner.loss == WithTerms(ClippedLoss(), "truncate")
    assert names(system.update.compared) == [without_old_logprobs]


def test_what_cannot_go_on_during_an_update_is_refused(places, tmp_path):
    reinforce = {"loss__name": "reinforce", "algorithm__importance": "none"}
    with pytest.raises(ConfigError, match=r"loss.name is reinforce, .*Set algorithm.importance to truncate"):
        loop_of(places, tmp_path / "a", rollout__max_staleness=1, **reinforce)
    with pytest.raises(ConfigError, match=r"timing decides which weights write a turn, but web.record"):
        loop_of({}, tmp_path / "b", "deepresearcher", rollout__max_staleness=1, web__record="web.sqlite")
    for system in ("dr-zero", "ssp", "sft"):
        with pytest.raises(ConfigError, match=r"unknown setting rollout.max_staleness \(it is for search-r1"):
            loop_of({}, tmp_path / "c", system, rollout__max_staleness=1)
    settings = load_settings(options=places | {"questions.per_step": 2, "rollout.max_staleness": 2})
    with pytest.raises(
        ConfigError, match=r"max_staleness is 2, but 2 processes exchange rollouts.*Train in one process"
    ):
        check_run(settings, processes=2)
