"""What is chosen by name or import path, and what is said of a name that means nothing."""

import inspect
import re
import sys
from importlib.util import find_spec

import pytest

from evoseek.config import registry
from evoseek.config.registry import KINDS, build, check_name, find, settings_class
from evoseek.config.sections import PartSettings
from evoseek.config.settings_page import parts_of
from evoseek.errors import ConfigError, ToolError
from evoseek.eval.attempt import Baseline
from evoseek.loss.base import LossFn
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.settings import LossSettings
from evoseek.protocols import Environment, MetricSink, Sampler, SearchEngine, Tool
from evoseek.search.encoders import Embedder
from evoseek.training.loop import System

MINE = '''
"""Parts of somebody's own."""

class Halved:
    def __call__(self, rewards, groups):
        return [reward / 2 for reward in rewards]

class Silent:
    pass

def constant(trajectory):
    return 1.0

def by_turn(rewards, groups, trajectories):
    return trajectories

def by_other(rewards, groups, other):
    return other

def doubled(number: float) -> float:
    """Double a number."""
    return 2 * number

NUMBER = 3

class Narrow:
    is_local = True

    async def search(self, query):
        return []

class Waits:
    is_local = True

    def search(self, queries, k):
        return [[] for _ in queries]

class Nameless:
    async def __call__(self, call):
        return None

    def for_question(self, question, trajectory_id):
        return self

class Maker:
    def build(self, settings, context):
        return 1

class Placed:
    def __init__(self, place):
        self.place = place

    def __call__(self, trajectory):
        return 1.0

class Failing:
    def __init__(self):
        raise KeyError("place")

    def __call__(self, trajectory):
        return 1.0

class Bound:
    def for_question(self, question, trajectory_id):
        return self

def pair(trajectory, question):
    return 1.0

class Outer:
    def inner(self):
        pass
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """`mine("Name")`: the import path of a part in a file beside the working directory's recipe."""
    module = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(MINE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    yield lambda name: f"{module}:{name}"
    sys.modules.pop(module, None)


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        ("from evoseek.corpus.questions import (\n    load_questions)", "corpus.questions", "questions.questions"),
        ("import evoseek.settings", "settings", "config.sections"),
        ("def f():\n    from evoseek.corpus import answers\nf()", "corpus.answers", "questions.answers"),
        ("from evoseek import runs", "runs", "storage.runs"),
        ("from evoseek.policy import (\n    load,  # of evoseek.runs\n    lora,\n)", "policy.load", "models.load"),
        ("from evoseek.policy import load as l, lora as r", "policy.load", "models.load"),
        ("import importlib\nimportlib.import_module('evoseek.policy.load')", "policy.load", "models.load"),
    ],
)
def test_a_part_that_imports_a_module_from_where_it_was_is_told_where_it_is(line, old, new, mine):
    module = mine("Halved").partition(":")[0]
    with open(f"{module}.py", "a") as file:
        file.write(line)
    with pytest.raises(ConfigError, match=rf"{module}:Halved' imports evoseek\.{old}, which is now evoseek\.{new}\. "):
        find("credit", mine("Halved"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import evoseek.policy.engines", "evoseek.policy.engines, whose modules are now in evoseek.samplers.vllm. "),
        ("from evoseek import simulator", "evoseek.simulator, whose modules are now in evoseek.systems.zerosearch. "),
        ("from evoseek.data.audit import audit", "evoseek.data.audit, which this version does not have (CHANGELOG.md"),
        ("from evoseek.types import Question, Gone", "cannot be imported: cannot import name 'Gone'"),
        ("from evoseek.search import gone", "cannot be imported: cannot import name 'gone'"),
        ("import evoseek\nevoseek.policy.load", "(AttributeError: module 'evoseek' has no attribute 'policy')"),
    ],
)
def test_a_part_that_imports_what_is_gone_is_told_so(line, words, mine):
    with open(f"{mine('Halved').partition(':')[0]}.py", "a") as file:
        file.write(line)
    with pytest.raises(ConfigError, match=re.escape(words)):
        find("credit", mine("Halved"))


def test_a_module_of_ones_own_that_fails_is_not_taken_for_one_that_moved(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text("import nowhere_to_be_found")
    monkeypatch.syspath_prepend(tmp_path / "mine")
    with pytest.raises(ConfigError, match="'train:Part' cannot be imported: No module named 'nowhere_to_be_found'"):
        find("credit", "train:Part")


def test_a_part_that_imports_when_it_is_made_is_told_where_a_module_is(mine):
    with open(f"{mine('Halved').partition(':')[0]}.py", "a") as file:
        file.write(
            "class Late:\n    @classmethod\n    def build(cls, settings, context):\n        import evoseek.runs\n"
        )
    with pytest.raises(ConfigError, match=r":Late' imports evoseek\.runs, which is now evoseek\.storage\.runs\. "):
        build("credit", PartSettings(name=mine("Late")), None)


def test_a_part_that_is_named_by_where_it_was_is_told_where_it_is():
    with pytest.raises(ConfigError, match=r"imports evoseek\.credit\.advantages, which is now evoseek\.credit\."):
        find("credit", "evoseek.credit.advantages:GroupCredit")
    for _, new in sorted(registry.moved().items()):
        assert find_spec(f"evoseek.{new}"), new


PATHS = {(kind, name): path for kind, what in KINDS.items() for name, path in {**what.parts, **what.packaged}.items()}


@pytest.mark.parametrize(("kind", "name"), PATHS)
def test_every_name_is_of_its_kind(kind, name):
    part = find(kind, name)
    assert callable(part)
    assert find(kind, PATHS[kind, name]) is part  # an import path is looked at as one of a user's own is


@pytest.mark.parametrize("kind", ["sampler", "learner"])
@pytest.mark.parametrize("read", [find, settings_class])
def test_a_part_whose_package_is_not_installed_names_what_to_install(kind, read, monkeypatch):
    def import_module(module):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module.partition(".")[0])

    monkeypatch.setattr(registry, "import_module", import_module)
    check_name(kind, "tinker")
    with pytest.raises(ConfigError, match=r"`pip install evoseek-tinker` .*`pip install packages/tinker`"):
        read(kind, "tinker")


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        (
            "loss",
            "clippd",
            "There is no loss 'clippd'. Did you mean clipped? Choose one of clipped, ",
        ),
        ("system", "srch-r1", "There is no system 'srch-r1'. Did you mean search-r1?"),
        ("credit", "zzz", f"There is no credit 'zzz'. Choose one of {', '.join(KINDS['credit'].parts)} ("),
        ("credit", "zzz", "or give your own credit as package.module:Name."),
        ("tracker", "wandbb", "There is no tracker 'wandbb'. Did you mean wandb? Choose one of"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(kind, name, words):
    for refused in (find, check_name):
        with pytest.raises(ConfigError) as caught:
            refused(kind, name)
        assert words in str(caught.value)
        assert f"`evoseek list {kind}`" in str(caught.value)


@pytest.mark.parametrize("path", ["evoseek.loss clipped:Loss", ":Loss", "a.b:", "a..b:C", "a:b:c", "a/b.py:C"])
def test_what_is_no_import_path_is_refused(path):
    with pytest.raises(ConfigError, match=r"is not an import path\. Expected package\.module:Name"):
        find("loss", path)


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"'evosek\.losses:Loss' cannot be imported: .*python -c 'import evosek\."):
        find("loss", "evosek.losses:Loss")


def test_a_name_that_the_module_does_not_have_is_refused_with_the_nearest(mine):
    with pytest.raises(ConfigError, match=r"has no 'Halve', which was given as credit\. Did you mean Halved\?"):
        find("credit", mine("Halve"))
    with pytest.raises(ConfigError, match=r"has no 'zzzz', which was given as credit\.$"):
        find("credit", mine("zzzz"))


def test_a_module_that_fails_is_named_with_its_error(tmp_path, monkeypatch):
    (tmp_path / "broken_part.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"Importing the reward 'broken_part:x' failed \(ZeroDivisionError: "):
        find("reward", "broken_part:x")


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("learner", "Halved", "is given as learner, but it has no update. A learner (forward, backward and"),
        ("search", "constant", "is given as search, but it has no search."),
        ("reward", "NUMBER", "is given as reward, but it cannot be called."),
        ("credit", "Silent", "is given as credit, but it cannot be called."),
        ("system", "Halved", "is given as system, but it has no build. A system (a training algorithm, one step at a"),
    ],
)
def test_a_part_of_another_kind_is_refused_with_what_it_lacks(mine, kind, name, words):
    with pytest.raises(ConfigError) as caught:
        find(kind, mine(name))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        (
            "search",
            "Narrow",
            "its search(self, query) cannot be called as async search(queries, k) (too many",
        ),
        ("search", "Waits", "its search(self, queries, k) is not a coroutine function (async def)"),
        (
            "reward",
            "pair",
            "its __call__(trajectory, question) cannot be called as __call__(trajectory) (missing a",
        ),
        ("reward", "Placed", "its Placed(place) cannot be called as Placed() (missing a required argument: 'place')"),
        ("loss", "Maker", "its build(self, settings, context) cannot be called as build(settings, context) (missing a"),
        ("loss", "Maker", "required argument: 'context'; @classmethod is missing)"),
        ("tool", "Nameless", "it has no name"),
        ("reward", "Failing", "failed (KeyError: 'place')"),
    ],
)
def test_a_part_of_ones_own_is_reported_with_its_method_and_the_expected_one(mine, kind, name, words):
    with pytest.raises(ConfigError) as caught:
        build(kind, LossSettings(name=mine(name)), None)
    assert words in str(caught.value)
    assert mine(name) in str(caught.value)


def test_what_a_part_of_ones_own_says_itself_is_told_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "saying_part.py").write_text(
        "from evoseek.errors import ToolError\n"
        "class Says:\n"
        "    @classmethod\n"
        "    def build(cls, settings, context):\n"
        "        raise ToolError('The server of mine is down.')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ToolError, match=r"^The server of mine is down\.$"):
        build("reward", LossSettings(name="saying_part:Says"), None)


def test_an_engine_that_is_bound_to_a_question_first_needs_nothing_else(mine):
    assert isinstance(build("search", LossSettings(name=mine("Bound")), None), find("search", mine("Bound")))


PROTOCOLS = {  # a reward may be a plain function, too
    "system": System,
    "environment": Environment,
    "tool": Tool,
    "search": SearchEngine,
    "encoder": Embedder,
    "loss": LossFn,
    "sampler": Sampler,
    "baseline": Baseline,
    "tracker": MetricSink,
}


@pytest.mark.parametrize(("kind", "protocol"), PROTOCOLS.items())
def test_what_a_kind_needs_is_what_its_protocol_says(kind, protocol):
    for need in KINDS[kind].needs:
        name, is_method, _ = need.removeprefix("async ").partition("(")
        if is_method and name != "build":
            found = getattr(protocol, name)
            kinds = [(one.name, one.kind.name) for one in inspect.signature(found).parameters.values()]
            stars = next((number for number, (_, sort) in enumerate(kinds) if sort == "KEYWORD_ONLY"), None)
            names = [one for one, _ in kinds if one != "self"]
            names = [*names[: stars - 1], "*", *names[stars - 1 :]] if stars else names
            start = "async " if inspect.iscoroutinefunction(found) else ""
            assert need == f"{start}{name}({', '.join(names)})"


def test_a_part_in_a_file_beside_the_working_directory_is_found_and_built(mine):
    credit = build("credit", LossSettings(name=mine("Halved")), None)
    assert credit([1.0, 3.0], ["a", "a"]) == [0.5, 1.5]
    assert build("reward", LossSettings(name=mine("constant")), None)(None) == 1.0  # a function is the part itself
    assert find("reward", mine("Outer.inner")).__name__ == "inner"


def test_a_credit_may_take_the_trajectories_as_its_third_argument(mine):
    assert find("credit", mine("by_turn"))([1.0], ["a"], trajectories=["t"]) == ["t"]
    with pytest.raises(ConfigError, match="missing a required argument: 'other'"):
        find("credit", mine("by_other"))


def test_a_function_with_a_docstring_is_made_a_tool(mine):
    tool = build("tool", LossSettings(name=mine("doubled")), None)
    assert (tool.name, tool.schema["function"]["description"]) == ("doubled", "Double a number.")


def test_a_part_is_built_by_its_own_settings():
    settings = ClippedLoss.Settings(clip_low=0.1, clip_high=0.3)
    assert build("loss", settings, None) == ClippedLoss(0.1, 0.3)


def test_a_class_whose_build_makes_the_part_is_taken_as_it_is():
    assert find("search", "evoseek.search.lexical:Lexical") is find("search", "lexical")


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, about in KINDS.items() for name in about.parts])
def test_a_default_of_a_part_is_that_of_its_settings(kind, name):
    part, settings = find(kind, name), settings_class(kind, name)
    arguments = inspect.signature(part).parameters.values() if isinstance(part, type) and settings else ()
    given = [one for one in arguments if one.default is not one.empty and one.name in settings.model_fields]
    assert {one.name: one.default for one in given} == {one.name: getattr(settings(), one.name) for one in given}


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_has_a_sentence_of_its_own(kind):
    sentences = parts_of(kind).values()
    assert all(sentences)
    assert len(set(sentences)) == len(sentences)
