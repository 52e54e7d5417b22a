"""What README and the other pages say: commands, settings, code, files and links are those of the project, and the
generated pages are those of the code."""

import argparse
import ast
import json
import re
import tomllib
from importlib import import_module
from inspect import signature
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
import yaml
from typer.main import get_command

from evoseek.assembly.sources import gather
from evoseek.cli.main import app
from evoseek.config.registry import KINDS
from evoseek.config.sections import changed, check_effect, check_settings
from evoseek.config.settings_page import settings_of
from evoseek.config.settings_tree import FOLDER, read_tree, recipes
from evoseek.errors import EvoseekError
from evoseek.questions.demonstrations import load_demonstrations
from evoseek.questions.questions import load_questions
from evoseek.run import Run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DOCS = sorted((ROOT / "docs").rglob("*.md"))
RECIPES = sorted(FOLDER.rglob("*.md"))
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "AGENTS.md",
    "SECURITY.md",
    *(str(path.relative_to(ROOT)) for path in (*DOCS, *RECIPES)),
]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
COMMANDS = get_command(app)
NOTES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "notes").glob("*.md"))]
page_of = SimpleNamespace(**run_path(str(ROOT / "tests" / "docs" / "pages.py")))


@pytest.fixture(params=PAGES)
def page(request):
    """The path of each page, and its text."""
    path = ROOT / request.param
    return SimpleNamespace(path=path, text=path.read_text())


@pytest.mark.parametrize("name", ["map", "settings"])
def test_a_generated_page_is_the_one_of_the_code(name):
    made = run_path(str(ROOT / "docs" / f"{name}.py"))["page"]()
    assert (ROOT / "docs" / f"{name}.md").read_text() == made, f"run `python docs/{name}.py`"


def test_every_setting_has_a_sentence():
    for system in KINDS["system"].parts:
        for setting in settings_of("system", system):
            assert setting.sentence.endswith("."), f"{setting.name} of {system} has no sentence"


def test_test_command_is_what_ci_runs():
    command = re.search(r"Test: `([^`]+)`", README)[1]
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith(f"\n{command}")


def test_readme_is_read_in_a_minute():
    """At most 90 lines, and ten numbers outside of code, links and names such as SmolLM2-135M."""
    prose = re.sub(r"^ *```.*?^ *```|^    [^\n]*|`[^`]*`|\]\([^)]*\)", "", README, flags=re.M | re.S)
    numbers = re.findall(r"(?<![\w.-])\d[\d.,]*", prose)
    assert len(README.splitlines()) <= 90
    assert len(numbers) <= 10, numbers


def test_recipes_are_valid():
    for name, path in recipes().items():
        beneath = read_tree(path).get("over", [])[:1]
        settings = gather([Path(one) for one in (*beneath, name)]).read()
        check_settings(settings)
        check_effect(settings, changed(settings))


def test_files_that_a_page_names_are_there(page):
    """From the root, beside the page, or in the package; runs, demo/, my-project/ and manual/ are made by commands."""
    for name in re.findall(r"[\w./-]+\.(?:py|toml|md)\b", page.text):
        if name.startswith(("runs/", "demo/", "my-project/", "my-documents/", "manual/")) or not re.search(
            r"\w/\w", name
        ):
            continue
        places = [ROOT / name, page.path.parent / name]
        places += [] if name.startswith("recipes/") else [ROOT / "src" / "evoseek" / name]  # a reader looks for these
        assert any(place.exists() for place in places), name


@pytest.mark.parametrize("page", [*PAGES, *NOTES, "CHANGELOG.md"], indirect=True)
def test_links_and_pictures_lead_to_what_is_there(page):
    for target in page_of.links(page.text):
        name, _, anchor = target.partition("#")
        path = page.path.parent / name if name else page.path
        assert path.exists(), target
        assert not anchor or anchor in page_of.anchors(path.read_text()), target


def test_settings_that_the_changes_name_in_place_of_others_are_there():
    table = re.search(r"^\| Settings of (?:.+\n)+", (ROOT / "CHANGELOG.md").read_text(), re.M)[0]
    instead = [row.split("|")[2] for row in table.splitlines()[2:]]
    named = {name for cell in instead for name in re.findall(r"`(\w+\.[\w.]+)", cell)}
    there = {setting.name for system in KINDS["system"].parts for setting in settings_of("system", system)}
    there |= {f"credit.{setting.name}" for setting in settings_of("credit", "gae")}
    assert len(named) > 20
    assert named <= there


@pytest.mark.parametrize("page", NOTES, indirect=True)
def test_a_note_says_when_it_was_written(page):
    assert re.match(r"# .+ \([A-Z][a-z]+ 20\d\d\)\n", page.text)


def test_every_page_of_docs_has_a_place_in_the_menu():
    def files(entry):
        entries = entry if isinstance(entry, list) else entry.values() if isinstance(entry, dict) else ()
        return [entry] if isinstance(entry, str) else [file for inner in entries for file in files(inner)]

    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    named = files(site["nav"]) + site["not_in_nav"].split()
    there = {str(path.relative_to(ROOT / "docs")) for path in DOCS}
    assert sorted(named) == sorted(there), "give the page a line in the nav of mkdocs.yml"


def test_commands_of_a_page_are_ones_that_exist(page):
    for words in page_of.commands(page.text):
        match words:
            case ["evoseek", *rest]:
                read_command(rest, is_whole="..." not in rest)
            case ["make", target, *_]:
                assert target in TARGETS, target
            case ["pip", *_]:
                check_extras(words)
            case ["python", script, *options]:
                check_script(script, options)
    for program, *words in page_of.mentioned(page.text):
        if program == "evoseek":
            read_command(words, is_whole=False)
        else:
            check_script(words[0], words[1:])
    assert set(re.findall(r"`make ([\w-]+)", page.text)) <= TARGETS


def read_command(words, *, is_whole):
    """Parse the words as the command line does, without running the command, and read the settings that it gives.
    Of a command that is not whole arguments may be missing."""
    command, rest = COMMANDS, [word for word in words if word not in ("...", "--help")]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"there is no command {rest[0]!r}: {words}"
        command, rest = command.commands[rest[0]], rest[1:]
    if hasattr(command, "commands"):
        return
    try:
        given = command.make_context(command.name, rest).params
    except Exception as error:
        if is_whole or type(error).__name__ not in ("MissingParameter", "BadOptionUsage"):  # typer's own classes
            raise AssertionError(f"{words}: {error}") from error
        return
    check_given(given, words)


def check_given(given, words):
    """One system, that of the command if it names one, takes the settings. Files and parts of a user's own are left."""
    system = given.get("system")
    assert system in (None, *KINDS["system"].parts), words
    files = [Path(name) for name in map(str, given.get("config") or ()) if name in recipes()]
    named = [name for name in map(str, given.get("config") or ()) if re.fullmatch(r"[a-z][\w-]*(/[\w-]+)+", name)]
    assert set(named) <= recipes().keys(), words
    sets = [text for text in given.get("sets") or () if not re.search(r"=\w+:\w+$", text)]
    if files or sets:
        read_by_a_system(files, sets, system)


def read_by_a_system(files, sets=(), system=None):
    """The settings of the system that they name, or else of the first that takes them."""
    errors = []
    for name in [system] if system else [None, *KINDS["system"].parts]:
        try:
            return gather(files, system=name, sets=sets).read()
        except EvoseekError as error:
            errors.append(str(error))
    raise AssertionError(errors[0])


def check_extras(words):
    for names in re.findall(r"(?:evoseek|\.)\[([\w,]+)\]", " ".join(words)):
        assert set(names.split(",")) <= EXTRAS.keys(), names


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise AssertionError(message)


def check_script(script, options):
    """Parse the options as the script does, by the arguments that stand in it, without running it. Scripts without a
    folder are others' programs, or a reader's."""
    if not re.search(r"/.*\.py$", script):
        return
    text = (ROOT / script).read_text()
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    calls = [node for node in calls if isinstance(node.func, ast.Attribute)]
    if has_commands := any(call.func.attr == "add_parser" for call in calls):
        command, *options = options or ["none"]
        assert f'"{command}"' in text, f"{script} has no command {command!r}"
    elif "argparse" not in text:
        return
    parser = Parser(script, add_help=False, allow_abbrev=False)
    for call in (call for call in calls if call.func.attr == "add_argument"):
        names = [name.value for name in call.args]
        known = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
        if not has_commands or names[0].startswith("-"):
            parser.add_argument(*names, **{key: known[key] for key in ("nargs", "action", "required") if key in known})
    parser.parse_args([word for word in options if word != "..."])


@pytest.mark.parametrize(
    "line",
    [
        "bench/retrieval_quality.py FOLDER",
        "bench/retrieval_quality.py CORPUS QUESTIONS --encoder static",
        "bench/staleness.py",
        "bench/staleness.py speeds",
        "bench/claims.py runs/claims",
    ],
)
def test_a_script_with_other_arguments_is_found(line):
    with pytest.raises(AssertionError):
        check_script(line.split()[0], line.split()[1:])


@pytest.mark.parametrize(
    "line",
    [
        "evoseek trian",
        "evoseek train --step 3",
        "evoseek train --steps many",
        "evoseek train gpro",
        "evoseek search",
        "evoseek train --config search-r1/30b",
        "evoseek train --set learner.learning_rat=1e-5",
        "evoseek train ssp --set dr_zero.iterations=2",
    ],
)
def test_a_command_that_does_not_exist_is_found(line):
    with pytest.raises(AssertionError):
        read_command(line.split()[1:], is_whole=True)


def test_extras_that_a_page_names_exist(page):
    check_extras([page.text])


def test_settings_in_toml_are_read(page, tmp_path, monkeypatch):
    for name, text in page_of.files(page.text).items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for language, text in page_of.blocks(page.text):
        if language == "toml":
            (tmp_path / "block.toml").write_text(text)
            read_by_a_system([tmp_path / "block.toml"])


def test_json_is_of_questions_or_of_demonstrations(page, tmp_path):
    """A block is one object, or one in each line."""
    file = tmp_path / "rows.jsonl"
    for language, text in page_of.blocks(page.text):
        if language == "json":
            rows = text.splitlines() if text.count("\n{") else [text.replace("\n", " ")]
            file.write_text("\n".join(rows) + "\n")
            read = load_demonstrations if '"turns"' in text else load_questions
            assert len(read(file)) == len(rows)


def test_every_block_of_the_page_about_extensions_is_a_file_that_is_run():
    """tests/e2e/test_extensions.py trains with each recipe, and runs the block that is no file."""
    page = (ROOT / "docs" / "extend.md").read_text()
    fenced = [block.text for block in page_of.blocks(page) if block.language]
    files = page_of.files(page)
    assert {name.removesuffix(".py") for name in files if name.endswith(".py")} == {Path(name).stem for name in files}
    assert [text.rstrip() for text in files.values()] == fenced[:-1]
    assert "run.train()" in fenced[-1]


def test_measured_rows_of_a_system_are_rows_of_a_recipe():
    rows = {line for path in RECIPES for line in path.read_text().splitlines() if line.startswith("|")}
    for path in (ROOT / "docs" / "systems").glob("*.md"):
        section = path.read_text().split("## What was measured")[1].split("\n## ")[0]
        measured = [line for line in section.splitlines() if line.startswith("|")]
        assert measured
        assert set(measured) <= rows, path


def test_every_system_has_a_page():
    pages = {path.stem for path in (ROOT / "docs" / "systems").glob("*.md")}
    assert pages == KINDS["system"].parts.keys() - {"sft"}


def test_python_compiles_and_imports_what_exists(page):
    for language, text in page_of.blocks(page.text):
        if language == "python":
            tree = ast.parse(text)
            named = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module.startswith("evoseek"):
                    module = import_module(node.module)
                    assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
                elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Run":
                    check_run(node, named)


def check_run(call, named):
    """The arguments are those of Run, and a system takes the settings, which may have been named before."""
    given = signature(Run).bind(*call.args, **{word.arg: word.value for word in call.keywords}).arguments
    settings = given.get("settings")
    settings = named.get(settings.id) if isinstance(settings, ast.Name) else settings
    sets = [f"{key}={json.dumps(value)}" for key, value in ast.literal_eval(settings).items()] if settings else []
    read_by_a_system([], sets, ast.literal_eval(given["system"]))
