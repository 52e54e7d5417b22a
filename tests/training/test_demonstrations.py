"""Demonstrations of a file as training samples."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from tests.doubles.scripted import ScriptedSampler
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.assembly.inputs import ReviewedQuestions
from evoseek.errors import DataError
from evoseek.questions.demonstrations import (
    DemonstratedTurn,
    Demonstration,
    ProposerDemonstration,
    demonstration_row,
)
from evoseek.renderers.tags import TagRenderer
from evoseek.rollout.environments import PassageProposerEnv, SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller
from evoseek.rollout.tools import SearchTool
from evoseek.training.demonstrations import (
    Played,
    Roles,
    demonstrations_of_file,
    hold_out,
    on_all_ranks,
    samples_of,
    summary,
    without,
)
from evoseek.types import Passage, Question

TOKENIZER = tiny_tokenizer()


class Engine:
    """Finds the passage of a name."""

    is_local = True

    async def search(self, queries, k):
        return [[Passage(q, q, q, f"{q}'s mayor is meri.")] if q != "nothing" else [] for q in queries]


def roles_with(prompts="tiny", limits=None, script=()):
    loaded = load_prompts(prompts)
    tools = [SearchTool(Engine(), 3, template=loaded["observation"])]
    sampler = ScriptedSampler(dict(script), TOKENIZER)
    made = (env(tools, loaded) for env in (SolverEnv, PassageProposerEnv))
    return Roles(*(Roller(env, TagRenderer(TOKENIZER), sampler, limits or Limits()) for env in made))


def solver_with(**options):
    return roles_with(**options).solver


def demonstration(name, *, query="kalo", answer="meri"):
    turns = (DemonstratedTurn(query=query), DemonstratedTurn(f"{name} is it", answer=answer))
    return Demonstration(Question(name, f"what is {name} ?", ("meri",)), turns)


@pytest.fixture
def written(tmp_path):
    def write(*demonstrations):
        path = tmp_path / "demonstrations.jsonl"
        path.write_text("".join(json.dumps(demonstration_row(one)) + "\n" for one in demonstrations))
        return path

    return write


def test_a_file_is_played_and_what_is_learnt_are_the_turns(written):
    played = demonstrations_of_file(written(demonstration("vesu")), roles_with())
    (sample,) = samples_of(played.trajectories[:1])
    learnt = [i for i, acts in zip(sample.token_ids, sample.loss_mask, strict=True) if acts]
    assert TOKENIZER.decode(learnt) == "<search> kalo </search> <think> vesu is it </think> <answer> meri </answer>"
    assert set(sample.rollout_logprobs) == set(sample.advantages) == {0.0}
    assert sample.weight == 1.0


def test_the_summary_counts_and_tells_what_is_left_out_and_what_was_not_read(written):
    path = written(
        demonstration("vesu"),
        demonstration("tora", answer="lina"),
        *[demonstration("東京")] * 2,
        demonstration("lina", query="kalo " * 40),
    )
    played = demonstrations_of_file(path, roles_with(limits=Limits(max_tokens_per_turn=40)))
    tokens = sum(len(trajectory.token_ids) for trajectory in played.trajectories)
    words = summary(played, "d.jsonl")
    assert words.startswith(f"d.jsonl: 2 demonstrations with {tokens} tokens; ")
    assert "3 are left out; the most frequent reason (2 times): the turn '<think> 東京 is it </think> <ans" in words
    assert "In 1 no found passage contains the answer" in words
    fine = demonstrations_of_file(written(demonstration("vesu")), roles_with())
    assert "left out" not in summary(fine, "")
    assert "no found passage" not in summary(fine, "")


def test_those_about_a_question_of_the_test_set_are_left_out(written):
    played = demonstrations_of_file(written(demonstration("vesu"), demonstration("tora")), roles_with())
    kept = without(played, ReviewedQuestions(frozenset(["what is vesu"])))
    assert [trajectory.question.id for trajectory in kept.trajectories] == ["tora"]
    assert "1 are left out; the most frequent reason (1 times): its question is in the test set" in summary(kept, "x")
    assert without(played, ReviewedQuestions()) is played
    with pytest.raises(DataError, match="None of the 2 demonstrations can be learnt"):
        without(played, {"what is vesu ?", "what is tora ?"})


def test_of_a_refusal_nothing_needs_to_be_read_and_what_is_hidden_is_not_shown(written):
    refusal = demonstration("vesu", answer="Not found in the documents.")
    hidden = Question("vesu", "what is vesu ?", (), {"answerable": False, "hidden": ["kalo"]})
    path = written(replace(refusal, question=hidden), demonstration("tora"))
    played = demonstrations_of_file(path, roles_with())
    assert "no found passage" not in summary(played, "")
    found = [[p.id for result in one.tool_results for p in result.passages] for one in played.trajectories]
    assert found == [[], ["kalo"]]


def test_a_proposers_answer_may_be_read_in_the_passage_that_it_is_shown(written):
    def shown(text):
        turns = (DemonstratedTurn("it is meri", question="what is kalo ?", answer="meri"),)
        return written(ProposerDemonstration("p", Passage("p", "p", "kalo", text), 1, turns))

    fine, unread = (
        summary(demonstrations_of_file(shown(text), roles_with()), "d") for text in ("kalo is meri .", "kalo is .")
    )
    assert fine.startswith("d: 1 demonstrations with ")
    assert "no found passage" not in fine
    assert "In 1 no found passage" in unread


def test_if_none_can_be_learnt_the_reason_is_an_error(written):
    with pytest.raises(
        DataError, match=r"None of the 2 demonstrations .* \(2 times\): it is longer .*rollout.max_turns"
    ):
        demonstrations_of_file(written(*[demonstration("vesu")] * 2), roles_with(limits=Limits(max_turns=1)))


def test_an_index_of_something_else_is_an_error(written):
    odd = [demonstration(f"{n}", query="nothing") for n in range(10)]
    with pytest.raises(DataError, match=r"found nothing in any of 10 searches.*Set search\.index to"):
        demonstrations_of_file(written(*odd), roles_with())
    assert len(demonstrations_of_file(written(*odd[:9]), roles_with()).trajectories) == 9


def test_all_demonstrations_of_a_held_out_question_are_held_out(written):
    (trajectory,) = demonstrations_of_file(written(demonstration("vesu")), roles_with()).trajectories
    many = [replace(trajectory, question=Question(str(n), f"q{n % 10}", ())) for n in range(30)]
    trained, held = hold_out(many, 0.11, seed=0)
    assert (len(trained), len(held)) == (24, 6)
    assert not {t.question.text for t in trained} & {t.question.text for t in held}
    assert hold_out(many, 0.11, seed=0) == (trained, held)
    assert hold_out(many, 0.11, seed=1) != (trained, held)
    assert hold_out(many, 0.0, seed=0) == (many, [])
    with pytest.raises(DataError, match="all of the 3 demonstrations are held out"):
        hold_out([many[0]] * 3, 0.01, seed=0)


class Ranks:
    """One of two ranks: what the first one sent is what both get."""

    size, sent = 2, None

    def __init__(self, rank):
        self.is_first = rank == 0

    def gather(self, value):
        if self.is_first:
            Ranks.sent = json.loads(json.dumps(value))
        return [Ranks.sent, value]


def test_all_ranks_learn_what_the_first_one_played(written):
    trajectories = demonstrations_of_file(written(demonstration("vesu")), roles_with()).trajectories
    played = Played(tuple(trajectories), Counter(why=2))
    first = on_all_ranks(lambda: played, Ranks(0))
    second = on_all_ranks(lambda: pytest.fail("played twice"), Ranks(1))
    assert first == second
    assert [(t.token_ids, t.loss_mask, t.question) for t in second.trajectories] == [
        (t.token_ids, t.loss_mask, t.question) for t in trajectories
    ]
    assert second.left_out == Counter(why=2)
