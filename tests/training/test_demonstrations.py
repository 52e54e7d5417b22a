"""Demonstrations of a file, and of an earlier run, as training samples."""

import asyncio
import json
from collections import Counter
from dataclasses import replace

import pytest
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.corpus.demonstrations import (
    DemonstratedTurn,
    Demonstration,
    ProposerDemonstration,
    demonstration_row,
)
from evoseek.env.environments import PassageProposerEnv, SolverEnv
from evoseek.env.prompts import load_prompts
from evoseek.env.tools import SearchTool
from evoseek.errors import DataError
from evoseek.policy.scripted import ScriptedSampler
from evoseek.policy.tags import TagRenderer
from evoseek.rollout.limits import Limits
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.roller import Roller
from evoseek.training.demonstrations import (
    Played,
    Roles,
    demonstrations_of_file,
    demonstrations_of_run,
    hold_out,
    kept_rollouts,
    on_all_ranks,
    sample_of,
    summary,
    without,
)
from evoseek.training.inputs import ReviewedQuestions
from evoseek.types import Action, Invalid, Passage, Question, Scored, Segment, StopReason, Trajectory, TrajectoryGroup

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


@pytest.fixture
def run(tmp_path):
    """The record of a run of two rollouts that were right, with the solver's own tokens."""

    def record(*said):
        script = {f"{n}/0": turns for n, turns in enumerate(said)}
        roller = solver_with(script=script, limits=Limits(max_malformed=1))
        questions = [Question(str(n), f"what is kalo {n} ?", ("meri",)) for n in range(len(said))]
        trajectories = [asyncio.run(roller.one(q, f"{q.id}/0")) for q in questions]
        groups = [TrajectoryGroup(t.id, (t,), (Scored(1.0),)) for t in trajectories]
        TrajectoryWriter(tmp_path / "trajectories.jsonl", TOKENIZER.decode).write(1, groups)
        return tmp_path / "trajectories.jsonl", trajectories

    return record


def test_a_file_is_played_and_what_is_learnt_are_the_turns(written):
    played = demonstrations_of_file(written(demonstration("vesu")), roles_with())
    sample = sample_of(played.trajectories[0])
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
    assert words.startswith(f"d.jsonl: 2 demonstrations with {tokens} tokens, of which ")
    assert "3 are left out; the most frequent reason (2 times): the turn '<think> 東京 is it </think> <ans" in words
    assert "In 1 the answer is in none of the passages that were found" in words
    fine = demonstrations_of_file(written(demonstration("vesu")), roles_with())
    assert "left out" not in summary(fine, "")
    assert "none of the passages" not in summary(fine, "")


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
    assert "none of the passages" not in summary(played, "")
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
    assert "none of the passages" not in fine
    assert "In 1 the answer is in none of the passages" in unread


def test_if_none_can_be_learnt_the_reason_is_an_error(written):
    with pytest.raises(
        DataError, match=r"None of the 2 demonstrations .* \(2 times\): it is longer .*rollout.max_turns"
    ):
        demonstrations_of_file(written(*[demonstration("vesu")] * 2), roles_with(limits=Limits(max_turns=1)))


def test_an_index_of_something_else_is_an_error(written):
    odd = [demonstration(f"{n}", query="nothing") for n in range(10)]
    with pytest.raises(DataError, match=r"found nothing in any of 10 searches.*Give the index that"):
        demonstrations_of_file(written(*odd), roles_with())
    assert len(demonstrations_of_file(written(*odd[:9]), roles_with()).trajectories) == 9


KEPT = ["<search> kalo </search>", "well , <think> so </think> <answer> meri </answer>"]


def test_rollouts_of_the_same_prompts_and_tokenizer_keep_their_own_tokens(run):
    """Here with words before the thought, which would not be written again."""
    path, trajectories = run(KEPT)
    played = demonstrations_of_run(path, 1.0, roles_with(), TOKENIZER.decode)
    assert [t.token_ids for t in played.trajectories] == [t.token_ids for t in trajectories]


def test_with_another_prompt_or_tokenizer_they_are_played_anew(run):
    path, (kept,) = run(KEPT)
    for roles, decode in (
        (roles_with("default"), TOKENIZER.decode),
        (roles_with(), lambda ids: TOKENIZER.decode([i + 1 for i in ids])),
    ):
        (anew,) = demonstrations_of_run(path, 1.0, roles, decode).trajectories
        assert anew.token_ids != kept.token_ids
        assert anew.segments[0].token_ids == roles.solver.renderer.render_prompt(
            roles.solver.env.messages(kept.question)
        )
        assert [action.text for action in anew.actions] == [
            "<search> kalo </search>",
            "<think> well , </think> <answer> meri </answer>",
        ]


def test_rollouts_with_a_malformed_turn_are_learnt_only_as_they_are(run):
    path, _ = run(["kalo", *KEPT], KEPT)
    assert len(demonstrations_of_run(path, 1.0, roles_with(), TOKENIZER.decode).trajectories) == 2
    anew = demonstrations_of_run(path, 1.0, roles_with("default"), TOKENIZER.decode)
    assert len(anew.trajectories) == 1
    assert anew.left_out == Counter({"a turn of the rollout is neither a search nor the answer": 1})


@pytest.mark.parametrize(
    "limits", [{"max_turns": 1}, {"max_tool_calls": 0}, {"max_tokens_per_turn": 8}, {"max_total_tokens": 30}]
)
def test_rollouts_that_exceed_the_limits_of_today_are_left_out(run, limits):
    path, _ = run(KEPT, ["<answer> meri </answer>"])
    played = demonstrations_of_run(path, 1.0, roles_with(limits=Limits(**limits)), TOKENIZER.decode)
    assert [len(t.actions) for t in played.trajectories] == [1]
    assert played.left_out.total() == 1


def test_all_demonstrations_of_a_held_out_question_are_held_out(run):
    _, (trajectory,) = run(KEPT)
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


def test_all_ranks_learn_what_the_first_one_played(run):
    _, trajectories = run(KEPT)
    played = Played(tuple(trajectories), Counter(why=2))
    first = on_all_ranks(lambda: played, Ranks(0))
    second = on_all_ranks(lambda: pytest.fail("played twice"), Ranks(1))
    assert first == second
    assert [(t.token_ids, t.loss_mask, t.question) for t in second.trajectories] == [
        (t.token_ids, t.loss_mask, t.question) for t in trajectories
    ]
    assert second.left_out == Counter(why=2)


def rollout(identifier, question, length, *, role="solver", answer="meri"):
    segments = (Segment("prompt", (1, 2)), Segment("action", tuple(range(length)), (0.0,) * length))
    stop = StopReason.ANSWERED if answer else StopReason.MALFORMED
    actions = (Action("a", answer=answer),)
    return Trajectory(identifier, Question(question, question, ()), role, segments, actions, (), stop, answer)


@pytest.fixture
def record(tmp_path):
    """Of question a four rollouts that are right, two of the same tokens; of b none; of c one, which a judge failed."""
    members = [
        (rollout("a/long", "a", 9), Scored(1.0)),
        (rollout("a/short", "a", 3), Scored(1.0)),
        (rollout("a/wrong", "a", 2), Scored(0.5)),
        (rollout("a/again", "a", 3), Scored(1.0)),
        (rollout("a/middle", "a", 5), Scored(1.0)),
        (rollout("b/unanswered", "b", 4, answer=None), Scored(1.0)),
        (rollout("b/proposer", "b", 4, role="proposer"), Scored(1.5)),
        (rollout("c/failed", "c", 4), Invalid(StopReason.REWARD_FAILED)),
        (rollout("d/0", "d", 4), Scored(1.0)),
    ]
    path = tmp_path / "trajectories.jsonl"
    groups = [TrajectoryGroup("g", tuple(t for t, _ in members), tuple(o for _, o in members))]
    TrajectoryWriter(path, lambda ids: " ".join(map(str, ids))).write(1, groups)
    return path


def names(record, min_reward=1.0):
    return [kept.trajectory.id for kept in kept_rollouts(record, min_reward)]


def test_answers_of_enough_reward_are_kept_in_the_order_of_the_record_and_the_same_tokens_once(record):
    assert names(record) == ["a/long", "a/short", "a/middle", "d/0"]
    assert names(record, min_reward=0.5) == ["a/long", "a/short", "a/wrong", "a/middle", "d/0"]


def test_the_texts_of_the_segments_come_along(record):
    assert kept_rollouts(record, 1.0)[1].texts == ("1 2", "0 1 2")


def test_without_any_the_highest_reward_is_told(record):
    with pytest.raises(
        DataError, match=r"None of the 8 rollouts of a solver .* highest reward of one is 1, and .*min_reward is 2"
    ):
        names(record, min_reward=2.0)
