"""What was chosen for a model is printed, and is chosen again where the run is resumed."""

import io
import json
import shutil

import pytest
from rich.console import Console

import evoseek.cli.ask  # noqa: F401 - it is declared
from evoseek.assembly.sources import load_settings
from evoseek.cli.options import running
from evoseek.cli.settings import chosen_for_model
from evoseek.models.source import tiny_policy_dir
from evoseek.storage.runs import RunDirectory


@pytest.fixture
def model(tmp_path):
    """The tiny policy's weights as a model of somebody else's, with other prompts."""
    shutil.copytree(tiny_policy_dir(), tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    del config["evoseek_prompts"]
    path.write_text(json.dumps(config))
    return str(tmp_path / "model")


def printed(settings, run=None):
    console = Console(file=io.StringIO(), width=200)
    return chosen_for_model(settings, console=console, run=run), console.file.getvalue()


def test_a_resumed_run_is_the_same_whatever_is_chosen_now(model, tmp_path):
    given = {"policy.model": model, "policy.device": "cpu"}
    settings, said = printed(load_settings(options=given))
    assert "learner.learning_rate = 1.5e-05" in said
    assert "policy.device" not in said
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.claim(settings.resolved() | {"sampler": settings.sampler.model_dump(mode="json") | {"slots": 3}})
    (run.path / "checkpoints" / "step-000001").mkdir(parents=True)
    resumed, said = printed(load_settings(options=given), run)
    assert (resumed.sampler.slots, resumed.learner) == (3, settings.learner)
    assert "sampler.slots = 3" in said
    with pytest.raises(Exception, match=r"sampler\.slots was 3, now 5"):
        run.claim(printed(load_settings(options=given | {"sampler.slots": 5}), run)[0].resolved())


def test_a_command_that_trains_nothing_lists_nothing_of_training(model, monkeypatch):
    settings, given = load_settings(options={"policy.model": model, "policy.device": "cpu"}), {}
    with running("ask"):
        given["ask"] = printed(settings)[1]
    assert "rollout.max_turns = " in given["ask"]
    assert "learner." not in given["ask"]
    assert "questions." not in given["ask"]


def test_for_the_tiny_policy_nothing_is_printed():
    settings = load_settings()
    assert printed(settings) == (settings, "")
