"""Memory of two processes that train together, with the embedded sampler's second copy of the policy and without it.

    python bench/rank_memory.py                 # a random model of 26 million parameters, 97 MiB in float32

Servers, where they sample, are scripted ones in this process, whose memory is not counted. Counted are the tensors that
a process holds after a step of AdamW, each storage once; the table has those of the process that holds the most.
`loading` is the most memory that tensors had at any moment until the run was ready for its first step, in the second
process: the first one also puts the weights together that it writes for the servers. The model's file, mapped while it
is read, is not counted.
"""

import asyncio
import gc
import json
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.distributed.tensor import DTensor
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen2Config, Qwen2ForCausalLM

from evoseek.assembly.sources import load_settings
from evoseek.cli.learning_demo import TRAINING_HOPS
from evoseek.errors import TrainingError
from evoseek.learner.distributed import joined_ranks, run_together
from evoseek.learner.learner import Learner
from evoseek.models.load import load_policy
from evoseek.storage.runs import RunDirectory
from evoseek.training.train import training_loop
from evoseek.world.world import make_world

sys.path.append(str(Path(__file__).parents[1]))  # for the doubles

from tests.doubles.engines import ScriptedVLLM

MIB = 2**20


def make_model(directory: Path) -> int:
    """A random model with the tiny policies' tokenizer; the bytes of its weights."""
    tokenizer = load_policy("tiny").tokenizer
    sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "num_attention_heads": 8}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=4, **sizes))
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return sum(parameter.nbytes for parameter in model.parameters())


def held(learner: Learner) -> dict[str, int]:
    """Bytes of the storages of all tensors, by what they are."""
    if learner.step == 0:
        raise TrainingError("No optimizer step was made, so that there are no moments to count.")
    gc.collect()
    tensors = [obj for obj in gc.get_objects() if issubclass(type(obj), torch.Tensor)]
    kinds = {
        "weights": learner.model.parameters(),
        "moments": learner.state_dict()[0].values(),
        "a second copy": (tensor for tensor in tensors if isinstance(tensor, nn.Parameter)),
        "other": tensors,
    }
    counted: dict[int, int] = {}
    sizes: dict[str, int] = {}
    for kind, found in kinds.items():
        own = storages(found)
        sizes[kind] = sum(size for place, size in own.items() if place not in counted)
        counted |= own
    return sizes


def storages(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Bytes by address."""
    local = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors)
    found = (tensor.untyped_storage() for tensor in local if tensor.is_cpu)
    return {storage.data_ptr(): storage.nbytes() for storage in found}


def most_allocated(made: profile, mapped: int = 0) -> int:
    """The most bytes that were allocated at once, without those of files of a size that were mapped."""
    events = [event for event in made.profiler.kineto_results.events() if event.name() == "[memory]"]
    events = [event for event in events if abs(event.nbytes()) != mapped]
    return max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


def train(options: dict[str, object], directory: Path) -> None:
    """One of the processes."""
    settings, run = load_settings(options=options), RunDirectory(directory)
    mapped = (Path(settings.policy.model) / "model.safetensors").stat().st_size
    with joined_ranks("cpu") as ranks, ExitStack() as stack:
        if ranks.is_first:
            stack.enter_context(run.locked())
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as made:
            loop = stack.enter_context(training_loop(settings, run, notify=lambda _: None, ranks=ranks))
        asyncio.run(loop.run())
        own = {**held(loop.checkpoints.parts["policy"].learner), "loading": most_allocated(made, mapped)}
        everyone = ranks.gather(own)
    if ranks.is_first:
        most = max(everyone, key=lambda sizes: sum(sizes.values()))
        (directory / "held.json").write_text(json.dumps({**most, "loading": everyone[-1]["loading"]}))


def main() -> None:
    kinds = ("weights", "moments", "a second copy", "other")
    table = Table("sampler", *(f"{kind}, MiB" for kind in (*kinds, "all", "loading")))
    with TemporaryDirectory() as folder, ExitStack() as stack:
        root = Path(folder)
        weights = make_model(root / "model")
        make_world(root / "world", "train", 0, 20, TRAINING_HOPS, entities=200)
        urls = [stack.enter_context(ScriptedVLLM.of_policy(str(root / "model")).in_thread()) for _ in range(2)]
        for name, own in (("torch", {"sampler.slots": 4}), ("vllm", {"sampler.urls": urls})):
            options = {
                "search.index": str(root / "world" / "index"),
                "questions.path": str(root / "world" / "questions.jsonl"),
                "policy.model": str(root / "model"),
                "policy.prompts": "tiny",
                "sampler.name": name,
                **own,
                "questions.per_step": 2,
                "rollout.group_size": 2,
                "rollout.max_total_tokens": 128,
                "rollout.max_tokens_per_turn": 8,
                "run.steps": 1,
                "learner.token_budget": 512,
                "credit.name": "raw",  # a random model never answers, and pays for that: a step is made
                "reward.unanswered_penalty": 1.0,
            }
            words = ["rank", json.dumps(options), str(root / name)]
            if run_together(2, words, program=(str(Path(__file__)),)):
                raise SystemExit("a process failed")
            sizes = json.loads((root / name / "held.json").read_text())
            loading, parts = sizes["loading"], [sizes[kind] for kind in kinds]
            table.add_row(name, *(f"{size / MIB:.0f}" for size in (*parts, sum(parts), loading)))
    console = Console(width=100)
    console.print(f"The whole model's weights take {weights / MIB:.0f} MiB.")
    console.print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        train(json.loads(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
