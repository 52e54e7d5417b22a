"""Golden bytes: short runs of every system on the tiny policies, as digests of all that they wrote.

A change that moves code, and shall change nothing that is learnt, leaves every digest as it was:

    git checkout BEFORE && python bench/golden.py --write golden.json
    git checkout AFTER  && python bench/golden.py --compare golden.json

Digests are of metrics.jsonl, of trajectories.jsonl and of the weights in the last checkpoint. They
hold for one kind of processor and one release of torch (on one thread), so both runs belong on one machine.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from evoseek.renderers.encoding import plain
from evoseek.rollout.prompts import load_prompts
from evoseek.run import Run
from evoseek.search.lexical import LexicalIndex
from evoseek.systems.zerosearch.engine import SimulatedEngine, simulator_reply
from evoseek.web.reading import PageBeginning
from evoseek.web.web import Web
from evoseek.world.site import Site
from evoseek.world.world import World, make_world

sys.path.append(str(Path(__file__).parents[1]))  # for the doubles

from tests.doubles.scripted import ScriptedChat
from tools.tiny.site_web import SiteWeb

ENTITIES = 300
ASKED = re.compile(r"simulate (useful|noisy) documents : (.*) is (.*) query (.*)", re.DOTALL)

SMALL = {"questions.per_step": 4, "rollout.group_size": 4, "evaluation.limit": 8, "evaluation.every": 2}
SMALL_GAME = {"selfplay.proposals_per_step": 6, "rollout.group_size": 4, "evaluation.limit": 8}
PHASES = {
    "dr_zero.iterations": 2,
    "dr_zero.proposer_steps": 1,
    "dr_zero.writing_steps": 1,
    "dr_zero.solver_steps": 2,
    "dr_zero.passages_per_writing_step": 12,
    "questions.per_step": 4,
}
ALGORITHMS = ("reinforce", "grpo", "ppo", "dapo", "gspo", "dspo")

# name -> (system, recipe, settings)
CASES: dict[str, tuple[str, str, dict[str, object]]] = {
    "search-r1": ("search-r1", "search-r1/tiny", SMALL),
    **{name: ("", f"algorithms/{name}", SMALL | {"algorithm.mini_batches": 2}) for name in ALGORITHMS[1:]},
    "reinforce": ("", "algorithms/reinforce", SMALL),
    "kl-and-entropy": (
        "search-r1",
        "search-r1/tiny",
        SMALL | {"algorithm.kl_coefficient": 0.01, "algorithm.entropy_coefficient": 0.01},
    ),
    "system-dspo": ("dspo", "", SMALL),
    "zerosearch": ("zerosearch", "", SMALL | {"search.top_k": 3}),
    "deepresearcher": ("deepresearcher", "deepresearcher/tiny", SMALL),
    "dr-zero": ("dr-zero", "dr-zero/tiny", SMALL_GAME | PHASES),
    "dr-zero-majority": ("dr-zero", "ablations/dr-zero/majority", SMALL_GAME | PHASES),
    "ssp": ("ssp", "ssp/tiny", {"selfplay.proposals_per_step": 6, "evaluation.limit": 8}),
}


def places(root: Path) -> dict[str, object]:
    """The worlds, made unless they are there, and where held-out questions are."""
    for split in ("train", "evaluation"):
        make_world(root / split, split, 0, 40, (1, 2, 2, 3), entities=ENTITIES)
    return {
        "evaluation.index": root / "evaluation" / "index",
        "evaluation.path": root / "evaluation" / "questions.jsonl",
    }


def simulator(root: Path) -> SimulatedEngine:
    """One that knows the training world: useful documents are its articles, noisy ones are about others."""
    index = LexicalIndex.open(root / "train" / "index")

    def script(messages, key):
        kind, _, _, query = ASKED.fullmatch(plain(messages[0].content).strip()).groups()
        found = [passage.text for passage in index.find(query, 6)]
        return simulator_reply(found[:3] if kind == "useful" else found[3:])

    return SimulatedEngine(ScriptedChat(script), load_prompts("tiny"), max_words=100, seed=0)


def web(root: Path) -> Web:
    """The training world as the whole web, without a network."""
    world = World.generate(0, ENTITIES, "train")
    site = Site(world, 0)
    index = LexicalIndex.build(root / "site", site.passages())
    found = SiteWeb(site, index)
    return Web(found, found, PageBeginning(80))


def run(name: str, root: Path) -> dict[str, str]:
    """Train the case and give the digests of what it wrote."""
    system, recipe, settings = CASES[name]
    directory = root / "runs" / name
    given = {"run.steps": 8 if name.startswith("dr-zero") else 2, "run.checkpoint_every": 1} | settings | places(root)
    if system == "deepresearcher":
        del given["evaluation.index"]
    if system not in ("dr-zero", "ssp"):
        given["questions.path"] = root / "train" / "questions.jsonl"
    if system not in ("zerosearch", "deepresearcher"):
        given["search.index"] = root / "train" / "index"
    training = Run(
        system or None,
        directory,
        config=[recipe] if recipe else [],
        settings=given,
        search=simulator(root) if system == "zerosearch" else None,
        web=web(root) if system == "deepresearcher" else None,
    )
    training.train()
    return dict(digests(directory))


def digests(directory: Path) -> Iterator[tuple[str, str]]:
    last = max((directory / "checkpoints").iterdir())
    for path in (directory / "metrics.jsonl", directory / "trajectories.jsonl", *sorted(last.rglob("*.safetensors"))):
        yield str(path.relative_to(directory)), hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path, help="a JSON file for the digests")
    what.add_argument("--compare", type=Path, help="such a file")
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES), metavar="CASE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict[str, str]] = {}
    with TemporaryDirectory() as folder:
        root = Path(folder)
        places(root)
        for name in options.only:
            found[name] = run(name, root)
    if options.write:
        options.write.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return
    golden = json.loads(options.compare.read_text(encoding="utf-8"))
    for name in options.only:
        other = [file for file, digest in golden[name].items() if found[name].get(file) != digest]
        print(f"{name}: {'equal' if not other else 'DIFFERENT: ' + ', '.join(other)}")
    sys.exit(any(found[name] != golden[name] for name in options.only))


if __name__ == "__main__":
    main()
