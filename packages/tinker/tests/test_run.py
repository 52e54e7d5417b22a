"""Runs that are trained and sampled at a service: a double of it, in this process, whose model is the tiny policy."""

import json
import sys

import pytest
import torch
from rich.console import Console

from evoseek.errors import ConfigError, PolicyError, TrainingError
from evoseek.learner.distributed import Ranks
from evoseek.models.load import load_policy
from evoseek.questions.questions import load_questions, save_questions
from evoseek.run import Run
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.metrics import read_metrics
from evoseek.training.plan import TrainingContext
from evoseek.world.world import World

KEY = "tml-of-the-test"
SMALL = {
    "lora.rank": 4,
    "learner.learning_rate": 3e-3,
    "sampler.name": "tinker",
    "sampler.probe_every": 1,
    "questions.per_step": 4,
    "rollout.group_size": 4,
    "run.steps": 2,
    "run.checkpoint_every": 1,
    "run.pause_s": 0,
}
FEW = {"questions.per_step": 2, "rollout.group_size": 2}
SELFPLAY = {
    **FEW,
    "selfplay.proposals_per_step": 4,
    "proposer.attempts": 2,
    "proposer.ratio": [1, 1],
    "dr_zero.iterations": 1,
    "dr_zero.proposer_steps": 1,
    "dr_zero.writing_steps": 1,
    "dr_zero.solver_steps": 2,
    "dr_zero.passages_per_writing_step": 5,
    "dr_zero.questions_per_passage": 2,
    "run.steps": 4,
}
OWN = """
from evoseek_tinker.learner import TinkerLearner
from evoseek_tinker.testing import ScriptedTinker

SERVICE = ScriptedTinker()

class Doubled(TinkerLearner):
    @classmethod
    def sdk(cls):
        return SERVICE
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("places")
    world = World.generate(5, 200, "train")
    LexicalIndex.build(root / "index", world.passages())
    save_questions(root / "questions.jsonl", world.questions(60, seed=5, hops=(1, 2)))
    return root


@pytest.fixture
def service(tmp_path, monkeypatch):
    """The double behind the learner `own_tinker:Doubled`."""
    (tmp_path / "own_tinker.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.delitem(sys.modules, "own_tinker", raising=False)
    import own_tinker  # pyright: ignore[reportMissingImports]

    yield own_tinker.SERVICE
    sys.modules.pop("own_tinker", None)


def run_of(system, places, directory, **options):
    settings = {
        "search.index": str(places / "index"),
        "learner.name": "own_tinker:Doubled",
        **({"questions.path": str(places / "questions.jsonl")} if system != "dr-zero" else {}),
        **SMALL,
        **options,
    }
    return Run(system, directory, settings=settings, console=Console(quiet=True))


def states_of(run):
    return [
        json.loads(path.read_text())["state"]
        for path in sorted(run.directory.path.glob("checkpoints/*/policy/remote.json"))
    ]


def test_rollouts_ahead_of_training_are_of_the_one_adapter_that_is_trained(service, places, tmp_path):
    run = run_of("search-r1", places, tmp_path / "run", **{**FEW, "rollout.max_staleness": 1, "run.steps": 3})
    assert run.train() == 3
    assert len(service.trainings) == 1
    assert all(row["sampling/probe_difference"] < 3e-4 for row in read_metrics(run.directory.metrics))


def test_a_run_is_trained_sampled_and_resumed_at_the_service(service, places, tmp_path):
    run = run_of("search-r1", places, tmp_path / "run")
    assert run.train() == 2
    rows = read_metrics(run.directory.metrics)
    assert all(row["sampling/probe_difference"] < 3e-4 for row in rows)
    assert all(row["sampling/sampling_logp_difference/max"] < 3e-4 for row in rows)
    assert [row["learning_rate"] for row in rows] == [3e-3, 3e-3]
    assert service.calls.count("optim_step") == 2
    assert {tuple(sample.stop) for sample in service.sampled} == {("</search>", "</answer>")}
    assert {sample.temperature for sample in service.sampled} == {1.0}
    assert len(service.trainings) == 1
    assert service.keys == [KEY]
    assert KEY not in "".join(path.read_text() for path in (tmp_path / "run").rglob("*.json*"))
    saved = states_of(run)
    assert saved == ["tinker://0/weights/evoseek-000001", "tinker://0/weights/evoseek-000002"]

    again = run_of("search-r1", places, tmp_path / "run", **{"run.steps": 3})
    assert again.train() == 3
    assert len(service.trainings) == 2
    assert "load_state_with_optimizer" in service.calls
    straight = run_of("search-r1", places, tmp_path / "straight", **{"run.steps": 3})
    straight.train()
    for name in ("metrics.jsonl", "trajectories.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


def test_dspo_makes_several_steps_of_a_batch_with_a_kl_to_the_base(service, places, tmp_path):
    options = {"algorithm.mini_batches": 2, "algorithm.kl_coefficient": 0.01, "questions.per_step": 2, "run.steps": 1}
    run = run_of("dspo", places, tmp_path / "run", **options)
    run.train()
    rows = read_metrics(run.directory.metrics)
    steps = sum(row["rollout/filter/kept"] > 0 for row in rows)
    assert steps > 0
    assert service.calls.count("optim_step") >= steps
    assert service.calls.count("compute_logprobs") > 0
    assert all(row["kl"] >= 0 for row in rows if "kl" in row)


def test_dr_zero_trains_two_adapters(service, places, tmp_path):
    run = run_of("dr-zero", places, tmp_path / "run", **SELFPLAY)
    run.train()
    rows = read_metrics(run.directory.metrics)
    assert [row["selfplay/iteration"] for row in rows] == [1.0] * 4
    assert rows[1]["selfplay/written"] > 0
    assert "proposer/learner/samples" in rows[0]
    assert "solver/learner/samples" in rows[2]
    assert len(service.trainings) == 3  # the solver, the proposer, and the solver with a fresh optimizer
    kept = [json.loads(path.read_text()) for path in (tmp_path / "run").glob("checkpoints/step-000004/*/remote.json")]
    assert len({one["state"] for one in kept}) == 2


def test_demonstrations_are_learnt_there_too(service, places, tmp_path):
    (tmp_path / "shown.jsonl").write_text(
        "".join(
            json.dumps({"question": f"what is kalo {n} ?", "turns": [{"query": "kalo"}, {"answer": "meri"}]}) + "\n"
            for n in range(3)
        )
    )
    options = {key: value for key, value in SMALL.items() if not key.startswith(("questions.", "rollout."))}
    settings = {**options, "learner.name": "own_tinker:Doubled", "demonstrations.path": str(tmp_path / "shown.jsonl")}
    settings |= {"search.index": str(places / "index"), "demonstrations.per_step": 2, "demonstrations.held_out": 0}
    run = Run("sft", tmp_path / "run", settings=settings, console=Console(quiet=True))
    run.train()
    losses = [row["loss"] for row in read_metrics(run.directory.metrics) if "loss" in row]
    assert len(losses) == 2


def test_a_run_is_evaluated_and_asked_at_the_service(service, places, tmp_path):
    run = run_of("search-r1", places, tmp_path / "run", **FEW, **{"run.steps": 1})
    run.train()
    before = len(service.sampled)
    evaluation = run.evaluate(load_questions(places / "questions.jsonl")[:4], temperature=0.0)
    assert evaluation.results.n == 4
    assert {sample.temperature for sample in service.sampled[before:]} == {0.0}
    assert service.calls.count("load_state_with_optimizer") == 1
    with pytest.raises(PolicyError, match=r"its weights are at a service; .*remote\.json says where"):
        load_policy(str(tmp_path / "run"))


def test_a_failing_sampler_gives_no_reward(service, places, tmp_path):
    def fails(call):
        if call == "sample" and "forward" in service.calls:  # after the probe
            raise RuntimeError("503")

    service.fails = fails
    run = run_of("search-r1", places, tmp_path / "run", **FEW, **{"run.steps": 3, "sampler.probe_every": 5})
    with pytest.raises(TrainingError, match=r"sampler_failed \(12 rollouts\): .* failed at sample: RuntimeError: 503"):
        run.train()
    assert all(not row.get("reward") for row in read_metrics(run.directory.metrics))


def test_a_service_that_fails_in_training_leaves_a_run_that_goes_on(service, places, tmp_path):
    def fails(call):
        if call == "optim_step" and service.calls.count("optim_step") == 2:
            raise RuntimeError("connection lost")

    service.fails = fails
    with pytest.raises(TrainingError, match=r"optim_step: RuntimeError: connection lost.*resumes from the last one"):
        run_of("search-r1", places, tmp_path / "run").train()
    assert run_of("search-r1", places, tmp_path / "run").train() == 2
    assert [row["step"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [1, 2]


def test_several_processes_are_refused_before_anything_is_sent(service, places, tmp_path):
    settings = run_of("search-r1", places, tmp_path / "run").settings
    with pytest.raises(ConfigError, match="2 processes train together"):
        _ = TrainingContext(settings, ranks=Ranks(0, 2, torch.device("cpu"))).agent
    assert service.calls == []


def test_what_is_refused_is_refused_before_anything_is_sent(service, places, tmp_path):
    for options in (
        {"credit.name": "gae"},
        {"lora.rank": 0},
        {"rollout.temperature": 0.8},
        {"learner.bf16": True},
        {"rollout.deadline_s": 60},
    ):
        with pytest.raises(ConfigError):
            run_of("search-r1", places, tmp_path / "run", **options).train()
    assert service.calls == service.keys == []
    assert not (tmp_path / "run" / "config.json").exists()
