"""A pass that follows the run's step leaves questions out and asks others twice (trap 13). Here every system draws what
it trains on, in every way in which the number or the set of its questions may change, interrupted and resumed."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.assembly.settings import QuestionSettings
from evoseek.config.registry import KINDS, find
from evoseek.rollout.environments import answer_task
from evoseek.selfplay.tasks import SearchChain, TaskSource
from evoseek.systems.search_r1 import SearchR1
from evoseek.systems.sft import SFT
from evoseek.systems.ssp import SSP
from evoseek.training.question_order import QuestionOrder, chosen
from evoseek.types import Question, TrainingSample

QUESTIONS = [Question(f"q{n}", "?", ("a",), {"hops": 1 + n % 3}) for n in range(30)]
STAGES = st.builds(
    QuestionSettings,
    per_step=st.integers(1, 6),
    where=st.sampled_from([{}, {"hops": 3}, {"hops": (1, 2)}]),
    balance_by=st.sampled_from(["", "hops"]),
)


class Asked(SearchR1):
    """Search-R1 without rollouts: a step asks the first `used` of the questions that it draws."""

    def ask(self, step, used):
        drawn = self.draw(step, self.questions_per_step)[:used]
        self.passes.count(step, {question.id for question in drawn})
        return drawn


def begun(stage, state):
    """The system of a stage, as it begins or is resumed: from what a checkpoint keeps."""
    asked = chosen(QUESTIONS, stage.where)
    rollouts = SimpleNamespace(roller=SimpleNamespace(seed=0))
    system = Asked(asked, rollouts, None, print, stage.per_step, order=QuestionOrder.of(stage))
    system.passes.restore(json.loads(json.dumps(state)))
    return system


def is_pass(counts, questions):
    times = [counts[question.id] for question in questions]
    return max(times) - min(times) <= 1


@given(st.lists(st.tuples(STAGES, st.integers(1, 8), st.integers(1, 6)), min_size=1, max_size=8))
def test_trap_in_every_stage_each_question_comes_once_before_any_comes_again(plan):
    """Stages of other questions, shares and numbers, with a kill after every step: within one set of questions
    (balanced: of one value) none is ever asked twice more often than another, also over several stages."""
    counts, state, step = {}, {}, 0
    for stage, steps, used in plan:
        pool = chosen(QUESTIONS, stage.where)
        sets = [[q for q in pool if not stage.balance_by or q.metadata["hops"] == hops] for hops in (1, 2, 3)]
        for _ in range(steps):
            step += 1
            system = begun(stage, state)
            for question in system.ask(step, used):
                for one in {tuple(q.id for q in one): one for one in sets if question in one}:
                    counts.setdefault(one, Counter())[question.id] += 1
            state = system.passes.state()
        for one in filter(None, sets):
            assert is_pass(counts.get(tuple(q.id for q in one), Counter()), one)


def test_a_stage_that_asks_more_a_step_continues_with_those_that_were_not_asked():
    """Ten steps of one question, then four of five: the thirty questions, once each."""
    asked, state = [], {}
    for step, per_step in enumerate([1] * 10 + [5] * 4, 1):
        system = begun(QuestionSettings(per_step=per_step), state)
        asked += system.ask(step, per_step)
        state = system.passes.state()
    assert sorted(question.id for question in asked) == sorted(question.id for question in QUESTIONS)


def of_questions(system):
    """What is asked is drawn by Search-R1 itself, which the tests above examine."""
    assert system.draw is SearchR1.draw
    return [30]


def of_dr_zero(_system):
    """Its solver is a Search-R1 over the questions of an iteration; passages: `tests/systems/test_dr_zero.py`."""
    fields = {name: str(field.type) for name, field in find("system", "dr-zero").__dataclass_fields__.items()}
    assert fields["solving"] == "SearchR1"
    return [30]


def of_answers(_system):
    """Answers, where a step may draw up to four times as many as it needs."""
    tasks = TaskSource(
        [SearchChain(f"answer {n}", 1) for n in range(30)],
        lambda id, lead, n: answer_task(id, lead.answer, n),
        (1,),
        "0",
    )
    system = SSP(None, tasks, None, None, None, None, 0, 4, fill="resample")
    given = []

    async def play(drawn, key, stages, earlier):
        given.extend(task.text for task in drawn)
        return [SimpleNamespace(question=task if int(task.id[-1]) % 2 else None) for task in drawn]

    for step in range(1, 9):
        asyncio.run(replace(system, play=play)._episodes(step, None))
    return Counter(given).values()


def of_demonstrations(_system):
    samples = [TrainingSample((n,), (True,), (0.0,), (0.0,)) for n in range(30)]
    seen = Counter()
    state = {}
    for step in range(1, 20):
        system = SFT(samples, [], lambda batch: seen.update(s.token_ids[0] for s in batch) or {}, None, print, 4, 0)
        system.passes.restore(json.loads(json.dumps(state)))
        asyncio.run(system.step(step))
        state = system.passes.state()
    return seen.values()


PLACES = {
    "search-r1": of_questions,
    "dspo": of_questions,
    "zerosearch": of_questions,
    "deepresearcher": of_questions,
    "dr-zero": of_dr_zero,
    "ssp": of_answers,
    "sft": of_demonstrations,
}


def test_trap_every_system_has_its_case_here():
    assert set(PLACES) == set(KINDS["system"].parts), "A new system draws what it trains on: add it to PLACES."


@pytest.mark.parametrize("name", PLACES)
def test_trap_every_system_makes_a_pass(name):
    times = PLACES[name](find("system", name))
    assert max(times) - min(times) <= 1
