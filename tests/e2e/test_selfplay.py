"""Self-play on a generated world with the tiny policies: whole runs, killed runs, and runs with a broken engine."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

import pytest
import torch
from safetensors.torch import load_file
from tests.doubles.learners import learner_of
from tests.search.failing import FailingEngine

from evoseek.assembly.context import Objects
from evoseek.assembly.sources import load_settings
from evoseek.config.registry import build
from evoseek.errors import TrainingError
from evoseek.eval.comparison import bootstrap
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.terms import wrapped
from evoseek.models.load import load_policy
from evoseek.questions.questions import save_questions
from evoseek.rollout.record import TrajectoryRecord, read_trajectories
from evoseek.search.lexical import LexicalIndex, open_index
from evoseek.selfplay.proposer_reward import DIFFICULTIES
from evoseek.selfplay.settings import GameSettings
from evoseek.storage.checkpoints import latest_checkpoint
from evoseek.storage.runs import RunDirectory
from evoseek.text.normalization import normalise
from evoseek.training.train import training_loop
from evoseek.training.update import GroupUpdate
from evoseek.types import Invalid, Scored, TrajectoryGroup
from evoseek.world.world import World, save_world_card

pytestmark = pytest.mark.slow

LOGS = ("metrics.jsonl", "questions.jsonl", "trajectories.jsonl")
ITERATION = {"dr_zero.proposer_steps": 2, "dr_zero.writing_steps": 1, "dr_zero.solver_steps": 2}
SMALL = {  # what is longer rambles, and a round of the sampler costs the same for one rollout as for all
    "proposer.max_tokens_per_turn": 64,
    "rollout.max_turns": 3,
    "selfplay.proposals_per_step": 8,
    "proposer.attempts": 3,
    "proposer.ratio": [1, 1],
    "rollout.group_size": 4,
    "questions.per_step": 3,
    "dr_zero.passages_per_writing_step": 5,
    "dr_zero.questions_per_passage": 2,
    "search.wait_s": 0.0,
    "run.checkpoint_every": 1,
    "run.keep_checkpoints": 1,
}


class KilledError(Exception):
    """In the middle of a step: its rows are written, and its checkpoint is not."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """An index, the card of its world, and questions about another one."""
    root = tmp_path_factory.mktemp("corpus")
    world = World.generate(5, 250, "train")
    LexicalIndex.build(root / "index", world.passages())
    save_world_card(root / "world.json", world)
    held_out = World.generate(5, 250, "evaluation")
    LexicalIndex.build(root / "held-out", held_out.passages())
    save_questions(root / "questions.jsonl", held_out.questions(2, seed=5, hops=(1, 2)))
    return root


@pytest.fixture
def config(corpus):
    """`config(system, {"section.key": value})`"""

    def make(system: str, settings: dict[str, object] | None = None) -> GameSettings:
        files = {"search.index": str(corpus / "index"), "selfplay.world": str(corpus / "world.json")}
        options = {**files, **SMALL, **(settings or {})}
        foreign = ("dr_zero.", "rollout.group_size", "questions.") if system == "ssp" else ("ssp.",)
        return load_settings(
            system=system, options={key: value for key, value in options.items() if not key.startswith(foreign)}
        )

    return make


def train(
    config: GameSettings, directory: Path, *, die_in: int | None = None, engine=None, said: list[str] | None = None
) -> None:
    """Train in this process, or go on; it dies in the middle of the step `die_in`."""

    def progress(now):
        if now.step == die_in:
            raise KilledError

    run = RunDirectory(directory)
    notify = [].append if said is None else said.append
    with run.locked(), training_loop(config, run, notify=notify, objects=Objects(search=engine)) as loop:
        loop.progress = progress
        asyncio.run(loop.run())


def train_killed_in(steps: Iterable[int], config: GameSettings, directory: Path) -> None:
    for step in steps:
        with pytest.raises(KilledError):
            train(config, directory, die_in=step)
        assert len(rows(directory)) >= step
        saved = latest_checkpoint(directory)
        assert (saved.step if saved else 0) == step - 1
    train(config, directory)


def rows(directory: Path, name: str = "metrics.jsonl") -> list[dict]:
    return [json.loads(line) for line in (directory / name).read_text().splitlines()]


def records(directory: Path) -> list[TrajectoryRecord]:
    return list(read_trajectories(directory / "trajectories.jsonl"))


def contents(directory: Path) -> dict[str, bytes]:
    """All that a run leaves, but its timings."""
    saved = latest_checkpoint(directory).directory
    files = sorted(path for path in saved.rglob("*.safetensors"))
    state = json.loads((saved / "state.json").read_text())["body"]
    weights = {str(path.relative_to(saved)): path.read_bytes() for path in files}
    counters = {"counters": json.dumps(state["learners"], sort_keys=True).encode()}
    return {name: (directory / name).read_bytes() for name in LOGS} | weights | counters


def same(one: Path, other: Path) -> None:
    left, right = contents(one), contents(other)
    assert left.keys() == right.keys()
    assert [name for name in left if left[name] != right[name]] == []


def weights(directory: Path, part: str = "policy") -> dict[str, torch.Tensor]:
    return load_file(latest_checkpoint(directory).part_directory(part) / "model.safetensors")


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_dr_zero_killed_in_every_phase_equals_a_run_that_was_not(config, corpus, tmp_path):
    """Two iterations of proposing, writing and solving, with all that can be added to the solver's signal, examined
    while the solver learns."""
    settings = {
        **ITERATION,
        "dr_zero.iterations": 2,
        "reward.evidence_weight": 0.2,
        "algorithm.entropy_coefficient": 0.05,
        "learner.warmup_steps": 4,
        "evaluation.path": str(corpus / "questions.jsonl"),
        "evaluation.index": str(corpus / "held-out"),
        "evaluation.every": 1,
    }
    dr_zero = config("dr-zero", settings)
    train(dr_zero, tmp_path / "whole")
    found = {row["step"]: row for row in rows(tmp_path / "whole")}
    assert [step for step, row in found.items() if "eval/reward" in row] == [0, 4, 5, 9, 10]
    assert [found[step]["selfplay/iteration"] for step in (1, 5, 6, 10)] == [1.0, 1.0, 2.0, 2.0]
    rate = {role: {n: row.get(f"{role}/learning_rate") for n, row in found.items()} for role in ("proposer", "solver")}
    first = [next(rate["solver"][step] for step in steps if rate["solver"][step]) for steps in ((4, 5), (9, 10))]
    assert first == pytest.approx([dr_zero.learner.learning_rate / 4] * 2)  # a fresh optimizer each time
    assert rate["proposer"][7] > max(rate["proposer"][step] or 0.0 for step in (1, 2))  # the proposer's goes on
    kinds = {"proposing": 2, "writing": 3, "solving": 5, "proposing again": 7}  # each but writing after one of its kind
    train_killed_in(kinds.values(), dr_zero, tmp_path / "killed")
    same(tmp_path / "whole", tmp_path / "killed")


def test_ssp_killed_in_a_step_that_replays_equals_a_run_that_was_not(config, tmp_path):
    """The second step replays questions of the first."""
    ssp = config("ssp", {"run.steps": 3, "selfplay.proposals_per_step": 5})
    train(ssp, tmp_path / "whole")
    found = rows(tmp_path / "whole")
    assert any(row.get("grad_norm") for row in found)
    assert found[1]["selfplay/replayed"] > 0.0
    train_killed_in((2,), ssp, tmp_path / "killed")
    same(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.merge
def test_two_adapters_over_one_base_are_trained_killed_and_resumed(config, tmp_path):
    dr_zero = config(
        "dr-zero",
        {
            **ITERATION,
            "dr_zero.iterations": 1,
            "lora.rank": 2,
            "algorithm.entropy_coefficient": 0.05,
            "sampler.probe_every": 1,  # of both
        },
    )
    train(dr_zero, tmp_path / "whole")
    train_killed_in((2, 5), dr_zero, tmp_path / "killed")  # of each adapter's steps, the last
    same(tmp_path / "whole", tmp_path / "killed")
    saved = latest_checkpoint(tmp_path / "whole")
    adapters = {part: saved.part_directory(part) for part in ("policy", "proposer")}
    loaded = {part: load_file(folder / "adapter_model.safetensors") for part, folder in adapters.items()}
    assert not any((folder / "model.safetensors").exists() for folder in adapters.values())
    for role, adapter in loaded.items():
        moved = [name for name, tensor in adapter.items() if "lora_B" in name and tensor.any()]
        assert moved, role
    assert not equal(loaded["policy"], loaded["proposer"])


def test_a_frozen_proposer_stays_as_it_is_to_the_bit(config, tmp_path):
    settings = {**ITERATION, "dr_zero.iterations": 1, "policy.model": "tiny-weak", "proposer.frozen_after": 0}
    train(config("dr-zero", settings), tmp_path / "run")
    begun = {name: tensor.detach() for name, tensor in load_policy("tiny-weak").model.state_dict().items()}
    kept, learnt = weights(tmp_path / "run", "proposer"), weights(tmp_path / "run")
    assert all(torch.equal(begun[name], tensor) for name, tensor in kept.items())
    assert any(not torch.equal(begun[name], tensor) for name, tensor in learnt.items())
    assert {r.trajectory.policy_version for r in records(tmp_path / "run") if r.trajectory.role == "proposer"} == {0}


@pytest.mark.merge
def test_one_policy_in_both_roles_is_trained_in_turns_killed_and_resumed(config, tmp_path):
    """Both phases move the same weights, each sampler has them at once, and there is no second policy."""
    settings = {**ITERATION, "dr_zero.one_policy": True, "dr_zero.iterations": 2, "dr_zero.fresh_optimizer": False}
    dr_zero = config("dr-zero", {**settings, "proposer.temperature": 1.0, "rollout.temperature": 1.0})
    train(dr_zero, tmp_path / "whole")
    train_killed_in((2, 4, 7), dr_zero, tmp_path / "killed")
    same(tmp_path / "whole", tmp_path / "killed")
    assert list(latest_checkpoint(tmp_path / "whole").learner_values) == ["policy"]
    versions = {r.step: r.trajectory.policy_version for r in records(tmp_path / "whole")}
    # steps 1, 2 propose; 3 writes; 4, 5 solve; 6, 7 propose; 8 writes; 9, 10 solve
    assert versions == {1: 0, 2: 1, 3: 2, 4: 2, 5: 4, 6: 5, 7: 6, 8: 7, 9: 7, 10: 9}


def test_the_proposers_step_of_one_policy_is_that_of_its_own_loss(config, tmp_path):
    settings = {**ITERATION, "run.steps": 1, "policy.model": "tiny-weak", "proposer.attempts": 5}
    temperatures = {"proposer.temperature": 1.0, "rollout.temperature": 1.0}
    one = config("dr-zero", {**settings, **temperatures, "dr_zero.one_policy": True})
    train(one, tmp_path / "run")
    expected, after = trained_on(one, tmp_path / "run", "proposer"), weights(tmp_path / "run")
    assert all(torch.equal(expected[name], tensor) for name, tensor in after.items())
    begun = load_policy("tiny-weak").model.state_dict()
    assert any(not torch.equal(begun[name], tensor) for name, tensor in after.items())


def trained_on(config: GameSettings, directory: Path, role: str) -> dict[str, torch.Tensor]:
    """The weights after one step of the config's optimizer on a role's rollouts in the log of a run's first step."""
    groups: dict[str, list[TrajectoryRecord]] = defaultdict(list)
    for record in records(directory):
        if record.step == 1 and record.trajectory.role == role:
            groups[record.group].append(record)
    policy, settings = load_policy(config.policy.model), config.learner
    own = {"proposer": config.proposer, "solver": config}[role]
    loss, credit = build("loss", own.loss, config), build("credit", own.credit, config)
    learner = learner_of(
        LogprobModel(policy.model, temperature=1.0),
        loss=wrapped(loss, config.algorithm) if role == "solver" else loss,
        learning_rate=settings.learning_rate,
        max_grad_norm=settings.max_grad_norm,
        token_budget=settings.token_budget,
    )
    made = [
        TrajectoryGroup(key, tuple(r.trajectory for r in members), tuple(r.outcome for r in members))
        for key, members in groups.items()
    ]
    GroupUpdate(learner, credit, config.run.seed)(1, made)
    return policy.model.state_dict()


@pytest.mark.parametrize("role", ["solver", "proposer"])
def test_a_single_role_that_is_trained_moves_the_weights_by_its_own_loss_alone(config, tmp_path, role):
    """The step made again from its log, with that role's credit and loss: the same bits. The other role's would give
    others."""
    signal = {"policy.model": "tiny", "verification.readings": 0, "reward.evidence_weight": 0.5, "run.seed": 2}
    ssp = config("ssp", {"run.steps": 1, "ssp.train": role, "proposer.attempts": 5, **signal})
    train(ssp, tmp_path / "run")
    (row,) = rows(tmp_path / "run")
    other = {"solver": "proposer", "proposer": "solver"}[role]
    assert f"{role}/loss" in row
    assert f"{other}/loss" not in row
    after = weights(tmp_path / "run")
    expected, foreign = (trained_on(ssp, tmp_path / "run", name) for name in (role, other))
    assert all(torch.equal(expected[name], tensor) for name, tensor in after.items())
    assert any(not torch.equal(foreign[name], tensor) for name, tensor in after.items())


@pytest.mark.merge
def test_questions_are_read_closed_book_and_by_several_readers(config, tmp_path):
    """Every proposal that keeps the rules is read four times, without a tool; the answers decide its outcome."""
    checks = {"verification.closed_book": True, "verification.readings": 3, "verification.noise_passages": 2}
    settings = {**checks, "selfplay.proposals_per_step": 24, "run.steps": 1}
    ssp, run = config("ssp", settings), RunDirectory(tmp_path / "run")
    with run.locked(), training_loop(ssp, run, notify=print) as loop:
        asyncio.run(loop.run())
        episodes = asyncio.run(loop.system.play(loop.system.tasks(50, 24, "more"), "more"))
    (row,) = rows(tmp_path / "run")
    rejected = [share for name, share in row.items() if name.startswith("selfplay/rejected/")]
    assert row["selfplay/valid_rate"] + sum(rejected) == pytest.approx(1.0)
    read = [episode for episode in episodes if episode.checks]
    assert len(read) > 8
    for episode in read:
        readings = [reading for reading, _ in episode.checks]
        assert [reading.id.rpartition("/")[2] for reading in readings] == [
            *("closed-book", "reading-0", "reading-1", "reading-2")
        ]
        assert not any(reading.tool_results for reading in readings)
        given = episode.proposer.question.golden_answers
        closed, *opened = (normalise(reading.answer or "") for reading in readings)
        right = [answer in map(normalise, given) for answer in opened]
        assert [outcome.reward for _, outcome in episode.checks[1:]] == right
        others = Counter(answer for answer, is_right in zip(opened, right, strict=True) if answer and not is_right)
        outcomes = {
            "closed_book": closed in map(normalise, given),
            "unverified": not right[0],
            "ambiguous": max(others.values(), default=0) >= sum(right),
        }
        assert episode.rejected == next((outcome for outcome, holds in outcomes.items() if holds), None)
        assert (episode.solvers is None) == (episode.rejected is not None)
    assert {episode.rejected for episode in read} >= {None, "unverified"}


class TestTrap1AnOutagePaysNobody:
    """A search engine that fails, while everything else goes on."""

    @pytest.mark.merge
    @pytest.mark.parametrize("system", ["dr-zero", "ssp"])
    def test_an_engine_that_fails_half_of_its_calls_changes_no_reward(self, config, tmp_path, system):
        """Calls are made again, and rollouts too: the proposer's mean reward lies where chance puts the clean run's.
        Four attempts leave 1 of 16 searches failed, so that of some questions over a fifth of the attempts fail."""
        rewards: dict[float, list[float]] = {0.0: [], 0.5: []}
        for failing, seed in ((0.0, 0), (0.0, 1), (0.5, 0), (0.5, 1)):
            settings = {"run.seed": seed, "run.steps": 2, "selfplay.proposals_per_step": 12, **ITERATION}
            made, run = config(system, settings), tmp_path / f"{failing}-{seed}"
            engine = FailingEngine(open_index(made.search.index, setting="search.index"), failing, seed)
            train(made, run, engine=engine)
            assert engine.failures == pytest.approx(failing * engine.calls, rel=0.15)
            assert [row["step"] for row in rows(run)] == [1, 2]
            check_rewards(made, run)
            found = [r.outcome for r in records(run) if r.trajectory.role == "proposer"]
            rewards[failing] += [outcome.reward for outcome in found if isinstance(outcome, Scored)]
        interval = bootstrap(rewards[0.0])
        assert interval.low <= fmean(rewards[0.5]) <= interval.high
        assert len(rewards[0.5]) > 0.75 * len(rewards[0.0])

    @pytest.mark.parametrize(("system", "steps"), [("dr-zero", 3), pytest.param("ssp", 2, marks=pytest.mark.merge)])
    def test_an_engine_that_is_not_asked_again_makes_many_invalid_and_none_of_them_counts(
        self, config, tmp_path, system, steps
    ):
        """All phases, with a reader; a failed call ends a rollout at once, and a tenth of them fails."""
        settings = {
            "dr_zero.proposer_steps": 1,
            "dr_zero.writing_steps": 1,
            "dr_zero.solver_steps": 1,
            "dr_zero.iterations": 1,
            "run.steps": steps,
            "search.attempts": 1,
            "run.max_invalid": 1.0,
            "verification.readings": 1,
        }
        made = config(system, settings)
        engine = FailingEngine(open_index(made.search.index, setting="search.index"), 0.1)
        train(made, tmp_path / "run", engine=engine)
        assert rows(tmp_path / "run")[-1]["step"] == steps
        invalid = [r for r in records(tmp_path / "run") if isinstance(r.outcome, Invalid)]
        assert {r.trajectory.role for r in invalid} == {"proposer", "solver"}
        check_rewards(made, tmp_path / "run")

    @pytest.mark.parametrize("system", ["dr-zero", pytest.param("ssp", marks=pytest.mark.merge)])
    def test_an_engine_that_is_down_pauses_the_run_and_then_ends_it_with_the_cause(self, config, tmp_path, system):
        said: list[str] = []
        made = config(system, {**ITERATION, "run.pause_s": 0.01, "run.steps": 5, "proposer.ratio": [0, 1]})
        engine = FailingEngine(open_index(made.search.index, setting="search.index"), 1.0)
        with pytest.raises(TrainingError, match=r"stopped at step 3.*the search engine is down\."):
            train(made, tmp_path / "run", engine=engine, said=said)
        pauses = [text for text in said if "The next step begins in" in text]
        assert [text[:7] for text in pauses] == ["Step 1:", "Step 2:"]
        assert all("the search engine is down" in text for text in pauses)
        assert latest_checkpoint(tmp_path / "run") is None
        assert not any("grad_norm" in name for row in rows(tmp_path / "run") for name in row)
        assert all(isinstance(record.outcome, Invalid) for record in records(tmp_path / "run"))


def check_rewards(config: GameSettings, directory: Path) -> None:
    """From the log: no failure is scored, every proposer's reward is worked out from valid attempts alone, and the
    optimizer saw as many rollouts as were scored."""
    attempts: dict[str, list[Scored]] = defaultdict(list)
    for record in records(directory):
        if record.trajectory.stop_reason.is_failure:
            assert isinstance(record.outcome, Invalid)
        if record.trajectory.role == "solver" and isinstance(record.outcome, Scored):
            attempts[record.group].append(record.outcome)
    settings, seen = config.proposer, 0
    for record in records(directory):
        if record.trajectory.role != "proposer" or not isinstance(record.outcome, Scored):
            continue
        parts = record.outcome.parts
        if any(name.startswith("rejected/") for name in parts):
            assert record.outcome.reward == settings.rejected_reward
        elif "difficulty" in parts:
            valid = attempts[f"step-{record.step:06d}/{record.trajectory.question.id}"]
            right = sum(outcome.parts["exact_match"] == 1.0 for outcome in valid)
            assert parts["solver/valid"] == len(valid) >= (1 if settings.difficulty == "failure" else settings.attempts)
            assert parts["difficulty"] == DIFFICULTIES[settings.difficulty](right, len(valid))
            expected = parts["difficulty"] + settings.format_weight * parts.get("format", 0.0)
            assert record.outcome.reward == pytest.approx(expected)
            seen += 1
    assert seen > 0
    for row in rows(directory):
        for role in ("proposer", "solver"):
            if f"{role}/learner/samples" in row:
                scored = [
                    record
                    for record in records(directory)
                    if (record.step, record.trajectory.role) == (row["step"], role)
                    and isinstance(record.outcome, Scored)
                ]
                assert row[f"{role}/learner/samples"] == len(scored)
