"""Episodes with players that say what a table says: what waits for what, what is a reward and what is none."""

import asyncio
import random
from dataclasses import replace

import pytest
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.credit import group_advantages, raw_advantages
from evoseek.errors import DataError
from evoseek.questions.outcomes import Rejection
from evoseek.rollout.environments import passage_task
from evoseek.rollout.record import TrajectoryRecord, row_of
from evoseek.selfplay.episode import EpisodeSeconds, SelfPlay, relabel
from evoseek.selfplay.filters import supporting_passages
from evoseek.selfplay.proposer_reward import DIFFICULTIES, ProposerReward
from evoseek.selfplay.tasks import proposal_groups, solver_groups
from evoseek.training.update import scored_attempts
from evoseek.types import Episode, Invalid, Passage, ProposerTask, Question, Scored, StopReason

MERI, TOLU = "<answer> meri </answer>", "<answer> tolu </answer>"
DOWN = "<search> down </search>"
REWARD_OF_FORMAT = 0.5 * (1 + 0 + 1 + 1) / 4  # no reasoning, one hop, an answer that stands in the source


def task(number: int, **changes: object) -> Question:
    made = passage_task(f"t{number}", Passage(f"p{number}", "kalo", "kalo", "kalo 's mayor is meri ."), 1)
    return replace(made, task=replace(made.task, **{"id": made.id, **changes}))


def answer_task(number: int, answer: str) -> Question:
    return Question(f"t{number}", answer, (answer,), task=ProposerTask(1, id=f"t{number}"))


def proposing(*queries: str, question: str = "who is the mayor of kalo ?", answer: str = "meri") -> list[str]:
    searches = [f"<search> {query} </search>" for query in queries]
    return [*searches, f"<question> {question} </question> <answer> {answer} </answer>"]


def run(play: SelfPlay, count: int = 1, key: str = "k", **options: object) -> list[Episode]:
    return asyncio.run(play([task(number) for number in range(count)], key, **options))


def essence(episodes: list[Episode]) -> list[object]:
    """All of the episodes but their tools' latencies."""

    def rollouts(pairs):
        decode = tiny_tokenizer().decode
        return [row_of(TrajectoryRecord(0, "", *pair), decode) for pair in pairs]

    return [
        (
            rollouts([(episode.proposer, episode.outcome), *episode.replaced]),
            (episode.question, episode.rejected, rollouts(episode.checks)),
            [
                rollouts([*zip(group.trajectories, group.outcomes, strict=True), *group.replaced])
                for group in solver_groups([episode])
            ],
        )
        for episode in episodes
    ]


def test_a_proposal_is_filtered_verified_tried_and_scored(stage):
    """Reward: one of three right gives 1.0; the format score without a word of reasoning, three of four parts."""
    play = stage(
        {
            "proposals/t0": proposing("kalo"),
            "t0/reading-0": [MERI],
            "t0/0": ["<search> kalo </search>", MERI],
            "t0/1": [TOLU],
            "t0/2": [TOLU],
        },
        verify={},
        attempts=3,
    )
    (episode,) = run(play)
    assert episode.proposer.id == "k/proposals/t0"
    assert episode.question == Question(
        "t0", "who is the mayor of kalo ?", ("meri",), {"requested": 1, "searches": 1, "evidence": ["p0", "kalo#0"]}
    )
    assert [(reading.id, outcome.reward) for reading, outcome in episode.checks] == [("k/t0/reading-0", 1.0)]
    assert episode.solvers.key == "k/t0"
    assert [outcome.reward for outcome in episode.solvers.outcomes] == [1.0, 0.0, 0.0]
    assert all(trajectory.question == episode.question for trajectory in episode.solvers.trajectories)
    assert episode.outcome == Scored(
        1.0 + REWARD_OF_FORMAT,
        {"difficulty": 1.0, "solver/mean": 1 / 3, "solver/valid": 3.0, "solver/invalid": 0.0, "format": 0.75},
    )
    assert (episode.rejected, episode.replaced) == (None, ())


def test_what_is_rejected_is_scored_as_such_and_nobody_tries_it(stage):
    table = {
        "proposals/t0": ["<think> so </think>"],
        "proposals/t1": proposing(question="is it meri of kalo ?"),
        "proposals/t2": proposing("kalo"),
        "t2/reading-0": [TOLU],
    }
    episodes = run(stage(table, verify={}, proposer_reward=ProposerReward(rejected_reward=-0.1)), 3)
    assert [episode.rejected for episode in episodes] == ["unfinished", "answer_in_question", "unverified"]
    assert [episode.outcome for episode in episodes] == [
        Scored(-0.1, {f"rejected/{episode.rejected}": 1.0}) for episode in episodes
    ]
    assert [(episode.question, episode.solvers) for episode in episodes] == [(None, None)] * 3
    assert [[outcome.reward for _, outcome in episode.checks] for episode in episodes] == [[], [], [0.0]]


PROPOSALS = {
    "t0": proposing("kalo", "nida"),
    "t1": proposing("nida"),  # as t0: a duplicate
    "t2": proposing("tolu", question="who is it in tolu ?"),  # not verified
    "t3": proposing("down"),
    "t3r1": proposing("vesu", question="who is it in vesu ?"),
    "t5": proposing("zumi", question="who is it in zumi ?"),  # its reader fails, and t4 never says anything
}
ANSWERS = {
    "t0/reading-0": [MERI],
    "t0/0": [MERI],
    "t0/1": [TOLU],
    "t2/reading-0": [TOLU],
    "t3/reading-0": [MERI],
    "t3/0": [DOWN],
    "t3/0r1": ["<search> vesu </search>", MERI],
    "t3/1": [TOLU],
}
MANY = {**{f"proposals/{name}": turns for name, turns in PROPOSALS.items()}, **ANSWERS}


def test_episodes_do_not_depend_on_what_comes_first(stage):
    """Slow tools and samplers, in orders drawn at random."""
    expected = essence(run(stage(MANY, verify={"readings": 1, "noise_passages": 2}), 6))
    shown = sorted(stage.shown, key=str)
    assert len(shown) == 4
    for seed in range(12):
        stage.shown.clear()
        play = stage(
            MANY,
            verify={"readings": 1, "noise_passages": 2},
            delay=lambda name, seed=seed: random.Random(f"{seed}/{name}").choice((0, 1, 7, 40)),
        )
        assert essence(run(play, 6)) == expected
        assert sorted(stage.shown, key=str) == shown


@pytest.mark.parametrize("slow", range(3))
def test_of_equal_questions_the_first_in_the_order_of_tasks_stays_whoever_is_slow(stage, slow):
    table = {f"proposals/t{number}": proposing() for number in range(3)}
    table |= {f"t{number}/{index}": [MERI] for number in range(3) for index in range(2)}
    play = stage(table, delay=lambda name: 30 * name.startswith(f"k/proposals/t{slow}"))
    assert [episode.rejected for episode in run(play, 3)] == [None, "duplicate", "duplicate"]


def test_equal_questions_of_one_task_are_no_duplicates_of_each_other(stage):
    """Nested sampling compares a task's proposals: equal ones must be worth the same. Another task's still is one."""
    table = {f"proposals/t{number}": proposing() for number in range(3)}
    table |= {f"t{number}/0": [MERI] for number in range(3)} | {f"t{number}/1": [TOLU] for number in range(3)}
    tasks = [task(0, id="a"), task(1, id="a"), task(2, id="b")]
    for likeness in (1.0, 0.5):
        episodes = asyncio.run(stage(table, near_duplicates=likeness)(tasks, "k"))
        assert [episode.rejected for episode in episodes] == [None, None, "duplicate"]
        assert episodes[0].outcome == episodes[1].outcome


def test_only_proposals_that_keep_the_rules_have_duplicates(stage):
    """Neither a failed one nor a rejected one takes a question away from those after it."""
    table = {
        "proposals/t1": ["<question> who is the mayor of kalo ? </question> <answer> the </answer>"],
        **{f"proposals/t{number}": proposing() for number in (2, 3)},
        **{f"t{number}/{index}": [MERI] for number in (2, 3) for index in range(2)},
    }
    rejected = [episode.rejected for episode in run(stage(table), 4)]
    assert rejected == [None, "no_answer", None, "duplicate"]
    assert [episode.rejected for episode in run(stage(table, near_duplicates=0.0), 4)] == [
        None,
        "no_answer",
        None,
        None,
    ]


def test_near_duplicates_are_told_beyond_the_likeness(stage):
    words = "what is the name of the mayor who was born in the same place as"
    table = {f"proposals/t{n}": proposing(question=f"{words} {name} ?") for n, name in enumerate(("kalo", "nida"))}
    table |= {f"t{number}/{index}": [MERI] for number in range(2) for index in range(2)}
    assert [episode.rejected for episode in run(stage(table), 2)] == [None, None]
    assert [episode.rejected for episode in run(stage(table, near_duplicates=0.5), 2)] == [None, "duplicate"]


def test_noise_is_what_the_other_proposers_found(stage):
    table = {f"proposals/t{n}": proposing(*names) for n, names in enumerate((("kalo", "nida"), ("nida", "tolu")))}
    table |= {f"t{n}/{name}": [MERI] for n in range(2) for name in ("reading-0", 0, 1)}
    run(stage(table, verify={}, near_duplicates=0.0), 2)
    ids = sorted(sorted(passage.id for passage in passages) for passages in stage.shown)
    assert ids == [["kalo#0", "nida#0", name, "tolu#0"] for name in ("p0", "p1")]


def test_proposals_of_an_earlier_round_are_noise_and_make_duplicates(stage):
    table = {f"proposals/t{n}": proposing(name) for n, name in enumerate(("kalo", "nida"))}
    table |= {f"t{n}/{name}": [MERI] for n in range(2) for name in ("reading-0", 0, 1)}
    play = stage(table, verify={}, near_duplicates=0.0)
    (earlier,) = asyncio.run(play([task(0)], "k"))
    asyncio.run(play([task(1)], "k", earlier=[earlier]))
    assert [sorted(passage.id for passage in passages) for passages in stage.shown] == [
        ["kalo#0", "p0"],
        ["kalo#0", "nida#0", "p1"],
    ]
    (again,) = asyncio.run(stage(table)([task(1)], "k", earlier=[earlier]))
    assert again.rejected == "duplicate"


def test_noise_is_nothing_that_a_proposer_of_the_same_task_found(stage):
    """It may be what this question is about, and not be noise."""
    table = {f"proposals/t{number}": proposing(name) for number, name in enumerate(("kalo", "nida", "tolu"))}
    table |= {f"t{n}/{name}": [MERI] for n in range(3) for name in ("reading-0", 0, 1)}
    tasks = [task(0, id="a"), task(1, id="a"), task(2, id="b")]
    asyncio.run(stage(table, verify={}, near_duplicates=0.0, evidence=lambda _: ())(tasks, "k"))
    ids = sorted([passage.id for passage in sorted(passages, key=str)] for passages in stage.shown)
    assert ids == [["kalo#0", "nida#0"], ["tolu#0"], ["tolu#0"]]


def test_a_reader_is_shown_what_the_proposer_saw_or_else_what_the_verification_asks_for(stage):
    table = {"proposals/t0": proposing("nida", "tolu"), "t0/reading-0": [MERI], "t0/0": [MERI], "t0/1": [MERI]}
    run(stage(table, verify={}))
    run(stage(table, verify={}, evidence=lambda proposal: supporting_passages(proposal)[:1]))
    ids = [sorted(passage.id for passage in passages) for passages in stage.shown]
    assert ids == [["nida#0", "p0", "tolu#0"], ["p0"]]


def test_an_episode_waits_for_no_other_unless_it_must(stage):
    """Without duplicates and noise the first is solved while the second is still being proposed."""
    table = {"proposals/t0": proposing(), "t0/0": [MERI], "t0/1": [MERI], "proposals/t1": proposing(question="tolu ?")}
    play = stage(table, near_duplicates=0.0, delay=lambda name: 99 * name.startswith("k/proposals/t1"))
    run(play, 2)
    assert [request.trajectory_id for request in stage.sampler.requests][-1] == "k/proposals/t1"
    play = stage(table, near_duplicates=1.0, delay=lambda name: 99 * name.startswith("k/proposals/t1"))
    run(play, 2)
    assert [request.trajectory_id for request in stage.sampler.requests][1] == "k/proposals/t1"


def test_a_failed_proposal_is_made_again_under_an_id_of_its_own(stage):
    table = {"proposals/t0": [DOWN], "proposals/t0r1": [DOWN], "proposals/t0r2": proposing("kalo")}
    (episode,) = run(stage({**table, "t0/0": [MERI], "t0/1": [TOLU]}))
    assert episode.proposer.id == "k/proposals/t0r2"
    assert [(failed.id, invalid.reason) for failed, invalid in episode.replaced] == [
        ("k/proposals/t0", StopReason.TOOL_FAILED),
        ("k/proposals/t0r1", StopReason.TOOL_FAILED),
    ]
    assert isinstance(episode.outcome, Scored)
    assert episode.question.id == "t0"


@pytest.mark.parametrize("refills", [0, 1, 2])
def test_one_that_fails_as_often_as_it_is_tried_is_invalid(stage, refills):
    table = {f"proposals/t0{again}": [DOWN] for again in ("", "r1", "r2", "r3")}
    (episode,) = run(stage(table, refills=refills))
    assert isinstance(episode.outcome, Invalid)
    assert episode.outcome.reason is StopReason.TOOL_FAILED
    assert "the engine is down" in episode.outcome.detail
    assert (episode.question, episode.rejected, episode.solvers) == (None, None, None)
    assert len(episode.replaced) == refills
    assert len(stage.sampler.requests) == refills + 1


@pytest.mark.parametrize("who", ["proposals/t1", "t1/reading-0", "t1/1"])
def test_an_error_that_is_no_failure_ends_the_batch_at_once_and_leaves_nothing_running(stage, who):
    """The other episodes hang: in a tool, or waiting for the proposals of the batch."""
    table = {"proposals/t0": ["<search> hang </search>"], "proposals/t1": proposing(), "proposals/t2": proposing()}
    table |= {"t1/reading-0": [MERI], "t1/0": [MERI], "t1/1": [MERI], who: ZeroDivisionError("a mistake")}

    async def play():
        async with asyncio.timeout(5):
            with pytest.raises(ZeroDivisionError, match="a mistake"):
                await stage(table, verify={"noise_passages": 0}, near_duplicates=0.0)([task(n) for n in range(3)], "k")
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(play()) == set()
    assert "k/proposals/t0" in stage.sampler.released


def test_a_task_of_another_kind_is_told_and_the_others_do_not_wait_for_it(stage):
    tasks = [task(0), task(1, requested=-1)]

    with pytest.raises(DataError, match="asks a proposer for -1 hops"):
        asyncio.run(asyncio.wait_for(stage({"proposals/t0": proposing()})(tasks, "k"), 5))


class TestTrap1AFailureIsNoReward:
    """In self-play a failure that counts as a wrong answer pays the proposer: an outage makes every question hard."""

    TWO_RIGHT = ("proposals/t0", proposing()), ("t0/0", [MERI]), ("t0/1", [MERI]), ("t0/3", [TOLU])

    def test_a_failed_attempt_is_out_of_the_proposers_reward(self, stage):
        """One of three is wrong. Were the failure a wrong answer, it would be two of four."""
        worth = ProposerReward("failure", max_failed=0.5)  # three of six: one was rolled out again, twice
        (episode,) = run(stage(dict(self.TWO_RIGHT), attempts=4, proposer_reward=worth))
        assert [isinstance(outcome, Invalid) for outcome in episode.solvers.outcomes] == [False, False, True, False]
        assert episode.outcome.parts["difficulty"] == pytest.approx(1 / 3)
        assert (episode.outcome.parts["solver/valid"], episode.outcome.parts["solver/invalid"]) == (3.0, 1.0)

    def test_and_leaves_none_where_the_others_cannot_tell_it_but_the_solver_learns_all_the_same(self, stage):
        (episode,) = run(stage(dict(self.TWO_RIGHT), attempts=4))
        assert isinstance(episode.outcome, Invalid)
        assert episode.outcome.detail.startswith("3 of 6 of the solver's attempts failed")
        assert episode.question is not None
        assert [attempt.reward for attempt in scored_attempts([episode.solvers])] == [1.0, 1.0, 0.0]

    def test_and_out_of_the_solvers_baseline_and_loss(self, stage):
        (episode,) = run(stage(dict(self.TWO_RIGHT), attempts=4))
        rewards = [getattr(outcome, "reward", None) for outcome in episode.solvers.outcomes]
        advantages = group_advantages(rewards, ["q"] * 4, scale="none")
        assert advantages == [pytest.approx(1 / 3), pytest.approx(1 / 3), None, pytest.approx(-2 / 3)]
        assert [attempt.reward for attempt in scored_attempts([episode.solvers])] == [1.0, 1.0, 0.0]

    @pytest.mark.parametrize("difficulty", DIFFICULTIES)
    def test_a_question_whose_attempts_all_failed_is_not_one_that_nobody_could_answer(self, stage, difficulty):
        """With `failure` that would even be the best reward of all."""
        (episode,) = run(
            stage({"proposals/t0": proposing()}, proposer_reward=ProposerReward(difficulty, 0.0), attempts=3)
        )
        assert isinstance(episode.outcome, Invalid)
        assert episode.outcome.reason is StopReason.SAMPLER_FAILED
        assert episode.outcome.detail.startswith("9 of 9 of the solver's attempts failed")
        assert episode.question is not None
        assert len(episode.solvers.replaced) == 6

    def test_a_question_that_could_not_be_checked_is_neither_rejected_nor_asked(self, stage):
        play = stage({"proposals/t0": proposing()}, verify={}, proposer_reward=ProposerReward(rejected_reward=-1.0))
        (episode,) = run(play)
        assert episode.outcome == Invalid(StopReason.SAMPLER_FAILED, "t0/reading-0 has no turn 0")
        assert (episode.question, episode.rejected, episode.solvers) == (None, None, None)
        assert [outcome for _, outcome in episode.checks] == [episode.outcome]

    def test_invalid_proposals_are_out_of_the_proposers_baseline_and_loss(self, stage):
        """Rewards by the share of wrong answers: 0, 1/2, 1 and three that have none."""
        table = {f"proposals/t{n}": proposing(question=f"who is it in {n} ?") for n in (0, 1, 2, 3, 5)}
        table |= {f"proposals/t4{again}": [DOWN] for again in ("", "r1", "r2")}
        table |= {f"t{number}/reading-0": [MERI] for number in range(4)}
        for number, answers in enumerate(((MERI, MERI), (MERI, TOLU), (TOLU, TOLU))):
            table |= {f"t{number}/{index}": [answer] for index, answer in enumerate(answers)}
        table |= {f"t3/{index}{again}": [DOWN] for index in range(2) for again in ("", "r1", "r2")}
        episodes = run(stage(table, verify={}, proposer_reward=ProposerReward("failure", 0.0)), 6)
        (group,) = proposal_groups(episodes, "requested")
        rewards = [getattr(outcome, "reward", None) for outcome in group.outcomes]
        assert rewards == [0.0, 0.5, 1.0, None, None, None]
        assert group_advantages(rewards, [0] * 6, scale="none") == [-0.5, 0.0, 0.5, None, None, None]
        assert raw_advantages(rewards) == rewards
        assert [attempt.reward for attempt in scored_attempts([group])] == [0.0, 0.5, 1.0]
        reasons = [outcome.reason for outcome in group.outcomes[3:]]
        assert reasons == [StopReason.TOOL_FAILED, StopReason.TOOL_FAILED, StopReason.SAMPLER_FAILED]


SEARCHES_IN_VAIN = ["<search> nothing </search>"] * 3


def test_an_engine_that_finds_nothing_for_anybody_leaves_every_episode_invalid(stage):
    """Three searches of a proposer and seven of solvers. Were they scored, the proposer would be paid for it."""
    table = {
        "proposals/t0": [*SEARCHES_IN_VAIN, *proposing()],
        "t0/0": [*SEARCHES_IN_VAIN, TOLU],
        "t0/1": [*SEARCHES_IN_VAIN, "<search> nothing </search>", TOLU],
        "proposals/t1": proposing(question="is it meri ?"),
    }
    episodes = run(stage(table, proposer_reward=ProposerReward("failure")), 2)
    outcomes = [episode.outcome for episode in episodes] + list(episodes[0].solvers.outcomes)
    assert len(outcomes) == 4
    for outcome in outcomes:
        assert outcome.reason is StopReason.TOOL_FAILED
        assert outcome.detail.startswith(
            "The search engine found nothing in any of 10 searches, the first for 'nothing'"
        )
    assert [(episode.question, episode.rejected) for episode in episodes] == [(None, None)] * 2
    table["t0/1"] = ["<search> kalo </search>", *table["t0/1"][1:]]  # one finds something
    assert [
        episode.outcome.reward for episode in run(stage(table, proposer_reward=ProposerReward("failure", 0.0)), 2)
    ] == [1, 0]


def test_an_engine_that_is_lost_once_the_questions_are_written_pays_no_proposer(stage):
    """A proposer found a passage; twelve searches of its solvers found none. What was rejected is so all the same."""
    lost = ["<search> nothing </search>"] * 4
    table = {
        "proposals/t0": proposing("kalo"),
        "t0/0": [*lost, TOLU],
        "t0/1": [*lost, TOLU],
        "t0/2": [*lost, TOLU],
        "proposals/t1": proposing("kalo", question="is it meri ?"),
    }
    solved, rejected = run(stage(table, proposer_reward=ProposerReward("failure", 0.0), attempts=3), 2)
    assert {outcome.reason for outcome in (solved.outcome, *solved.solvers.outcomes)} == {StopReason.TOOL_FAILED}
    assert solved.question is not None
    assert (rejected.outcome.reward, rejected.rejected) == (0.0, "answer_in_question")
    table["t0/2"] = [*lost[:3], "<search> kalo </search>", TOLU]
    assert run(stage(table, proposer_reward=ProposerReward("failure", 0.0), attempts=3), 2)[0].outcome.reward == 1.0


def test_an_engine_that_is_lost_while_questions_are_written_pays_nobody_though_it_comes_back(stage):
    """Twelve searches of proposers in vain, six of solvers not."""
    table = {}
    for number in range(3):
        vain = ["<search> nothing </search>"] * 4
        table[f"proposals/t{number}"] = [*vain, *proposing(question=f"who is it in {number} ?")]
        table |= {f"t{number}/{index}": ["<search> kalo </search>", TOLU] for index in range(2)}
    for episode in run(stage(table, proposer_reward=ProposerReward("failure")), 3):
        outcomes = (episode.outcome, *episode.solvers.outcomes)
        assert {outcome.reason for outcome in outcomes} == {StopReason.TOOL_FAILED}
        assert episode.question is None


@pytest.mark.parametrize(("stated", "right"), [("meri", True), ("the Meri", True), ("tolu", False)])
def test_the_answer_that_a_task_gives_is_the_right_one(stage, stated, right):
    play = stage({"proposals/t0": proposing(answer=stated), "t0/0": [MERI], "t0/1": [TOLU]}, backwards=True)
    (episode,) = asyncio.run(play([answer_task(0, "meri")], "k"))
    if not right:
        assert episode.rejected == "other_answer"
        return
    assert episode.question.golden_answers == ("meri",)
    assert [outcome.reward for outcome in episode.solvers.outcomes] == [1.0, 0.0]
    assert "format" not in episode.outcome.parts


def test_with_the_majority_as_label_the_proposers_answer_counts_for_nothing_but_stays_written(stage):
    table = {"proposals/t0": proposing(), "t0/0": [MERI], "t0/1": [TOLU], "t0/2": ["<answer> the Tolu </answer>"]}
    (episode,) = run(stage(table, attempts=3, label=relabel))
    assert [outcome.reward for outcome in episode.solvers.outcomes] == [0.0, 1.0, 1.0]
    assert [outcome.parts["label/agrees"] for outcome in episode.solvers.outcomes] == [0.0] * 3
    assert episode.outcome.parts["difficulty"] == 0.5
    assert episode.question.golden_answers == ("meri",)


def test_questions_are_only_written_if_nobody_is_to_try_them(stage):
    (episode,) = run(stage({"proposals/t0": proposing(), "t0/reading-0": [MERI]}, verify={}), solve=False)
    assert episode.question is not None
    assert episode.solvers is None
    assert episode.outcome == Scored(REWARD_OF_FORMAT, {"format": 0.75})


@pytest.mark.parametrize("count", [0, 1, 6])
def test_the_seconds_of_every_stage_are_at_least_zero_and_add_up_over_batches(stage, count):
    stages, before = EpisodeSeconds(), (0.0, 0.0, 0.0)
    for _ in range(3):
        run(stage(MANY, verify={}), count, stages=stages)
        seconds = (stages.propose, stages.verify, stages.solve)
        assert all(new >= old for new, old in zip(seconds, before, strict=True))
        before = seconds
    assert (stages.propose > 0) == (count > 0)


def test_no_stage_takes_time_in_a_batch_that_failed_before_it(stage):
    stages = EpisodeSeconds()
    run(stage({}), 2, stages=stages)
    assert stages.propose > 0
    assert (stages.verify, stages.solve) == (0.0, 0.0)


def test_a_question_that_leaves_the_solver_no_room_is_rejected_and_nobody_tries_it(stage):
    play = stage({"proposals/t0": proposing()})
    room = play.solver.prompt_length(Question("q", "who is the mayor of kalo ?", ("meri",)))
    play = replace(play, solver=replace(play.solver, limits=replace(play.solver.limits, max_total_tokens=room)))
    (episode,) = run(play)
    assert (episode.rejected, episode.solvers) == (Rejection.TOO_LONG, None)
