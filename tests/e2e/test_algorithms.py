"""Every recipe of an algorithm, and what can be switched on, by the command line; each resumes to the same bits."""

import json
import tomllib
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from evoseek.config.settings_tree import FOLDER
from evoseek.storage.runs import flatten

RECIPES = sorted((FOLDER / "algorithms").glob("*.toml"))
SETTINGS = {
    **{path.stem: flatten(tomllib.loads(path.read_text())) for path in RECIPES},
    "adapter with its base as reference": {"lora.rank": 2, "algorithm.kl_coefficient": 0.01},
    "ppo with all it has": {
        "credit.name": "gae",
        "algorithm.kl_coefficient": 0.01,
        "algorithm.kl_in": "reward",
        "credit.lam": 0.9,
        "critic.critic_warmup_steps": 1,
    },
    "the rest": {
        "credit.name": "leave-one-out",
        "algorithm.kl_coefficient": 0.01,
        "algorithm.entropy_coefficient": 0.01,
        "algorithm.importance": "truncate",
        "learner.gradient_checkpointing": "true",
    },
    "unmasked": {"algorithm.mask_observations": "false"},
}


IN_CHECK = ("grpo", "the rest")  # the other algorithms have tests of their losses and credits


def words(settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    "name", [name if name in IN_CHECK else pytest.param(name, marks=pytest.mark.merge) for name in SETTINGS]
)
def test_it_trains_and_resumes_to_the_same_bits(setting, tmp_path, cli, name):
    smaller = {"evaluation.path": "", "evaluation.every": 10, "questions.per_step": 2}
    more = words(smaller | SETTINGS[name])
    system = SETTINGS[name].get("run.system", "search-r1")

    def train(directory, steps):
        command = setting.train(tmp_path / directory, "--steps", steps, *more)
        return cli(command[0], system, *command[2:])

    status, _, error = train("whole", 2)
    assert status == 0, error
    train("parts", 1)
    status, out, _ = train("parts", 2)
    assert "Resuming" in out
    assert (tmp_path / "whole/metrics.jsonl").read_bytes() == (tmp_path / "parts/metrics.jsonl").read_bytes()
    last = Path("checkpoints/step-000002")
    files = sorted(path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole" / last).rglob("*.safetensors"))
    assert len(files) >= 2
    for file in files:
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes(), file
    assert any(row.get("grad_norm") for row in rows(tmp_path / "whole/metrics.jsonl"))


def test_an_adapter_is_saved_as_such_and_exported_as_a_plain_model(setting, tmp_path, cli):
    cli(
        *setting.train(
            tmp_path / "run",
            "--steps",
            1,
            "--set",
            "lora.rank=2",
            "--set",
            "evaluation.path=",
            "--set",
            "evaluation.every=10",
        )
    )
    policy = tmp_path / "run/checkpoints/step-000001/policy"
    assert (policy / "adapter_config.json").is_file()
    assert AutoModelForCausalLM.from_pretrained(policy)
    status, _, error = cli("export", tmp_path / "run", tmp_path / "plain")
    assert status == 0, error
    assert not (tmp_path / "plain/adapter_config.json").exists()
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
    status, _, error = cli("export", tmp_path / "run", tmp_path / "plain")
    assert (status, "Give a new folder" in error) == (2, True)


def test_another_system_is_refused_by_name(setting, tmp_path, cli):
    command = setting.train(tmp_path / "run")
    command[1] = "grpo2"
    status, _, error = cli(*command)
    assert status == 2
    assert "There is no system 'grpo2'. Choose one of search-r1, dspo" in error


def test_dspo_is_a_system_with_settings_of_its_own(setting, tmp_path, cli):
    command = setting.train(tmp_path / "run", "--steps", 1, "--set", "evaluation.path=", "--set", "evaluation.every=10")
    command[1] = "dspo"
    status, _, error = cli(*command)
    assert status == 0, error
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert (config["loss"]["name"], config["dspo"]["limit"]) == ("sequence", 4)
    assert config["reward"]["name"] == "f1"  # the file's word goes before the system's
    assert "rollout/filter/kept" in rows(tmp_path / "run/metrics.jsonl")[-1]
