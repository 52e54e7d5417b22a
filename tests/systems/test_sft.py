"""Steps on demonstrations, with an update that records what it is given."""

import asyncio
import json
from dataclasses import replace

import pytest

from evoseek.assembly.context import Objects
from evoseek.assembly.model_defaults import apply_model_defaults, learning_rate
from evoseek.assembly.sources import load_settings
from evoseek.errors import ConfigError
from evoseek.models.machine import Machine
from evoseek.models.source import tiny_policy_dir
from evoseek.storage.runs import RunDirectory
from evoseek.systems.sft import SFT
from evoseek.training.plan import TrainingContext
from evoseek.training.stages import check_run
from evoseek.types import Passage, TrainingSample

FILE = {"demonstrations.path": "d.jsonl"}


def sample(number, length=3):
    zeros = (0.0,) * length
    return TrainingSample((number,) * length, (False, *(True,) * (length - 1)), zeros, zeros)


class Update:
    def __init__(self):
        self.batches = []

    def __call__(self, samples):
        self.batches.append([sample.token_ids[0] for sample in samples])
        return {"loss": 0.5, "sampling/sampling_logp_difference/mean": 9.0}


def by_token(samples):
    """Logprobs -1 of sample 1, -2 of sample 2, ..."""
    return [
        replace(
            s, old_logprobs=tuple(-float(i) if acts else 0.0 for i, acts in zip(s.token_ids, s.loss_mask, strict=True))
        )
        for s in samples
    ]


@pytest.fixture
def system():
    published = []
    made = SFT([sample(n) for n in range(5)], [sample(1), sample(4, 2)], Update(), by_token, published.append, 2, 0)
    return made, published


def test_every_demonstration_is_learnt_once_an_epoch_and_the_new_policy_is_published(system):
    made, published = system
    reports = [asyncio.run(made.step(step)) for step in range(1, 6)]
    drawn = [number for batch in made.update.batches for number in batch]
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == [0, 1, 2, 3, 4]
    assert published == [1, 2, 3, 4, 5]
    assert reports[4].metrics == {
        "loss": 0.5,
        "demonstrations/num": 2.0,
        "demonstrations/tokens": 6.0,
        "demonstrations/learnt_tokens": 4.0,
        "demonstrations/epoch": 2.0,
    }
    assert (reports[0].failures, reports[0].num_rollouts) == ((), 0)


def test_the_batch_of_a_step_follows_from_what_was_learnt_before(system):
    made, _ = system
    asyncio.run(made.step(1))
    after_one = json.loads(json.dumps(made.passes.state()))
    for step in (2, 3):
        asyncio.run(made.step(step))
    made.passes.restore(after_one)
    asyncio.run(made.step(2))
    assert made.update.batches[1] == made.update.batches[3] != made.update.batches[0]


def test_the_held_out_loss_is_the_mean_over_tokens_with_the_number_of_demonstrations(system):
    """Two tokens of logprob -1 and one of -4."""
    made, _ = system
    assert asyncio.run(made.measure(0)) == {"eval/loss": 2.0, "eval/loss_n": 2.0}


class Engine:
    """Finds a passage of that title."""

    is_local = True

    async def search(self, queries, k):
        return [[Passage(query, query, query, f"{query} is meri .")] for query in queries]


def test_a_file_of_both_roles_is_learnt_with_the_prompts_of_both(tmp_path):
    path = tmp_path / "d.jsonl"
    turns = [{"query": "kalo"}, {"question": "who is kalo ?", "answer": "meri"}]
    proposer = {"role": "proposer", "passage": {"text": "kalo is a river ."}, "hops": 2, "turns": turns}
    solver = {"question": "who is kalo ?", "turns": [{"query": "kalo"}, {"answer": "meri"}]}
    path.write_text("".join(json.dumps(row) + "\n" for row in (proposer, solver)))
    settings = load_settings(system="sft", options={"demonstrations.path": str(path), "demonstrations.held_out": 0})
    context = TrainingContext(settings, RunDirectory(tmp_path / "run"), objects=Objects(search=Engine()))
    plan = SFT.build(settings, context)
    assert plan.state is plan.system.passes  # or a resumed run would begin the pass anew
    proposing, solving = (context.agent.decode(sample.token_ids) for sample in plan.system.samples)
    assert proposing.startswith("propose 2 hops : kalo is a river . <search> kalo </search>")
    assert proposing.endswith("<question> who is kalo ? </question> <answer> meri </answer>")
    assert solving.startswith("solve : who is kalo ? <search> kalo </search>")


def test_what_is_learnt_is_the_distribution_of_temperature_1_whatever_rollouts_are_drawn_at():
    sets = ["rollout.temperature=0.5"]
    assert load_settings(system="sft", sets=sets).learnt_temperature == 1.0
    assert load_settings(system="search-r1", sets=sets).learnt_temperature == 0.5


def test_the_learner_has_temperature_1_and_a_rate_that_falls_to_0(tmp_path):
    settings = load_settings(system="sft", options=FILE, sets=["rollout.temperature=0.5", "learner.learning_rate=0.5"])
    context = TrainingContext(settings, RunDirectory(tmp_path))
    trainer = context.learn_supervised(total_steps=4)
    assert trainer is context.trainer
    assert trainer.learner.forward.temperature == 1.0
    rates = [trainer.learner.update([sample(5), sample(6)])["learning_rate"] for _ in range(2)]
    assert rates == [0.5, 0.375]


def test_a_larger_model_gets_a_higher_rate_than_from_rewards_and_slots_for_its_evaluation(tmp_path):
    found = {size: learning_rate(size, adapter=False, supervised=True) for size in (135e6, 1.5e9, 3e9)}
    assert found == {135e6: 1e-4, 1.5e9: 3e-5, 3e9: 1e-5}
    assert learning_rate(3e9, adapter=True, supervised=True) == 1e-4
    model = tmp_path / "config.json"
    model.write_text((tiny_policy_dir() / "config.json").read_text().replace("evoseek_prompts", "other"))
    given = load_settings(system="sft", options={**FILE, "policy.model": str(tmp_path)})
    followed, words = apply_model_defaults(given, lambda _: Machine("cpu", 2**34))
    assert followed.learner.learning_rate == 1e-4
    assert followed.sampler.slots == 64
    assert "proposals_per_step" not in words


def test_the_held_out_loss_is_measured_without_held_out_questions_too():
    check_run(load_settings(system="sft", options=FILE, sets=["evaluation.every=5"]))
    with pytest.raises(ConfigError, match=r"evaluation.limit is set, but it has no effect"):
        check_run(load_settings(system="sft", options=FILE, sets=["evaluation.limit=5"]))
