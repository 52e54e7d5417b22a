"""The loop with scripted rollouts and an update that records what it is given."""

import asyncio
import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pydantic import TypeAdapter
from tests.doubles.scripted import ScriptedSampler
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.assembly.sources import load_settings
from evoseek.errors import ConfigError, TrainingError
from evoseek.learner.distributed import Ranks
from evoseek.questions.questions import save_questions
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.tools import SearchTool
from evoseek.search.lexical import LexicalIndex
from evoseek.selfplay.episode import relabel
from evoseek.storage.runs import RunDirectory
from evoseek.systems.search_r1 import SearchR1
from evoseek.training.loop import TrainingLoop
from evoseek.training.rollouts import Ahead
from evoseek.training.train import training_loop
from evoseek.types import Invalid, Passage, Scored, TrajectoryGroup

ONE_RIGHT = {"q0/0": "meri", "q0/1": "kalo", "q1/0": "kalo", "q1/1": "kalo"}


class Update:
    def __call__(self, step, groups):
        self.step, self.groups = step, groups
        return {"loss": 0.25}


@pytest.fixture
def step(scripted, questions):
    def run(texts, number=1, group_size=2):
        rollouts, update, published = scripted(texts, number=number, group_size=group_size), Update(), []
        system = SearchR1(questions[:2], rollouts, update, published.append, questions_per_step=2)
        return asyncio.run(system.step(number)), update, published

    return run


def test_rollouts_are_scored_and_handed_to_the_update_and_then_the_new_policy_is_published(step):
    report, update, published = step(ONE_RIGHT, number=7)
    assert update.step == 7
    rewards = {group.key: [outcome.reward for outcome in group.outcomes] for group in update.groups}
    assert rewards == {"step-000007/q0": [1.0, 0.0], "step-000007/q1": [0.0, 0.0]}
    assert published == [7]
    assert report.metrics["reward"] == 0.25
    assert report.metrics["loss"] == 0.25
    assert report.metrics["rollout/num"] == 4
    assert report.num_rollouts == 4


def test_too_few_questions_are_refused_before_the_first_step(questions, tmp_path):
    LexicalIndex.build(tmp_path / "index", [Passage("0#0", "0", "kiwi", "kiwi")])
    save_questions(tmp_path / "q.jsonl", questions)
    options = {"search.index": str(tmp_path / "index"), "questions.path": str(tmp_path / "q.jsonl")}
    settings, run = load_settings(options=options | {"questions.per_step": 5}), RunDirectory(tmp_path / "run")
    with pytest.raises(ConfigError, match="only 4"), training_loop(settings, run, notify=print):
        pass


def test_a_label_may_score_the_groups_anew(scripted, questions):
    """Here by the most frequent answer, the first of equals, whatever the golden one is."""
    rollouts = replace(scripted(ONE_RIGHT), label=relabel)
    groups = asyncio.run(rollouts(questions[:2], 1))
    answers = [[trajectory.answer for trajectory in group.trajectories] for group in groups]
    rewards = [[outcome.reward for outcome in group.outcomes] for group in groups]
    assert rewards == [[float(answer == given[0]) for answer in given] for given in answers]


def test_failed_rollouts_are_reported(step):
    texts = {"q0/0": "meri", "q0/2": "kalo", "q0/3": "kalo"} | {f"q1/{n}": "meri" for n in range(4)}
    report, _, _ = step(texts, group_size=4)
    assert (len(report.failures), report.num_rollouts) == (3, 10)  # with the two attempts that it replaced
    assert report.metrics["rollout/invalid_frac"] == 1 / 8


class Nothing:
    """An engine that finds nothing."""

    is_local = True

    async def search(self, queries, k):
        return [[] for _ in queries]


def test_an_engine_that_finds_nothing_for_anybody_trains_nobody_and_ends_the_run_with_the_cause(
    scripted, questions, records
):
    """Two searches and an answer in each of six rollouts; the answers of two are right without any search result."""
    prompts, rollouts = load_prompts("tiny"), scripted({}, group_size=3)
    roller = replace(
        rollouts.roller,
        env=SolverEnv([SearchTool(Nothing(), template=prompts["observation"])], prompts),
        sampler=ScriptedSampler(
            lambda request: (
                f"<search> kalo {request.turn} </search>" if request.turn < 2 else "<answer> meri </answer>"
            ),
            tiny_tokenizer(),
        ),
    )
    rollouts = replace(rollouts, roller=roller)
    update, said = Update(), []
    system = SearchR1(questions[:2], rollouts, update, lambda step: None, questions_per_step=2)
    report = asyncio.run(system.step(1))
    assert len(report.failures) == report.num_rollouts == 6
    assert report.metrics["tools/empty_frac"] == 1.0
    assert all(isinstance(outcome, Invalid) for group in update.groups for outcome in group.outcomes)
    assert all(isinstance(record.outcome, Invalid) for record in records())
    sinks = SimpleNamespace(write=lambda step, numbers: None, save=lambda step: pytest.fail("a step was kept"))
    loop = TrainingLoop(system, sinks, sinks, sinks, start=0, steps=9, checkpoint_every=1, notify=said.append)
    with pytest.raises(TrainingError, match=r"step 3: 6 of 6 .*nothing in any of 12 searches, the first for 'kalo 0'"):
        asyncio.run(loop.run())
    assert len(said) == 2


def test_every_rollout_is_recorded_under_its_id(step, records):
    step(ONE_RIGHT, number=12)
    assert sorted(record.trajectory.id for record in records()) == [f"step-000012/{key}" for key in sorted(ONE_RIGHT)]
    assert {record.step for record in records()} == {12}


class TwoRanks:
    """The first of two ranks; `other` is what the second one has."""

    rank, size, is_first = 0, 2, True
    share, join = Ranks.share, Ranks.join

    def __init__(self, other):
        self.other = other

    def gather(self, value):
        return [value, self.other]


def test_several_ranks_take_a_share_each_and_all_have_all_groups_in_order(scripted, groups_of, questions):
    alone = groups_of(ONE_RIGHT)
    second = json.loads(json.dumps(TypeAdapter(list[TrajectoryGroup]).dump_python(alone[1:])))
    shared = replace(scripted(ONE_RIGHT), ranks=TwoRanks(second))
    together = asyncio.run(shared(questions[:2], 1))
    assert [group.key for group in together] == [group.key for group in alone]
    for mine, theirs in zip(together, alone, strict=True):
        assert mine.outcomes == theirs.outcomes
        assert [t.segments for t in mine.trajectories] == [t.segments for t in theirs.trajectories]
    assert len(shared.roller.sampler.completions) == 2  # q0's alone


def test_rewards_are_reported_by_hops_where_questions_have_them(scripted, questions):
    asked = [replace(question, metadata={"hops": n + 1}) for n, question in enumerate(questions[:2])]
    system = SearchR1(asked, scripted(ONE_RIGHT), Update(), lambda step: None, questions_per_step=2)
    metrics = asyncio.run(system.step(1)).metrics
    assert (metrics["reward/hops_1"], metrics["reward/hops_2"]) == (0.5, 0.0)


class Waiting(Update):
    """An update that ends once the sampler has been asked for a rollout of a later step; `met` says whether it was."""

    def __init__(self, later):
        self.asked, self.later, self.met = threading.Event(), later, {}

    def script(self, request):
        if request.trajectory_id.startswith(f"step-{self.later:06d}/"):
            self.asked.set()
        return "<answer> meri </answer>"

    def __call__(self, step, groups):
        self.met[step] = self.asked.wait(timeout=20 if step < self.later else 0)
        return super().__call__(step, groups)


@pytest.mark.parametrize("n", [1, 2])
def test_rollouts_of_the_next_steps_begin_before_a_step_s_update_has_ended(scripted, questions, n):
    update, base = Waiting(later=n + 1), scripted({})
    sampler = ScriptedSampler(update.script, tiny_tokenizer())
    slow = replace(base, roller=replace(base.roller, sampler=sampler), reward=Slow(update))
    system = SearchR1(questions[:2], slow, update, lambda step: None, questions_per_step=2, ahead=Ahead(n, 9))

    async def run():
        await system.step(1)
        await system.ahead.drop()

    asyncio.run(run())
    assert update.met == {1: True}


class Slow:
    """A reward that for later steps waits until the first one's update has ended."""

    def __init__(self, update):
        self.update = update

    async def __call__(self, trajectory):
        while not trajectory.id.startswith("step-000001/") and not self.update.met:
            await asyncio.sleep(0.001)
        return Scored(1.0)


def test_turns_after_an_update_are_of_the_new_weights_and_only_trained_steps_are_recorded(scripted, questions, records):
    """With n = 1 a rollout of step 2 searches with weights 0, waits for step 1's update, and answers with weights 1;
    that of step 3 begins with weights 1. The first turn has 5 tokens, the second 3."""
    prompts, base, published = load_prompts("tiny"), scripted({}, group_size=1), asyncio.Event()

    class Held(Nothing):
        async def search(self, queries, k):
            await published.wait()
            return await super().search(queries, k)

    def script(request):
        early = request.trajectory_id.startswith("step-000002/") and request.turn == 0
        return "<search> kalo </search>" if early else "<answer> meri </answer>"

    sampler = ScriptedSampler(script, tiny_tokenizer())
    tool = SearchTool(Held(), template=prompts["observation"])
    roller = replace(base.roller, env=SolverEnv([tool], prompts), sampler=sampler)

    def publish(step):
        sampler.update_weights(step)
        published.set()

    system = SearchR1(questions[:1], replace(base, roller=roller), Update(), publish, 1, ahead=Ahead(1, 3))

    async def run():
        first = (await system.step(1)).metrics
        assert {record.step for record in records()} == {1}
        return [first, (await system.step(2)).metrics, (await system.step(3)).metrics]

    metrics = asyncio.run(run())
    staleness = [(row["rollout/staleness/mean"], row["rollout/staleness/max"]) for row in metrics]
    second = next(record.trajectory for record in records() if record.step == 2)
    searched, answered = (segment for segment in second.segments if segment.kind == "action")
    assert (second.policy_version, searched.policy_version, answered.policy_version) == (0, None, 1)
    counts = len(searched.token_ids), len(answered.token_ids)
    assert staleness == [(0.0, 0.0), (counts[0] / sum(counts), 1.0), (1.0, 1.0)]
