"""Stages: their conditions, what they may change, and where a run is in them. Rows are made by hand."""

import asyncio
import json
import math

import pytest

from evoseek.assembly.sources import load_settings
from evoseek.config.sections import check_settings
from evoseek.errors import ConfigError
from evoseek.loss.clipped import SequenceLoss
from evoseek.questions.questions import save_questions
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.runs import RunDirectory
from evoseek.training.loop import TrainingLoop
from evoseek.training.rollout_metrics import StepReport
from evoseek.training.stages import Condition, Stages, check_stages, parse_condition, settings_in
from evoseek.training.train import training_loop
from evoseek.types import Invalid, Passage, Question, StopReason

TWO = {"name": "two", "until": "reward/hops_2 > 0.25", "over": 2, "steps": 5}
LAST = {"name": "last"}


def settings(*stages, system="search-r1", **options):
    given = {key.replace("__", "."): value for key, value in options.items()}
    return load_settings(system=system, options={"stages": list(stages)} | given)


def stages(*given, position=None):
    return Stages.of(settings(*(given or (TWO, LAST))), position)


def passed(watched, *values, first=1):
    """Why the stage ended after each of these steps."""
    why = []
    for step, value in enumerate(values, first):
        watched.observe(step, {"step": step} | ({} if value is None else {"reward/hops_2": value}))
        why.append(watched.ended(step))
    return why


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("reward/hops_2 > 0.3", Condition("reward/hops_2", ">", 0.3)),
        (" eval/reward  >=  -1e-3 ", Condition("eval/reward", ">=", -0.001)),
        ("kl < .5", Condition("kl", "<", 0.5)),
        ("kl <= 5", Condition("kl", "<=", 5.0)),
    ],
)
def test_a_condition_is_a_metric_a_comparison_and_a_number(text, meant):
    assert parse_condition(text) == meant


@pytest.mark.parametrize(
    "text", ["reward", "reward > ", "reward>0.3", "reward == 1", "a > b", "a > 1 and b > 2", "1 < a"]
)
def test_anything_else_is_no_condition(text):
    with pytest.raises(ConfigError, match=r'Expected a metric, one of > >= < <=, .* "reward/hops_2 > 0.3"'):
        parse_condition(text)


def test_a_stage_ends_when_the_mean_of_so_many_steps_fulfils_the_condition():
    """(.5 + .0) / 2 is not above .25, (.0 + .75) / 2 is; a step without the metric does not count."""
    assert passed(stages(), 0.5, 0.0, None, 0.75) == [
        None,
        None,
        None,
        "the mean of reward/hops_2 over 2 steps was 0.375 (until reward/hops_2 > 0.25)",
    ]
    assert passed(stages(), 0.5, math.nan, 0.5)[1:] == [None, passed(stages(), 0.5, 0.5)[1]]


def test_or_after_its_steps_and_the_last_one_never():
    assert passed(stages(), *[0.0] * 5)[3:] == [None, "two has made its 5 steps"]
    watched = stages()
    watched.begin_next(6, "why")
    assert passed(watched, *[1.0] * 9, first=6) == [None] * 9


def test_the_history_is_kept_as_json_and_only_the_rows_of_the_current_stage_count():
    watched = stages(TWO, {"name": "middle", "until": "reward/hops_2 > 0.25", "over": 2}, LAST)
    passed(watched, 0.5, 0.5)
    watched.begin_next(3, "it was so")
    assert passed(watched, 1.0, first=3) == [None]
    position = json.loads(json.dumps({"stages": watched.state()}))
    again = stages(TWO, {"name": "middle", "until": "reward/hops_2 > 0.25", "over": 2}, LAST, position=position)
    again.restore_rows([{"step": step, "reward/hops_2": 0.5} for step in (0, 1, 2, 3)])
    assert (again.current.name, len(again.rows)) == ("middle", 1)
    assert again.history == watched.history
    assert passed(again, 0.25, first=4) != [None]
    assert watched.describe(2) == "Stage 2 of 3 (middle) begins with step 3: it was so."
    assert watched.describe(3) == "Stage 2 of 3 (middle) continues after step 3; it began with step 3: it was so."


def test_an_evaluation_before_the_first_step_belongs_to_no_stage():
    watched = stages({"name": "two", "until": "eval/reward > 0", "over": 1}, LAST)
    watched.observe(0, {"eval/reward": 1.0})
    assert watched.ended(0) is None


def test_a_stage_asks_what_it_says_whatever_the_run_asks():
    """A table of the run's is replaced, not filled up: other questions would be asked."""
    own = {"questions": {"where": {}, "balance_by": "hops", "shares": {"3": 1}}}
    asked = {"questions__where": {"kind": "a"}, "questions__balance_by": "hops", "questions__shares": {"1": 1, "2": 2}}
    run = settings(TWO | own, LAST, **asked)
    staged, last = (settings_in(run, stage).questions for stage in run.stages)
    assert (staged.where, staged.shares) == ({}, {"3": 1})
    assert (last.where, last.shares) == ({"kind": "a"}, {"1": 1, "2": 2})


def test_a_metric_that_no_step_reports_is_told_with_the_nearest_name():
    watched = stages({"name": "two", "until": "reward/hop_2 > 0", "over": 2}, LAST)
    passed(watched, 0.5)
    assert watched.warning() is None
    passed(watched, 0.5, first=2)
    assert "no step has reported reward/hop_2 so far. Did you mean reward/hops_2?" in watched.warning()
    passed(watched, 0.5, first=3)
    assert watched.warning() is None


def test_a_stage_has_the_settings_of_the_run_with_its_own_over_them():
    own = {
        "questions": {"where": {"hops": 2}, "per_step": 3},
        "learner": {"learning_rate": 1e-5},
        "loss": {"name": "sequence", "clip_low": 0.01},
        "rollout": {"temperature": 0.5},
    }
    run = settings(TWO | own, LAST, evaluation__path="q.jsonl", rollout__group_size=4, loss__clip_high=0.9)
    staged, last = (settings_in(run, stage) for stage in run.stages)
    assert (staged.questions.where, staged.questions.per_step) == ({"hops": 2}, 3)
    assert (staged.learner.learning_rate, staged.rollout.temperature, staged.rollout.group_size) == (1e-5, 0.5, 4)
    assert (staged.loss.name, staged.loss.clip_low) == ("sequence", 0.01)
    assert staged.held_out_temperature == run.held_out_temperature == 1.0
    assert last.model_copy(update={"stages": run.stages}).resolved() == run.resolved() | {
        "evaluation": run.evaluation.resolved() | {"temperature": 1.0}
    }
    assert staged.stages == ()


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ({"policy": {"model": "x"}}, r"stage a sets policy.model, which cannot change .* rollout.temperature"),
        ({"learner": {"warmup_steps": 3}}, "sets learner.warmup_steps, which cannot change"),
        ({"lerner": {"learning_rate": 1}}, "unknown setting lerner"),
        ({"untill": "reward > 0"}, "unknown setting untill"),
        ({"credit": "gae"}, "gae trains a critic, which cannot begin or end during a run"),
        ({"algorithm": {"mini_batches": 2}, "loss": "reinforce"}, "Set it to 1, or loss.name to clipped"),
        ({"questions": {"shares": {"1": 1}}}, "it needs questions.balance_by"),
    ],
)
def test_what_a_stage_cannot_change_is_refused(stage, words):
    run = settings({"name": "a", **stage})
    with pytest.raises(ConfigError, match=words):
        settings_in(run, run.stages[0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([LAST, LAST | {"name": "b"}], "The stage last has no end, but another one follows"),
        ([TWO], "The stage two is the last one and lasts as long as the run"),
        ([TWO, LAST | {"name": "two"}], "Two stages have the name two"),
        ([{"name": "a", "steps": 2, "over": 2}, LAST], "a has over = 2, but no until"),
        ([TWO | {"steps": 1}, LAST], "two ends after 1 steps, before the mean over 2"),
    ],
)
def test_every_stage_but_the_last_has_an_end(given, words):
    with pytest.raises(ConfigError, match=words):
        check_settings(settings(*given))


def test_what_a_run_saved_is_accepted_when_it_is_resumed(tmp_path):
    saved = tmp_path / "config.json"
    saved.write_text(json.dumps(settings(TWO, LAST).resolved()))
    check_settings(load_settings(saved))


@pytest.mark.parametrize("system", ["dr-zero", "ssp"])
def test_self_play_has_no_stages(system):
    with pytest.raises(ConfigError, match=r"unknown setting stages \(it is for search-r1 or dspo or zero"):
        settings(LAST, system=system)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("places")
    LexicalIndex.build(root / "index", [Passage("0#0", "0", "kiwi", "kiwi")])
    hops = [Question(str(n), "kiwi", ("kiwi",), {"hops": 1 + n // 4}) for n in range(6)]
    save_questions(root / "q.jsonl", hops)
    return {"search__index": str(root / "index"), "questions__path": str(root / "q.jsonl"), "questions__per_step": 2}


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ({"questions": {"where": {"hops": 3}}}, "In the stage a: .*none of the 6 questions.*hops: 1, 2"),
        ({"questions": {"where": {"hops": 2}, "per_step": 3}}, "In the stage a: A step draws 3 .* only 2"),
        ({"until": "eval/reward > 0"}, "nothing is evaluated. Set evaluation.path"),
        ({"until": "reward"}, "Expected a metric"),
        ({"until": "step > 3"}, "step is not a metric. Set the stage's steps"),
    ],
)
def test_stages_are_checked_before_the_run_begins(places, stage, words):
    with pytest.raises(ConfigError, match=words):
        check_stages(settings({"name": "a", **stage}, LAST, **places))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"stages": [{"name": "a", "steps": 1, "questions": {"where": {"hop": 1}}}, LAST]},
            "In the stage a: .* hop, but",
        ),
        (
            {"stages": [{"name": "a", "steps": 1, "questions": {"balance_by": "topic"}}, LAST]},
            "names topic, but .* have",
        ),
        ({"questions": {"where": {"hop": 1}}}, "^questions.where .* answerable, form, hops, kind. Did you mean hops?"),
    ],
)
def test_fields_that_no_question_of_a_cold_start_has_are_told_before_it_is_made(given, words):
    cold = {"cold_start.questions": 100}
    check_stages(load_settings(options=cold | {"questions": {"where": {"hops": 1, "answerable": True}}}))
    with pytest.raises(ConfigError, match=words):
        check_stages(load_settings(options=cold | given))


def test_a_stage_reaches_every_object(places, tmp_path):
    own = {"questions": {"where": {"hops": 2}}, "loss": "sequence", "learner": {"learning_rate": 1e-6}}
    with training_loop(settings(TWO | own, LAST, **places), RunDirectory(tmp_path), notify=print) as loop:
        system = loop.system
        assert [question.id for question in system.questions] == ["4", "5"]
        assert isinstance(system.update.learner.loss, SequenceLoss)
        assert system.update.learner.base_rates[0] == 1e-6
        assert loop.stages.describe(loop.start) == "Stage 1 of 2 (two) begins with step 1: the run began."
    saved = json.loads((tmp_path / "config.json").read_text())
    assert (saved["loss"]["name"], saved["stages"][0]["loss"]) == ("clipped", "sequence")


class Recorder:
    """A system, checkpoints and sinks in one; its metric is the step's number. Steps in `failing` are Invalid."""

    def __init__(self, *failing):
        self.saved, self.seen, self.failing = [], [], failing

    async def step(self, step):
        failures = (Invalid(StopReason.TOOL_FAILED, "down"),) * (10 if step in self.failing else 0)
        return StepReport({"reward": float(step)}, {}, failures, 10)

    def save(self, step):
        self.saved.append(step)

    def write(self, step, metrics):
        self.seen.append((step, metrics.get("stage")))


@pytest.mark.parametrize(("failing", "end"), [((), 3), ((3,), 4)])
def test_the_loop_ends_with_a_stage_after_a_checkpoint_and_not_with_a_step_that_failed(failing, end):
    recorder, shown = Recorder(*failing), []
    watched = stages({"name": "up", "until": "reward >= 3", "over": 1}, LAST)
    loop = TrainingLoop(
        recorder, recorder, recorder, Recorder(), start=0, steps=9, checkpoint_every=100, stages=watched
    )
    loop.progress = lambda progress: shown.append(progress.stage)
    assert asyncio.run(loop.run()) == end
    assert loop.has_turned
    assert recorder.saved == [end]
    assert recorder.seen == [(step, 1.0) for step in range(1, end + 1)]
    assert shown == ["up"] * end
    assert (watched.history[-1].name, watched.history[-1].step) == ("last", end + 1)
