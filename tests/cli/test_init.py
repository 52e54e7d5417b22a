import json
import shutil
import tomllib
from functools import partial

import pytest
from huggingface_hub import scan_cache_dir
from typer.testing import CliRunner

from evoseek.assembly.sources import gather
from evoseek.cli.main import app
from evoseek.config.project import open_project
from evoseek.models.machine import Machine
from evoseek.models.source import origin
from evoseek.storage.runs import Input, RunDirectory


@pytest.fixture
def init(tmp_path, monkeypatch):
    """`init(*words)`: what it printed, and the file that it wrote."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("evoseek.cli.init.has_smollm2", lambda: False)
    monkeypatch.setattr("evoseek.models.shape.scan_cache_dir", partial(scan_cache_dir, tmp_path / "hub"))
    (tmp_path / "docs").mkdir()
    (tmp_path / "q.jsonl").write_text("")
    (tmp_path / "bogus.gguf").write_text("no model")

    def run(*words):
        done = CliRunner().invoke(app, ["init", *words])
        file = tmp_path / (words[0] if words and not words[0].startswith("-") else ".") / "evoseek.toml"
        return done, file

    return run


def test_with_the_defaults_it_writes_settings_that_are_valid(init, tmp_path):
    done, file = init()
    assert done.exit_code == 0
    tree = tomllib.loads(file.read_text())
    assert tree["project"] == {"documents": "docs", "run": "run", "recipe": "dr-zero/tiny"}
    assert (tree["run"], tree["policy"]) == ({"system": "dr-zero"}, {"model": "tiny"})
    assert gather(file).read().search.index == str(tmp_path / "index")
    assert "reads only generated worlds" in done.stdout
    assert 'evoseek index\n  evoseek ask "..."\nWhat makes it better:\n  evoseek doctor\n  evoseek train' in done.stdout
    assert len(file.read_text().splitlines()) < 25


def test_smollm2_is_the_default_where_it_is_installed(init, monkeypatch):
    monkeypatch.setattr("evoseek.cli.init.has_smollm2", lambda: True)
    monkeypatch.setattr("evoseek.models.source.find_policy", lambda name: name)
    done, file = init()
    assert done.exit_code == 0
    assert "pip install gguf peft" not in done.stdout
    assert "The model is smollm2-135m. It answers few questions" in done.stdout
    tree = tomllib.loads(file.read_text())
    assert tree["policy"] == {"model": "smollm2-135m"}
    assert tree["project"]["recipe"] == ["search-r1/smollm2", "search-r1/documents"]
    assert tree["project"]["stemming"] == "english"


def test_where_smollm2_is_not_installed_a_line_says_how(init):
    done, file = init()
    assert "SmolLM2 (135M, 93 MB) learns from documents on two CPU cores: pip install gguf peft && pip" in done.stdout
    assert tomllib.loads(file.read_text())["policy"] == {"model": "tiny"}
    chosen, _ = init("other", "--documents", "docs", "--model", "tiny")
    assert "pip install" not in chosen.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["--model", "smollm2-135m"],
            {"recipe": ["search-r1/smollm2", "search-r1/documents"], "system": "search-r1"},
        ),
        (
            ["--model", "smollm2-135m", "--system", "dr-zero"],
            {"recipe": ["dr-zero/smollm2", "dr-zero/documents"], "system": "dr-zero"},
        ),
        (["--model", "Qwen/Qwen2.5-3B-Instruct", "--system", "ssp"], {"recipe": "ssp/3b", "system": "ssp"}),
        (["--model", "acme/model"], {"recipe": None, "system": "dr-zero"}),
        (["--questions", "q.jsonl"], {"recipe": "search-r1/tiny", "system": "search-r1", "questions": "q.jsonl"}),
    ],
)
def test_the_recipe_follows_system_and_model(init, words, expected, monkeypatch):
    monkeypatch.setattr("evoseek.models.source.find_policy", lambda name: name)
    done, file = init("mine", "--documents", "docs", *words)
    assert done.exception is None
    tree = tomllib.loads(file.read_text())
    assert tree["project"].get("recipe") == expected["recipe"]
    assert tree["run"]["system"] == expected["system"]
    if name := expected.get("questions"):
        assert tree["questions"]["path"] == f"../{name}"  # beside the project


def test_a_path_in_the_project_or_beside_it_is_relative_and_any_other_absolute(init, tmp_path):
    _, file = init("a/b", "--documents", "docs")
    assert tomllib.loads(file.read_text())["project"]["documents"] == str(tmp_path / "docs")
    _, file = init("mine", "--documents", "docs")
    assert tomllib.loads(file.read_text())["project"]["documents"] == "../docs"
    assert open_project(file).documents == tmp_path / "docs"


HALF = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
}  # with an embedding that is not its head 630 million parameters


@pytest.fixture
def machine(monkeypatch):
    """`machine(free, device="cpu")`: commands find so many bytes free."""

    def found(free, device="cpu"):
        for module in ("models.machine", "assembly.memory_needs"):
            monkeypatch.setattr(f"evoseek.{module}.find_machine", lambda _=None: Machine(device, int(free)))

    return found


def model_in(folder, layers=24, files=("tokenizer_config.json", "model.safetensors"), **more):
    """A folder that looks like an instruct model of this size."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**HALF, "num_hidden_layers": layers, **more}))
    for name in files:
        (folder / name).write_text('{"chat_template": "{{ messages }}"}')


@pytest.mark.parametrize(
    ("device", "free", "rank", "said"),
    [
        ("cpu", 2**40, 16, "takes a CPU long, so an adapter is trained (lora.rank = 16)."),
        ("cpu", 8e9, 16, "does not fit this machine, so an adapter is trained (lora.rank = 16)."),
        ("cpu", 1e9, 16, "Memory of training: It does not fit: about"),
        ("cuda", 2**40, None, "Wrote"),
        ("cuda", 24e9, 16, "does not fit this machine, so an adapter is trained"),
        ("cuda", 1e9, None, "Or give a smaller model (--model)."),
    ],
)
def test_many_weights_for_a_cpu_or_too_many_for_the_memory_are_trained_by_an_adapter(
    init, tmp_path, machine, device, free, rank, said
):
    model_in(tmp_path / "half")
    machine(free, device)
    options = ["--documents", "docs", "--model", "half", "--system", "search-r1", "--questions", "q.jsonl"]
    done, file = init("mine", *options)
    assert done.exception is None
    assert tomllib.loads(file.read_text()).get("lora", {}).get("rank") == rank
    assert said in done.stdout
    assert ("an adapter is trained" in done.stdout) == (rank is not None)


@pytest.mark.parametrize(
    ("free", "taken", "said"),
    [
        (
            2**40,
            "models/b",
            "Left out models/big (7,430 million parameters): on a CPU it would take minutes for",
        ),
        (2**40, "models/b", "Took models/b (1,167 million parameters), the largest that is here and fits: about"),
        (
            1e9,
            "tiny",
            "Left out models/packed.gguf: 'models/packed.gguf' is a GGUF file, and reading it needs gguf, which",
        ),
        (2.8e9, "models/a", "Left out models/b (1,167 million parameters). It does not fit: about"),
    ],
)
def test_the_largest_instruct_model_that_fits_is_the_default(init, tmp_path, machine, monkeypatch, free, taken, said):
    """Not what has no chat template, lacks a file of weights, or is quantised."""
    monkeypatch.setattr("evoseek.models.machine.cores", lambda: 2)
    machine(free)
    models = tmp_path / "models"
    model_in(models / "a")
    model_in(models / "b", layers=60)
    model_in(models / "big", layers=480)
    model_in(models / "base", layers=70, files=("model.safetensors",))
    model_in(models / "part", layers=70, files=("tokenizer_config.json",))
    model_in(models / "eighth", layers=70, quantization_config={"bits": 8})
    (models / "packed.gguf").write_bytes(b"GGUF tokenizer.chat_template" + bytes(2**20))
    monkeypatch.setattr("evoseek.models.converted.find_spec", lambda _: None)
    done, file = init()
    assert done.exception is None
    tree = tomllib.loads(file.read_text())
    assert tree["policy"]["model"] == taken
    assert said in done.stdout
    others = [f"models/{name}: an instruct model has" for name in ("base", "eighth", "part")]
    assert all(done.stdout.count(f"Left out {other}") == 1 for other in others)
    if taken != "tiny":
        assert (tree["project"]["recipe"], tree["run"]["system"], tree["lora"]["rank"]) == (
            *("search-r1/instruct", "search-r1"),
            16,
        )
        assert "questions" not in tree
        assert "first writes some about the documents" in done.stdout
    assert "There is no instruct model" not in done.stdout


def test_a_damaged_file_among_the_models_is_named(init, tmp_path):
    pytest.importorskip("gguf")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "torn.gguf").write_bytes(b"GGUF tokenizer.chat_template" + bytes(2**20))
    assert "Left out models/torn.gguf: it is damaged" in init()[0].stdout


def test_without_an_instruct_model_init_says_which_to_get(init):
    done, _ = init()
    assert "There is no instruct model" in done.stdout
    assert "hf download Qwen/Qwen2.5-1.5B-Instruct" in done.stdout


def ask_of_hops(folder, *hops):
    """Questions that say these numbers of hops, or with None do not."""
    rows = ({"question": "who ?", "golden_answers": ["Ann"], "metadata": {"hops": one} if one else {}} for one in hops)
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run_of(directory, model, *, saved=True):
    policy = directory / "checkpoints" / "step-000002" / "policy"
    (policy if saved else directory).mkdir(parents=True)
    if saved:
        (policy / "config.json").write_text("{}")
    (directory / "config.json").write_text(json.dumps({"policy": {"model": str(model)}}))
    return directory


def test_a_run_has_the_recipe_of_the_model_that_the_first_run_began_with(init, tmp_path):
    ask_of_hops(tmp_path, None)
    warm = run_of(tmp_path / "warm", "smollm2-135m")
    trained = run_of(tmp_path / "trained", warm)
    done, file = init("mine", "--documents", "docs", "--questions", "q.jsonl", "--model", str(trained))
    tree = tomllib.loads(file.read_text())
    assert (tree["project"]["recipe"], tree["project"]["max_words"]) == ("search-r1/smollm2", 40)
    assert tree["policy"]["model"] == "../trained"
    assert "show it some first" not in done.stdout  # it has been shown


@pytest.mark.parametrize(
    ("hops", "stages"), [((1, 2, 1), True), ((1, 2, None), False), ((1, 1), False), ((1, 2, 3), False)]
)
def test_questions_that_all_say_one_hop_or_two_have_stages(init, tmp_path, hops, stages):
    ask_of_hops(tmp_path, *hops)
    warm = run_of(tmp_path / "warm", "smollm2-135m")
    _, file = init("mine", "--documents", "docs", "--questions", "q.jsonl", "--model", str(warm))
    found = tomllib.loads(file.read_text())["project"]["recipe"]
    assert found == (["search-r1/smollm2", "search-r1/hops"] if stages else "search-r1/smollm2")
    names = [stage.name for stage in gather(file).read().stages]
    assert names == (["mostly two hops", "mixed"] if stages else [])


@pytest.mark.parametrize(
    "text", ["[]", "{", "[" * 100_000, '{"policy": {"model": 5}}', '{"policy": {"model": ["a"]}}', '{"policy": 1}']
)
def test_a_config_that_says_no_model_leads_no_further(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    assert origin(str(tmp_path)) == str(tmp_path)


def test_runs_that_name_each_other_are_followed_once_around(tmp_path):
    for name, other in (("a", "b"), ("b", "a")):
        run_of(tmp_path / name, tmp_path / other)
    assert origin(str(tmp_path / "a")) == str(tmp_path / "a")
    assert origin("~nobody-of-this-name/a") == "~nobody-of-this-name/a"


def test_a_relative_model_of_a_run_is_found_from_another_folder(tmp_path, monkeypatch):
    warm = run_of(tmp_path / "warm", "smollm2-135m")
    trained = RunDirectory(tmp_path / "trained")
    with trained.locked():
        read = Input(str(warm / "checkpoints" / "step-000002" / "policy"), "0" * 64)
        trained.claim({"policy": {"model": "warm"}}, {"policy.model": read})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert origin("../trained") == "smollm2-135m"
    warm.rename(tmp_path / "moved")
    assert origin("../trained") == "warm"
    trained.claim({"policy": {"model": "own"}}, {"policy.model": Input("/models/own", "0" * 64)})
    assert origin("../trained") == "own"
    trained.inputs.write_text("{")
    assert origin("../trained") == "own"


def test_an_endpoint_has_nothing_of_a_config_in_this_folder(init, tmp_path):
    (tmp_path / "config.json").write_text('{"policy": {"model": "smollm2-135m"}}')
    _, file = init("mine", "--documents", "docs", "--endpoint", "q@http://localhost:1/v1")
    assert tomllib.loads(file.read_text())["project"].keys() == {"documents", "run"}


def test_smollm2_starts_cold_where_a_system_can_and_elsewhere_is_trained_first(init, monkeypatch):
    monkeypatch.setattr("evoseek.models.source.find_policy", lambda name: name)
    found = {
        system: init(system, "--documents", "docs", "--model", "smollm2-135m", "--system", system)
        for system in ("dr-zero", "search-r1", "ssp", "sft")
    }
    assert ["You need no questions" in done.stdout for done, _ in found.values()] == [True, True, False, False]
    assert ["ssp has no cold start" in done.stdout for done, _ in found.values()] == [False, False, True, False]
    assert "questions" not in tomllib.loads(found["search-r1"][1].read_text())


def test_a_folder_of_the_name_does_not_hide_the_policy_in_the_package(init, tmp_path):
    (tmp_path / "tiny").mkdir()
    _, file = init("mine", "--documents", "docs", "--model", "tiny")
    assert tomllib.loads(file.read_text())["policy"]["model"] == "tiny"


def test_passages_are_as_long_as_the_project_says(init, tmp_path):
    (tmp_path / "docs" / "a.txt").write_text("one two three four five six seven")
    _, file = init()
    file.write_text(file.read_text().replace('run = "run"', 'max_words = 3\nrun = "run"'))
    assert "3 passages of at most 3 words" in CliRunner().invoke(app, ["index"]).stdout
    assert "2 passages of at most 5 words" in CliRunner().invoke(app, ["index", "--max-words", "5"]).stdout


def test_words_are_reduced_to_stems_as_the_project_says(init, tmp_path):
    (tmp_path / "docs" / "a.txt").write_text("The clerk was adding figures.")
    _, file = init()
    file.write_text(file.read_text().replace('run = "run"', 'stemming = "english"\nrun = "run"'))
    for given, is_found in ((), True), (("--stemming", "none"), False):
        shutil.rmtree(tmp_path / "index", ignore_errors=True)
        assert CliRunner().invoke(app, ["index", *given]).exit_code == 0
        assert ("adding figures" in CliRunner().invoke(app, ["search", "index", "added"]).stdout) is is_found


def test_an_endpoint_is_asked_and_not_trained(init):
    done, file = init("--endpoint", "qwen@http://localhost:8000/v1")
    assert "writes its searches as tags in its text" in " ".join(done.stdout.split())
    tree = tomllib.loads(file.read_text())
    assert tree["answerer"] == {"model": "qwen", "base_url": "http://localhost:8000/v1"}
    assert "evoseek train" not in done.stdout
    error = str(CliRunner().invoke(app, ["train"]).exception)
    assert "asks qwen, a model behind an endpoint, which cannot be trained" in error


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--documents", "dosc"], "There is nothing at dosc. Did you mean docs?"),
        (["docs/inside", "--documents", "docs"], "lies in the documents"),
        (["--endpoint", "http://x"], "expected NAME@URL"),
        (["--model", "tiny", "--endpoint", "a@http://x"], "Give one of them"),
        (["--system", "dr-zer"], "Did you mean dr-zero?"),
        (["--model", "./nowhere"], "there is no such directory"),
        (["--model", "docs"], "--model is the directory docs, but it holds no model: it has no config.json"),
        (["--model", "q.jsonl"], "--model is q.jsonl, but that file is not in the format GGUF. Give a directory that"),
        (["--model", "bogus.gguf"], "--model is bogus.gguf, but that file is not in the format GGUF. Give a directory"),
        (["--model", " "], "--model is ' ', but there is no such directory or GGUF file. Give a directory that holds"),
        (["--model", ""], "--model is '', but there is no such directory or GGUF file."),
        (["--model", "a model"], "--model is a model, but there is no such directory or GGUF file."),
        (["--questions", "p.jsonl"], "There is nothing at p.jsonl. Did you mean q.jsonl?"),
    ],
)
def test_what_a_later_command_would_refuse_is_refused(init, words, error):
    done, file = init(*words)
    assert error in str(done.exception)
    assert not file.exists()


def test_a_file_in_place_of_the_project_folder_is_refused_before_anything_is_planned(init):
    done, _ = init("q.jsonl", "--dry-run")
    assert "q.jsonl is a file. Give a folder for the project" in str(done.exception)


@pytest.mark.parametrize(
    ("command", "line", "after"),
    [
        ("index", 'documents = "documents"', "[project]"),
        ("train", 'run = "run"', "[project]"),
        ("status", 'run = "run"', "[project]"),
    ],
)
def test_a_file_without_the_project_table_is_completed_by_the_line_that_the_error_names(
    init, command, line, after, tmp_path
):
    file = tmp_path / "evoseek.toml"
    file.write_text('[search]\nindex = "index"\n')
    error = str(CliRunner().invoke(app, [command]).exception)
    assert f"add the line `{line}` to {after} in {file}" in error
    assert "evoseek init" not in error  # which would refuse to overwrite the file
    file.write_text(f"{after}\n{line}\n" + file.read_text())
    assert "add the line" not in str(CliRunner().invoke(app, [command]).exception)


def test_a_project_without_an_index_is_told_the_line_for_it(init, tmp_path):
    file = tmp_path / "evoseek.toml"
    file.write_text('[project]\ndocuments = "docs"\n')
    error = str(CliRunner().invoke(app, ["index"]).exception)
    assert f'add the line `index = "index"` to [search] in {file}' in error


def test_without_a_project_init_is_the_remedy(init):
    assert "make a project with `evoseek init`" in str(CliRunner().invoke(app, ["index"]).exception)


def test_a_project_is_not_overwritten(init):
    init()
    done, file = init("--model", "tiny-reader")
    assert "holds a project already" in str(done.exception)
    assert 'model = "tiny"' in file.read_text()


def test_paths_are_normalised(init, tmp_path):
    done, file = init("mine", "--documents", "docs/../docs")
    assert done.exception is None
    assert tomllib.loads(file.read_text())["project"]["documents"] == "../docs"
