"""Hand-made rows. Curves have 10 steps to a probe of 400 questions, and rewards that wobble by 0.02 a step."""

import pytest

from evoseek.rollout.record import TrajectoryWriter
from evoseek.storage.metrics import TOO_MANY_INVALID, JsonlMetrics, ManyMetrics, counted, read_metrics
from evoseek.training.alarms import (
    AlarmedMetrics,
    fewer_searches,
    hacking_alarm,
    little_signal,
    no_signal,
    proposal_alarm,
)
from evoseek.types import Action, Question, Scored, Segment, StopReason, Trajectory, TrajectoryGroup

EVERY = 10


def curve(games, probes, *, n=400.0):
    """A row a step; probe number i comes with step i * EVERY, and games[i] is the reward of the game up to it."""
    rows = []
    for number, (game, probe) in enumerate(zip(games, probes, strict=True)):
        for step in range(number * EVERY + 1, (number + 1) * EVERY + 1):
            rows.append({"step": float(step), "solver/answer_reward": game + 0.02 * (-1) ** step})
        rows[-1] |= {"eval/reward": probe} | ({"eval/n": n, "eval/n_invalid": 0.0} if n else {})
    return rows


HONEST = curve([0.3, 0.4, 0.5, 0.6, 0.65, 0.7], [0.30, 0.38, 0.45, 0.55, 0.60, 0.66])
COLLAPSE = curve([0.3, 0.4, 0.5, 0.6, 0.7, 0.8], [0.60, 0.62, 0.61, 0.50, 0.42, 0.35])
BOTH_FALL = curve([0.8, 0.7, 0.6, 0.5, 0.4, 0.3], [0.60, 0.62, 0.61, 0.50, 0.42, 0.35])
# Means .60 and .57. Three probes of 400 each: standard error of the difference sqrt((.24 + .2451) / 1200) = .0201.
NOISE = curve([0.3, 0.4, 0.5, 0.6, 0.7, 0.8], [0.60, 0.60, 0.60, 0.57, 0.57, 0.57])


@pytest.mark.parametrize("rows", [HONEST, BOTH_FALL, NOISE, COLLAPSE[:-EVERY], []])
def test_no_alarm(rows):
    """An honest rise, a fall of both, a fall within noise, and too few probes."""
    assert hacking_alarm(rows) is None


def test_alarm_names_what_happened_and_what_to_do():
    words = hacking_alarm(COLLAPSE)
    assert "over steps 31 to 60 solver/answer_reward rose to 0.700 (from 0.400 over steps 1 to 30)" in words
    assert "eval/reward fell to 0.423 (from 0.610), more than the 0.040 that chance explains" in words
    assert "trajectories.jsonl" in words
    assert "verification.readings" in words


def test_more_questions_make_a_small_fall_certain():
    games, probes = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8], [0.60, 0.60, 0.60, 0.57, 0.57, 0.57]
    assert hacking_alarm(curve(games, probes, n=700.0)) is None
    assert hacking_alarm(curve(games, probes, n=800.0))


def test_a_rise_within_the_scatter_of_the_game_is_none():
    flat = curve([0.5, 0.5, 0.5, 0.503, 0.503, 0.503], [0.60, 0.62, 0.61, 0.50, 0.42, 0.35])
    assert hacking_alarm(flat) is None


def test_only_the_last_probes_and_as_many_before_count():
    """A long past with low scores does not hide a fall; a fall that is long ago is none."""
    past = curve([0.2] * 4, [0.1] * 4)
    later = [row | {"step": row["step"] + 40} for row in COLLAPSE]
    assert "over steps 71 to 100" in hacking_alarm(past + later)
    calm = [row | {"step": row["step"] + 60} for row in curve([0.8] * 6, [0.4] * 6)]
    assert hacking_alarm(COLLAPSE + calm) is None


def test_a_proposer_that_earns_more_while_the_solver_unlearns_is_told_apart():
    """The solver's reward falls with the held-out score, because nobody can answer what is asked."""
    rows = [row | {"proposer/reward": 1 - row["solver/answer_reward"]} for row in BOTH_FALL]
    words = hacking_alarm(rows)
    assert words.startswith("The proposer may be paid for questions that cannot be answered: over steps 31 to 60")
    assert "proposer/reward rose to 0.600 (from 0.300 over steps 1 to 30)" in words
    assert "failure rewards questions without an answer" in words
    assert hacking_alarm([row | {"eval/reward": 0.6} if "eval/reward" in row else row for row in rows]) is None
    both = [row | {"proposer/reward": row["solver/answer_reward"]} for row in COLLAPSE]
    assert hacking_alarm(both).startswith(
        "The roles may be fooling each other: over steps 31 to 60 solver/answer_reward"
    )


def test_rows_without_a_value_are_passed_over():
    """A probe before any step, a step without a score, and a probe of which nothing could be scored."""
    rows = [{"step": 0.0, "eval/reward": 0.58, "eval/n": 400.0}, *COLLAPSE, {"step": 61.0, "eval/reward": None}]
    assert hacking_alarm(rows) == hacking_alarm(COLLAPSE)
    assert hacking_alarm([{**row, "solver/answer_reward": float("nan")} for row in COLLAPSE]) is None


def test_trap_a_frozen_solver_on_fresh_proposals_and_one_that_learns_are_two_games():
    """Dr. Zero: three stretches of proposing at 0.3, then three of solving at 0.7. Neither game rose, and the fall of
    the probes is not to be blamed on one; in Search Self-play every step has proposals, and its game is one."""
    rows = curve([0.3, 0.3, 0.3, 0.7, 0.7, 0.7], [0.60, 0.62, 0.61, 0.50, 0.42, 0.35])
    assert hacking_alarm(rows)
    proposing = [row | {"selfplay/proposals": 8.0} for row in rows]
    assert hacking_alarm(proposing[:30] + rows[30:]) is None
    assert hacking_alarm([{"step": 0.0, "eval/reward": 0.58, "eval/n": 400.0}, *proposing]) == hacking_alarm(rows)
    mixed = [new if number % 10 < 5 else old for number, (new, old) in enumerate(zip(proposing, COLLAPSE, strict=True))]
    only = [row if number % 10 >= 5 else row | {"solver/answer_reward": None} for number, row in enumerate(COLLAPSE)]
    assert hacking_alarm(mixed)
    assert hacking_alarm(mixed) == hacking_alarm(only)


def watch(sink, said, rows, **options):
    alarmed = AlarmedMetrics(sink, said.append, game=True, **options)
    for row in rows:
        alarmed.write(int(row["step"]), {name: value for name, value in row.items() if name != "step"})


def test_the_user_is_told_once_and_rows_with_a_probe_say_whether_it_lasts(tmp_path):
    sink, said = JsonlMetrics(tmp_path / "metrics.jsonl"), []
    falls = curve([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], [0.60, 0.62, 0.61, 0.50, 0.42, 0.35, 0.30])
    calm = [row | {"step": row["step"] + 70} for row in curve([0.9] * 6, [0.3] * 6)]
    watch(sink, said, falls + calm)
    written = read_metrics(sink.path)
    assert [row["selfplay/alarm"] for row in written if "eval/reward" in row][:7] == [0.0] * 5 + [1.0] * 2
    assert written[-1]["selfplay/alarm"] == 0.0
    assert not [row for row in written if "eval/reward" not in row and "selfplay/alarm" in row]
    assert len(said) == 1
    watch(sink, said, [row | {"step": row["step"] + 130} for row in falls], earlier=written)
    assert len(said) == 2


@pytest.mark.parametrize("cut", [35, 60, 64])
def test_a_resumed_run_raises_the_alarm_that_it_would_have_raised(tmp_path, cut):
    falls = curve([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], [0.60, 0.62, 0.61, 0.50, 0.42, 0.35, 0.30])
    sink, said = JsonlMetrics(tmp_path / "metrics.jsonl"), []
    watch(sink, said, falls[:cut])
    watch(sink, said, falls[cut:], earlier=read_metrics(sink.path))
    assert len(said) == 1
    assert [row["step"] for row in read_metrics(sink.path) if row.get("selfplay/alarm")] == [60, 70]


def proposals(step, valid, **rejected):
    shares = {f"selfplay/rejected/{reason}": share for reason, share in rejected.items()}
    return {"step": float(step), "selfplay/proposals": 4.0, "selfplay/valid_rate": valid, **shares}


def rejected(number, reason, text):
    segments = (Segment("prompt", (1,)), Segment("action", (2,), (-0.5,)))
    question = Question(f"p{number}", "a passage", ())
    trajectory = Trajectory(f"p{number}", question, "proposer", segments, (Action(text),), (), StopReason.MALFORMED)
    return trajectory, Scored(0.0, {f"rejected/{reason}": 1.0})


def test_two_steps_without_a_valid_proposal_warn_once_with_three_examples_and_their_reasons(tmp_path):
    sink, said, record = JsonlMetrics(tmp_path / "metrics.jsonl"), [], tmp_path / "trajectories.jsonl"
    texts = ["no idea", "What is it?", "", "a fourth"]
    made = [rejected(n, "no_question" if n else "too_short", text) for n, text in enumerate(texts)]
    trajectories, outcomes = zip(*made, strict=True)
    TrajectoryWriter(record, str).write(2, [TrajectoryGroup("g", trajectories, outcomes)])
    rows = [proposals(step, 0.0, no_question=0.75, too_short=0.25, refers=0.0) for step in (1, 2, 3)]
    watch(sink, said, rows[:1], trajectories=record)
    assert said == []
    watch(sink, said, rows[1:], earlier=rows[:1], trajectories=record)
    (words,) = said
    assert "no_question 75%, too_short 25%" in words
    examples = words.splitlines()[1:]
    assert [line.split()[0] for line in examples] == ["too_short", "no_question", "no_question"]
    assert examples[1] == "  no_question (no question was stated): What is it?"
    assert examples[2].endswith(": nothing was written")


def test_steps_of_the_solver_lie_between_and_one_valid_proposal_is_enough():
    solved = {"step": 2.0, "solver/reward": 0.5}
    assert proposal_alarm([proposals(1, 0.0), solved, proposals(3, 0.0)])
    assert proposal_alarm([proposals(1, 0.0), proposals(2, 0.25)]) is None
    assert proposal_alarm([proposals(1, 0.0), solved]) is None
    down = {"proposer/rollout/invalid_frac": 1.0}  # no server answered: the proposer has proposed nothing
    assert proposal_alarm([proposals(1, 0.0), proposals(2, 0.0) | down, proposals(3, 0.0) | down]) is None
    assert proposal_alarm([proposals(1, 0.0), proposals(2, 0.0) | down, proposals(3, 0.0)])


def row(zero, *, role="", reward=0.0, answered=0.0, malformed=0.0, cut=0.0):
    ends = {"answered": answered, "malformed": malformed, "max_tokens": cut}
    named = {"frac_reward_zero_std": zero, "reward": reward} | {f"rollout/stop/{k}": v for k, v in ends.items()}
    return {f"{role}{name}": value for name, value in named.items()}


@pytest.mark.parametrize("rows", [[], [row(1.0)] * 2, [row(1.0), row(0.9), row(1.0)], [row(1.0)] * 3 + [row(0.5)]])
def test_too_few_steps_or_one_with_a_signal_are_no_warning(rows):
    assert no_signal(rows) is None


@pytest.mark.parametrize("role", ["", "solver/"])
def test_the_warning_names_the_shares_and_what_to_do(role):
    words = no_signal([row(1.0, role=role, malformed=0.75, cut=0.25), {"proposer/reward": 1.0}] * 3)
    assert "For 3 steps" in words
    assert "0% were answered, 75% malformed and 25% cut off" in words
    assert "rollout.max_tokens_per_turn" in words
    assert "rollout.max_malformed" in words


def test_who_answers_wrongly_or_is_always_right_is_told_something_else():
    assert "never right" in no_signal([row(1.0, answered=1.0)] * 3)
    assert "harder questions" in no_signal([row(1.0, answered=1.0, reward=1.0)] * 3)


def test_what_is_paid_for_evidence_makes_no_answer_right():
    never = row(1.0, answered=1.0, reward=0.25) | {"answer_reward": 0.0}
    assert "never right" in no_signal([never] * 3)
    assert no_signal([never] * 3, relative=False) is None
    half = steps(5, frac_reward_zero_std=1.0, reward=1.0, answer_reward=0.5)
    assert "Nearly all are right" not in little_signal(half)


def test_equal_rewards_teach_where_they_are_not_compared_with_those_of_the_group():
    assert no_signal([row(1.0, answered=1.0, reward=0.5)] * 3, relative=False) is None
    assert no_signal([row(1.0, answered=1.0, reward=0.0)] * 3, relative=False)


def test_it_is_said_once_also_to_a_run_that_is_resumed_and_again_after_a_signal(tmp_path):
    said, path = [], tmp_path / "metrics.jsonl"
    for zeros in ([1.0, 1.0], [1.0, 1.0], [1.0, 0.5, 1.0, 1.0, 1.0, 1.0]):
        metrics = AlarmedMetrics(JsonlMetrics(path), said.append, earlier=read_metrics(path))
        for zero in zeros:
            metrics.write(0, row(zero))
    assert len(said) == 2
    assert len(read_metrics(path)) == 10


def steps(number, **metrics):
    """So many rows; a list has a value for each of them."""
    return [
        {name.replace("__", "/"): value[step] if isinstance(value, list) else value for name, value in metrics.items()}
        for step in range(number)
    ]


def test_nearly_no_group_with_a_signal_for_five_steps_is_told_with_what_may_help():
    words = little_signal(steps(5, frac_reward_zero_std=[1.0, 0.9, 0.8, 0.9, 0.9], reward=0.4))
    assert "90% of the groups had no signal" in words
    assert all(remedy in words for remedy in ("[[stages]]", "learning_rate", "temperature"))
    assert little_signal(steps(5, frac_reward_zero_std=[1.0, 0.9, 0.8, 0.9, 0.8], reward=0.4)) is None
    assert little_signal(steps(4, frac_reward_zero_std=1.0, reward=0.4)) is None
    assert "harder questions" in little_signal(steps(5, frac_reward_zero_std=1.0, reward=0.95))


def test_groups_that_are_always_right_or_always_wrong_are_told_the_same():
    words = no_signal([row(1.0, answered=1.0, reward=0.5)] * 3)
    assert "always answered right or always wrong. Try a first stage of hard questions" in words


@pytest.mark.parametrize("role", ["", "solver__"])
def test_searches_that_fall_below_half_of_the_beginning_are_told(role):
    """The first five steps have 2 calls on average; half of it is 1."""
    falling = [2.0, 2.5, 1.5, 2.0, 2.0, 1.5, 1.1, 1.0, 0.9, 0.8, 0.7]
    calls = {f"{role}tools__call_frequency": falling}
    assert fewer_searches(steps(10, **calls)) is None  # 1.06
    assert "make 0.90 tool calls in the last 5 steps, less than half of the 2.00" in fewer_searches(steps(11, **calls))
    assert fewer_searches(steps(11, tools__call_frequency=[0.4] * 5 + [0.0] * 6)) is None  # there was nothing to fall


def test_a_sign_of_a_collapse_is_said_once_for_each_stage_and_not_at_every_step_around_the_limit():
    said, sink = [], ManyMetrics()
    shares = [0.9] * 5 + [0.8, 1.0] * 4  # the mean of five goes to and fro around .9
    metrics = AlarmedMetrics(sink, said.append)
    for stage in (1.0, 2.0):
        for share in shares:
            metrics.write(0, row(share, reward=0.4, answered=1.0) | {"stage": stage})
    assert len(said) == 2


def test_a_collapse_to_one_search_as_it_was_measured(tmp_path):
    """A mix of one and two hops: by step five no group has a signal."""
    said, path = [], tmp_path / "metrics.jsonl"
    metrics = AlarmedMetrics(JsonlMetrics(path), said.append)
    for zero in (0.6, 0.7, 0.9, 1.0, 1.0, 0.9, 1.0):
        metrics.write(0, row(zero, reward=0.5, answered=1.0))
    (words,) = said
    assert "90% of the groups had no signal" in words


def test_trap_a_step_that_failed_counts_for_no_alarm_also_after_a_resume(tmp_path):
    """Nothing was trained on, and what is left of it is biased."""
    said, path = [], tmp_path / "metrics.jsonl"
    no_signal, failed = row(1.0, reward=0.5, answered=1.0), {TOO_MANY_INVALID: 1.0}
    metrics = AlarmedMetrics(JsonlMetrics(path), said.append)
    for step in range(1, 6):
        metrics.write(step, no_signal | failed)
    metrics.write(6, no_signal)
    rows = read_metrics(path)
    assert len(rows) == 6
    assert [row["step"] for row in counted(rows)] == [6]
    AlarmedMetrics(ManyMetrics(), said.append, earlier=counted(rows)).write(7, no_signal)
    assert said == []
