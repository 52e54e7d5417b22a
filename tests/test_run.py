"""Every setting reaches the object that it is for."""

import asyncio
import json
import math
import shlex
import sys
from dataclasses import dataclass

import pytest
from rich.console import Console
from tests.raising import raises
from typer.testing import CliRunner

from evoseek import Run
from evoseek.assembly.context import Context, Objects
from evoseek.assembly.sources import gather, load_settings
from evoseek.cli.main import app
from evoseek.config import trust
from evoseek.config.registry import KINDS
from evoseek.config.sections import changeable, lookup
from evoseek.errors import ConfigError, TrainingError
from evoseek.loss.base import PolicyLoss
from evoseek.loss.clipped import ClippedLoss
from evoseek.questions.questions import save_questions
from evoseek.report.status import status
from evoseek.report.view.source import RunSource
from evoseek.reward.functions import WebFormatReward
from evoseek.reward.shaping import ShapedReward
from evoseek.rollout.limits import Limits
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.runs import RunDirectory, changes
from evoseek.systems.deepresearcher import DeepResearcher
from evoseek.systems.dspo import DSPO
from evoseek.training.plan import TrainingContext
from evoseek.training.train import seconds_left, train, training_loop
from evoseek.types import Passage, Question, ToolCall
from evoseek.web.stored import Recording

OPTIONS = {
    "search.top_k": 2,
    "questions.per_step": 3,
    "rollout.group_size": 5,
    "rollout.temperature": 0.75,
    "sampler.slots": 7,
    "rollout.max_turns": 4,
    "rollout.max_tool_calls": 3,
    "rollout.max_tokens_per_turn": 6,
    "rollout.max_total_tokens": 90,
    "rollout.deadline_s": 50.0,
    "reward.name": "f1",
    "credit.scale": "none",
    "loss.clip_low": 0.15,
    "loss.clip_high": 0.35,
    "loss.aggregate": "sequence-sum",
    "learner.learning_rate": 1e-5,
    "learner.warmup_steps": 9,
    "learner.max_grad_norm": 0.4,
    "learner.token_budget": 333,
    "learner.bf16": True,
    "evaluation.every": 6,
    "evaluation.limit": 2,
    "evaluation.temperature": 0.25,
    "run.seed": 11,
    "run.steps": 8,
    "run.checkpoint_every": 3,
    "run.keep_checkpoints": 4,
    "run.max_invalid": 0.3,
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("places")
    passages = [Passage(f"{n}#0", str(n), "kiwi", f"kiwi {'kiwi ' * n}") for n in range(4)]
    LexicalIndex.build(root / "index", passages)
    save_questions(root / "q.jsonl", [Question(str(n), "kiwi", ("kiwi",)) for n in range(6)])
    questions = str(root / "q.jsonl")
    return {"search.index": str(root / "index"), "questions.path": questions, "evaluation.path": questions}


def test_every_option_differs_from_its_default():
    defaults = load_settings()
    for key, value in OPTIONS.items():
        assert lookup(defaults, key) != value


def test_every_option_reaches_its_object(places, tmp_path, monkeypatch):
    asked = []

    async def note(questions, **options):
        asked.append((len(questions), options))
        return type("Nothing", (), {"metrics": lambda self: {}})()

    monkeypatch.setattr("evoseek.training.train.held_out_scores", note)
    with training_loop(load_settings(options=places | OPTIONS), RunDirectory(tmp_path), notify=print) as loop:
        pass
    system, rollouts, update = loop.system, loop.system.rollouts, loop.system.update
    learner = update.learner
    limits = Limits(max_turns=4, max_tool_calls=3, max_tokens_per_turn=6, max_total_tokens=90, deadline_s=50.0)

    roller = rollouts.roller
    assert roller.limits == limits
    assert (system.questions_per_step, rollouts.group_size, roller.temperature, roller.seed) == (3, 5, 0.75, 11)
    assert (rollouts.reward.reward.metric, update.seed, update.mini_batches) == ("f1", 11, 1)
    assert update.credit([1.0, 0.0], ["a", "a"]) == [0.5, -0.5]  # without the std
    assert roller.sampler.max_length == 90
    assert len(roller.sampler._slots) == 7
    found = asyncio.run(roller.env.tools["search"](ToolCall("search", {"query": "kiwi"})))
    assert len(found.passages) == 2

    assert learner.loss == ClippedLoss(0.15, 0.35, "sequence-sum")
    groups = learner.optimizer.param_groups
    assert {group["lr"] for group in groups} == {1e-5}
    own = learner.settings
    assert (own.warmup_steps, own.max_grad_norm, learner.token_budget, own.bf16) == (9, 0.4, 333, True)
    assert learner.forward.temperature == 0.75

    assert (loop.steps, loop.checkpoint_every, loop.evaluate_every, loop.max_invalid) == (8, 3, 6, 0.3)
    assert loop.checkpoints.keep_last == 4
    asyncio.run(loop.evaluate(0))
    [(number, options)] = asked
    examined = options["roller"]
    assert (number, examined.temperature, examined.seed, examined.limits) == (2, 0.25, 11, limits)
    assert (options["metric"], options["reward"].metric) == ("f1", "f1")


def loop_of(places, tmp_path, system="search-r1", **options):
    options = {key.replace("__", "."): value for key, value in options.items()}
    settings, run = load_settings(system=system, options=places | options), RunDirectory(tmp_path)
    with run.locked(), training_loop(settings, run, notify=print) as loop:
        return loop


@pytest.mark.parametrize("system", ["search-r1", "dspo", "deepresearcher", "zerosearch"])
def test_rewards_are_shaped_in_training_by_every_system_with_questions(places, tmp_path, system):
    shape = {"overlong_max": 20, "evidence_weight": 0.5, "unanswered_penalty": 0.5, "wrong_penalty": 0.25}
    settings = load_settings(system=system, options={f"reward.{name}": value for name, value in shape.items()})
    with TrainingContext(settings, RunDirectory(tmp_path)) as context:
        assert context.training_reward == ShapedReward(context.reward, settings.reward)
        assert not isinstance(context.reward, ShapedReward)  # that of evaluations


def test_rewards_are_not_shaped_in_evaluation(places, tmp_path):
    shape = {"reward__overlong_max": 20, "reward__unanswered_penalty": 0.5, "reward__wrong_penalty": 0.25}
    loop = loop_of(places, tmp_path, questions__per_step=2, **shape)
    assert loop.system.rollouts.reward.settings.overlong_max == 20
    assert 0.0 <= asyncio.run(loop.evaluate(0))["eval/reward"] <= 1.0


def test_the_filter_of_dspo(places, tmp_path):
    loop = loop_of(places, tmp_path, "dspo", questions__per_step=2, dspo__limit=3)
    assert isinstance(loop.system, DSPO)
    assert loop.system.limit == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"run.system": "dspo", "credit.name": "gae"}, "a critic must see all"),
        ({"mask_observations": False, "kl_in": "reward", "kl_coefficient": 0.1}, "no logprobs of tool results"),
        ({"loss.name": "reinforce", "mini_batches": 2}, "mini_batches is 2"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(places, tmp_path, options, words):
    named = {key if "." in key else f"algorithm.{key}": value for key, value in options.items()}
    settings = load_settings(system=named.get("run.system"), options=places | named)
    refused = pytest.raises(ConfigError, match=words)
    with refused, training_loop(settings, RunDirectory(tmp_path / "run"), notify=print):
        pass
    assert not (tmp_path / "run").exists()


def test_held_out_questions_are_answered_as_in_training_by_default(places, tmp_path):
    metrics = asyncio.run(loop_of(places, tmp_path, questions__per_step=2).evaluate(0))
    assert metrics["eval/n"] == 6


def test_the_noise_of_a_step_is_the_settings(places, tmp_path):
    noise = {"noise_start": 0.2, "noise_end": 0.6}
    options = {f"zerosearch__{key}": value for key, value in noise.items()} | {"simulator__model": "tiny"}
    noise = loop_of(places, tmp_path, "zerosearch", questions__per_step=2, run__steps=10, **options).system.noise
    assert noise(5) == pytest.approx(0.2 + (4**0.5 - 1) / 3 * 0.4)
    assert [noise(0), noise(10), noise(11)] == [0.2, 0.6, 0.6]


def test_a_run_whose_noise_depends_on_its_steps_keeps_them():
    assert "run.steps" not in changeable(load_settings(system="zerosearch"), "on_resume")
    assert "run.steps" in changeable(load_settings(), "on_resume")


def test_a_resumed_run_may_reach_the_web_in_another_way_but_shows_as_much_of_it():
    may = set(changeable(load_settings(system="deepresearcher"), "on_resume"))
    assert {"run.steps", "web.url", "web.rate_per_s", "web.record", "browse.timeout_s", "browse.allow_private"} <= may
    shown = {"web.api", "web.max_per_call", "browse.only_found", "browse.page_words"}
    assert not may & (shown | {"reader.model", "search.top_k", "rollout.final_answer"})


@pytest.mark.parametrize("system", KINDS["system"].parts)
def test_who_is_asked_may_change_and_is_no_matter_for_a_run_from_before_there_was_a_choice(system):
    settings = load_settings(system=system, sets=["answerer.base_url=http://x/v1"])
    before = {name: table for name, table in settings.resolved().items() if name not in ("answerer", "trackers")}
    assert changes(before, settings.resolved(), changeable(settings, "on_resume")) == ""


def web_settings(tmp_path, **options):
    Recording(tmp_path / "record", {}).close()
    save_questions(tmp_path / "q.jsonl", [Question(str(n), "kiwi", ("kiwi",)) for n in range(4)])
    path = str(tmp_path / "q.jsonl")
    own = {"questions.path": path, "questions.per_step": 2, "evaluation.path": path}
    replayed = {"web.provider": "replay", "web.record": str(tmp_path / "record")}
    return load_settings(system="deepresearcher", options=own | replayed | options)


def test_a_training_run_on_the_web_is_deepresearchers(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with run.locked(), training_loop(web_settings(tmp_path), run, notify=print) as loop:
        assert isinstance(loop.system, DeepResearcher)
        rollouts, roller = loop.system.rollouts, loop.system.rollouts.roller
        assert isinstance(rollouts.reward.reward, WebFormatReward)
        assert (roller.limits.max_tool_calls, roller.limits.max_turns, rollouts.group_size) == (10, 12, 16)
        assert roller.sampler.lockstep
        assert asyncio.run(loop.evaluate(0))["eval/n"] == 4  # on the same web: there is no index


def test_the_tools_of_the_web_have_the_web_and_the_settings(tmp_path):
    options = {"search.top_k": 6, "web.max_per_call": 2, "browse.only_found": False}
    with Context(web_settings(tmp_path, **options)) as context:
        solver, web = context.solver(None), context.web
        assert list(solver.env.tools) == ["web_search", "browse"]
        search, browse = solver.env.tools.values()
        assert (search.engine, search.k, search.max_queries) == (web.engine, 6, 2)
        assert (browse.fetcher, browse.reader) == (web.fetcher, web.reader)
        assert (browse.max_urls, browse.only_found) == (2, False)
        assert search.rollouts is browse.rollouts
        assert "</browse>" in solver.renderer.stop.strings
        assert context.agent.limits.final_answer == context.agent.prompts["final_answer"].text()
    with Context(web_settings(tmp_path, **{"rollout.final_answer": False})) as context:
        assert context.agent.limits.final_answer is None


def test_a_run_that_was_shortened_says_how_to_train_on(places, tmp_path):
    run, small = RunDirectory(tmp_path / "run"), {"questions.per_step": 1, "rollout.group_size": 2}
    del (own := dict(places))["evaluation.path"]
    for options, expected in (({"run.steps": 1}, True), ({"run.steps": 2, "run.max_minutes": 1e-9}, False)):
        console = Console(record=True, width=1000)
        with run.locked():
            train(load_settings(options=own | small | options), run, console=console)
        command = f"run.steps is 1. To train further: evoseek train --run-dir {run.path} --steps 120"
        assert (command in console.export_text()) == expected
    assert "stopped: run.max_minutes = 1e-09; raise it" in status(run.path)[0][1]


OWN = """
from evoseek.types import ToolResult

def reward(trajectory):
    return 0.5

class Rows:
    name, schema = "search", {"type": "function", "function": {"name": "search"}}

    @classmethod
    def build(cls, settings, context):
        return cls()

    def for_question(self, question, trajectory_id):
        return self

    async def __call__(self, call):
        return ToolResult(call, "42 rows were found")
"""


def test_what_a_run_with_parts_of_ones_own_prints_works_as_printed(places, tmp_path, monkeypatch):
    """The command that trains further, in a process of its own, whose user has named no code yet; and its tool, which
    has the name of a search and gives text alone, is trained with."""
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    run, console = RunDirectory(tmp_path / "run"), Console(record=True, width=1000)
    del (options := dict(places))["evaluation.path"]
    options |= {"questions.per_step": 1, "rollout.group_size": 2, "run.steps": 1, "reward.name": "own_parts:reward"}
    settings = load_settings(options=options | {"tools": [{"name": "own_parts:Rows"}]})
    with run.locked():
        train(settings, run, console=console)
    (line,) = (line for line in console.export_text().splitlines() if "To train further: " in line)
    words = shlex.split(line.partition("To train further: evoseek ")[2])
    monkeypatch.setattr(trust, "_named", set())
    with pytest.raises(ConfigError, match="names code to run"):
        gather(run.config)
    words[words.index("--steps") + 1] = "2"
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert run.saved_steps[-1] == 2


CREDITS = """
class Raw:
    def __call__(self, rewards, groups):
        return rewards

class Relative(Raw):
    is_relative = True
"""


@pytest.mark.parametrize(
    ("name", "warned"), [("group", True), ("raw", False), ("own_credits:Relative", True), ("own_credits:Raw", False)]
)
def test_training_status_and_viewer_agree_whether_equal_rewards_are_a_signal(
    places, tmp_path, monkeypatch, name, warned
):
    (tmp_path / "own_credits.py").write_text(CREDITS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_credits", raising=False)
    settings = load_settings(options=places | {"questions.per_step": 2, "credit.name": name})
    run, notes = RunDirectory(tmp_path / "run"), []
    with run.locked(), training_loop(settings, run, notify=notes.append) as loop:
        for step in (1, 2, 3):
            loop.metrics.write(step, {"reward": 0.5, "frac_reward_zero_std": 1.0, "rollout/stop/answered": 1.0})
    shown = [text for _, text in RunSource.open(run.path).warnings]
    for texts in (notes, [text for _, text in status(run.path)], shown):
        assert any("rollouts of every group had the same reward" in text for text in texts) == warned


def test_an_error_is_recorded_as_the_reason_of_the_stop_and_a_mistake_leaves_no_trace(places, tmp_path):
    def spoil(*_):
        raise TrainingError("The weights are gone. Restore them.")

    run = RunDirectory(tmp_path / "run")
    settings = load_settings(options=places | {"questions.per_step": 1, "rollout.group_size": 2})
    objects = Objects(reward=spoil)
    with raises("disk.failed"), run.locked():
        train(settings, RunDirectory(tmp_path / "nowhere"), console=Console(quiet=True), objects=Objects(reward=3))
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(Exception, match="weights are gone"), run.locked():
        train(settings, run, console=Console(quiet=True), objects=objects)
    assert "The weights are gone. Restore them." in run.stopped.read_text()
    assert "The weights are gone" in status(run.path)[0][1]


def test_the_time_limit_counts_the_steps_before_a_resume(tmp_path):
    run = RunDirectory(tmp_path)
    run.timings.write_text("".join(json.dumps({"step": n, "step/seconds": 10.0 + n}) + "\n" for n in (1, 2)))
    assert seconds_left(load_settings(options={"run.max_minutes": 0.5}), run) == pytest.approx(30 - 23)
    assert seconds_left(load_settings(), run) == math.inf


def test_an_evaluation_without_questions_or_at_a_temperature_that_is_not_used_is_refused(places):
    with pytest.raises(ConfigError, match="no questions to evaluate on"):
        Run(settings=places).evaluate([])
    asked = places | {"answerer.model": "m", "answerer.base_url": "http://127.0.0.1:9/v1"}
    with pytest.raises(ConfigError, match=r"temperature is 0\.5, .* answerer\.temperature"):
        Run(settings=asked).evaluate(temperature=0.5)


@dataclass(frozen=True)
class Bare(PolicyLoss):
    """A loss that returns a tensor alone."""

    def __call__(self, inputs, totals):
        return -inputs.logprobs.sum()


def test_a_loss_that_returns_something_else_is_refused_before_the_first_step(places, tmp_path):
    settings, run = load_settings(options=places | {"questions.per_step": 2}), RunDirectory(tmp_path / "run")
    refused = pytest.raises(ConfigError, match="The loss Bare gave an object of the type Tensor, not Loss")
    with refused, training_loop(settings, run, notify=print, objects=Objects(loss=Bare())):
        pass
