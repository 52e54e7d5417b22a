"""Memory of two processes that train together, with the embedded sampler's second copy of the policy and without it.

    python bench/rank_memory.py                 # a random model of 29 million parameters, 111 MiB in float32

Servers, where they sample, are scripted ones in this process, whose memory is not counted. `tensors` are the bytes of
all tensors that a process holds after its steps, each storage once; what the table says of them is that of the larger
process.
"""

import asyncio
import gc
import json
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from rich.table import Table
from torch.distributed.tensor import DTensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from evoseek.jobs.demo import TRAINING_HOPS, make_world
from evoseek.learner.distributed import joined_ranks
from evoseek.learner.launcher import run_together
from evoseek.policy.engines.scripted import ScriptedVLLM
from evoseek.policy.load import load_policy
from evoseek.policy.sampler import TorchSampler
from evoseek.run import training_loop
from evoseek.runs import RunDirectory
from evoseek.training.given import load_settings

MIB = 2**20


def make_model(directory: Path) -> int:
    """A random model with the tiny policies' tokenizer; the bytes of its weights."""
    tokenizer = load_policy("tiny").tokenizer
    sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "num_attention_heads": 8}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=4, **sizes))
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return sum(parameter.nbytes for parameter in model.parameters())


def held() -> int:
    """Bytes of the storages of all tensors."""
    gc.collect()
    found = [obj for obj in gc.get_objects() if isinstance(obj, torch.Tensor)]
    local = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in found]
    storages = {s.data_ptr(): s.nbytes() for s in (tensor.untyped_storage() for tensor in local if tensor.is_cpu)}
    return sum(storages.values())


def train(options: dict[str, object], directory: Path) -> None:
    """One of the processes."""
    settings, run = load_settings(options=options), RunDirectory(directory)
    with joined_ranks("cpu") as ranks, ExitStack() as stack:
        if ranks.is_first:
            stack.enter_context(run.locked())
        with training_loop(settings, run, notify=lambda _: None, ranks=ranks) as loop:
            asyncio.run(loop.run())
            own = held()
        everyone = ranks.gather(own)
    if ranks.is_first:
        (directory / "held.json").write_text(json.dumps(everyone))


@contextmanager
def serving(model: Path):
    """A scripted server of the model, in a thread."""
    server = ScriptedVLLM(sampler(model), open_weights=sampler)
    up, down, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def serve():
        async with server.serving():
            up.set()
            await down.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    up.wait()
    try:
        yield server.url
    finally:
        loop.call_soon_threadsafe(down.set)
        thread.join()


def sampler(directory: Path) -> TorchSampler:
    return TorchSampler(load_policy(str(directory)), slots=8, max_length=256)


def main() -> None:
    table = Table("sampler", "tensors, MiB", "beside the learner's share, MiB")
    with TemporaryDirectory() as folder, ExitStack() as stack:
        root = Path(folder)
        weights = make_model(root / "model")
        share = 3 * weights // 2  # a half of the weights and of AdamW's two moments; there are no gradients by then
        make_world(root / "world", "train", 0, 20, TRAINING_HOPS, entities=200)
        urls = [stack.enter_context(serving(root / "model")) for _ in range(2)]
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
                "reward.name": "f1",
            }
            words = ["rank", json.dumps(options), str(root / name)]
            if run_together(2, words, program=(str(Path(__file__)),)):
                raise SystemExit("a process failed")
            most = max(json.loads((root / name / "held.json").read_text()))
            table.add_row(name, f"{most / MIB:.0f}", f"{(most - share) / MIB:.0f}")
    console = Console(width=100)
    console.print(f"The weights take {weights / MIB:.0f} MiB, the learner's share in a process {share / MIB:.0f} MiB.")
    console.print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        train(json.loads(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
