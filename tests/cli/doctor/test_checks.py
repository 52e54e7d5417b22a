"""Planted faults: each is found, and its remedy is named."""

import copy
import json
import shutil
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner

from evoseek.assembly.sources import load_settings
from evoseek.cli.doctor.checks import DoctorContext
from evoseek.cli.doctor.command import diagnoses_of
from evoseek.cli.main import app
from evoseek.config.sections import with_setting
from evoseek.models.source import tiny_policy_dir
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.runs import RunDirectory
from evoseek.types import Passage

DROPS_TOOLS = (
    "{{ tools | tojson if tools else '' }}{% for m in messages %}{% if m.role != 'tool' %}"
    "{{ '<|im_start|>' + m.role + '\n' + (m.content or '') + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture
def folder(tmp_path):
    rows = [{"question": f"who is the mayor of {name} ?", "golden_answers": ["meri"]} for name in ("kalo", *range(19))]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    LexicalIndex.build(tmp_path / "index", [Passage("a#0", "a", "kalo", "the mayor of kalo is meri .")])
    shutil.copytree(tiny_policy_dir(), tmp_path / "model")
    return tmp_path


@pytest.fixture
def found(folder):
    """`found({dotted settings}, processes=..., run=...)`: the faults and warnings by what they are about."""

    def examined(options=None, *, system="search-r1", run="run", processes=1, direct=None):
        named = {"search.index": str(folder / "index"), "policy.model": str(folder / "model")}
        if system == "search-r1":
            named["questions.path"] = str(folder / "q.jsonl")
        settings = load_settings(system=system, options={**named, **(options or {})})
        for key, value in (direct or {}).items():
            settings = with_setting(settings, key, value)
        before = sorted(folder.rglob("*"))
        diagnoses = list(diagnoses_of(DoctorContext(settings, RunDirectory(folder / run), processes)))
        assert sorted(folder.rglob("*")) == before  # nothing is written
        assert all(diagnosis.remedy for diagnosis in diagnoses if diagnosis.state != "ok")
        return {diagnosis.about: diagnosis for diagnosis in diagnoses if diagnosis.state == "fault"}, diagnoses

    return examined


def test_of_a_device_that_is_not_here_no_memory_is_told(found):
    faults, diagnoses = found({"policy.device": "xpu:7"})
    assert "got the device 'xpu:7', but this machine" in faults["device"].words
    (memory,) = (diagnosis for diagnosis in diagnoses if diagnosis.about == "memory")
    assert memory.state == "warning"
    assert memory.words.startswith("about 0.60 GiB: learner")  # which its owner can compare
    assert memory.words.endswith("; there is no xpu:7 on this machine")


def test_a_healthy_run_has_no_fault_and_what_is_trained_is_told(found):
    faults, diagnoses = found()
    assert faults == {}
    told = {diagnosis.about: diagnosis.words for diagnosis in diagnoses}
    assert told["plan"].startswith("search-r1: all weights of ")
    assert told["plan"].endswith(", 120 steps of 160 rollouts")  # 20 questions x 8
    assert "a known passage is found" in told["search.index"]
    assert "solver: 11 of 1600 tokens" in told["prompt"] or "solver: " in told["prompt"]


def test_questions_that_a_cold_start_writes_are_not_missing(found):
    faults, diagnoses = found({"questions.path": "", "cold_start.questions": 40})
    assert faults == {}
    told = {diagnosis.about: diagnosis.words for diagnosis in diagnoses}
    assert told["questions"] == "at most 40 are written about the documents (a cold start), a tenth held out"
    assert "evaluation.path" not in told
    assert "questions.path" in found({"questions.path": "none.jsonl", "cold_start.questions": 40})[0]


@pytest.mark.parametrize(("number", "state"), [(0, None), (58, "warning"), (59, "ok")])
def test_too_few_questions_to_bound_wrong_answers(folder, found, number, state):
    """All 58 right: 0.95^58 = 0.051."""
    row = json.dumps({"question": "who ?", "golden_answers": ["meri"]}) + "\n"
    (folder / "tests.jsonl").write_text(row * number)
    diagnoses = found({"evaluation.path": str(folder / "tests.jsonl")} if number else None)[1]
    bound = [one for one in diagnoses if one.about == "bound"]
    assert [one.state for one in bound] == ([state] if state else [])
    assert not bound or bound[0].words.startswith(
        f"{number} questions to evaluate on; to promise at most 5% wrong of what is shown takes 59 shown answers"
    )


def remove_index(folder):
    shutil.rmtree(folder / "index")


def damage_index(folder):
    file = max((folder / "index").glob("data-*/*"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def age_index(folder):
    manifest = folder / "index" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format_version": 2', '"format_version": 1'))


def remove_tokenizer(folder):
    for file in (folder / "model").glob("tokenizer*"):
        file.unlink()


def remove_weights(folder):
    for file in (folder / "model").glob("*.safetensors"):
        file.unlink()


def change_config(**values):
    def change(folder):
        file = folder / "model" / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return change


def damage_questions(folder):
    (folder / "q.jsonl").write_text('{"question": "who?"}\n')


def fill_run(folder):
    (folder / "run").mkdir()
    (folder / "run" / "letter.txt").write_text("")


PLANTED = {
    "missing index": (remove_index, {}, "search.index", "There is no folder", "evoseek index"),
    "damaged index": (damage_index, {}, "search.index", "is damaged", "Build it again"),
    "index of another version": (age_index, {}, "search.index", "another format than 2", "Build it again"),
    "no tokenizer": (remove_tokenizer, {}, "tokenizer", "could not be loaded", "Check the name"),
    "no weights": (remove_weights, {}, "model", "no weights in safetensors", "save_pretrained"),
    "vocabulary of another model": (change_config(vocab_size=8), {}, "tokenizer", "vocabulary 8", "saved together"),
    "no model": (None, {"policy.model": "./nowhere"}, "model", "There is no model", "Correct policy.model"),
    "no tool calls": (None, {"policy.format": "tools"}, "chat template", "has no chat template", "tags"),
    "disk too small": (
        change_config(hidden_size=10**6, num_hidden_layers=1000, intermediate_size=10**6),
        {},
        "disk",
        "does not fit",
        "run.keep_checkpoints=1",
    ),
    "a batch that does not fit": (None, {"learner.token_budget": 10**7}, "memory", "does not", "token_budget"),
    "damaged questions": (damage_questions, {}, "questions.path", "q.jsonl:1", "golden"),
    "no questions": (None, {"questions.path": ""}, "questions.path", "No questions were given", "questions.path"),
    "another folder": (fill_run, {}, "run", "it holds letter.txt", "Give another one."),
    "no such device": (None, {"policy.device": "cuda:99"}, "device", "cuda:99", "policy.device"),
    "a judge without a model": (None, {"reward.name": "judge"}, "settings", "judge.model is empty", "judge.model"),
    "settings that contradict": (
        None,
        {"loss.name": "reinforce", "algorithm.mini_batches": 2},
        "settings",
        "algorithm.mini_batches is 2",
        "Set it to 1",
    ),
    "a setting without effect": (None, {"evaluation.every": 3}, "settings", "no effect", "Leave evaluation.every out"),
    "no room for an answer": (None, {"rollout.max_total_tokens": 8}, "prompt", "No room", "max_total_tokens"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found_with_its_remedy(folder, found, name):
    plant, options, about, words, remedy = PLANTED[name]
    if plant is not None:
        plant(folder)
    faults, _ = found(options)
    assert words in faults[about].words
    assert remedy in faults[about].words + faults[about].remedy


def test_a_template_that_drops_what_tools_say(folder, found, made):
    tokenizer = copy.deepcopy(made("qwen"))
    tokenizer.chat_template = DROPS_TOOLS
    remove_tokenizer(folder)
    tokenizer.save_pretrained(folder / "model")
    change_config(vocab_size=len(tokenizer))(folder)
    faults, _ = found({"policy.format": "tools"})
    assert "leaves out the calls or their results" in faults["chat template"].words
    faults, diagnoses = found()
    assert "chat template" not in faults
    assert any(diagnosis.about == "chat template" and diagnosis.state == "warning" for diagnosis in diagnoses)


def test_a_run_that_another_process_holds(folder, found):
    with RunDirectory(folder / "run").locked():
        faults, _ = found()
    assert "in use by the process" in faults["run"].words
    assert "another --run-dir" in faults["run"].remedy


def test_a_run_directory_that_cannot_be_made(found):
    faults, _ = found(run="q.jsonl/run")
    assert "cannot be written" in faults["disk"].words


def test_more_processes_or_threads_than_cores(found, monkeypatch):
    faults, _ = found(processes=1000)
    assert "1000 processes would train on" in faults["cores"].words
    assert "Give --processes" in faults["cores"].remedy
    monkeypatch.setenv("OMP_NUM_THREADS", "1000")
    _, diagnoses = found()
    (threads,) = [diagnosis for diagnosis in diagnoses if diagnosis.about == "threads"]
    assert threads.state == "warning"
    assert "OMP_NUM_THREADS" in threads.remedy


@pytest.mark.skipif(find_spec("wandb") is not None, reason="wandb is installed")
def test_a_missing_extra(found):
    faults, _ = found({"trackers": ["wandb"]})
    assert faults["extras"].remedy == "pip install 'evoseek[track]'"


def test_the_command_line_reports_settings_it_cannot_read_and_ends_with_status_1(folder, monkeypatch):
    monkeypatch.chdir(folder)
    words = ["doctor", "--index", "index", "--questions", "q.jsonl", "--json"]
    done = CliRunner().invoke(app, [*words, "--set", "learner.learning_rat=1"])
    (diagnosis,) = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (diagnosis["about"], diagnosis["state"]) == ("settings", "fault")
    assert "did you mean learner.learning_rate?" in diagnosis["words"]
    healthy = CliRunner().invoke(app, words)
    assert healthy.exit_code == 0
    assert {diagnosis["state"] for diagnosis in json.loads(healthy.stdout)} <= {"ok", "warning"}
    table = CliRunner().invoke(app, [*words[:-1], "--model", "./nowhere"])
    assert table.exit_code == 1
    assert "-> Correct policy.model" in table.stdout


def test_the_projects_index_that_is_not_built_yet_is_what_to_do_next_and_no_fault(folder, monkeypatch):
    remove_index(folder)
    (folder / "evoseek.toml").write_text(
        f'[search]\nindex = "index"\n[policy]\nmodel = "{folder / "model"}"\n[questions]\npath = "q.jsonl"\n'
    )
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, ["doctor", "--json"])
    found = {diagnosis["about"]: diagnosis for diagnosis in json.loads(done.stdout)}
    assert (done.exit_code, found["search.index"]["state"]) == (0, "warning")
    assert found["search.index"]["remedy"] == "Run `evoseek index`."


def test_a_model_behind_an_endpoint_needs_nothing_of_what_is_for_training(tmp_path):
    endpoint = {"answerer.model": "qwen", "answerer.base_url": "http://127.0.0.1:9/v1", "questions.path": ""}
    settings = load_settings(options=endpoint)
    abouts = {diagnosis.about: diagnosis.state for diagnosis in diagnoses_of(DoctorContext(settings))}
    assert abouts.keys() & {"questions.path", "memory", "plan", "model"} == set()
    assert abouts["answerer"] == "fault"  # nobody listens there
    assert abouts["answerer format"] == "ok"
    text = "Quarterly vouchers require countersignature by the comptroller before disbursement." * 20
    LexicalIndex.build(tmp_path / "english", [Passage("a#0", "a", "Vouchers", text)])
    for model, state in ({}, "ok"), ({"policy.model": "tiny"}, "warning"):
        settings = load_settings(options={**endpoint, **model, "search.index": str(tmp_path / "english")})
        abouts = {diagnosis.about: diagnosis.state for diagnosis in diagnoses_of(DoctorContext(settings))}
        assert abouts["search.index"] == state  # who reads it is no tiny policy
    trained = load_settings(options={**endpoint, "policy.model": "tiny"})
    assert "plan" in {diagnosis.about for diagnosis in diagnoses_of(DoctorContext(trained))}
