"""Every setting reaches the object that it is for."""

import asyncio

import pytest
import torch
from evoseek.assemble.trained import computes_alike
from evoseek.assemble.training import training_loop
from evoseek.config import load_config

from evoseek.corpus.questions import save_questions
from evoseek.credit.rloo import leave_one_out_advantages
from evoseek.errors import ConfigError
from evoseek.learner.distributed import Ranks
from evoseek.learner.reference import score, with_old_logprobs, with_ref_logprobs
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.value import ValueLoss
from evoseek.policy.load import load_policy, save_policy
from evoseek.policy.lora import add_adapter
from evoseek.reward.overlong import OverlongReward
from evoseek.rollout.limits import Limits
from evoseek.runs import RunDirectory
from evoseek.search.lexical import LexicalIndex
from evoseek.systems.dspo import DSPO
from evoseek.training.ppo import PPOUpdate
from evoseek.types import Passage, Question, ToolCall, TrainingSample

OPTIONS = {
    "search.top_k": 2,
    "questions.per_step": 3,
    "rollout.group_size": 5,
    "rollout.temperature": 0.75,
    "rollout.slots": 7,
    "rollout.max_turns": 4,
    "rollout.max_tool_calls": 3,
    "rollout.max_tokens_per_turn": 6,
    "rollout.max_total_tokens": 90,
    "rollout.deadline_s": 50.0,
    "reward.metric": "f1",
    "algorithm.scale": "none",
    "algorithm.clip_low": 0.15,
    "algorithm.clip_high": 0.35,
    "algorithm.aggregate": "sequence-sum",
    "learner.learning_rate": 1e-5,
    "learner.warmup_steps": 9,
    "learner.weight_decay": 0.07,
    "learner.betas": [0.8, 0.95],
    "learner.max_grad_norm": 0.4,
    "learner.token_budget": 333,
    "learner.bf16": True,
    "evaluation.every": 6,
    "evaluation.limit": 2,
    "evaluation.temperature": 0.25,
    "run.seed": 11,
    "run.steps": 8,
    "run.checkpoint_every": 3,
    "run.keep_checkpoints": 4,
    "run.max_invalid": 0.2,
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("places")
    passages = [Passage(f"{n}#0", str(n), "kiwi", f"kiwi {'kiwi ' * n}") for n in range(4)]
    LexicalIndex.build(root / "index", passages)
    save_questions(root / "q.jsonl", [Question(str(n), "kiwi", ("kiwi",)) for n in range(6)])
    questions = str(root / "q.jsonl")
    return {"search.index": str(root / "index"), "questions.path": questions, "evaluation.path": questions}


def test_every_option_differs_from_its_default():
    defaults = load_config()
    for key, value in OPTIONS.items():
        section, name = key.split(".")
        assert getattr(getattr(defaults, section), name) != value


def test_every_option_reaches_its_object(places, tmp_path, monkeypatch):
    asked = []

    async def note(questions, **options):
        asked.append((len(questions), options))
        return type("Nothing", (), {"metrics": lambda self: {}})()

    monkeypatch.setattr("evoseek.assemble.agent.evaluate", note)
    loop = training_loop(load_config(options=places | OPTIONS), RunDirectory(tmp_path), notify=print)
    system, rollouts, update = loop.system, loop.system.rollouts, loop.system.update
    learner = update.learner
    limits = Limits(max_turns=4, max_tool_calls=3, max_tokens_per_turn=6, max_total_tokens=90, deadline_s=50.0)

    assert rollouts.limits == limits
    assert (system.questions_per_step, rollouts.group_size, rollouts.temperature, rollouts.seed) == (3, 5, 0.75, 11)
    assert (rollouts.reward.metric, update.seed, update.mini_batches) == ("f1", 11, 1)
    assert update.credit([1.0, 0.0], ["a", "a"]) == [0.5, -0.5]  # without the std
    assert rollouts.sampler.max_length == 90
    assert len(rollouts.sampler._slots) == 7
    found = asyncio.run(rollouts.env.tools["search"](ToolCall("search", {"query": "kiwi"})))
    assert len(found.passages) == 2

    assert learner.loss == ClippedLoss(0.15, 0.35, "sequence-sum")
    groups = learner.optimizer.param_groups
    assert {(group["lr"], tuple(group["betas"])) for group in groups} == {(1e-5, (0.8, 0.95))}
    assert {group["weight_decay"] for group in groups} == {0.07, 0.0}
    assert (learner.warmup_steps, learner.max_grad_norm, learner.token_budget) == (9, 0.4, 333)
    assert (learner.bf16, learner.forward.temperature) == (True, 0.75)

    assert (loop.steps, loop.checkpoint_every, loop.evaluate_every, loop.max_invalid) == (8, 3, 6, 0.2)
    assert loop.checkpoints.keep_last == 4
    asyncio.run(loop.evaluate(0))
    [(number, options)] = asked
    assert (number, options["temperature"], options["seed"], options["limits"]) == (2, 0.25, 11, limits)
    assert (options["metric"], options["reward"].metric) == ("f1", "f1")


def loop_of(places, tmp_path, **options):
    options = {key.replace("__", "."): value for key, value in options.items()}
    config, run = load_config(options=places | options), RunDirectory(tmp_path)
    with run.locked():
        return training_loop(config, run, notify=print)


def test_credit(places, tmp_path):
    credit = {
        name: loop_of(places, tmp_path / name, questions__per_step=2, algorithm__advantage=name).system.update.credit
        for name in ("leave-one-out", "raw", "whitened")
    }
    assert credit["leave-one-out"] is leave_one_out_advantages
    rewards, groups = [1.0, 0.0, None, 0.0], ["a", "a", "b", "b"]
    assert credit["raw"](rewards, groups) == rewards
    assert credit["whitened"](rewards, groups)[0] == pytest.approx(2 / 3 / (1 / 3) ** 0.5)


def test_ppo_gets_a_critic_of_its_own(places, tmp_path):
    options = {"questions__per_step": 2, "algorithm__advantage": "gae", "algorithm__mini_batches": 3}
    critic = {"learning_rate": 7e-4, "warmup_steps": 5, "gamma": 0.9, "lam": 0.8, "clip": 0.3, "policy_after": 2}
    loop = loop_of(places, tmp_path, **options, **{f"critic__{key}": value for key, value in critic.items()})
    update = loop.system.update
    assert isinstance(update, PPOUpdate)
    assert (update.gamma, update.lam, update.policy_after, update.mini_batches) == (0.9, 0.8, 2, 3)
    assert update.critic.loss == ValueLoss(0.3)
    assert (update.critic.base_rates[0], update.critic.warmup_steps) == (7e-4, 5)
    assert update.learner.base_rates[0] == load_config().learner.learning_rate
    assert update.critic.model is not update.learner.model
    assert loop.checkpoints.parts.keys() == {"policy", "critic"}


def test_overlong_rollouts_are_penalised_in_training_and_not_in_evaluation(places, tmp_path):
    options = {"reward__overlong_max": 20, "reward__overlong_cache": 4}
    loop = loop_of(places, tmp_path, questions__per_step=2, **options)
    shaped = loop.system.rollouts.reward
    assert (type(shaped), shaped.longest, shaped.cache) == (OverlongReward, 20, 4)
    assert shaped.reward.metric == "exact_match"
    metrics = asyncio.run(loop.evaluate(0))
    assert 0.0 <= metrics["eval/reward"] <= 1.0


def test_a_filter_makes_it_dspo(places, tmp_path):
    loop = loop_of(places, tmp_path, questions__per_step=2, algorithm__filter_limit=3)
    assert isinstance(loop.system, DSPO)
    assert loop.system.limit == 3


def test_the_reference_is_a_frozen_copy_or_with_an_adapter_the_base(places, tmp_path):
    common = {"questions__per_step": 2, "algorithm__kl_coefficient": 0.01, "rollout__temperature": 0.75}
    loop = loop_of(places, tmp_path / "full", **common)
    (complete,) = loop.system.update.completions
    reference = complete.keywords["forward"]
    assert complete.func is with_ref_logprobs
    assert reference.temperature == 0.75
    assert reference.model is not loop.system.update.learner.model
    assert not any(parameter.requires_grad for parameter in reference.model.parameters())
    loop = loop_of(places, tmp_path / "lora", **common, lora__rank=2)
    (complete,) = loop.system.update.completions
    assert complete.keywords["forward"] is loop.system.update.learner.forward
    assert complete.keywords["active"].__self__.adapter is None
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
    (complete,) = loop.system.update.completions
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
    loop = loop_of(places, tmp_path / "run", **options, algorithm__advantage="gae")
    critic = loop.system.update.critic.model
    assert all(parameter.requires_grad for parameter in critic.parameters())
    assert not any("lora" in name for name, _ in critic.named_parameters())


def test_without_masking_the_learner_computes_what_the_sampler_has_no_record_of(places, tmp_path):
    loop = loop_of(places, tmp_path, questions__per_step=2, algorithm__mask_observations=False)
    (complete,) = loop.system.update.completions
    assert complete.func is with_old_logprobs
    assert complete.keywords["forward"] is loop.system.update.learner.forward


BF16 = {"questions__per_step": 2, "learner__bf16": True}
IN_REWARD = {"algorithm__kl_in": "reward", "algorithm__kl_coefficient": 0.1}


@pytest.mark.parametrize(
    ("options", "completions"),
    [
        ({"algorithm__mini_batches": 1}, []),
        ({"algorithm__mini_batches": 2}, [with_old_logprobs]),
        ({"algorithm__mini_batches": 2, "algorithm__advantage": "gae"}, [with_old_logprobs]),
        (IN_REWARD, [with_old_logprobs, with_ref_logprobs]),
    ],
)
def test_where_the_learner_computes_otherwise_ratios_and_penalties_are_to_its_own_logprobs(
    places, tmp_path, options, completions
):
    update = loop_of(places, tmp_path / "bf16", **BF16, **options).system.update
    assert update.learner.forward.ratio_to_own
    assert [complete.func for complete in update.completions] == completions
    assert all(complete.keywords["bf16"] for complete in update.completions)
    float32 = loop_of(places, tmp_path / "float32", questions__per_step=2, **options).system.update
    assert not float32.learner.forward.ratio_to_own
    assert with_old_logprobs not in [complete.func for complete in float32.completions]


def test_an_adapter_on_a_bfloat16_base_has_its_own_logprobs_too(places, tmp_path):
    loop = loop_of(places, tmp_path, questions__per_step=2, policy__dtype="bfloat16", lora__rank=2)
    assert loop.system.update.learner.forward.ratio_to_own


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"advantage": "gae", "filter_limit": 2}, "a critic must see the others too"),
        ({"mask_observations": False, "kl_in": "reward", "kl_coefficient": 0.1}, "no logprobs of tool results"),
        ({"loss": "reinforce", "mini_batches": 2}, "mini_batches is 2"),
        ({"reward.overlong_max": 20}, "overlong_max is 20 and reward.overlong_cache not set"),
        ({"reward.overlong_max": 20, "reward.overlong_cache": 21}, "every rollout would be overlong"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(places, tmp_path, options, words):
    named = {key if "." in key else f"algorithm.{key}": value for key, value in options.items()}
    config = load_config(options=places | named)
    with pytest.raises(ConfigError, match=words):
        training_loop(config, RunDirectory(tmp_path / "run"), notify=print)
    assert not (tmp_path / "run").exists()


def test_sampler_and_learner_compute_alike_only_in_float32_and_in_one_process():
    def alike(size, **options):
        return computes_alike(load_config(options=options), Ranks(0, size, torch.device("cpu")))

    assert alike(1)
    assert not alike(2)
    assert not alike(1, **{"learner.bf16": True})
    assert not alike(1, **{"policy.dtype": "bfloat16"})
