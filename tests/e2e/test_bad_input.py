"""A user's mistakes that only a whole command shows: one paragraph, status 2, and nothing lost (see test_mistakes)."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys

import pytest

from evoseek.errors import SamplerError
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.storage.metrics import JsonlMetrics
from evoseek.storage.runs import RunDirectory


def refused(result, *phrases):
    """The command failed with one paragraph on stderr that holds all phrases."""
    status, _, err = result
    assert status == 2
    assert "Traceback" not in err
    paragraphs = [part for part in err.split("\n\n") if part.strip()]
    assert len(paragraphs) == 1
    message = " ".join(err.split())
    assert "evoseek: " in message  # after what was said before, such as which settings follow the model
    for phrase in phrases:
        assert str(phrase) in message, message


def test_a_setting_without_its_table_is_found(setting, tmp_path, cli):
    result = cli(*setting.train(tmp_path / "run", "--set", "temperature=1"))
    refused(result, "did you mean rollout.temperature or ", " or evaluation.temperature or")


def test_wrong_type_and_out_of_range(setting, tmp_path, cli):
    result = cli(*setting.train(tmp_path / "run", "--set", "run.steps=many", "--set", "rollout.group_size=1"))
    refused(result, "run.steps is 'many'", "rollout.group_size is 1")


def test_model_without_chat_template_in_tool_format(setting, tmp_path, cli):
    refused(cli(*setting.train(tmp_path / "run", "--set", "policy.format=tools")), "template")


def test_rollouts_longer_than_the_model_can_take(setting, tmp_path, cli):
    result = cli(*setting.train(tmp_path / "run", "--set", "rollout.max_total_tokens=300"))
    refused(result, "max_total_tokens is 300", "at most 256")


def test_empty_corpus(tmp_path, cli):
    (tmp_path / "corpus").mkdir()
    refused(cli("index", tmp_path / "corpus", tmp_path / "index"), "No readable document")
    assert not (tmp_path / "index" / "manifest.json").exists()


def test_corrupt_index(setting, tmp_path, cli):
    index = tmp_path / "index"
    shutil.copytree(setting.index, index)
    victim = max((path for path in index.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0xFF
    victim.write_bytes(data)
    refused(cli(*setting.train(tmp_path / "run", "--index", index)), index)
    refused(cli("search", index, "north"), index)


def test_fewer_questions_than_a_step_needs(setting, tmp_path, cli):
    refused(cli(*setting.train(tmp_path / "run", "--set", "questions.per_step=7")), "only 6", "questions.per_step")


def test_a_prompt_that_leaves_no_room(setting, tmp_path, cli):
    result = cli(*setting.train(tmp_path / "run", "--set", "rollout.max_total_tokens=4"))
    refused(result, "the longest has 4 tokens, and a rollout may have 4 (rollout.max_total_tokens)")


def test_training_in_half_precision_weights(setting, tmp_path, cli):
    result = cli(*setting.train(tmp_path / "run", "--set", "policy.dtype=float16"))
    refused(result, "policy.dtype is float16", "Set policy.dtype to bfloat16")
    assert cli(*setting.train(tmp_path / "run", "--steps", 1, "--set", "policy.dtype=bfloat16"))[0] == 0


def test_a_run_brings_its_own_model(setting, trained, cli):
    for other in (("--model", "tiny"), ("--set", "policy.model=tiny"), ("--config", setting.config)):
        refused(cli("ask", "--run-dir", trained.path, *other, "north is"), "its own config and model", setting.model)


def test_a_total_failure_is_no_success(setting, cli, monkeypatch):
    async def broken(*_):
        raise SamplerError("The sampler is gone.")

    monkeypatch.setattr(TorchSampler, "sample", broken)
    refused(cli("eval", "--config", setting.config), "all 6 rollouts were invalid", "The sampler is gone.")
    refused(cli("ask", "--config", setting.config, "north is"), "The sampler is gone.")


def test_temperatures_and_minutes_that_are_none(setting, tmp_path, cli):
    for temperature, named in (
        ("nan", "--temperature"),
        ("inf", "--temperature"),
        ("-1", "n.temperature"),
        ("1e-9", "n.temperature"),
    ):
        refused(cli("eval", "--config", setting.config, "--temperature", temperature), named)
    answerer = ("--set", "answerer.model=m", "--set", "answerer.base_url=http://127.0.0.1:9/v1")
    asked = ("eval", "--index", setting.index, "--questions", setting.questions, *answerer, "--temperature")
    refused(cli(*asked, "0.5"), "temperature is 0.5, but the model of [answerer] answers at its own, 0.")
    for minutes in ("0", "-1", "nan"):
        refused(cli("demo", "--run-dir", tmp_path / "demo", "--max-minutes", minutes), "--max-minutes")
    assert not (tmp_path / "demo").exists()


def test_an_unforeseen_error_is_a_paragraph(setting, cli, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("first line\n\nsecond line")

    monkeypatch.setattr("evoseek.cli.settings.gather", fail)
    words = ("train", "--run-dir", "run", "--config", setting.config)
    refused(cli(*words), "ZeroDivisionError: first line second line", "EVOSEEK_TRACEBACK=1")
    monkeypatch.setenv("EVOSEEK_TRACEBACK", "1")
    assert "Traceback" in cli(*words)[2]


def test_ctrl_c_anywhere_is_130(setting, cli, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("evoseek.cli.settings.gather", interrupted)
    assert cli("train", "--run-dir", "run", "--config", setting.config)[0] == 130


def test_resume_with_another_config_names_the_difference(setting, trained, tmp_path, cli):
    trained.copy(tmp_path / "run")
    before = (tmp_path / "run" / "config.json").read_bytes()
    result = cli(*setting.train(tmp_path / "run", "--set", "learner.learning_rate=0.5"))
    refused(result, "learner.learning_rate was 0.01, now 0.5")
    assert (tmp_path / "run" / "config.json").read_bytes() == before


def test_two_processes_on_one_run_directory(setting, tmp_path, cli):
    run = tmp_path / "run"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from evoseek.storage.runs import RunDirectory\n"
            "with RunDirectory(Path(sys.argv[1])).locked(): print('held', flush=True); sys.stdin.read()",
            str(run),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        refused(cli(*setting.train(run)), f"pid {holder.pid}")
        holder.kill()
        holder.wait()
        with RunDirectory(run).locked():
            pass  # the lock of a dead process is no lock
    finally:
        holder.communicate()


def test_disk_full_while_saving_loses_nothing(setting, trained, tmp_path, cli, monkeypatch):
    """The third checkpoint does not fit: what was saved before stays and the run resumes from it to the same end."""
    real, calls = os.fsync, iter(range(10**6))

    def full(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if "step-000003" in path and next(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refused(cli(*setting.train(tmp_path / "run")), "step-000003", "No space left", "space")
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-000001", "step-000002"]
    assert cli(*setting.train(tmp_path / "run"))[0] == 0
    for name in (
        "metrics.jsonl",
        "trajectories.jsonl",
        "checkpoints/step-000004/policy.optimizer/rank-00000-of-00001.safetensors",
    ):
        assert (tmp_path / "run" / name).read_bytes() == (trained.path / name).read_bytes()


def test_disk_full_while_logging(setting, tmp_path, cli, monkeypatch):
    def full(self, *_arguments, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(type(tmp_path), "open", full)
        with pytest.raises(Exception, match="No space left"):
            JsonlMetrics(tmp_path / "metrics.jsonl").write(1, {"reward": 1.0})


def test_damaged_newest_checkpoint_falls_back_to_the_one_before(setting, trained, tmp_path, cli):
    name = "checkpoints/step-000004/policy/model.safetensors"
    weights = trained.copy(tmp_path / "run") / name
    weights.write_bytes(weights.read_bytes()[:-5])
    status, _, err = cli(*setting.train(tmp_path / "run"))
    assert status == 0, err
    warned = [line for line in err.splitlines() if "damaged" in line]
    assert len(warned) == 1
    assert warned[0].startswith("evoseek: warning: The checkpoint")
    for file in ("metrics.jsonl", "trajectories.jsonl", name):
        assert (tmp_path / "run" / file).read_bytes() == (trained.path / file).read_bytes()


def test_asking_a_directory_without_a_run(tmp_path, cli):
    refused(cli("ask", "--run-dir", tmp_path, "why?"), "no checkpoint")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with two files of a question each, and one of the same name below it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    for name in ("q.jsonl", "r.jsonl", "below/q.jsonl"):
        row = {"question": f"who is {name} ?", "golden_answers": ["Meri"]}
        (tmp_path / name).write_text(json.dumps(row) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "phrases"),
    [
        ("q.jsonl out.jsonl", ["There is nothing to check"]),
        ("none.jsonl out.jsonl", ["none.jsonl"]),
        ("q.jsonl out.jsonl --evaluation none.jsonl", ["none.jsonl cannot be read"]),
        ("q.jsonl out.jsonl --evaluation r.jsonl --likeness 7", ["7"]),
        ("q.jsonl out.jsonl --evaluation q.jsonl", ["All 1 questions were filtered out"]),
    ],
)
def test_questions_that_cannot_be_made_fit(here, cli, words, phrases):
    refused(cli("filter", *words.split()), *phrases)
    assert not (here / "out.jsonl").exists()
    assert "r.jsonl" in (here / "r.jsonl").read_text()


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        ("--entities 3", "sizes from 200"),
        ("--entities 200 --questions q.jsonl", "q.jsonl is there already"),
    ],
)
def test_a_world_that_cannot_be_served(here, cli, words, phrase):
    refused(cli("world", "serve", *words.split()), phrase)


def test_a_world_on_a_port_that_is_taken(here, cli):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(cli("world", "serve", "--entities", 200, "--port", port), f"Cannot listen on 127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("settings", "phrase"),
    [
        ([], "No search provider was given. Set web.provider"),
        (["web.provider=goggle"], "web.provider is 'goggle': input should be '', 'serper'"),
        (["web.providr=serper"], "did you mean web.provider?"),
        (["web.api=3"], "web.api is 3"),
        (["web.provider=replay", "web.record=q.jsonl"], "q.jsonl cannot be used as an SQLite file"),
    ],
)
def test_a_web_that_cannot_be_reached(here, cli, settings, phrase):
    sets = [word for setting in settings for word in ("--set", setting)]
    refused(cli("train", "deepresearcher", "--run-dir", "run", "--questions", "q.jsonl", *sets), phrase)
    assert not (here / "run" / "config.json").exists()


def test_settings_of_the_web_in_another_system(setting, tmp_path, cli):
    result = cli(*setting.train(tmp_path / "run", "--set", "web.provider=searxng"))
    refused(result, "unknown setting web (it is for deepresearcher)")


def test_an_index_for_a_system_that_searches_the_web(here, setting, cli):
    sets = ("--set", "run.system=deepresearcher", "--set", "web.provider=searxng")
    refused(cli("ask", "who?", "--index", setting.index, *sets), "run.system is 'deepresearcher'")
    (here / "web.toml").write_text('[run]\nsystem = "deepresearcher"\n[web]\nprovider = "searxng"\nurl = "http://x"\n')
    refused(cli("ask", "who?", "--index", setting.index, "--config", "web.toml"), "search.index is set")
