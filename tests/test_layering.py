"""The layers, read from the sources: what may import what, without running any of it."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage

PACKAGE = Path(__file__).parents[1] / "src" / "evoseek"
ROOMS = (
    *("types", "errors", "protocols", "storage", "http", "config", "text"),
    *("credit", "loss", "documents", "models", "renderers", "samplers", "search", "questions", "world", "learner"),
    *("rollout", "chat", "reward", "web", "assembly", "agent", "eval"),
    *("training", "selfplay", "curation", "systems", "report", "run", "serve", "cli", "__main__"),
)
STRANGERS = {"reward", "credit", "loss"}
TORCH = {"torch", "safetensors", "sentence_transformers"}
TORCH_ALLOWED = {"models", "samplers", "loss", "learner", "search/encoders"}
NETWORK = {"httpx", "httpx2", "httpcore2", "requests", "urllib3", "aiohttp", "socket", "http", "urllib"}
NETWORK_ALLOWED = {"http/server", "web", "search/remote", "samplers/vllm", "chat/endpoint", "world/server", "serve"}

FILES = sorted(PACKAGE.rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@cache
def imports_of(path: Path) -> set[str]:
    """Every imported module, also those imported inside functions; `from a import b` gives a.b where that is a file."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
    return found


@cache
def own(module: str) -> set[str]:
    """Of those, the package's own."""
    return {name for name in imports_of(MODULES[module]) if name in MODULES}


MODULES = {module_of(path): path for path in FILES}


def test_a_room_imports_those_before_it_alone():
    order = {room: number for number, room in enumerate(ROOMS)}
    assert order.keys() == {layer_of(module) for module in MODULES} - {""}
    for module in MODULES:
        room = layer_of(module)
        for other in {layer_of(name) for name in own(module)} - {room, ""}:
            assert order[other] < order.get(room, len(order)), f"{module} imports {other}, which comes after {room}"
            assert not (room in STRANGERS and other in STRANGERS), f"{module} must not know {other}"


def test_the_pages_for_developers_list_the_rooms_in_this_order():
    for page in ("AGENTS.md", "CONTRIBUTING.md"):
        listed = re.search(r"^    types  errors.*?\n\n", (PACKAGE.parents[1] / page).read_text(), re.M | re.S)[0]
        assert tuple(listed.split()) == ROOMS[:-1], page


def test_torch_and_network_stay_where_they_belong():
    for module, path in MODULES.items():
        places = {layer_of(module), "/".join(module.split(".")[1:3])}
        roots = {name.split(".")[0] for name in imports_of(path)}
        if not TORCH_ALLOWED & places:
            assert not roots & TORCH, module
        if not NETWORK_ALLOWED & places:
            assert not roots & NETWORK, module
        if layer_of(module) == "credit":
            assert "numpy" not in roots, module


def test_evaluation_knows_no_learner():
    known = set().union(*(own(module) for module in MODULES if layer_of(module) == "eval"))
    assert not {name for name in known if layer_of(name) == "learner"}


def test_what_lies_beside_the_package_is_imported_by_nothing_in_it():
    assert not {name for path in FILES for name in imports_of(path) if name.startswith(("evoseek_", "tools"))}


def test_no_import_cycles():
    TopologicalSorter({module: own(module) - {"evoseek"} for module in MODULES}).prepare()  # which names `Run` lazily


def test_imports_inside_functions_are_for_the_command_line_systems_and_optional_extras_only():
    for module, path in MODULES.items():
        if layer_of(module) in ("", "cli", "systems", "run"):  # what trains is imported when something is trained
            continue
        for function in ast.walk(tree_of(path)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = {
                    getattr(node, "module", None) or node.names[0].name
                    for node in ast.walk(function)
                    if isinstance(node, ast.Import | ast.ImportFrom)
                }
                assert not {name for name in inner if name.startswith("evoseek")}, module


def test_start_is_light():
    """The command line starts without what takes long to import, and settings are read without most of it."""
    heavy = ("torch", "transformers", "numpy", "starlette", "uvicorn", "tantivy", "huggingface_hub", "httpx2", "mcp")
    code = (
        "import sys; import evoseek; assert not any(name.startswith('evoseek.') for name in sys.modules)\n"
        "from evoseek.cli.main import app\n"
        "try: app(['--help'])\n"
        f"except SystemExit: print([m for m in {heavy} if m in sys.modules], file=sys.stderr)\n"
        "import evoseek.assembly.sources\n"
        "heavy = ('torch', 'transformers', 'numpy', 'scipy')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr.split() == ["[]", "[]"]


def test_answering_a_question_loads_nothing_that_trains(run_ranks, tmp_path):
    LexicalIndex.build(tmp_path / "index", [Passage("a#0", "a", "Kalo", "Kalo is a city .")])
    (names,) = run_ranks(1, "loaded_by_an_answer", index=str(tmp_path / "index"))["results"]
    loaded = set(names)
    tables = {"evoseek.learner.settings", "evoseek.loss.settings", "evoseek.credit"}  # with the settings
    training = {f"evoseek.training.{name}" for name in ("trainer", "plan", "update", "loop")}
    packages = {name for name in loaded if name.count(".") > 1 and layer_of(name) in ("learner", "loss", "credit")}
    assert "evoseek.assembly.context" in loaded
    assert packages <= tables
    assert not training & loaded
    assert not {name for name in loaded if layer_of(name) in ("selfplay", "train", "evaluation")}
