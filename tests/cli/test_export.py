"""`evoseek export`: of a run, of an adapter, and what it refuses."""

import asyncio
import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.doubles.learners import learner_of
from typer.testing import CliRunner

from evoseek.cli.export import export
from evoseek.cli.main import app
from evoseek.errors import ConfigError, PolicyError, RunError
from evoseek.learner.checkpoint import CheckpointPart, save_checkpoint
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.likelihood import CrossEntropyLoss
from evoseek.models.load import export_policy, load_policy, save_policy
from evoseek.models.lora import add_adapter
from evoseek.models.policy import Policy, eos_ids
from evoseek.renderers.tags import TagRenderer
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.types import Message, SampleRequest, StopConditions
from evoseek.world.world import World

IDS = torch.arange(3, 23)[None]


def logits(policy: Policy) -> torch.Tensor:
    with torch.no_grad(), policy.active():
        return policy.model(IDS).logits


def adapted() -> Policy:
    policy = add_adapter(load_policy("tiny"), "solver", rank=2, alpha=4.0)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02, generator=torch.Generator().manual_seed(0))
    return policy


def checkpoint(run: Path, policy: Policy, step: int) -> None:
    with policy.active():
        learner = learner_of(LogprobModel(policy.model), loss=CrossEntropyLoss(), learning_rate=0.0)
    part = CheckpointPart(lambda directory: save_policy(policy, directory), learner)
    save_checkpoint(run, step=step, parts={"policy": part}, position={})


def test_a_runs_last_checkpoint_is_exported_with_its_adapter_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("peft")
    run, policy = tmp_path / "run", adapted()
    checkpoint(run, policy, 1)
    for parameter in policy.model.parameters():
        if parameter.requires_grad:
            parameter.data *= 1.5
    checkpoint(run, policy, 2)
    export(str(run), tmp_path / "out")
    plain = load_policy(str(tmp_path / "out"))
    assert plain.adapter is None
    torch.testing.assert_close(logits(plain), logits(policy), atol=1e-4, rtol=1e-5)  # logits of up to 40
    assert "step 2" in " ".join(capsys.readouterr().out.split())


def test_a_policy_without_an_adapter_is_copied(tmp_path: Path) -> None:
    export("tiny", tmp_path / "out")
    assert torch.equal(logits(load_policy(str(tmp_path / "out"))), logits(load_policy("tiny")))


def blocks(card: str) -> list[str]:
    """The blocks of code of a model card."""
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", card, re.MULTILINE)
    return ["\n".join(line[4:] for line in block.strip("\n").split("\n")) for block in found]


def test_the_code_of_the_card_ends_where_evoseek_ends(tmp_path: Path) -> None:
    export("tiny", tmp_path / "out")
    shown, code = blocks((tmp_path / "out" / "README.md").read_text())
    policy = load_policy(str(tmp_path / "out"))
    renderer, stop = TagRenderer(policy.tokenizer, eos_ids=eos_ids(policy)), ["</search>", "</answer>"]
    for question in World.generate(5, 300, "evaluation").questions(6, seed=1, hops=(1, 2)):
        prompt = re.sub(r"who is .*", question.text, shown)
        found: dict[str, Any] = {}
        exec(code.replace("DIRECTORY", str(tmp_path / "out")).replace("PROMPT", repr(prompt)), found)
        given = found["prompt"].input_ids[0].tolist()
        assert tuple(given) == renderer.render_prompt([Message("user", prompt)])
        request = SampleRequest(question.id, 0, given, 96, 0.0, renderer.stop, 0)
        completion = asyncio.run(TorchSampler(policy, slots=1, max_length=512).sample(request))
        assert found["ids"][0, len(given) :].tolist() == list(completion.token_ids)
        assert (completion.finish_reason, found["stop"]) == ("stop", stop)
        kept = found["model"].generate(**found["prompt"], tokenizer=found["tokenizer"], max_new_tokens=96)
        assert kept.tolist() == found["ids"].tolist()  # by generation_config.json alone


def test_a_turn_of_tool_calls_ends_at_ids_alone(tmp_path: Path) -> None:
    policy = load_policy("tiny")
    export_policy(policy, tmp_path / "out", StopConditions((), (7, 2)))
    settings = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert (settings.get("stop_strings"), settings["eos_token_id"]) == (None, [2, 7])
    assert policy.model.generation_config.stop_strings is None


def test_an_export_without_the_parts_that_write_its_prompts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint(tmp_path / "run", load_policy("tiny"), 1)
    (tmp_path / "run" / "config.json").write_text(json.dumps({"environment": {"name": "nowhere_at_all:Env"}}))
    export(str(tmp_path / "run"), tmp_path / "out")
    assert "The model card has no prompt" in capsys.readouterr().err
    assert "## Use" not in (tmp_path / "out" / "README.md").read_text()


def test_an_adapter_is_exported_alone(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    run, policy = tmp_path / "run", adapted()
    checkpoint(run, policy, 3)
    export(str(run), tmp_path / "out", adapter=True)
    config = peft.PeftConfig.from_pretrained(str(tmp_path / "out"))
    assert (config.r, config.lora_alpha) == (2, 4.0)
    assert not list((tmp_path / "out").glob("model*.safetensors"))
    torch.testing.assert_close(logits(load_policy(str(tmp_path / "out"))), logits(policy))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "library_name: peft" in card
    with pytest.raises(ConfigError, match="tiny has no adapter: all of its weights were trained"):
        export("tiny", tmp_path / "other", adapter=True)


def test_the_scores_of_an_evaluation_are_in_the_card(tmp_path: Path) -> None:
    folder = tmp_path / "evaluation"
    folder.mkdir()
    scores = {"exact_match": {"mean": 0.4, "interval_95": [0.3, 0.51], "n": 100, "n_invalid": 0}}
    (folder / "results.json").write_text(json.dumps({"final": True, "scores": scores}))
    export("tiny", tmp_path / "out", evaluation=folder)
    assert "| exact_match | 0.400 [0.300, 0.510] | 100 |" in (tmp_path / "out" / "README.md").read_text()


def test_a_folder_that_holds_something_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ConfigError, match="Give a new folder"):
        export("tiny", tmp_path)
    with pytest.raises(ConfigError, match="no empty folder"):
        export("tiny", tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").exists()


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").touch()
    with pytest.raises(RunError, match="saved no checkpoint yet"):
        export(str(tmp_path / "run"), tmp_path / "out")
    with pytest.raises(PolicyError, match="no such directory"):
        export(str(tmp_path / "nothing"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_refuses_what_the_export_would(tmp_path: Path) -> None:
    def said(*words: object) -> str:
        found = CliRunner().invoke(app, ["export", *map(str, words), "--dry-run"])
        return str(found.exception) if found.exit_code else found.stdout

    run, out = tmp_path / "run", tmp_path / "out"
    assert "tiny has no adapter: all of its weights were trained" in said("tiny", out, "--adapter")
    checkpoint(run, load_policy("tiny"), 1)
    assert "has no adapter" in said(run, out, "--adapter")
    assert f"Write the policy of {run} as a plain model to {out}" in "".join(said(run, out).split("\n"))
    assert "holds no finished evaluation" in said(run, out, "--evaluation", tmp_path)
    (run / "lock").touch()
    (run / "checkpoints" / "step-000001" / "state.json").unlink()
    assert "saved no checkpoint yet" in said(run, out)
    out.mkdir()
    (out / "thesis.txt").touch()
    assert "is no empty folder" in said("tiny", out, "--adapter")


def test_an_adapter_is_found_by_a_dry_run(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    checkpoint(tmp_path / "run", adapted(), 1)
    found = CliRunner().invoke(app, ["export", str(tmp_path / "run"), str(tmp_path / "out"), "--adapter", "--dry-run"])
    assert found.exit_code == 0
    assert "the adapter of" in found.stdout
    assert not (tmp_path / "out").exists()


def test_a_run_whose_name_was_mistyped_is_not_only_looked_for_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(PolicyError, match=r"neither a run nor a directory runs/nothere; check the path"):
        export("runs/nothere", Path("out"))


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file" / "x", tmp_path / "file" / "x" / "y"):
        with pytest.raises(ConfigError, match="file is a file"):
            export("tiny", directory)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("evoseek.models.load.export_policy", full)
    with pytest.raises(ConfigError, match=r"cannot be written \(No space left"):
        export("tiny", tmp_path / "out")
