"""`evoseek train --dry-run`: what it says is what a run does, and it leaves no trace."""

import json
import sys

import pytest
import torch
from typer.testing import CliRunner

from evoseek.assembly.inputs import inputs_of
from evoseek.assembly.memory_needs import fit, memory_needs
from evoseek.assembly.sources import load_settings
from evoseek.cli.doctor.checks import DoctorContext, check_plan
from evoseek.cli.main import app
from evoseek.cli.train import outline
from evoseek.config.settings_tree import recipes
from evoseek.errors import ConfigError
from evoseek.learner.distributed import Ranks
from evoseek.models.machine import Machine, cores
from evoseek.models.shape import local_config, shape_of
from evoseek.questions.questions import save_questions
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.runs import RunDirectory
from evoseek.training.train import training_loop
from evoseek.types import Passage, Question


@pytest.fixture
def words(tmp_path):
    LexicalIndex.build(tmp_path / "index", [Passage("p", "Kalo", "Kalo", "Kalo is a river")])
    save_questions(tmp_path / "q.jsonl", [Question(str(n), f"What is Kalo {n}?", ("a river",)) for n in range(20)])
    given = ["search-r1", "--run-dir", tmp_path / "run", "--model", "tiny", "--index", tmp_path / "index"]
    return ["train", *map(str, given), "--questions", str(tmp_path / "q.jsonl"), "--steps", "7"]


def said(words, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["evoseek", *words])
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_it_says_what_would_be_done_and_does_nothing(words, tmp_path, monkeypatch):
    launched = ["--set", "sampler.name=vllm", "--set", "lora.rank=4"]
    before = sorted(tmp_path.rglob("*"))
    lines = said([*words, *launched, "--set", "sampler.gpus=[0,1]", "--dry-run"], monkeypatch)
    assert sorted(tmp_path.rglob("*")) == before
    assert f"  search.index = {json.dumps(str(tmp_path / 'index'))}" in lines
    assert {"  run.steps = 7", "  lora.rank = 4", '  sampler.gpus = ["0", "1"]'} <= set(lines)
    assert "Model: tiny (float32, an adapter of rank 4) on cpu" in lines
    assert f"Plan: search-r1, 7 steps, in {tmp_path / 'run'}" in lines
    assert f"Questions: 20 of {tmp_path / 'q.jsonl'}, 20 in a step" in lines
    servers = [line for line in lines if line.startswith("Server: ")]
    for number, line in enumerate(servers):
        assert line.startswith(f"Server: CUDA_VISIBLE_DEVICES={number} VLLM_SERVER_DEV_MODE=1 ")
        assert (
            f"vllm serve {tmp_path / 'run' / 'sampler' / 'model'} --served-model-name policy --host 127.0.0.1" in line
        )
        assert "--enable-lora --max-loras 2 --max-lora-rank 8" in line
    assert len(servers) == 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_data_type_that_the_machine_would_decide_on_is_shown(words, tmp_path, monkeypatch, dtype):
    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(sizes | {"vocab_size": 49152}))
    words = [str(tmp_path / "model") if word == "tiny" else word for word in words]
    machine = Machine("cpu", 2**36, has_bfloat16=dtype == "bfloat16")
    for module in ("models.machine", "assembly.memory_needs"):
        monkeypatch.setattr(f"evoseek.{module}.find_machine", lambda _: machine)
    lines = said([*words, "--dry-run"], monkeypatch)
    assert [line.partition("  #")[0] for line in lines if "dtype" in line][:1] == [f'  policy.dtype = "{dtype}"']
    assert f"Model: {tmp_path / 'model'} ({dtype}, all weights) on cpu" in lines
    given = said([*words, "--set", f"policy.dtype={dtype}", "--dry-run"], monkeypatch)
    assert not any("has no bfloat16" in line for line in given)
    together = said([*words, "--processes", "2", "--dry-run"], monkeypatch)
    assert '  policy.dtype = "float32"  # 2 processes share the weights in it' in together


def test_more_processes_than_cores_are_warned_of(words, monkeypatch):
    many = str(cores() + 1)
    crowded = f"{many} processes would train on {cores()} cores, and wait for each other."
    assert f"Warning: {crowded}" in said([*words, "--processes", many, "--dry-run"], monkeypatch)
    assert not any("Warning" in line for line in said([*words, "--processes", str(cores()), "--dry-run"], monkeypatch))
    monkeypatch.setattr("evoseek.learner.distributed.run_together", lambda number, words: 0)
    with pytest.warns(match=crowded):
        said([*words, "--processes", many], monkeypatch)


def test_only_settings_that_a_command_reads_are_listed(words, tmp_path, monkeypatch):
    lines = said(["ask", "Where?", "--model", "tiny", "--index", str(tmp_path / "index"), "--dry-run"], monkeypatch)
    listed = [line.split(" = ")[0].strip() for line in lines if line.startswith("  ")]
    assert {"search.index", "rollout.max_turns", "support.unsupported"} <= set(listed)
    assert not [name for name in listed if name.startswith(("learner.", "reward.", "algorithm.", "evaluation."))]


def test_a_config_file_lies_over_a_run_that_was_begun(words, tmp_path, monkeypatch):
    run, config = RunDirectory(tmp_path / "run"), tmp_path / "longer.toml"
    questions = str(tmp_path / "q.jsonl")
    given = {"search.index": str(tmp_path / "index"), "questions.path": questions, "run.steps": 7}
    settings = load_settings(options=given)
    run.path.mkdir()
    (run.path / "lock").touch()
    run.claim(settings.resolved(), inputs_of(settings))
    config.write_text("[run]\nsteps = 9\n")
    lines = said(["train", "--run-dir", str(run.path), "--config", str(config), "--dry-run"], monkeypatch)
    assert f"Plan: search-r1, 9 steps, in {run.path}" in lines
    assert f"Questions: 20 of {questions}, 20 in a step" in lines


def test_questions_that_are_given_are_told_beside_a_cold_start(words, tmp_path, monkeypatch):
    lines = said([*words, "--set", "cold_start.questions=30", "--dry-run"], monkeypatch)
    at = lines.index(f"Questions: 20 of {tmp_path / 'q.jsonl'}, 20 in a step")
    assert lines[at - 1].startswith("Cold start: at most 30 questions written about ")


@pytest.mark.parametrize("system", ["search-r1", "dr-zero"])
def test_the_recipes_of_documents_need_no_questions(words, system, tmp_path, monkeypatch):
    """Their stages are of questions that are written when the run begins."""
    index, run = str(tmp_path / "index"), str(tmp_path / "run")
    given = ["train", "--config", f"{system}/documents", "--model", "tiny", "--index", index, "--run-dir", run]
    lines = said([*given, "--dry-run"], monkeypatch)
    assert any(line.startswith("Cold start: at most 2000 questions written about ") for line in lines)


def test_several_processes_are_told_as_torchrun_would_be(words, monkeypatch):
    lines = said([*words, "--processes", "2", "--set", "run.pause_s=0", "--dry-run"], monkeypatch)
    rest = " ".join([*words, "--processes", "2", "--set", "run.pause_s=0"])
    assert f"Learner: torchrun --standalone --nproc-per-node 2 -m evoseek {rest}" in lines
    assert not any(line.startswith("Server") for line in lines)
    memory = next(line for line in lines if line.startswith("Memory: "))
    assert "GiB that are free: process 0.44 + learner" in memory
    assert memory.endswith("(each of 2 processes)")
    assert "sampler" in memory


def test_stages_and_a_run_that_would_be_resumed(words, tmp_path):
    for name in ("step-000012", "step-000030.copy", "step-"):  # the last two are none
        (tmp_path / "run" / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / "run" / "checkpoints" / name / "state.json").touch()
    (tmp_path / "run" / "checkpoints" / "step-000099").mkdir()  # nothing was saved in it
    stages = [{"name": "one", "steps": 5}, {"name": "two", "until": "reward > 0.5"}, {"name": "three"}]
    options = {"questions.path": str(tmp_path / "q.jsonl"), "run.steps": 20, "stages": stages}
    settings = load_settings(options=options)
    lines = list(outline(settings, RunDirectory(tmp_path / "run"), processes=1, words=[]))
    assert f"Plan: search-r1, 20 steps, resumed after step 12, in {tmp_path / 'run'}" in lines
    assert lines[lines.index("  Stage 1, one: until 5 steps are made") + 1 :][:2] == [
        "  Stage 2, two: until reward > 0.5",
        "  Stage 3, three: until the end of the run",
    ]


ONE, TWO = "sampler.urls=['http://127.0.0.1:1']", "sampler.urls=['http://127.0.0.1:1', 'http://127.0.0.1:2']"


@pytest.mark.parametrize(
    ("system", "processes", "sets", "refusal"),
    [
        ("search-r1", 2, ["policy.dtype=bfloat16"], "share weights in float32 only"),
        ("search-r1", 2, ["lora.rank=4", "policy.dtype=bfloat16"], "share weights in float32 only"),
        ("search-r1", 1, ["policy.dtype=float16"], "small gradients become 0"),
        ("search-r1", 2, ["rollout.max_staleness=1"], "rollouts during an update would break"),
        ("search-r1", 2, ["sampler.name=vllm", ONE], "names 1 servers, but 2 processes"),
        ("search-r1", 2, ["sampler.name=vllm"], "starts servers only for a single process"),
        ("search-r1", 1, ["rollout.put_off=0.5", "sampler.name=vllm", ONE], "needs the embedded sampler"),
        ("search-r1", 1, ["rollout.max_total_tokens=99999"], "was made for at most"),
        ("search-r1", 2, ["cold_start.questions=9"], "needs one process"),
        ("search-r1", 1, ["questions.per_step=21"], "draws 21 different questions, but there are only 20"),
        ("search-r1", 1, ["questions.where={hops=9}"], "selects none of the 20 questions"),
        ("search-r1", 1, ["reward.name=judge"], "judge.model is empty"),
        ("dr-zero", 1, ["sampler.name=vllm", ONE], "can hold only one"),
        ("dr-zero", 2, ["sampler.name=vllm", TWO, "lora.rank=4"], "trains two policies in 2 processes"),
        ("dr-zero", 1, ["dr_zero.one_policy=true", "sampler.name=vllm", ONE], ""),
        ("search-r1", 2, ["sampler.name=vllm", TWO], ""),
    ],
)
def test_the_dry_run_doctor_and_the_run_refuse_the_same_plans(words, tmp_path, system, processes, sets, refusal):
    options = {"search.index": str(tmp_path / "index"), "policy.model": "tiny"}
    options |= {"questions.path": str(tmp_path / "q.jsonl")} if system == "search-r1" else {}
    given = [f"{key}={value}" for key, value in options.items()] + sets
    line = ["train", system, "--run-dir", str(tmp_path / "run"), "--processes", str(processes), "--dry-run"]
    result = CliRunner().invoke(app, [*line, *(word for text in given for word in ("--set", text))])
    settings, run = load_settings(system=system, options=options, sets=sets), RunDirectory(tmp_path / "run")
    (plan, *_) = [*check_plan(DoctorContext(settings, run, processes))]
    if not refusal:
        assert (result.exit_code, plan.state) == (0, "ok"), result.output
        return
    assert refusal in str(result.exception)
    assert plan.state == "fault"
    assert refusal in plan.words
    ranks = Ranks(0, processes, torch.device("cpu"))
    with pytest.raises(ConfigError, match=refusal), training_loop(settings, run, notify=print, ranks=ranks):
        pass


def test_an_estimate_of_memory_that_is_missing_or_too_large_says_so(monkeypatch):
    def fitting(machine, **options):
        monkeypatch.setattr("evoseek.assembly.memory_needs.find_machine", lambda _: machine)
        return fit(load_settings(options=options))

    unknown = fitting(Machine("cpu", 2**36), **{"policy.model": "nowhere/unknown"})
    assert unknown.words.startswith("No estimate: the sizes of nowhere/unknown are not known here")
    assert fitting(Machine("cpu", 2**36)).state == "ok"
    assert "there is no cuda on this machine" in fitting(Machine("cuda", 2**36, is_here=False)).words
    over = fitting(Machine("cpu", 2**20))
    assert (over.state, over.words[:16]) == ("over", "It does not fit:")
    assert over.remedy
    settings = load_settings()
    need = sum(memory_needs(settings, shape_of(local_config(settings.policy.model))).values())
    states = {share: fitting(Machine("cpu", round(share * need))).state for share in (0.99, 1.01, 1.24, 1.26)}
    assert states == {0.99: "over", 1.01: "tight", 1.24: "tight", 1.26: "ok"}


def test_what_a_run_would_refuse_is_refused(words, tmp_path):
    result = CliRunner().invoke(app, [*words[:-2], "--set", "questions.path=nowhere", "--dry-run"])
    assert "nowhere" in str(result.exception)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("sets", "refusal"),
    [
        (["sampler.name=vllm", "sampler.urls=['http://a']", "sampler.gpus=[0]"], "no effect here"),
        (["sampler.name=vllm", "sampler.urls=['nonsense']"], "nonsense"),
        (["sampler.name=vllm", "sampler.api_key_env=EVOSEEK_NO_KEY"], "EVOSEEK_NO_KEY"),
    ],
)
def test_servers_that_a_run_would_refuse_are_refused(words, sets, refusal):
    result = CliRunner().invoke(app, [*words, *(word for text in sets for word in ("--set", text)), "--dry-run"])
    assert refusal in str(result.exception)


def test_other_settings_than_those_of_the_run_that_is_resumed_are_refused(words, tmp_path, monkeypatch):
    options = {"questions.path": str(tmp_path / "q.jsonl"), "search.index": str(tmp_path / "index"), "run.steps": 7}
    (tmp_path / "run").mkdir()
    begun, run = load_settings(system="search-r1", options=options), RunDirectory(tmp_path / "run")
    run.claim(begun.resolved(), inputs_of(begun))
    (tmp_path / "run" / "checkpoints" / "step-000003").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "step-000003" / "state.json").touch()
    lines = said([*words[:-1], "9", "--dry-run"], monkeypatch)
    assert f"Plan: search-r1, 9 steps, resumed after step 3, in {tmp_path / 'run'}" in lines
    result = CliRunner().invoke(app, [*words, "--set", "rollout.max_turns=3", "--dry-run"])
    assert "begun with another config" in str(result.exception)
    assert "max_turns" in str(result.exception)


def test_a_run_of_self_play_can_be_resumed_whose_rules_were_decided_by_the_model(words, tmp_path, monkeypatch):
    options = {"policy.model": "tiny", "search.index": str(tmp_path / "index")}
    begun, run = load_settings(system="dr-zero", options={**options, "filters.rules": "basic"}), tmp_path / "run"
    run.mkdir()
    RunDirectory(run).claim(begun.resolved(), inputs_of(begun))
    (run / "checkpoints" / "step-000003").mkdir(parents=True)
    (run / "checkpoints" / "step-000003" / "state.json").touch()
    given = ["dr-zero", "--run-dir", str(run), "--model", "tiny", "--index", str(tmp_path / "index")]
    assert any("resumed after step 3" in line for line in said(["train", *given, "--dry-run"], monkeypatch))


@pytest.mark.parametrize(("sets", "dtype"), [([], "float32"), (["learner.bf16=true"], "bfloat16")])
def test_servers_compute_in_the_type_in_which_the_learner_does(words, monkeypatch, sets, dtype):
    own = [word for text in ("sampler.name=vllm", *sets) for word in ("--set", text)]
    (server,) = (line for line in said([*words, *own, "--dry-run"], monkeypatch) if line.startswith("Server: "))
    assert f" --dtype {dtype} " in server


def test_every_recipe_that_computes_in_bfloat16_is_served_in_it():
    computing = [load_settings([recipe], options={"policy.model": "tiny"}) for recipe in recipes().values()]
    served = {settings.served_dtype for settings in computing if settings.learner.bf16}
    assert served == {"bfloat16"}
