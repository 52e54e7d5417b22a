"""Hand-made curves: 10 steps to a probe of 400 questions, the reward of the game wobbling by 0.02 from step to step."""

import pytest

from evoseek.report.alarm import AlarmedMetrics, hacking_alarm, proposal_alarm
from evoseek.report.metrics import JsonlMetrics, read_metrics
from evoseek.rollout.record import TrajectoryWriter
from evoseek.types import Action, Question, Scored, Segment, StopReason, Trajectory, TrajectoryGroup

EVERY = 10


def curve(games, probes, *, n=400.0):
    """A row a step; probe number i comes with step i * EVERY, and games[i] is the reward of the game up to it."""
    rows = []
    for number, (game, probe) in enumerate(zip(games, probes, strict=True)):
        for step in range(number * EVERY + 1, (number + 1) * EVERY + 1):
            rows.append({"step": float(step), "solver/reward": game + 0.02 * (-1) ** step})
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
    assert "over steps 31 to 60 solver/reward rose to 0.700 (from 0.400 over steps 1 to 30)" in words
    assert "eval/reward fell to 0.423 (from 0.610), more than the 0.040 that chance explains" in words
    assert "trajectories.jsonl" in words
    assert "verification.from_passages" in words


def test_more_questions_make_a_small_fall_certain():
    games, probes = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8], [0.60, 0.60, 0.60, 0.57, 0.57, 0.57]
    assert hacking_alarm(curve(games, probes, n=700.0)) is None
    assert hacking_alarm(curve(games, probes, n=800.0))


def test_without_a_number_of_questions_the_scatter_of_the_probes_counts():
    games = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    assert hacking_alarm(curve(games, [0.60, 0.60, 0.61, 0.57, 0.57, 0.58], n=0))
    assert hacking_alarm(curve(games, [0.70, 0.50, 0.61, 0.67, 0.47, 0.58], n=0)) is None


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


def test_the_window_and_the_name_of_the_game_can_be_chosen():
    rows = [{"other/reward" if name == "solver/reward" else name: row[name] for name in row} for row in COLLAPSE]
    assert hacking_alarm(rows) is None
    assert hacking_alarm(rows, in_game="other/reward")
    assert hacking_alarm(COLLAPSE[: 3 * EVERY], window=2) is None
    assert hacking_alarm(COLLAPSE[: 4 * EVERY], window=2)


def test_a_proposer_that_earns_more_while_the_solver_unlearns_is_told_apart():
    """The solver's reward falls with the held-out score, because nobody can answer what is asked."""
    rows = [row | {"proposer/reward": 1 - row["solver/reward"]} for row in BOTH_FALL]
    words = hacking_alarm(rows)
    assert words.startswith("The proposer may be paid for questions that cannot be answered: over steps 31 to 60")
    assert "proposer/reward rose to 0.600 (from 0.300 over steps 1 to 30)" in words
    assert "failure pays for what nobody can answer" in words
    assert hacking_alarm([row | {"eval/reward": 0.6} if "eval/reward" in row else row for row in rows]) is None
    both = [row | {"proposer/reward": row["solver/reward"]} for row in COLLAPSE]
    assert hacking_alarm(both).startswith("The roles may be fooling each other: over steps 31 to 60 solver/reward")


def test_rows_without_a_value_are_passed_over():
    """A probe before any step, a step without a score, and a probe of which nothing could be scored."""
    rows = [{"step": 0.0, "eval/reward": 0.58, "eval/n": 400.0}, *COLLAPSE, {"step": 61.0, "eval/reward": None}]
    assert hacking_alarm(rows) == hacking_alarm(COLLAPSE)
    assert hacking_alarm([{**row, "solver/reward": float("nan")} for row in COLLAPSE]) is None


def test_trap_a_frozen_solver_on_fresh_proposals_and_one_that_learns_are_two_games():
    """Dr. Zero: three stretches of proposing at 0.3, then three of solving at 0.7. Neither game rose, and the fall of
    the probes is not to be blamed on one; in Search Self-play every step has proposals, and its game is one."""
    rows = curve([0.3, 0.3, 0.3, 0.7, 0.7, 0.7], [0.60, 0.62, 0.61, 0.50, 0.42, 0.35])
    assert hacking_alarm(rows)
    proposing = [row | {"selfplay/proposals": 8.0} for row in rows]
    assert hacking_alarm(proposing[:30] + rows[30:]) is None
    assert hacking_alarm([{"step": 0.0, "eval/reward": 0.58, "eval/n": 400.0}, *proposing]) == hacking_alarm(rows)
    mixed = [new if number % 10 < 5 else old for number, (new, old) in enumerate(zip(proposing, COLLAPSE, strict=True))]
    only = [row if number % 10 >= 5 else row | {"solver/reward": None} for number, row in enumerate(COLLAPSE)]
    assert hacking_alarm(mixed)
    assert hacking_alarm(mixed) == hacking_alarm(only)


def watch(sink, said, rows, **options):
    alarmed = AlarmedMetrics(sink, said.append, **options)
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
