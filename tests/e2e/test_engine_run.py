"""A run whose sampler is a server: every step's weights reach it, and a server that lies or fails gives no reward."""

import pytest
from tests.doubles.engines import Failure, ScriptedVLLM

from evoseek.assembly.sources import load_settings
from evoseek.config.settings_tree import recipes
from evoseek.errors import ConfigError, TrainingError
from evoseek.models.load import load_policy
from evoseek.questions.questions import save_questions
from evoseek.run import Run
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.metrics import read_metrics
from evoseek.training.probe import QUESTIONS
from evoseek.types import Passage, Question
from evoseek.world.world import World

SHORT = {
    "rollout.max_tokens_per_turn": 24,
    "rollout.max_turns": 1,  # too few to answer, for which each rollout pays: every step trains
    "reward.unanswered_penalty": 1.0,
    "credit.name": "raw",
    "learner.learning_rate": 1e-3,
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("places")
    LexicalIndex.build(root / "index", [Passage(f"{n}#0", str(n), "kiwi", f"kiwi {n}") for n in range(4)])
    save_questions(root / "q.jsonl", [Question(str(n), f"what is kiwi {n}?", ("kiwi",)) for n in range(6)])
    return {"search.index": root / "index", "questions.path": root / "q.jsonl"}


def train(server, places, directory, **options):
    with server.in_thread() as url:
        settings = {
            **places,
            **SHORT,
            "sampler.name": "vllm",
            "sampler.urls": [url],
            "questions.per_step": 2,
            "rollout.group_size": 2,
            "run.steps": 2,
            "run.pause_s": 0,
            **options,
        }
        run = Run("search-r1", directory, settings=settings)
        run.train()
        return read_metrics(run.directory.metrics)


@pytest.mark.parametrize("rank", [0, 2])
def test_every_step_is_sampled_with_the_weights_of_the_step_before(rank, places, tmp_path):
    server = ScriptedVLLM.of_policy("tiny")
    rows = train(server, places, tmp_path / "run", **{"lora.rank": rank})
    assert [row["sampling/probe_difference"] < 1e-3 for row in rows] == [True, True]
    assert [row["grad_norm"] > 0 for row in rows] == [True, True]
    assert len(server.loaded) == 3
    assert {body["cache_salt"] for body in server.turns} == {path.name for path in server.loaded}
    assert not any(path.exists() for path in server.loaded)  # gone with the run


@pytest.mark.slow
@pytest.mark.merge
@pytest.mark.parametrize("rank", [0, 2])
def test_two_processes_have_servers_of_their_own_and_hand_over_weights_that_they_share(
    rank, places, tmp_path, fork_server
):
    """Each holds a half of the weights, and no other copy. What both servers then compute is compared with the learner
    after every step; the embeddings of the tiny policy are tied to its head."""
    servers = [ScriptedVLLM.of_policy("tiny") for _ in range(2)]
    with servers[0].in_thread() as one, servers[1].in_thread() as other:
        settings = {
            **{name: str(path) for name, path in places.items()},
            **SHORT,
            "sampler.name": "vllm",
            "sampler.urls": [one, other],
            "lora.rank": rank,
            "questions.per_step": 4,
            "rollout.group_size": 2,
            "run.steps": 2,
        }
        sets = (word for name, value in settings.items() for word in ("--set", f"{name}={value}"))
        command = fork_server("warm").start("train", "search-r1", "--run-dir", str(tmp_path / "run"), *sets, ranks=2)
        assert command.wait() == [0, 0], command.said()
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["sampling/probe_difference"] < 1e-3 for row in rows] == [True, True]
    assert [row["sampling/servers_lost"] for row in rows] == [0, 0]
    assert [row["grad_norm"] > 0 for row in rows] == [True, True]
    for server in servers:
        assert len(server.loaded) == 3
        assert {body["cache_salt"] for body in server.turns} == {path.name for path in server.loaded}
    assert servers[0].loaded == servers[1].loaded  # written once
    assert not any(path.exists() for path in servers[0].loaded)


@pytest.mark.slow
@pytest.mark.merge
def test_two_processes_hand_over_one_policy_that_plays_both_roles_from_the_first_step_on(tmp_path, fork_server):
    """Before it and when it is resumed, too: the processes hold a half of the weights each."""
    LexicalIndex.build(tmp_path / "index", World.generate(3, 200, "train").passages())
    servers = [ScriptedVLLM.of_policy("tiny-weak") for _ in range(2)]
    with servers[0].in_thread() as one, servers[1].in_thread() as other:
        settings = {
            "search.index": str(tmp_path / "index"),
            "policy.model": "tiny-weak",
            "sampler.name": "vllm",
            "sampler.urls": [one, other],
            "dr_zero.one_policy": True,
            "dr_zero.proposer_steps": 2,
            "proposer.attempts": 2,
            "proposer.ratio": [1],
            "proposer.credit.name": "raw",  # a proposal's format pays by itself, so that every step trains
            "proposer.max_turns": 1,
            "proposer.max_tokens_per_turn": 64,
            "rollout.max_turns": 2,
            "rollout.max_tokens_per_turn": 24,
            "selfplay.proposals_per_step": 6,
            "learner.learning_rate": 1e-3,
            "run.checkpoint_every": 1,
        }
        sets = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        for steps in ("1", "2"):
            words = ("train", "dr-zero", "--run-dir", str(tmp_path / "run"), "--steps", steps, *sets)
            command = fork_server("warm").start(*words, ranks=2)
            assert command.wait() == [0, 0], command.said()
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["sampling/probe_difference"] < 1e-3 for row in rows] == [True, True]
    assert [row["proposer/sampling/sampling_logp_difference/max"] < 1e-3 for row in rows] == [True, True]
    assert [row["proposer/grad_norm"] > 0 for row in rows] == [True, True]
    assert [len(server.loaded) for server in servers] == [4, 4]  # of steps 0 and 1, and of 1 and 2


def test_a_server_without_the_weights_stops_the_run(places, tmp_path):
    server = ScriptedVLLM(TorchSampler(load_policy("tiny-weak")))  # says that it has loaded what it has not
    with pytest.raises(TrainingError, match=r"With the weights of step 0, .*has other weights"):
        train(server, places, tmp_path / "run")


def test_a_server_that_fails_after_the_start_gives_no_reward(places, tmp_path):
    class Failing(ScriptedVLLM):
        def is_turn(self, path, body):
            if len(self.turns) >= len(QUESTIONS):  # after the probe
                self.always = Failure.ERROR
            return super().is_turn(path, body)

    server = Failing.of_policy("tiny")
    with pytest.raises(TrainingError, match=r"sampler_failed \(\d+ rollouts\): The server http.*The engine is dead"):
        train(server, places, tmp_path / "run", **{"sampler.probe_every": 5, "run.steps": 3})
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert all(not row.get("reward") for row in rows)


def test_every_recipe_can_be_sampled_by_servers():
    for recipe in recipes().values():
        settings = load_settings(
            [recipe], options={"policy.model": "tiny", "sampler.name": "vllm", "sampler.urls": ["http://a"]}
        )
        assert settings.sampler.name == "vllm"


@pytest.mark.parametrize("rank", [0, 2])
def test_rollouts_go_on_during_an_update_and_servers_get_the_new_weights_between_their_turns(rank, places, tmp_path):
    server = ScriptedVLLM.of_policy("tiny")
    options = {"lora.rank": rank, "rollout.max_turns": 3, "rollout.max_staleness": 1, "run.steps": 3}
    rows = train(server, places, tmp_path / "run", **options)
    assert [row["sampling/probe_difference"] < 1e-3 for row in rows] == [True] * 3
    assert [row["rollout/invalid_frac"] for row in rows] == [0.0] * 3
    assert rows[0]["rollout/staleness/max"] == 0
    assert max(row["rollout/staleness/max"] for row in rows) <= 1
    assert len(server.loaded) == 4


def test_a_server_cannot_begin_a_turn_as_it_has_to_so_answers_cannot_be_put_off(places, tmp_path):
    options = {"rollout.max_turns": 2, "rollout.put_off": 0.5}
    with pytest.raises(ConfigError, match=r"rollout\.put_off is 0\.5, .*sampler\.name = torch"):
        train(ScriptedVLLM.of_policy("tiny"), places, tmp_path / "run", **options)
