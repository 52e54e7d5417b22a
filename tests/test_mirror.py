"""Tests lie where the modules lie that they test, and touch nothing of them that is private."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "evoseek"
BESIDE = {  # folders of tests that mirror no room
    "bench": "tests of the scripts in bench/",
    "docs": "tests of the pages and scripts in docs/",
    "doubles": "tests of what stands in for servers, models and learners",
    "e2e": "whole commands and runs, through many rooms",
    "extra": "tests that need what .[dev] does not install",
    "tools": "tests of the scripts in tools/",
}
OF_THE_WHOLE = {  # tests that read every room
    "test_budget": "how large the package may become",
    "test_damage": "every kind of file that is read back",
    "test_effect": "settings of all parts that have no effect",
    "test_examples": "the programs in examples/",
    "test_layering": "who imports whom",
    "test_linear": "every parser of texts that others write",
    "test_mirror": "this file",
    "test_mistakes": "a new user's mistakes at the command line",
    "test_packaging": "what is installed",
    "test_readme": "the README and the pages",
    "test_traps": "mistakes of published training code",
    "test_verifiers": "the bridge to verifiers",
}
UNTESTED = {  # modules without a test file of their own, and what tests them
    "agent/prompt": "cli/test_ask_show_prompt",
    "chat/settings": "chat/test_endpoint",
    "cli/demo": "e2e/test_demo",
    "cli/doctor/command": "cli/doctor/test_checks",
    "cli/evaluate": "e2e/test_evaluate",
    "cli/learning_demo": "e2e/test_demo",
    "cli/options": "cli/test_settings",
    "cli/propose": "e2e/test_propose",
    "config/settings_page": "test_readme",
    "documents/column_headings": "documents/test_page_layout",
    "documents/parsing": "documents/test_documents",
    "documents/read_report": "cli/test_index",
    "eval/run": "e2e/test_evaluate",
    "learner/settings": "learner/test_learner",
    "loss/settings": "loss/test_clipped",
    "models/settings": "models/test_load",
    "models/source": "models/test_load",
    "protocols": "no code but its signatures",
    "questions/answer_rules": "questions/test_question_rules",
    "questions/writers/base": "no code but its protocol",
    "questions/writers/rules_en/english": "questions/writers/rules_en/test_clozes",
    "questions/writers/rules_en/fronting": "questions/writers/rules_en/test_clozes",
    "questions/writers/rules_en/writer": "questions/writers/test_checking",
    "rollout/limits": "rollout/test_roller and rollout/test_run",
    "search/settings": "search/test_opening",
    "search/sources": "search/test_indexing",
    "text/printable": "cli/test_ask",
    "text/rows": "questions/test_questions",
    "training/plan": "training/test_trainer",
    "training/supervised": "systems/test_sft",
    "types": "no code but its records",
    "web/extract_worker": "web/test_extract",
    "web/settings": "web/test_providers",
}

PRIVATE_NAMES_TOUCHED = 114  # to be lowered, never raised


def modules() -> set[str]:
    """Every module with code, and every package, as a path: "search/lexical"."""
    files = {path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py")}
    return {path.as_posix() for path in files if not path.name.startswith("__")}


def names_of_tests() -> set[str]:
    return {path.relative_to(TESTS).with_suffix("").as_posix() for path in TESTS.rglob("test_*.py")}


def mirrored(test: str, names: set[str]) -> str | None:
    """The module that a test mirrors: that of its name, or of its name without an aspect at the end."""
    folder, _, name = test.rpartition("/")
    words = name.removeprefix("test_").split("_")
    for end in range(len(words), 0, -1):
        module = "/".join(filter(None, (folder, "_".join(words[:end]))))
        if module in names:
            return module
    return None


def test_every_test_has_the_name_of_a_module_or_of_one_and_an_aspect():
    alone = {
        test
        for test in names_of_tests()
        if test.split("/")[0] not in BESIDE and test not in OF_THE_WHOLE and mirrored(test, modules()) is None
    }
    assert not alone, "name each after its module, tests/room/test_module_aspect.py"
    assert set(OF_THE_WHOLE) <= names_of_tests()


def test_every_module_has_a_test_or_stands_in_the_list():
    without = modules() - {mirrored(test, modules()) for test in names_of_tests()}
    assert without == set(UNTESTED), "add tests/room/test_module.py, or the module and what tests it to the list"
    named = {word for words in UNTESTED.values() for word in words.split() if "test_" in word}
    assert named <= names_of_tests(), "name the file that tests it now"


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(TESTS.rglob("*.py")):
        yield path.relative_to(TESTS).as_posix(), ast.parse(path.read_text())


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_test_imports_a_private_name():
    found = {
        f"{file}: {alias.name}"
        for file, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("evoseek")
        for alias in node.names
        if is_private(alias.name)
    }
    assert not found, "test it through a public name"


def touched(tree: ast.Module) -> Iterator[str]:
    """The private names of others that a test reads, calls or puts something in the place of."""
    made = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    made |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in made:
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            texts = [part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            yield from filter(is_private, (text.rpartition(".")[2] for text in texts))


def test_private_names_are_touched_ever_less():
    places = [f"{file}: {name}" for file, tree in trees() for name in touched(tree)]
    assert len(places) <= PRIVATE_NAMES_TOUCHED, places
