"""Every door through which a file that somebody else made could run code or send data, and that it is closed until it
is opened by name: templates, projects, runs, indexes, modules, models."""

import json
import os
import py_compile
import re
import shlex
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.raising import raises
from tools.tiny.tokenizer import tiny_tokenizer
from typer.testing import CliRunner

from evoseek.assembly.sources import allow_project, gather, load_settings
from evoseek.cli.main import app
from evoseek.config import trust
from evoseek.config.project import find_project, open_project
from evoseek.config.registry import KINDS, find
from evoseek.config.settings_tree import FOLDER, find_config, nested
from evoseek.config.trust import VARIABLE
from evoseek.errors import ConfigError, PolicyError
from evoseek.learner.sharding import load_deferred
from evoseek.models.load import load_critic, load_policy, load_tokenizer
from evoseek.models.source import tiny_policy_dir
from evoseek.renderers.chat_template import USER, render_chat
from evoseek.report.view.source import RunSource
from evoseek.rollout.prompts import load_prompts
from evoseek.run import Run
from evoseek.search.encoders import encoder_of, make_encoder
from evoseek.search.manifest import EncoderRecord
from evoseek.storage.runs import flatten
from evoseek.text.templates import sandbox
from evoseek_tinker.policy import load_shell

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
    with raises("prompts.not_rendered", match=r"solver\.jinja cannot be rendered: access to attribute '__init__'"):
        load_prompts(tmp_path)["solver"].text(question="Who?", format="tags", max_calls=None)
    (tmp_path / "solver.jinja").write_text("{% set _ = passages.append(1) %}")
    with raises("prompts.not_rendered"):
        load_prompts(tmp_path)["solver"].text(passages=[])
    assert not ran.exists()


def test_the_package_makes_templates_in_one_place():
    imports = {
        path.relative_to(FOLDER.parent).as_posix()
        for path in FOLDER.parent.rglob("*.py")
        if any(word in path.read_text() for word in ("jinja2.Environment", "import Environment", "jinja2.sandbox"))
        and "jinja2" in path.read_text()
    }
    assert imports == {"text/templates.py"}
    assert sandbox().sandboxed


def test_a_models_chat_template_runs_no_code(ran):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = hostile(ran)
    with raises("chat_template.refused"):
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


def test_what_belongs_to_root_is_used_by_everybody(tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root can make a file of root's")
    (tmp_path / "evoseek.toml").write_text("")
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert find_project(tmp_path)


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

ELSEWHERE = ("system", "tool", "encoder", "baseline", "tracker", "question_writer")
DOORS = {
    **{f"{kind}.name": kind for kind in KINDS if kind not in ELSEWHERE},
    "run.system": "system",
    "tools": "tool",
    "trackers": "tracker",
    "search.encoder": "encoder",
    "cold_start.writer": "question_writer",
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
    with pytest.raises(ConfigError, match=f"names code to run.*: {key} = "):
        gather(run / "config.json")
    gather(run / "config.json", options={key: value})


CALLED = {
    **{
        f"{table}.{key}": value
        for table in ("answerer", "judge", "learner", "reader", "simulator", "support")
        for key, value in (("base_url", "http://127.0.0.1:8765/v1"), ("api_key_env", "SECRET"))
    },
    **{f"{table}.url": "https://example.org" for table in ("search", "web", "web.api")},
    **{f"{table}.api_key_env": "SECRET" for table in ("sampler", "search")},
    "sampler.urls": ["http://127.0.0.1:8000"],
    "web.api.key_env": "SECRET",
    "browse.allow_private": ["127.0.0.1:8765"],
}


@pytest.mark.parametrize("key", CALLED)
def test_a_runs_config_calls_no_server_and_sends_no_key_that_its_user_did_not_name(key, tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "_named", set())
    (tmp_path / "config.json").write_text(json.dumps(nested({key: CALLED[key]})))
    with pytest.raises(ConfigError) as caught:
        gather(tmp_path / "config.json")
    for words in (f"{key} = {json.dumps(CALLED[key])}", f"{VARIABLE}={tmp_path}", "--set"):
        assert words in str(caught.value)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    gather(tmp_path / "config.json")
    monkeypatch.delenv(VARIABLE)
    gather(tmp_path / "config.json", sets=[f"{key}={json.dumps(CALLED[key])}"])


def test_an_address_of_the_user_takes_along_no_key_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "_named", set())
    server = {"base_url": "http://127.0.0.1:8765/v1", "api_key_env": "SECRET"}
    (tmp_path / "config.json").write_text(json.dumps({"support": server}))
    for own in ({"support.base_url": server["base_url"]}, {f"judge.{key}": value for key, value in server.items()}):
        with pytest.raises(ConfigError, match=r"support\.api_key_env"):
            gather(tmp_path / "config.json", options=own)


def test_every_setting_with_an_address_or_a_key_is_checked():
    """Those of every part and table, by what their names and descriptions have in common."""
    text = (FOLDER.parents[2] / "docs" / "settings.md").read_text()
    settings = re.findall(
        r"^\| `(\w+)` \| .* \| ((?:URL|Address|Environment variable|Private address).*) \|$", text, re.M
    )
    assert {name for name, _ in settings} - {"key_env"} == {
        *("allow_private", "api_key_env", "base_url", "url", "urls")
    }


def test_the_settings_of_a_new_run_name_no_server_and_no_key(tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "_named", set())
    for number, options in enumerate(({}, {"learner.name": "tinker", "sampler.name": "tinker"})):
        config = load_settings(system="search-r1", options=options).resolved()
        (file := tmp_path / f"{number}.json").write_text(json.dumps(config))
        gather(file)


def test_a_run_may_name_the_code_of_a_recipe_that_is_given_after_it(part, tmp_path):
    path = part("recipe")
    run = downloaded(tmp_path / "run", "reward.name", path)
    (tmp_path / "mine.toml").write_text(f'reward = "{path}"\n')
    given = gather([run / "config.json", tmp_path / "mine.toml"])
    assert given.trees[1]["reward"] == path


@pytest.mark.parametrize("words", [("eval", "run"), ("ask", "--run-dir", "run", "why?"), ("train", "--run-dir", "run")])
def test_what_is_named_as_the_remedy_is_one(words, part, tmp_path, monkeypatch):
    """Whatever the command reports next, it has imported the part."""

    def error(*more):
        monkeypatch.setattr(trust, "_named", set())
        return str(CliRunner().invoke(app, [*words, *more]).exception)

    path = part("own")
    downloaded(tmp_path / "run", "reward.name", path)
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f'reward = "{path}"\n')
    assert "names code to run" in error()
    assert "in your own evoseek.toml (for `evoseek train` also with --config or --set)" in error()
    if words[0] == "train":
        assert "names code to run" not in error("--config", str(recipe))
    recipe.rename(tmp_path / "evoseek.toml")
    assert "names code to run" not in error()
    (tmp_path / "evoseek.toml").unlink()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert "names code to run" not in error()


def test_trust_in_one_folder_is_no_trust_in_another(part, tmp_path, monkeypatch):
    run = downloaded(tmp_path / "run", "reward.name", part("elsewhere"))
    (tmp_path / "evoseek.toml").write_text("")
    give_away(tmp_path / "evoseek.toml", monkeypatch)
    for folder in (tmp_path / "ru", run / "checkpoints", "", os.pathsep):
        monkeypatch.setenv(VARIABLE, str(folder))
        with pytest.raises(ConfigError, match="names code to run"):
            gather(run / "config.json")
        with pytest.raises(ConfigError, match="belongs to"):
            find_project(tmp_path)


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
    assert flatten(gather(run / "config.json").read().resolved())["judge.model"] == "qwen:latest"


def test_looking_at_a_run_imports_nothing(part, ran, tmp_path):
    run = downloaded(tmp_path / "run", "credit.name", part("viewed"))
    (run / "metrics.jsonl").write_text('{"step": 1, "reward": 1.0}\n')
    assert RunSource.open(run).warnings is not None
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


@pytest.fixture
def beside(ran, tmp_path, monkeypatch):
    """The working folder, with a package of the user's own in it, of which one module runs code."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"theirs_in_{tmp_path.name}".replace("-", "_")
    folder = tmp_path / "shared"
    (folder / name / "inner").mkdir(parents=True)
    for file in ("__init__.py", "inner/__init__.py", "mine.py"):
        (folder / name / file).write_text("Part = lambda *given: 1.0\n")
    (folder / name / "inner" / "evil.py").write_text(f"import pathlib\nRAN = pathlib.Path({str(ran)!r})\n{MODULE}")
    monkeypatch.chdir(folder)
    return folder, name


@pytest.mark.parametrize("is_used", [False, True])
@pytest.mark.parametrize(
    "given_away", ["", "{}", "{}/__init__.py", "{}/inner", "{}/inner/__init__.py", "{}/inner/evil.py"]
)
def test_another_users_module_in_the_working_folder_is_not_imported(given_away, is_used, beside, ran, monkeypatch):
    folder, name = beside
    if is_used:
        find("reward", f"{name}.mine:Part")
    given_away = folder / given_away.format(name)
    give_away(given_away, monkeypatch)
    trusted = given_away if given_away.is_dir() else given_away.parent
    with pytest.raises(ConfigError, match=rf"belongs to.*PYTHONPATH={folder},.*{VARIABLE}={trusted}\.$"):
        find("reward", f"{name}.inner.evil:Part")
    assert not ran.exists()
    assert (str(folder) in sys.path) == is_used
    monkeypatch.setenv(VARIABLE, str(folder))
    find("reward", f"{name}.inner.evil:Part")
    assert ran.exists()


def test_another_users_compiled_module_is_not_imported(beside, ran, tmp_path, monkeypatch):
    folder, name = beside
    compiled = Path(py_compile.compile(str(folder / name / "inner" / "evil.py")))
    give_away(compiled, monkeypatch)
    if os.geteuid() != 0:
        pytest.skip("which of the files is another user's, only root can choose")
    with pytest.raises(ConfigError, match=rf"{compiled.name} is where .* belongs to"):
        find("reward", f"{name}.inner.evil:Part")
    assert not ran.exists()


def test_a_folder_that_the_user_put_on_the_path_is_used_whoever_owns_it(beside, ran, monkeypatch):
    folder, name = beside
    give_away(folder, monkeypatch)
    monkeypatch.syspath_prepend(str(folder))
    find("reward", f"{name}.inner.evil:Part")
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


@pytest.mark.parametrize("load", [load_policy, load_tokenizer, load_shell, load_critic, load_deferred])
def test_a_models_own_code_is_not_run_even_by_a_user_who_would_say_yes(load, model_with_code, ran):
    with suppress(PolicyError):  # load_deferred leaves it to load_policy
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


def test_the_command_that_trusts_a_folder_can_be_pasted(tmp_path):
    file = tmp_path / "a run's" / "config.json"
    with pytest.raises(ConfigError) as error:
        trust.check_code({"reward": {"name": "mine:Reward"}}, file)
    (setting,) = (word for word in shlex.split(str(error.value).partition("set ")[2]) if word.startswith(VARIABLE))
    assert setting.rstrip(",") == f"{VARIABLE}={file.parent}"
