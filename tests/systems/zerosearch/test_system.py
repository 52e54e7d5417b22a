"""Search-R1's step with a simulated engine: whose documents are whose, how noisy they are, what a dead one does."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest
from tests.doubles.scripted import ScriptedChat, ScriptedSampler

from evoseek.errors import ToolError
from evoseek.learner.distributed import Ranks
from evoseek.renderers.encoding import plain
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.tools import SearchTool
from evoseek.systems.zerosearch.engine import SimulatedEngine
from evoseek.systems.zerosearch.system import ZeroSearch, noise_probability
from evoseek.training.rollouts import Ahead
from evoseek.types import Invalid, Question, StopReason

QUESTIONS = [Question(f"q{n}", f"what is {n} ?", (f"meri{n}",)) for n in range(3)]
PROMPTS = load_prompts("tiny")


def told(messages):
    """What the simulator is asked: kind, golden answer, query."""
    words = plain(messages[0].content)
    before, query = words.split(" query ")
    return words.split()[1], before.split(" earlier ")[0].rsplit(" is ", 1)[1], query.strip()


def truthful(messages, key):
    return f"Document 1: it is {told(messages)[1]} ."


@pytest.fixture
def system(scripted):
    """A ZeroSearch step. The policy searches twice, but for the second rollout of q1, which never does; then it answers
    with the last word of its last document."""

    def make(chat=truthful, noise=lambda step: 0.0, searches=2):
        base = scripted({})
        tokenizer = base.roller.sampler._tokenizer

        def script(request):
            if "q1/1" in request.trajectory_id:
                return "<answer> nothing </answer>"
            if request.turn < searches:
                return f"<search> thing {request.turn} </search>"
            return f"<answer> {tokenizer.decode(request.token_ids).split(' .')[-2].split()[-1]} </answer>"

        engine = SimulatedEngine(ScriptedChat(chat), PROMPTS, max_words=20, seed=0)
        tool = SearchTool(engine, 1, template=PROMPTS["observation"])
        env, sampler = SolverEnv([tool], PROMPTS), ScriptedSampler(script, tokenizer, logprob=-0.5)
        rollouts = replace(base, roller=replace(base.roller, env=env, sampler=sampler))

        def update(step, groups):
            update.groups = groups
            return {"loss": 0.5}

        zerosearch = ZeroSearch(QUESTIONS, rollouts, update, lambda step: None, 3, engine=engine, noise=noise)
        return zerosearch, update

    return make


def test_every_rollout_reads_documents_made_for_its_own_question(system):
    """Although one of them does not search, which would move all that follow it in a batch."""
    zerosearch, update = system()
    report = asyncio.run(zerosearch.step(1))
    for group in update.groups:
        for trajectory in group.trajectories:
            expected = "nothing" if trajectory.id.endswith("q1/1") else trajectory.question.golden_answers[0]
            assert trajectory.answer == expected
            assert all(passage.id.startswith(trajectory.id) for r in trajectory.tool_results for passage in r.passages)
    assert report.metrics["reward"] == pytest.approx(5 / 6)
    assert report.metrics["simulator/queries"] == 10
    assert report.metrics["loss"] == 0.5


def test_the_golden_answer_reaches_a_policy_through_documents_alone(system):
    """With a simulator that never says it, nothing that the policy is given holds it."""
    zerosearch, _ = system(chat=lambda messages, key: "Document 1: it is blue .")
    asyncio.run(zerosearch.step(1))
    sampler = zerosearch.rollouts.roller.sampler
    shown = {sampler._tokenizer.decode(request.token_ids) for request in sampler.requests}
    assert shown
    assert not any("meri" in text for text in shown)


def test_the_noise_of_a_step_is_the_curriculum_s(system):
    noise = partial(noise_probability, total_steps=4, start=0.0, end=1.0)
    zerosearch, _ = system(noise=noise)
    kinds = []
    for step in range(1, 5):
        report = asyncio.run(zerosearch.step(step))
        asked = zerosearch.engine.chat.asked[-10:]
        noisy = sum(told(one.messages)[0] == "noisy" for one in asked)
        assert report.metrics["simulator/noise"] == noise(step)
        assert report.metrics["simulator/noisy"] == noisy / 10
        kinds.append(noisy)
    assert kinds[-1] == 10
    assert kinds[0] < 5


def test_a_simulator_that_dies_half_way_makes_rollouts_invalid_by_name_and_ends_within_bounds(system):
    """From its fifth reply on it is gone: nothing hangs, nothing is rewarded, every failure says why."""
    replies = []

    def dying(messages, key):
        replies.append(key)
        if len(replies) > 4:
            raise ToolError("The endpoint is gone.")
        return truthful(messages, key)

    zerosearch, update = system(chat=dying)
    report = asyncio.run(asyncio.wait_for(zerosearch.step(1), timeout=60))
    assert report.failures
    assert {failure.reason for failure in report.failures} == {StopReason.TOOL_FAILED}
    assert all("The endpoint is gone." in failure.detail for failure in report.failures)
    pairs = [pair for group in update.groups for pair in zip(group.trajectories, group.outcomes, strict=True)]
    assert all(isinstance(outcome, Invalid) == trajectory.stop_reason.is_failure for trajectory, outcome in pairs)
    assert any(isinstance(outcome, Invalid) for _, outcome in pairs)
    assert report.metrics["simulator/failed"] > 0
    asked = len(replies)
    assert asked <= 3 * 2 * 2 * 4  # questions, rollouts, searches, and at most three refills of each


def test_counts_are_those_of_all_ranks(system):
    """Of the other of two: 5 queries, 2 of them noisy."""

    class TwoRanks:
        rank, size, is_first = 0, 2, True
        share, join = Ranks.share, Ranks.join

        def gather(self, value):
            return [value, {"queries": 5, "noisy": 2} if isinstance(value, dict) else value]

    zerosearch, _ = system()
    alone = asyncio.run(zerosearch.step(1)).metrics
    both = replace(zerosearch, rollouts=replace(zerosearch.rollouts, ranks=TwoRanks()))
    metrics = asyncio.run(both.step(1)).metrics
    own = metrics["simulator/queries"] - 5
    assert 0 < own < alone["simulator/queries"]
    assert metrics["simulator/noisy"] == 2 / metrics["simulator/queries"]


def test_the_noise_of_steps_that_overlap_is_that_of_each(system):
    """Step 2 is all noise and begins while step 1, without any, has searched once of twice."""
    zerosearch, _ = system(noise=lambda step: step - 1.0)
    begun, chat = asyncio.Event(), zerosearch.engine.chat

    class Waiting:
        is_local, name = False, "waiting"

        async def chat(self, messages, *, key, form=None):
            if key.startswith("step-000002"):
                begun.set()
            elif key.endswith("search-1"):
                await begun.wait()
            return await chat.chat(messages, key=key)

    zerosearch.engine.chat = Waiting()
    ahead = replace(zerosearch, ahead=Ahead(1, 2))

    async def run():
        return [(await ahead.step(step)).metrics for step in (1, 2)]

    rows = asyncio.run(asyncio.wait_for(run(), timeout=30))
    assert [row["simulator/noise"] for row in rows] == [0.0, 1.0]
    assert [row["simulator/noisy"] for row in rows] == [0.0, 1.0]
    assert [row["simulator/queries"] for row in rows] == [10.0, 10.0]
