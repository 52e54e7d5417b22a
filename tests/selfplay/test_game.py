"""Every setting of self-play reaches the object that it is for."""

import asyncio
import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.assembly.context import Objects
from evoseek.assembly.inputs import ReviewedQuestions
from evoseek.assembly.sources import load_settings
from evoseek.config.sections import lookup
from evoseek.errors import ConfigError, DataError, SearchIndexError
from evoseek.loss.base import PolicyLoss
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.likelihood import ReinforceLoss
from evoseek.loss.terms import WithTerms
from evoseek.questions.questions import save_questions
from evoseek.renderers.encoding import plain
from evoseek.rollout.environments import AnswerProposerEnv, PassageProposerEnv
from evoseek.rollout.limits import Limits
from evoseek.search.lexical import LexicalIndex, open_index
from evoseek.selfplay.filters import RuleFilter, seen_passages, supporting_passages
from evoseek.selfplay.game import Game
from evoseek.selfplay.tasks import answer_tasks, sample_passages
from evoseek.storage.checkpoints import latest_checkpoint
from evoseek.storage.runs import RunDirectory
from evoseek.systems.dr_zero import DrZero
from evoseek.training.plan import TrainingContext
from evoseek.training.train import training_loop
from evoseek.types import (
    Invalid,
    Passage,
    ProposerTask,
    Question,
    Scored,
    Segment,
    StopReason,
    ToolCall,
    Trajectory,
    TrajectoryGroup,
)
from evoseek.world.world import World, save_world_card

OPTIONS = {
    "policy.model": "tiny-weak",
    "search.top_k": 2,
    "search.attempts": 3,
    "rollout.temperature": 0.75,
    "sampler.slots": 7,
    "rollout.max_turns": 4,
    "rollout.max_tool_calls": 3,
    "rollout.max_tokens_per_turn": 60,
    "rollout.max_total_tokens": 400,
    "rollout.deadline_s": 50.0,
    "reward.name": "f1",
    "credit.scale": "none",
    "loss.clip_low": 0.15,
    "loss.clip_high": 0.35,
    "learner.learning_rate": 1e-5,
    "learner.warmup_steps": 9,
    "learner.max_grad_norm": 0.4,
    "proposer.ratio": [1.0, 0.0, 2.0],
    "proposer.attempts": 6,
    "proposer.max_turns": 5,
    "proposer.max_tokens_per_turn": 50,
    "proposer.difficulty": "parabolic",
    "proposer.format_weight": 0.25,
    "proposer.rejected_reward": -0.5,
    "proposer.per_task": 2,
    "proposer.credit.singleton": "drop",
    "proposer.credit.scale": "none",
    "proposer.loss.aggregate": "sequence-sum",
    "filters.rules": "full",
    "filters.min_words": 5,
    "filters.min_searches": 1,
    "filters.near_duplicates": 0.75,
    "verification.readings": 3,
    "verification.passages": "supporting",
    "verification.noise_passages": 7,
    "verification.noise": "trajectories",
    "verification.closed_book": True,
    "selfplay.proposals_per_step": 9,
    "selfplay.label": "majority",
    "reward.evidence_weight": 0.125,
    "evaluation.limit": 2,
    "evaluation.every": 2,
    "evaluation.temperature": 0.25,
    "run.seed": 11,
    "run.steps": 8,
    "run.checkpoint_every": 3,
    "run.keep_checkpoints": 4,
    "run.max_invalid": 0.3,
    "run.pause_s": 3.0,
}
DR_ZERO = {
    "questions.per_step": 4,
    "rollout.group_size": 3,
    "proposer.temperature": 0.5,
    "proposer.show_source": False,
    "dr_zero.iterations": 2,
    "dr_zero.proposer_steps": 3,
    "dr_zero.writing_steps": 1,
    "dr_zero.solver_steps": 4,
    "dr_zero.passages_per_writing_step": 5,
    "dr_zero.questions_per_passage": 3,
    "dr_zero.writing_temperature": 0.25,
}
SSP = {
    "proposer.temperature": 0.75,
    "proposer.credit.name": "group",
    "algorithm.mini_batches": 2,
    "ssp.train": "solver",
    "ssp.fill": "resample",
}
TESTS = ReviewedQuestions(frozenset(["is it kalo"]))
LIMITS = {"max_tool_calls": 3, "max_total_tokens": 400, "deadline_s": 50.0}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("places")
    world = World.generate(3, 200, "train")
    LexicalIndex.build(root / "index", world.passages())
    save_world_card(root / "world.json", world)
    save_questions(root / "q.jsonl", [Question(str(n), "kalo", ("kalo",)) for n in range(4)])
    save_questions(root / "reviewed.jsonl", [Question("r", "Is it the Kalo?", ("kalo",))])
    return {
        "search.index": str(root / "index"),
        "evaluation.path": str(root / "q.jsonl"),
        "evaluation.reviewed": str(root / "reviewed.jsonl"),
        "selfplay.world": str(root / "world.json"),
    }


def loop_of(system, directory, options, *, notify=[].append, **more):
    run, settings = RunDirectory(directory), load_settings(system=system, options=options)
    with run.locked(), training_loop(settings, run, notify=notify, objects=Objects(**more)) as loop:
        return loop


@pytest.fixture
def dr_zero(places, tmp_path):
    return loop_of("dr-zero", tmp_path / "run", places | OPTIONS | DR_ZERO)


@pytest.fixture
def ssp(places, tmp_path):
    return loop_of("ssp", tmp_path / "run", places | OPTIONS | SSP)


@pytest.mark.parametrize(("system", "own"), [("dr-zero", DR_ZERO), ("ssp", SSP)])
def test_every_option_differs_from_its_default(system, own):
    defaults = load_settings(system=system)
    same_in_ssp = {"verification.passages", "filters.min_searches"}
    same_in_ssp |= {"proposer.loss.aggregate"}
    for key, value in (OPTIONS | own).items():
        if system == "dr-zero" or key not in same_in_ssp:
            assert lookup(defaults, key) != value, key


def check_play(play, system):
    """What both systems have in common."""
    assert (play.attempts, play.metric, play.near_duplicates, play.label is None) == (6, "f1", 0.75, False)
    assert play.rules == RuleFilter(5, min_searches=1, rules="full", reserved=TESTS)
    assert play.evidence is supporting_passages
    assert play.reward.settings.evidence_weight == 0.125
    assert play.solver.limits == Limits(max_turns=4, max_tokens_per_turn=60, **LIMITS)
    assert play.proposer.limits == Limits(max_turns=5, max_tokens_per_turn=50, **LIMITS)
    assert (play.solver.temperature, play.solver.seed, play.proposer.seed) == (0.75, 11, 11)
    assert play.proposer.temperature == (0.75 if system == "ssp" else 0.5)
    found = asyncio.run(play.proposer.env.tools["search"](ToolCall("search", {"query": "mayor"})))
    assert len(found.passages) == 2
    check_proposer_reward(play.proposer_reward)
    check_verifier(play.verifier)


def check_proposer_reward(proposer_reward):
    task = Question("t", "text", (), task=ProposerTask(1, Passage("p", "p", "", "text")))
    proposal = Trajectory("p", task, "proposer", (), (), (), StopReason.ANSWERED)
    solvers = TrajectoryGroup("k", (), tuple(Scored(f1, {"f1": f1}) for f1 in (0.7, 0.6)))
    assert proposer_reward(proposal, rejected="too_short") == Scored(-0.5, {"rejected/too_short": 1.0})
    outcome = proposer_reward(proposal, solvers=solvers)
    assert outcome.parts["difficulty"] == 1.0  # parabolic: the first of the two is right
    assert "format" in outcome.parts
    once = ((proposal, Invalid(StopReason.TOOL_FAILED)),)
    assert isinstance(proposer_reward(proposal, solvers=replace(solvers, replaced=once)), Invalid)  # one of three


def check_verifier(verifier):
    assert (verifier.readings, verifier.noise_passages, verifier.closed_book) == (3, 7, True)
    assert (verifier.seed, verifier.correct.metric) == (11, "f1")
    assert (verifier.exact, verifier.noise) == (True, "trajectories")
    reader = verifier.reader([Passage("a#0", "a", "kalo", "kalo 's mayor is meri .")])
    assert reader.limits == Limits(max_turns=1, max_tokens_per_turn=60, **LIMITS)
    assert (reader.temperature, reader.env.role, dict(reader.env.tools)) == (0.0, "reader", {})


def check_loop(loop, steps):
    assert (loop.start, loop.steps, loop.checkpoint_every, loop.max_invalid, loop.pause_s) == (0, steps, 3, 0.3, 3.0)
    assert loop.checkpoints.keep_last == 4


def check_learner(learner, rate, temperature):
    assert {group["lr"] for group in learner.optimizer.param_groups} == {rate}
    assert (learner.settings.warmup_steps, learner.settings.max_grad_norm) == (9, 0.4)
    assert learner.forward.temperature == temperature


def test_every_option_reaches_its_object_in_dr_zero(dr_zero):
    system = dr_zero.system
    check_play(system.play, "dr-zero")
    own = system.phases
    assert (own.iterations, own.proposer_steps, own.writing_steps, own.solver_steps) == (2, 3, 1, 4)
    check_loop(dr_zero, 8)  # run.steps; the phases would be 16
    assert isinstance(system.play.proposer.env, PassageProposerEnv)
    assert system.writing.proposer.temperature == 0.25
    assert (system.proposals_per_step, own.passages_per_writing_step, system.group_by) == (9, 5, "task")
    assert (system.tasks.copies, system.written_tasks.copies) == (2, 3)
    assert tuple(system.tasks.ratio) == (1.0, 0.0, 2.0)
    assert system.questions.reserved == TESTS
    assert system.tasks.seed != system.written_tasks.seed
    assert system.tasks.pool is system.written_tasks.pool
    assert system.oracle is not None

    update = system.proposer_update
    check_learner(update.learner, 1e-5, 0.5)
    assert update.learner.loss == WithTerms(ReinforceLoss("sequence-sum"))
    assert update.credit([1.0, 0.0, 5.0], ["a", "a", "b"]) == [0.5, -0.5, None]
    solving = system.solving
    rollouts = solving.rollouts
    assert (solving.questions_per_step, rollouts.group_size, rollouts.roller.temperature) == (4, 3, 0.75)
    assert solving.rollouts.reward == system.play.reward
    check_learner(solving.update.learner, 1e-5, 0.75)
    assert solving.update.learner.loss == ClippedLoss(0.15, 0.35)
    assert system.restart_solver.__self__ is solving.update.learner
    assert system.restart_proposer is None
    assert dr_zero.checkpoints.parts.keys() == {"policy", "proposer"}
    assert solving.update.learner.model is not update.learner.model
    assert system.play.solver.sampler is solving.rollouts.roller.sampler
    assert system.play.solver.sampler is not system.play.proposer.sampler
    assert system.play.verifier.reader([]).sampler is system.play.solver.sampler
    probed = [(roller.sampler, roller.temperature) for roller, _ in dr_zero.probe.policies]
    assert probed == [(system.play.solver.sampler, 0.75), (system.play.proposer.sampler, 0.5)]


def test_every_option_reaches_its_object_in_ssp(ssp):
    system = ssp.system
    check_play(system.play, "ssp")
    check_loop(ssp, 8)
    assert isinstance(system.play.proposer.env, AnswerProposerEnv)
    assert (system.proposals_per_step, system.seed) == (9, 11)
    assert system.questions.reserved == TESTS
    assert (system.trained, system.fill, system.resample_limit) == (("solver",), "resample", 4)
    assert (system.tasks.copies, tuple(system.tasks.ratio)) == (2, (1.0, 0.0, 2.0))
    assert system.oracle is not None
    update = system.update
    assert (update.mini_batches, update.seed) == (2, 11)
    check_learner(update.learner, 1e-5, 0.75)
    assert update.roles["proposer"].loss == WithTerms(ReinforceLoss("sequence-sum"))
    assert update.roles["solver"].loss is None  # the learner's
    assert update.learner.loss == ClippedLoss(0.15, 0.35)
    proposing, solving = (update.roles[name] for name in ("proposer", "solver"))
    assert proposing.credit([1.0, 0.0, 5.0], ["a", "a", "b"]) == [0.5, -0.5, None]
    assert solving.credit([1.0, 0.0, 5.0], ["a", "a", "b"]) == [0.5, -0.5, 0.0]
    assert proposing.learner is solving.learner is update.learner
    assert system.play.solver.sampler is system.play.proposer.sampler
    assert ssp.checkpoints.parts.keys() == {"policy"}
    assert [roller.sampler for roller, _ in ssp.probe.policies] == [system.play.solver.sampler]


def test_what_is_left_out_for_the_test_set_is_told_where_there_is_one(places, tmp_path):
    for name, reviewed in (("with", places["evaluation.reviewed"]), ("without", "")):
        said = []
        options = {"search.index": places["search.index"], "evaluation.reviewed": reviewed}
        loop_of("ssp", tmp_path / name, options, notify=said.append)
        told = [text for text in said if "the test set" in text]
        assert told == ([f"1 questions of {reviewed}, the test set, are left out."] if reviewed else [])


def test_the_kl_to_the_reference_is_the_solvers_alone(places, tmp_path):
    settings = {"search.index": places["search.index"], "algorithm.kl_coefficient": 0.5, "algorithm.kl_in": "reward"}
    roles = loop_of("ssp", tmp_path / "run", settings).system.update.roles
    proposing, solving = (roles[name] for name in ("proposer", "solver"))
    assert (proposing.kl_coefficient, proposing.transforms) == (0.0, [])
    assert solving.kl_coefficient == 0.5
    assert solving.transforms


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("system", ["ssp", "dr-zero"])
def test_both_roles_learn_tool_results_where_that_is_asked_for(places, tmp_path, system, masked):
    """The sampler knows no logprobs of them: the learner's own take their place."""
    settings = {"search.index": places["search.index"], "algorithm.mask_observations": masked}
    found = loop_of(system, tmp_path / "run", settings).system
    roles = found.update.roles.values() if system == "ssp" else (found.proposer_update, found.solving.update)
    assert [(role.mask_observations, len(role.transforms)) for role in roles] == [(masked, int(not masked))] * 2


class Recorded:
    """A loss of which it is recorded how far each call's logprobs are from the old ones at most."""

    def __init__(self, loss):
        self.loss, self.distances = loss, []

    def contributes(self, sample):
        return self.loss.contributes(sample)

    def __call__(self, inputs, totals):
        self.distances.append((inputs.logprobs - inputs.old_logprobs)[inputs.loss_mask].abs().max().item())
        return self.loss(inputs, totals)


class Bare(PolicyLoss):
    """A loss that forgets to put its value into a Loss."""

    @classmethod
    def build(cls, settings, context):
        return cls()

    def __call__(self, inputs, totals):
        return inputs.logprobs.sum()


@pytest.mark.parametrize("system", ["ssp", "dr-zero"])
def test_a_loss_of_the_proposers_own_is_checked_before_the_first_step(places, tmp_path, system):
    options = {"search.index": places["search.index"], "proposer.loss.name": f"{__name__}:Bare"}
    with pytest.raises(ConfigError, match="The loss Bare gave an object of the type Tensor, not Loss"):
        loop_of(system, tmp_path / "run", options)


def proposals(count):
    """Groups of two proposals, with logprobs that say that a sampler drew their tokens with all but certainty."""

    def proposal(id, token):
        segments = Segment("prompt", (5, 6)), Segment("action", (token, 8, 9), (-0.01,) * 3)
        return Trajectory(id, Question("q", "?", ()), "proposer", segments, (), (), StopReason.ANSWERED)

    for number in range(count):
        members = proposal(f"a{number}", 7 + number), proposal(f"b{number}", 20 + number)
        yield TrajectoryGroup(f"g{number}", members, (Scored(1.0), Scored(-1.0)))


def test_the_mini_batches_of_ssps_proposer_take_their_ratio_to_the_policy_before_the_step(places, tmp_path):
    """Also where the learner computes differently from the sampler: 0 in the first one, then the policy moves."""
    own = {"learner.bf16": True, "learner.learning_rate": 0.01, "algorithm.mini_batches": 4}
    options = {"search.index": places["search.index"], "proposer.loss.name": "clipped", **own}
    update = loop_of("ssp", tmp_path / "run", options).system.update
    role = update.roles["proposer"]
    loss = Recorded(role.loss)
    replace(update, roles={"proposer": replace(role, loss=loss)})(1, {"proposer": list(proposals(4))})
    first, *later = loss.distances
    assert first < 1e-3 < min(later)


@pytest.mark.parametrize("one_policy", [False, True])
def test_the_single_step_of_dr_zeros_proposer_takes_its_ratio_to_its_own_logprobs_in_bf16(places, tmp_path, one_policy):
    options = {"search.index": places["search.index"], "learner.bf16": True, "dr_zero.one_policy": one_policy}
    update = loop_of("dr-zero", tmp_path / "run", options).system.proposer_update
    (batch,) = update.batches(1, list(proposals(2)))
    assert {sample.old_logprobs for sample in batch} == {None}


@pytest.mark.parametrize("system", ["ssp", "dr-zero", "dr-zero with one policy"])
def test_importance_weights_are_on_the_losses_of_both_roles(places, tmp_path, system):
    """The learner's logprobs are far below what the sampler says: the weight of each token is near 0, not 1."""
    options = {"search.index": places["search.index"], "algorithm.importance": "mask"}
    if "one" in system:
        options["dr_zero.one_policy"] = True
    found = loop_of(system.split()[0], tmp_path / "run", options).system
    groups = list(proposals(2))
    if system == "ssp":
        roles = found.update.roles
        proposing, losses = roles["proposer"], [roles["proposer"].loss, found.update.learner.loss]
        metrics = found.update(1, {"proposer": groups})
    else:
        proposing = found.proposer_update
        losses = [proposing.loss, found.solving.update.learner.loss]
        metrics = {f"proposer/{name}": value for name, value in proposing(1, groups).items()}
    assert [loss.importance for loss in losses] == ["mask", "mask"]
    (batch,) = proposing.batches(1, groups)
    assert batch[0].old_logprobs is None  # the pass's own
    assert batch[0].rollout_logprobs[2] == -0.01
    assert metrics["proposer/sampling/importance_sampling_ratio/deviation"] == 1.0
    assert metrics["proposer/sampling/importance_sampling_ratio/outside_frac"] == 1.0


def test_restored_samplers_have_the_versions_of_their_own_last_phases(places, tmp_path, monkeypatch):
    """Three steps of proposing, one of writing, four of solving: after step 13 the proposer is of step 11."""
    options = places | OPTIONS | DR_ZERO
    monkeypatch.setattr("evoseek.training.train.RunState.resume", lambda *_: 13)
    play = loop_of("dr-zero", tmp_path / "run", options).system.play
    assert (play.proposer.sampler.policy_version, play.solver.sampler.policy_version) == (11, 13)
    monkeypatch.setattr("evoseek.training.train.RunState.resume", lambda *_: 10)
    play = loop_of("dr-zero", tmp_path / "again", options).system.play
    assert (play.proposer.sampler.policy_version, play.solver.sampler.policy_version) == (10, 8)
    frozen = loop_of("dr-zero", tmp_path / "frozen", options | {"proposer.frozen_after": 0}).system.play
    assert frozen.proposer.sampler.policy_version == 0


def test_a_sampler_is_restored_with_the_weights_that_a_proposer_stopped_at(places, tmp_path, monkeypatch):
    """Three steps of proposing, one of writing, four of solving, three times. After the first iteration the proposer
    stays as step 3 left it, after the second as step 11 did."""
    more = {"proposer.frozen_after": 1, "dr_zero.iterations": 3, "run.steps": 24}
    options = places | OPTIONS | DR_ZERO | more
    found = {}
    for step in (2, 8, 9, 20):
        monkeypatch.setattr("evoseek.training.train.RunState.resume", lambda *_, step=step: step)
        system = loop_of("dr-zero", tmp_path / str(step), options).system
        assert system.frozen_after == 1
        found[step] = system.play.proposer.sampler.policy_version
    assert found == {2: 2, 8: 3, 9: 3, 20: 3}
    assert system.play.solver.sampler.policy_version == 16
    twice = loop_of("dr-zero", tmp_path / "twice", options | {"proposer.frozen_after": 2}).system
    assert twice.play.proposer.sampler.policy_version == 11


@pytest.fixture
def one_policy(places):
    """Options of Dr. Zero with one policy in both roles."""
    return places | OPTIONS | DR_ZERO | {"proposer.temperature": 0.75, "dr_zero.one_policy": True}


def test_one_policy_has_one_learner_and_a_loss_and_a_credit_for_each_role(one_policy, tmp_path):
    loop = loop_of("dr-zero", tmp_path / "run", one_policy)
    system = loop.system
    proposing, solving = system.proposer_update, system.solving.update
    assert proposing.learner is solving.learner
    check_learner(proposing.learner, 1e-5, 0.75)
    assert (proposing.loss, solving.loss) == (WithTerms(ReinforceLoss("sequence-sum")), None)
    assert solving.learner.loss == ClippedLoss(0.15, 0.35)
    assert proposing.credit([1.0, 0.0, 5.0], ["a", "a", "b"]) == [0.5, -0.5, None]
    assert solving.credit([1.0, 0.0, 5.0], ["a", "a", "b"]) == [0.5, -0.5, 0.0]
    assert (proposing.transforms, proposing.kl_coefficient) == ([], 0.0)
    assert system.play.proposer.sampler is system.play.solver.sampler is system.solving.rollouts.roller.sampler
    assert loop.checkpoints.parts.keys() == {"policy"}
    assert system.restart_proposer.__self__ is system.restart_solver.__self__ is solving.learner
    kept = loop_of("dr-zero", tmp_path / "kept", one_policy | {"dr_zero.fresh_optimizer": False}).system
    assert (kept.restart_proposer, kept.restart_solver) == (None, None)


def test_one_policy_is_published_and_restored_with_the_last_step_of_either_phase(one_policy, tmp_path, monkeypatch):
    """Three steps of proposing, one of writing, four of solving."""
    found = {}
    for step in (0, 2, 4, 6, 8, 10, 12):
        monkeypatch.setattr("evoseek.training.train.RunState.resume", lambda *_, step=step: step)
        system = loop_of("dr-zero", tmp_path / str(step), one_policy).system
        found[step] = system.play.proposer.sampler.policy_version
    assert found == {0: 0, 2: 2, 4: 3, 6: 6, 8: 8, 10: 10, 12: 11}
    for step, publish in ((13, system.publish_proposer), (14, system.solving.publish)):
        publish(step)
        assert system.play.proposer.sampler.policy_version == step


def test_questions_are_written_by_the_one_policy_of_a_run(one_policy, tmp_path):
    loop_of("dr-zero", tmp_path / "run", one_policy).checkpoints.save(1)
    settings = load_settings(system="dr-zero", options=one_policy)
    with TrainingContext(settings, checkpoint=latest_checkpoint(tmp_path / "run")) as context:
        game, _ = DrZero.proposing(settings, context)
        assert game.play.proposer.sampler is game.play.solver.sampler


def test_without_shares_no_task_requests_a_number(places, tmp_path):
    options = {"search.index": places["search.index"], "proposer.ratio": []}
    system = loop_of("dr-zero", tmp_path / "run", options).system
    for source in (system.tasks, system.written_tasks):
        assert {task.task.requested for task in source(0, 30, "k")} == {0}
    assert system.frozen_after is None
    asked = loop_of("dr-zero", tmp_path / "asked", options | {"proposer.ratio": [1, 1, 1, 1]}).system
    assert {task.task.requested for task in asked.tasks(0, 60, "k")} == {1, 2, 3, 4}
    assert [task.text for task in asked.tasks(0, 60, "k")] == [task.text for task in system.tasks(0, 60, "k")]


def test_what_is_off_by_default_is_not_there(places, tmp_path):
    play = loop_of("dr-zero", tmp_path / "a", {"search.index": places["search.index"]}).system.play
    assert (play.verifier, play.evidence, play.label) == (None, seen_passages, None)
    assert play.reward.settings.evidence_weight == 0
    loop = loop_of("dr-zero", tmp_path / "b", {"search.index": places["search.index"], "proposer.frozen_after": 0})
    assert (loop.evaluate, loop.system.oracle, loop.steps) == (None, None, 3 * (5 + 2 + 15))
    assert loop.system.writing == loop.system.play
    raw = loop_of("ssp", tmp_path / "c", {"search.index": places["search.index"]}).system
    assert (raw.trained, raw.fill, raw.reset_every) == (("proposer", "solver"), "replay-reset", 10)
    assert raw.update.roles["proposer"].credit([0.5, None], ["a", "b"]) == [0.5, None]


def test_an_engine_that_is_handed_in_is_searched_by_both_roles(places, tmp_path):
    class Echo:
        is_local = True

        async def search(self, queries, k):
            return [[Passage("e#0", "e", "echo", query)] for query in queries]

    for system in ("dr-zero", "ssp"):
        settings = {"search.index": places["search.index"]}
        play = loop_of(system, tmp_path / system, settings, search=Echo()).system.play
        for roller in (play.proposer, play.solver):
            found = asyncio.run(roller.env.tools["search"](ToolCall("search", {"query": "kalo"})))
            assert [passage.title for passage in found.passages] == ["echo"]


def test_dr_zero_is_examined_before_while_the_solver_learns_and_at_the_end_of_that(dr_zero, monkeypatch):
    """Every second step of the phase of four, and its last one; two questions at a temperature of their own."""
    asked = []

    async def note(questions, *, roller, **_):
        asked.append((len(questions), roller.temperature))
        return type("Nothing", (), {"metrics": lambda self: {"eval/reward": 1.0}})()

    monkeypatch.setattr("evoseek.training.train.held_out_scores", note)
    assert [step for step in range(17) if asyncio.run(dr_zero.evaluate(step))] == [0, 6, 8, 14, 16]
    assert set(asked) == {(2, 0.25)}
    assert dr_zero.evaluate_every == 1


def test_ssp_is_examined_every_so_many_steps(ssp):
    assert ssp.evaluate_every == 2


def test_two_adapters_share_one_model(places):
    settings = {"search.index": places["search.index"], "lora.rank": 2}
    with TrainingContext(load_settings(system="dr-zero", options=settings)) as context:
        game = Game.load(context.settings, context, PassageProposerEnv, one_policy=False)
        solver, proposer = game.solver.policy, game.proposer.policy
    assert solver.model is proposer.model
    assert (solver.adapter, proposer.adapter) == ("policy", "proposer")


def test_a_source_passage_is_cut_and_its_end_is_not_shown(places, monkeypatch):
    index = open_index(places["search.index"], setting="search.index")
    with TrainingContext(load_settings(system="dr-zero", options=places)) as context:
        game, tasks = DrZero.proposing(context.settings, context)
        (whole, *_) = tasks(0, 5, "k")
        monkeypatch.setattr("evoseek.selfplay.game.SOURCE_TOKENS", 3)
        (cut, *_) = tasks(0, 5, "k")
    stored = index.get(cut.task.passage.id)
    assert whole.task.passage.text == stored.text  # as it stands in the corpus, letter case and all
    shown = cut.task.passage.text
    assert len(context.agent.policy.tokenizer.encode(shown, add_special_tokens=False)) == 3
    assert stored.text.casefold().startswith(shown[:3].casefold())
    assert cut.text == f"{stored.title}\n{shown}"
    (message,) = game.play.proposer.env.messages(cut)
    assert plain(message.content).endswith(shown)


def test_answers_are_those_that_lead_somewhere_and_no_further_than_asked(places):
    """What is asked for is drawn by the ratio; an answer that leads less far gives way to one that does."""
    config = load_settings(system="ssp", options={**places, "proposer.ratio": [1, 0, 3]})
    index = open_index(places["search.index"], setting="search.index")
    source = answer_tasks(config, index, "")
    leads = {lead.answer: lead.searches for lead in source.pool}
    assert set(leads.values()) <= {1, 2, 3}
    tasks = source(0, 400, "k")
    requested = Counter(task.task.requested for task in tasks)
    assert all(task.task.requested <= leads[task.text] for task in tasks)
    assert all(task.golden_answers == (task.text,) for task in tasks)
    assert requested[3] / 400 == pytest.approx(0.75, abs=0.09)
    assert source(0, 400, "k") == tasks


def test_answers_of_a_file(places, tmp_path):
    index = open_index(places["search.index"], setting="search.index")
    settings = load_settings(system="ssp", options=places)
    mined = answer_tasks(settings, index, "").pool
    file = tmp_path / "answers.jsonl"
    chosen = [mined[0].answer, mined[5].answer]
    file.write_text("".join(json.dumps({"answer": answer}) + "\n" for answer in [*chosen, "no such name"]))
    given = answer_tasks(settings, index, str(file)).pool
    assert [lead.answer for lead in given] == chosen


def test_answers_that_lead_nowhere_are_refused(places, tmp_path):
    file = tmp_path / "answers.jsonl"
    file.write_text('{"answer": "no such name"}\n')
    options = {"search.index": places["search.index"], "ssp.answers": str(file)}
    with pytest.raises(ConfigError, match=r"None of 1 answers .*answers\.jsonl.*ssp\.answers=FILE"):
        loop_of("ssp", tmp_path / "run", options)
    assert not (tmp_path / "run" / "config.json").exists()


@given(st.integers(0, 40), st.integers(1, 20), st.integers(0, 3))
def test_a_pool_is_all_passages_or_a_sample_without_repetition(count, most, seed):
    passages = [Passage(f"{n}", f"{n}", "", "") for n in range(count)]
    pool = sample_passages(iter(passages), seed, most)
    assert len(pool) == len({passage.id for passage in pool}) == min(count, most)
    assert {passage.id for passage in pool} <= {passage.id for passage in passages}
    if count <= most:
        assert pool == passages
    assert pool == sample_passages(iter(passages), seed, most)


@pytest.mark.parametrize(("count", "most"), [(2, 1), (30, 10)])
def test_every_passage_has_the_same_chance_to_be_in_the_pool(count, most):
    """Drawn 600 times: each as often as it should be, within four standard errors."""
    passages = [Passage(f"{n}", f"{n}", "", "") for n in range(count)]
    drawn = Counter(passage.id for seed in range(600) for passage in sample_passages(passages, seed, most))
    share = most / count
    for passage in passages:
        assert drawn[passage.id] == pytest.approx(600 * share, abs=4 * (600 * share * (1 - share)) ** 0.5)


@pytest.mark.parametrize(
    ("system", "options", "words"),
    [
        ("dr-zero", {"credit.name": "gae"}, "trains no critic"),
        ("ssp", {"proposer.temperature": 0.5}, r"proposer\.temperature is 0\.5 and rollout\.temperature 1\.0"),
        ("dr-zero", {"policy.dtype": "float16"}, "small gradients"),
        ("dr-zero", {"loss.name": "reinforce", "algorithm.mini_batches": 2}, "mini_batches is 2"),
        ("dr-zero", {"search.index": ""}, r"set search\.index"),
        ("dr-zero", {"rollout.max_total_tokens": 10**6}, "made for at most"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_before_anything_is_written(
    places, tmp_path, system, options, words
):
    with pytest.raises(ConfigError, match=words):
        loop_of(system, tmp_path / "run", {"search.index": places["search.index"], **options})
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"search.index": "nowhere"}, SearchIndexError),
        ({"selfplay.world": "nowhere/world.json"}, DataError),
        ({"evaluation.path": "nowhere.jsonl"}, DataError),
    ],
)
def test_files_that_are_not_there_are_named(places, tmp_path, options, error):
    with pytest.raises(error, match="nowhere"):
        loop_of("dr-zero", tmp_path / "run", {"search.index": places["search.index"], **options})
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_run_that_was_begun_otherwise_is_not_gone_on_with(places, tmp_path):
    loop_of("dr-zero", tmp_path / "run", {"search.index": places["search.index"]}).checkpoints.save(1)
    with pytest.raises(ConfigError, match=r"proposer\.attempts was 5, now 4"):
        loop_of("dr-zero", tmp_path / "run", {"search.index": places["search.index"], "proposer.attempts": 4})


def test_a_majority_is_not_scored_by_a_reward_of_ones_own(places, tmp_path):
    class Own:
        lowest = 0.0

        def __call__(self, trajectory):
            return Scored(1.0, {})

    options = places | {"selfplay.label": "majority"}
    with pytest.raises(ConfigError, match=r"your own object, which cannot compare votes.* one of exact_match"):
        loop_of("ssp", tmp_path / "run", options, reward=Own())
