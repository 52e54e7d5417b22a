"""Every door through which a file that somebody else made could run code, and that it is closed until it is opened by
name: templates, projects, runs, indexes, modules, models."""

import json
import os
import shutil
import sys
from contextlib import suppress

import pytest

from evoseek.env.prompts import load_prompts
from evoseek.errors import ConfigError, PolicyError
from evoseek.policy.chat_template import USER, render_chat
from evoseek.policy.critic import load_critic
from evoseek.policy.load import load_policy, load_shell, load_tokenizer
from evoseek.policy.source import tiny_policy_dir
from evoseek.policy.unread import load_unread
from evoseek.project import find_project, open_project
from evoseek.recipes.catalogue import FOLDER, find_config
from evoseek.registry import KINDS, find
from evoseek.report.view.source import Source
from evoseek.run import Run
from evoseek.runs import flatten
from evoseek.search.encoders.encoder import encoder_of, make_encoder
from evoseek.search.manifest import EncoderRecord
from evoseek.templates import sandbox
from evoseek.tiny.tokenizer import tiny_tokenizer
from evoseek.training.given import allow_project, gather, load_settings
from evoseek.trust import VARIABLE

NOBODY = 12345
MODULE = "RAN.touch()\nclass Part:\n    def __call__(self, *given):\n        return 1.0\n"


@pytest.fixture
def ran(tmp_path):
    """A file that exists once code of somebody else has run."""
    return tmp_path / "ran"


@pytest.fixture
def part(ran, tmp_path, monkeypatch):
    """`part("loss")`: the import path of code that a user could import, under a name that no other test uses."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "installed")])
    (tmp_path / "installed").mkdir()

    def made(kind):
        name = f"theirs_{tmp_path.name}_{kind}".replace("-", "_").replace(".", "_")
        text = f"import pathlib\nRAN = pathlib.Path({str(ran)!r})\n{MODULE}"
        (tmp_path / "installed" / f"{name}.py").write_text(text)
        return f"{name}:Part"

    return made


def give_away(path, monkeypatch):
    """Make a file another user's: by its owner if this process may, or else by who this process is."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)


# -- templates ----------------------------------------------------------------------------------------------------


def hostile(ran):
    return f"{{{{ cycler.__init__.__globals__.os.system('touch {ran}') }}}}"


def test_a_prompt_runs_no_code(ran, tmp_path):
    (tmp_path / "solver.jinja").write_text(hostile(ran))
    with pytest.raises(ConfigError, match=r"solver\.jinja cannot be rendered: access to attribute '__init__'"):
        load_prompts(tmp_path)["solver"].text(question="Who?", format="tags", max_calls=None)
    (tmp_path / "solver.jinja").write_text("{% set _ = passages.append(1) %}")
    with pytest.raises(ConfigError, match="cannot be rendered"):
        load_prompts(tmp_path)["solver"].text(passages=[])
    assert not ran.exists()


def test_the_package_makes_templates_in_one_place():
    imports = {
        path.relative_to(FOLDER.parent).as_posix()
        for path in FOLDER.parent.rglob("*.py")
        if any(word in path.read_text() for word in ("jinja2.Environment", "import Environment", "jinja2.sandbox"))
        and "jinja2" in path.read_text()
    }
    assert imports == {"templates.py"}
    assert sandbox().sandboxed


def test_a_models_chat_template_runs_no_code(ran):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = hostile(ran)
    with pytest.raises(PolicyError, match="chat template"):
        render_chat(tokenizer, [USER])
    assert not ran.exists()


# -- a project ----------------------------------------------------------------------------------------------------


def test_another_users_project_above_is_not_used_unless_it_is_asked_for(tmp_path, monkeypatch):
    file, below = tmp_path / "evoseek.toml", tmp_path / "mine"
    below.mkdir()
    file.write_text('[run]\nsystem = "dr-zero"\n')
    assert find_project(below).file == file
    give_away(file, monkeypatch)
    with pytest.raises(ConfigError) as caught:
        find_project(below)
    for words in (str(file), "belongs to", f"--project {tmp_path}", f"{VARIABLE}={tmp_path}"):
        assert words in str(caught.value)
    assert open_project(tmp_path).file == file
    monkeypatch.setenv(VARIABLE, f"{tmp_path / 'other'}{os.pathsep}{tmp_path}")
    assert find_project(below).file == file


def test_another_users_link_to_a_project_of_ones_own_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "kept").write_text("")
    (tmp_path / "evoseek.toml").symlink_to(tmp_path / "kept")
    assert find_project(tmp_path)
    give_away(tmp_path / "evoseek.toml", monkeypatch)
    with pytest.raises(ConfigError, match="belongs to"):
        find_project(tmp_path)


def test_another_users_file_with_the_name_of_a_recipe_is_not_taken_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / "smollm2").write_text("")
    assert find_config(tmp_path / "sft" / "smollm2").exists()
    give_away(tmp_path / "sft" / "smollm2", monkeypatch)
    with pytest.raises(ConfigError, match="recipe of this name and belongs to"):
        find_config((tmp_path / "sft" / "smollm2").relative_to(tmp_path))


# -- a run --------------------------------------------------------------------------------------------------------

DOORS = {
    **{
        f"{kind}.name": kind
        for kind in KINDS
        if kind not in ("system", "tool", "order", "encoder", "baseline", "tracker")
    },
    "run.system": "system",
    "tools": "tool",
    "trackers": "tracker",
    "questions.order": "order",
    "search.encoder": "encoder",
    "stages": "stage",
}


def downloaded(folder, key, value):
    """A run's folder whose config sets this."""
    config = load_settings(system="search-r1").resolved()
    table, _, name = key.partition(".")
    if name:
        config[table] = {**config[table], name: value}
    else:
        config[table] = [{"name": value} if table != "stages" else {"name": "one", "loss": value}]
    (folder / "checkpoints" / "step-000001").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("key", DOORS)
def test_a_runs_config_imports_no_part_that_its_user_did_not_name(key, part, ran, tmp_path):
    path = part(DOORS[key])
    run = downloaded(tmp_path / "run", key, path)
    for use in (lambda: gather(run / "config.json").read(), lambda: Run(directory=run)):
        with pytest.raises(ConfigError) as caught:
            use()
        for words in (str(run / "config.json"), path, f"{VARIABLE}={run}", "--set"):
            assert words in str(caught.value)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sampler.program", ["sh", "-c", "touch ran"]),
        ("sampler.arguments", ["--trust-remote-code"]),
    ],
)
def test_a_runs_config_starts_no_command_that_its_user_did_not_name(key, value, tmp_path):
    run = downloaded(tmp_path / "run", "run.seed", 1)
    config = json.loads((run / "config.json").read_text())
    table, _, name = key.partition(".")
    config.setdefault(table, {})[name] = value
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=f"names code to run: {name} = "):
        gather(run / "config.json")
    gather(run / "config.json", options={key: value})


def test_code_that_the_user_names_too_or_trusts_is_used(part, ran, tmp_path, monkeypatch):
    option, project, trusted = (part(kind) for kind in ("option", "project", "trusted"))
    gather(downloaded(tmp_path / "1", "reward.name", option) / "config.json", sets=[f"reward.name={option}"])
    (tmp_path / "evoseek.toml").write_text(f'[project]\nrecipe = "{tmp_path}/recipe.toml"\n')
    (tmp_path / "recipe.toml").write_text(f'reward = "{project}"\n')
    run = downloaded(tmp_path / "2", "reward.name", project)
    with pytest.raises(ConfigError, match="names code to run"):
        gather(run / "config.json")
    allow_project(open_project(tmp_path))
    gather(run / "config.json")
    assert not ran.exists()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "3"))
    assert gather(downloaded(tmp_path / "3", "reward.name", trusted) / "config.json").read().reward.name == trusted
    assert ran.exists()


def test_the_name_of_a_model_is_no_code(tmp_path):
    run = downloaded(tmp_path, "judge.model", "qwen:latest")
    assert flatten(gather(run / "config.json").read(light=True).resolved())["judge.model"] == "qwen:latest"


def test_looking_at_a_run_imports_nothing(part, ran, tmp_path):
    run = downloaded(tmp_path / "run", "credit.name", part("viewed"))
    (run / "metrics.jsonl").write_text('{"step": 1, "reward": 1.0}\n')
    assert Source.open(run).warnings is not None
    assert not ran.exists()


# -- an index -----------------------------------------------------------------------------------------------------


def test_an_index_imports_no_encoder_that_its_user_did_not_name(part, ran, tmp_path, monkeypatch):
    record = EncoderRecord(
        settings={"name": part("manifest")}, query_prompt="", passage_prompt="", pooling="", dimension=1, weights=""
    )
    with pytest.raises(ConfigError, match=r"manifest\.json names code to run"):
        encoder_of(record, tmp_path)
    assert not ran.exists()


# -- a module -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_away", ["folder", "file"])
def test_another_users_module_in_the_working_folder_is_not_imported(given_away, ran, tmp_path, monkeypatch):
    name = f"theirs_in_{tmp_path.name}".replace("-", "_")
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / f"{name}.py").write_text(f"import pathlib\nRAN = pathlib.Path({str(ran)!r})\n{MODULE}")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(folder)
    give_away(folder if given_away == "folder" else folder / f"{name}.py", monkeypatch)
    with pytest.raises(ConfigError, match=f"belongs to.*PYTHONPATH={folder}"):
        find("reward", f"{name}:Part")
    assert not ran.exists()
    assert str(folder) not in sys.path
    monkeypatch.syspath_prepend(str(folder))
    find("reward", f"{name}:Part")
    assert ran.exists()


# -- a model ------------------------------------------------------------------------------------------------------


@pytest.fixture
def model_with_code(ran, tmp_path, monkeypatch):
    """A model of a type that comes with its own code, before a user who says yes to everything."""
    shutil.copytree(tiny_policy_dir(), folder := tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    kinds = ("AutoConfig", "AutoModelForCausalLM", "AutoModelForTokenClassification", "AutoTokenizer")
    config |= {"model_type": "theirs", "auto_map": dict.fromkeys(kinds, "theirs.Part")}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer |= {"tokenizer_class": "Part", "auto_map": {"AutoTokenizer": ["theirs.Part", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (folder / "theirs.py").write_text(f"import pathlib\nRAN = pathlib.Path({str(ran)!r})\n{MODULE}")
    monkeypatch.setattr("builtins.input", lambda _: "y")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return folder


@pytest.mark.parametrize("load", [load_policy, load_tokenizer, load_shell, load_critic, load_unread])
def test_a_models_own_code_is_not_run_even_by_a_user_who_would_say_yes(load, model_with_code, ran):
    with suppress(PolicyError):  # load_unread leaves it to load_policy
        assert load(str(model_with_code)) is None
    assert not ran.exists()


def test_an_encoders_own_code_is_not_run(ran, tmp_path):
    pytest.importorskip("sentence_transformers")
    (tmp_path / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "theirs.Part"}]))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "theirs.py").write_text(f"import pathlib\nRAN = pathlib.Path({str(ran)!r})\n{MODULE}")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        make_encoder(str(tmp_path))
    assert not ran.exists()
