import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.questions.outcomes import Rejection
from evoseek.selfplay.metrics import selfplay_metrics
from evoseek.types import (
    Episode,
    Invalid,
    ProposerTask,
    Question,
    Scored,
    Segment,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
    TrajectoryGroup,
)
from evoseek.world.world import Truth, World

DOWN = Invalid(StopReason.TOOL_FAILED, "the engine is down")


def trajectory(question, searches=0, *, tokens=4, reason=StopReason.ANSWERED, role="proposer"):
    segments = (Segment("prompt", (1, 2)), Segment("action", (3,) * tokens, (0.0,) * tokens))
    results = (ToolResult(ToolCall("search", {}), ""),) * searches
    return Trajectory(question.id, question, role, segments, (), results, reason)


def solved(question, right, wrong, failed=0):
    """The reward has more parts than being right, as with a reward for evidence."""
    outcomes = (Scored(1.5, {"exact_match": 1.0, "evidence": 0.5}),) * right
    outcomes += (Scored(0.25, {"exact_match": 0.0, "evidence": 0.25}),) * wrong + (DOWN,) * failed
    return TrajectoryGroup(question.id, (trajectory(question, 1, role="solver"),) * len(outcomes), outcomes)


def valid(requested, searches, text, answer, evidence, tally, outcome):
    task = Question(text, "Kalo\ntext", (), task=ProposerTask(requested))
    question = Question(text, text, (answer,), {"evidence": evidence})
    return Episode(trajectory(task, searches), outcome, question, solvers=tally and solved(question, *tally))


def rejected(reason, requested=1, reward=0.0):
    task = Question("task", "Kalo\ntext", (), task=ProposerTask(requested))
    return Episode(trajectory(task, 9), Scored(reward), rejected=reason)


FAILED = Episode(
    trajectory(Question("f", "", (), task=ProposerTask(4)), 1, tokens=2, reason=StopReason.TOOL_FAILED),
    DOWN,
    replaced=((trajectory(Question("f", "", (), task=ProposerTask(4))), DOWN),) * 2,
)
EPISODES = [
    valid(1, 0, "What is Kalo's mayor?", "Meri", ["a"], (5, 0), Scored(0.5)),
    valid(2, 1, "what is the  kalo's mayor", "Meri", ["a", "b"], (1, 4), Scored(1.5)),
    valid(2, 1, "What is Vesu's mayor's spouse?", "Lina", ["b", "c"], (2, 1, 2), Scored(1.0)),
    valid(3, 2, "What is Tora's spouse's spouse?", "Tora", ["c"], (0, 0, 5), DOWN),
    rejected(Rejection.DUPLICATE),
    rejected(Rejection.DUPLICATE, reward=-0.1),
    rejected(Rejection.NO_ANSWER),
    FAILED,
]
TRUTHS = {
    "What is Kalo's mayor?": Truth("meri", 1),
    "what is the  kalo's mayor": Truth("Meri", 1),
    "What is Vesu's mayor's spouse?": Truth("Dono", 2),
}


def test_numbers_by_hand():
    metrics = selfplay_metrics(EPISODES)
    assert metrics["selfplay/proposals"] == 8.0
    assert metrics["selfplay/valid_rate"] == 4 / 8
    assert metrics["selfplay/rejected/duplicate"] == 2 / 8
    assert metrics["selfplay/rejected/no_answer"] == 1 / 8
    assert {f"selfplay/rejected/{reason}" for reason in Rejection} <= metrics.keys()
    assert metrics["selfplay/requested_hops/mean"] == (1 + 2 + 2 + 3) / 4
    assert metrics["selfplay/requested_hops/entropy"] == pytest.approx(0.5 * math.log(4) + 0.5 * math.log(2))
    assert metrics["selfplay/searches/mean"] == (0 + 1 + 1 + 2) / 4
    assert metrics["selfplay/searches/entropy"] == metrics["selfplay/requested_hops/entropy"]
    assert metrics["selfplay/duplicate_rate"] == 1 / 4
    assert metrics["selfplay/question_words"] == (4 + 5 + 5 + 5) / 4
    assert metrics["selfplay/topics/entropy"] == pytest.approx(math.log(3) / math.log(6))


def test_the_roles_have_their_own_numbers():
    metrics = selfplay_metrics(EPISODES)
    assert metrics["proposer/reward"] == pytest.approx((0.5 + 1.5 + 1.0 + 0.0 - 0.1 + 0.0) / 6)
    assert metrics["proposer/reward_std"] == pytest.approx(math.sqrt((3.51 - 2.9**2 / 6) / 5))
    assert metrics["proposer/rollout/invalid_frac"] == 2 / 8
    assert metrics["proposer/completions/mean_length"] == (7 * 4 + 2) / 8
    assert metrics["proposer/tools/call_frequency"] == (0 + 1 + 1 + 2 + 27 + 1) / 8
    assert metrics["proposer/rollout/refilled/tool_failed"] == 2 / 8
    assert metrics["solver/reward"] == pytest.approx((5 * 1.5 + 1.5 + 4 * 0.25 + 2 * 1.5 + 0.25) / 13)
    assert metrics["solver/rollout/invalid_frac"] == 7 / 20
    assert metrics["solver/tools/call_frequency"] == 1.0


def test_pass_rates_are_of_scored_attempts_alone():
    metrics = selfplay_metrics(EPISODES)
    assert metrics["selfplay/pass_rate/mean"] == pytest.approx((1 + 1 / 5 + 2 / 3) / 3)
    third = {"0.0-0.2", "0.6-0.8", "1"}
    for name in ("0", "0.0-0.2", "0.2-0.4", "0.4-0.6", "0.6-0.8", "0.8-1.0", "1"):
        assert metrics[f"selfplay/pass_rate/{name}"] == (1 / 3 if name in third else 0.0)


def test_trainable_are_questions_that_some_attempts_answer_right_and_some_do_not():
    """Of three questions with a scored attempt 5 of 5, 1 of 5 and 2 of 3 are right."""
    assert selfplay_metrics(EPISODES)["selfplay/trainable"] == pytest.approx(2 / 3)
    assert selfplay_metrics([FAILED]).keys().isdisjoint({"selfplay/trainable", "selfplay/agreed_wrong"})


@pytest.mark.parametrize(
    ("tally", "answer", "agreed"),
    [
        ((2, 1), "Meri", 0.0),
        ((2, 1), "Tora", 1.0),
        ((1, 1), "Tora", 0.0),
        ((1, 2), "Tora", 0.0),
        ((1, 0, 9), "Tora", 1.0),
    ],
)
def test_roles_agree_on_a_wrong_answer_when_most_attempts_give_it(tally, answer, agreed):
    episode = valid(1, 0, "What is Kalo's mayor?", answer, [], tally, Scored(0.0))
    assert selfplay_metrics([episode], oracle=TRUTHS.get)["selfplay/agreed_wrong"] == agreed


def test_roles_agree_on_what_has_no_answer():
    nonsense = valid(1, 0, "What is Kalo's Kalo?", "Meri", [], (3, 0), Scored(0.0))
    unsolved = valid(1, 0, "What is Kalo's Kalo?", "Meri", [], None, Scored(0.0))
    sound = valid(1, 0, "What is Kalo's mayor?", "Meri", [], (3, 0), Scored(0.0))
    metrics = selfplay_metrics([nonsense, unsolved, sound], oracle=TRUTHS.get)
    assert metrics["selfplay/agreed_wrong"] == 1 / 2


def test_trap_12_a_graded_answer_counts_as_right_from_a_threshold_on():
    """Two attempts with an F1 of 6/7 and 1/2."""
    episode = valid(1, 0, "q", "a", [], (1, 1), Scored(0.0))
    graded = tuple(Scored(value, {"f1": value}) for value in (6 / 7, 1 / 2))
    episode = replace(episode, solvers=replace(episode.solvers, outcomes=graded))
    assert selfplay_metrics([episode], metric="f1")["selfplay/pass_rate/mean"] == 0.5


@pytest.mark.parametrize(
    ("right", "wrong", "name"),
    [(0, 5, "0"), (2, 3, "0.2-0.4"), (3, 2, "0.4-0.6"), (4, 1, "0.6-0.8"), (9, 1, "0.8-1.0"), (1, 9, "0.0-0.2")],
)
def test_an_upper_end_belongs_to_its_bin(right, wrong, name):
    metrics = selfplay_metrics([valid(1, 0, "q", "a", [], (right, wrong), Scored(0.0))])
    assert metrics[f"selfplay/pass_rate/{name}"] == 1.0


def test_the_oracle_tells_what_the_questions_really_are():
    metrics = selfplay_metrics(EPISODES, oracle=TRUTHS.get)
    assert metrics["selfplay/true_valid_rate"] == 2 / 8
    assert metrics["selfplay/true_hops/mean"] == pytest.approx(4 / 3)
    assert metrics["selfplay/true_hops/entropy"] == pytest.approx(2 / 3 * math.log(3 / 2) + 1 / 3 * math.log(3))
    assert metrics["selfplay/true_hops/1"] == pytest.approx(2 / 3)
    assert metrics["selfplay/true_hops/2"] == pytest.approx(1 / 3)
    assert metrics["selfplay/true_hops/0"] == metrics["selfplay/true_hops/5+"] == 0.0
    assert metrics["selfplay/hops_kept"] == 2 / 4
    assert not [name for name in selfplay_metrics(EPISODES) if "true" in name or "kept" in name]


def test_where_the_proposer_chooses_nothing_is_said_of_requested_hops_and_the_true_ones_are_known():
    """Four questions, of which the oracle knows three: of one, one and two hops. All other numbers stay."""
    free = [
        replace(one, proposer=replace(one.proposer, question=replace(one.proposer.question, task=ProposerTask(0))))
        for one in EPISODES
    ]
    metrics, requested = (selfplay_metrics(episodes, oracle=TRUTHS.get) for episodes in (free, EPISODES))
    told = {"selfplay/requested_hops/mean", "selfplay/requested_hops/entropy", "selfplay/hops_kept"}
    assert requested.keys() - metrics.keys() == told
    assert metrics == {name: value for name, value in requested.items() if name not in told}
    assert metrics["selfplay/true_hops/mean"] == pytest.approx((1 + 1 + 2) / 3)
    assert metrics["selfplay/true_valid_rate"] == 2 / 8


def test_gold_questions_of_a_world_are_truly_valid():
    world = World.generate(1, 200, "train")
    gold = world.questions(8, seed=1)
    episodes = [
        valid(question.metadata["hops"], 0, question.text, question.golden_answers[0], [], None, Scored(0.0))
        for question in gold
    ]
    metrics = selfplay_metrics(episodes, oracle=world.oracle)
    assert metrics["selfplay/true_valid_rate"] == metrics["selfplay/hops_kept"] == 1.0
    assert metrics["selfplay/true_hops/entropy"] == pytest.approx(math.log(4))


def test_many_hops_share_a_name():
    episode = valid(4, 3, "q", "a", [], None, Scored(0.0))
    assert selfplay_metrics([episode], oracle=lambda _: Truth("a", 7))["selfplay/true_hops/5+"] == 1.0


@pytest.mark.parametrize("evidence", [(["a", "a", "a"], 0.0), (["a", "b", "c"], 1.0), (["a"], None), ([], None)])
def test_topics_are_balanced_when_no_passage_is_used_twice(evidence):
    passages, entropy = evidence
    metrics = selfplay_metrics([valid(1, 0, "q", "a", passages, None, Scored(0.0))])
    assert metrics.get("selfplay/topics/entropy") == (None if entropy is None else pytest.approx(entropy))


def test_numbers_that_cannot_be_had_are_left_out():
    assert selfplay_metrics([]) == {}
    metrics = selfplay_metrics([FAILED], oracle=TRUTHS.get)
    assert metrics["proposer/rollout/invalid_frac"] == 1.0
    assert metrics["selfplay/valid_rate"] == metrics["selfplay/true_valid_rate"] == 0.0
    missing = ("proposer/reward", "solver/", "requested_hops", "pass_rate", "true_hops", "hops_kept", "words", "topics")
    assert not [name for name in metrics if any(part in name for part in missing)]


def test_trap_what_failed_never_moves_a_reward_or_a_pass_rate():
    """An engine that is down for some questions and some solvers leaves both roles' rewards as they are."""
    calm = [valid(1, 0, "q", "a", [], (2, 2), Scored(0.5)), valid(1, 0, "r", "a", [], (1, 3), Scored(1.0))]
    stormy = [valid(1, 0, "q", "a", [], (2, 2, 3), Scored(0.5)), valid(1, 0, "r", "a", [], (1, 3), Scored(1.0))]
    stormy += [FAILED, valid(1, 0, "s", "a", [], (0, 0, 5), DOWN)]
    rewards = ["proposer/reward", "proposer/reward_std", "solver/reward", "solver/reward_std"]
    rewards += [name for name in selfplay_metrics(calm) if name.startswith("selfplay/pass_rate/")]
    assert len(rewards) == 4 + 8
    for name in rewards:
        assert selfplay_metrics(stormy)[name] == selfplay_metrics(calm)[name]


_NO_SHARES = {"selfplay/pass_rate/mean", "selfplay/true_hops/mean", "selfplay/true_hops/entropy"}
episodes = st.lists(
    st.one_of(
        st.sampled_from(Rejection).map(rejected),
        st.just(FAILED),
        st.builds(
            valid,
            st.integers(1, 4),
            st.integers(0, 6),
            st.sampled_from([*TRUTHS, "not a question"]),
            st.just("Meri"),
            st.lists(st.sampled_from("abcdef"), max_size=4),
            st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)).filter(any),
            st.just(Scored(1.0)),
        ),
    ),
    min_size=1,
    max_size=12,
)


@given(episodes, st.randoms(use_true_random=False))
def test_shares_add_up_and_order_does_not_matter(batch: list[Episode], rng: Random):
    metrics = selfplay_metrics(batch, oracle=TRUTHS.get)
    whole = {
        part: [metrics[name] for name in metrics if name.startswith(f"selfplay/{part}/") and name not in _NO_SHARES]
        for part in ("rejected", "pass_rate", "true_hops")
    }
    failed = sum(episode is FAILED for episode in batch) / len(batch)
    assert metrics["selfplay/valid_rate"] + sum(whole["rejected"]) + failed == pytest.approx(1.0)
    assert not whole["pass_rate"] or sum(whole["pass_rate"]) == pytest.approx(1.0)
    assert not whole["true_hops"] or sum(whole["true_hops"]) == pytest.approx(1.0)
    assert metrics["selfplay/true_valid_rate"] <= metrics["selfplay/valid_rate"]
    assert 0.0 <= metrics.get("selfplay/topics/entropy", 0.0) <= 1.0 + 1e-9
    shuffled = list(batch)
    rng.shuffle(shuffled)
    assert selfplay_metrics(shuffled, oracle=TRUTHS.get) == pytest.approx(metrics)
