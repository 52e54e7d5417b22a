"""Scenarios in one or several ranks, which the warm fork server of commands_child.py runs, too: a JSON order each.

    {"size": 2, "scenario": "collectives", "options": {}}
    {"statuses": [0, 0], "results": [..., ...], "output": ""}      the answer

For each order `size` children are forked (everything is imported already, so this is cheap) with the variables that
torchrun would set. Each calls the scenario, a function below, with its ranks. One that hangs is ended by an alarm.
The scenario "evoseek" is the command line, of the words that are given; as under torchrun, this process keeps the store
in which the ranks meet, and `as_torchrun` ends the others when one has failed.
"""

import json
import os
import random
import resource
import signal
import socket
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from evoseek.cli.main import main
from evoseek.errors import ConfigError, EvoseekError
from evoseek.learner import checkpoint as checkpoint_module
from evoseek.learner.batch import make_batch
from evoseek.learner.checkpoint import CheckpointPart, agreed_checkpoint, restore, save_checkpoint
from evoseek.learner.distributed import ALONE, Ranks, joined_ranks
from evoseek.learner.learner import Learner, LearnerContext
from evoseek.learner.logprobs import LogprobModel, checkpoint_activations
from evoseek.learner.settings import LearnerSettings
from evoseek.learner.sharding import copy_weights, full_state_dict, load_deferred, read_weights, shard_module
from evoseek.loss.base import Totals
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.likelihood import ReinforceLoss
from evoseek.models.load import load_policy
from evoseek.types import TrainingSample

SECONDS = 300  # until a scenario counts as hanging
SETTINGS = LearnerSettings(learning_rate=1e-4, token_budget=40)


def collectives(ranks: Ranks) -> dict:
    return {
        "gather": ranks.gather({"rank": ranks.rank, "text": "é" * 9 * ranks.rank, "pair": (1, 2)}),
        "sum": ranks.sum({"a": 0.1 + ranks.rank, "b": 1e30 if ranks.rank else 1.0}),
        "any": [ranks.any(ranks.rank == ranks.size - 1), ranks.any(False)],
        "joined": ranks.join([10 * item for item in ranks.share(range(4))], list[int]),
        "barrier": ranks.barrier(),
        "first": ranks.is_first,
    }


def gone(ranks: Ranks) -> None:
    """The last rank ends in the midst of things."""
    if ranks.rank == ranks.size - 1:
        os._exit(3)
    ranks.barrier()


def one_fails(ranks: Ranks, rank: int, gathers: int) -> None:
    """A rank fails while all set up, after so many of the three collectives of that."""
    with ranks.setting_up():
        for number in range(3):
            if ranks.rank == rank and number == gathers:
                raise ConfigError("the reason")
            ranks.gather(number)
        if ranks.rank == rank:
            raise ConfigError("the reason")
    raise AssertionError("the block ended well")


def idle(ranks: Ranks) -> None:
    """The first rank works for a while, the others have nothing to do. The answer: when each had left."""
    if ranks.is_first:
        time.sleep(1.0)


def loaded_by_an_answer(ranks: Ranks, index: str) -> list[str]:
    """The modules of evoseek that a process which has none of them loads to answer a question."""
    for name in [name for name in sys.modules if is_own(name)]:
        del sys.modules[name]
    run = import_module("evoseek.run").Run(settings={"search.index": index})
    assert run.ask("where is Kalo ?").trajectory.stop_reason
    return [name for name in sys.modules if is_own(name)]


def is_own(module: str) -> bool:
    return module.partition(".")[0] == "evoseek"


def gradient(ranks: Ranks, model: str, output: str, count: int = 7) -> dict:
    """The gradient of one batch, whole, in a file; nothing where a parameter has none."""
    learner = make_learner(make_model(model), ranks)
    samples = make_samples(count, seed=0)
    learner.optimizer.zero_grad()
    metrics = learner.accumulate(samples, Totals(sum(sum(s.loss_mask) for s in samples), len(samples)))
    gradients = {name: p.grad for name, p in learner.model.named_parameters() if p.grad is not None}
    keep({name: whole(value) for name, value in gradients.items()}, output, ranks)
    return metrics


def together(ranks: Ranks, output: str) -> list:
    """The weights after a step on two terms; of the second there are fewer micro-batches than ranks."""
    learner = make_learner(make_model("plain"), ranks)
    terms = [(make_samples(7, seed=0), learner.loss), (make_samples(1, seed=1), ReinforceLoss())]
    metrics = learner.update_together(terms)
    keep(full_state_dict(learner.model, ranks), output, ranks)
    return metrics


def train(ranks: Ranks, output: str, tiny: bool = True, steps: int = 4, count: int = 7) -> list:
    learner = make_learner(load_policy("tiny").model if tiny else make_model("plain"), ranks)
    metrics = [learner.update(make_samples(count, seed=step)) for step in range(steps)]
    keep(full_state_dict(learner.model, ranks), output, ranks)
    return metrics


def save(ranks: Ranks, run: str, step: int = 2, kill: int | None = None, moment: str = "", full: int | None = None):
    """Train `step` steps and save; rank `kill` dies at the moment given, rank `full` has a full disk."""
    model = make_model("plain")
    learner = make_learner(model, ranks)
    for number in range(step):
        learner.update(make_samples(3, seed=number))
    if ranks.rank == kill:
        die_at(moment)
    if ranks.rank == full:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))

    def save_model(directory: Path) -> None:
        weights = full_state_dict(model, ranks)
        if ranks.is_first:
            model.save_pretrained(directory, state_dict=weights)

    parts = {"policy": CheckpointPart(save_model, learner), "critic": CheckpointPart(save_model, learner)}
    save_checkpoint(Path(run), step=step, parts=parts, position={"rank": ranks.rank}, ranks=ranks)
    keep(whole_state(learner), str(Path(run) / f"state-{step}.safetensors"), ranks)


def resume(ranks: Ranks, run: str, output: str, part: str = "policy", steps: int = 1) -> dict:
    """Restore the latest checkpoint; its optimizer state, then the weights after more steps, whole, in files."""
    checkpoint = agreed_checkpoint(Path(run), ranks)
    learner = make_learner(AutoModelForCausalLM.from_pretrained(checkpoint.part_directory(part)), ranks)
    restore(checkpoint, part, learner)
    keep(whole_state(learner), f"{output}.state", ranks)
    begun = learner.step
    for step in range(begun, begun + steps):
        learner.update(make_samples(3, seed=step))
    keep(full_state_dict(learner.model, ranks), f"{output}.weights", ranks)
    return {"step": checkpoint.step, "position": checkpoint.position, "begun": begun}


def publish(ranks: Ranks) -> dict:
    """Whether the sampler's copy equals the trained weights after steps, and what a pass without gradient leaves."""
    plain, trained = make_model("frozen"), make_model("frozen")
    learner = make_learner(trained, ranks)
    before = {name: p.detach().clone() for name, p in plain.named_parameters()}
    learner.update(make_samples(7, seed=0))
    with torch.no_grad():
        learner.forward(make_batch(make_samples(3, seed=1), torch.device("cpu")))
    spread = [isinstance(p, DTensor) for p in learner.model.parameters()]
    names = sorted({name.split("/")[0] for name in learner.state_dict()[0]})
    copy_weights(learner.model, plain)
    now = dict(plain.named_parameters())
    whole = {n: p.full_tensor() if isinstance(p, DTensor) else p for n, p in trained.named_parameters()}
    return {
        "spread": all(spread),
        "names": names,
        "trained": sorted(name for name, p in plain.named_parameters() if p.requires_grad),
        "equal": all(torch.equal(now[name], tensor) for name, tensor in whole.items() if name in now),
        "moved": sorted(name for name in before if not torch.equal(before[name], now[name])),
    }


def read(ranks: Ranks, model: str) -> dict:
    """A policy of which each rank reads its rows alone, beside one that is read whole: what differs."""
    whole_path, deferred = load_policy(model), load_deferred(model)
    expected, got = LogprobModel(whole_path.model), LogprobModel(deferred.model)
    before = all(p.is_meta for p in deferred.model.parameters())
    shard_module(expected, ranks)
    shard_module(got, ranks)
    read_weights(got, deferred.deferred_weights, ranks)
    batch = make_batch(make_samples(3, seed=0), torch.device("cpu"))
    passes = [forward(batch) for forward in (expected, got)]
    for one in passes:
        one.logprobs.sum().backward()
    pairs = {
        "parameters": [dict(f.named_parameters()) for f in (expected, got)],
        "gradients": [{n: p.grad for n, p in f.named_parameters()} for f in (expected, got)],
        "buffers": [dict(f.named_buffers()) for f in (expected, got)],
        "states": [f.model.state_dict() for f in (expected, got)],
        "passes": [{"logprobs": one.logprobs, "entropies": one.entropies} for one in passes],
    }
    kept = [(f.applies_head, f.packing_limit, f.training, f.model.config.to_dict()) for f in (expected, got)]
    kept = [(*own, f.model.generation_config.to_dict()) for own, f in zip(kept, (expected, got), strict=True)]
    return {
        "before": before,
        "spread": all(isinstance(p, DTensor) for p in got.parameters()),
        "numbers": {name: len(one) for name, (one, _) in pairs.items()},
        "equal": {name: same_tensors(*both) for name, both in pairs.items()},
        "kept": kept[0] == kept[1],
        "layout": [got.applies_head, got.packing_limit],
    }


def read_fails(ranks: Ranks) -> None:
    """The last rank does not find the files."""
    deferred = load_deferred("tiny")
    forward = LogprobModel(deferred.model)
    with ranks.setting_up():
        shard_module(forward, ranks)
        is_last = ranks.rank == ranks.size - 1
        read_weights(forward, [Path("nowhere")] if is_last else deferred.deferred_weights, ranks)


def same_tensors(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether the parts of this rank have the same names, types and bits."""
    local = [{name: t.to_local() if isinstance(t, DTensor) else t for name, t in both.items()} for both in (one, other)]
    left, right = local
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and torch.equal(left[name], right[name]) for name in left
    )


def export(ranks: Ranks, directory: str) -> dict:
    """A tied model, spread, written with save_pretrained and loaded again."""
    model = make_model("tied")
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    shard_module(LogprobModel(model), ranks)
    weights = full_state_dict(model, ranks)
    names = sorted(weights)
    if not ranks.is_first:
        return {"names": names}
    model.save_pretrained(directory, state_dict=weights)
    loaded = AutoModelForCausalLM.from_pretrained(directory).state_dict()
    same = loaded.keys() == expected.keys() and all(torch.equal(loaded[name], expected[name]) for name in loaded)
    return {"names": names, "same": same, "missing": sorted(expected.keys() - set(names))}


def make_model(kind: str) -> nn.Module:
    """A Qwen2 of two layers; in its variants tied, half frozen or with activations recomputed."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=23,
        hidden_size=15,  # parts of unequal length
        head_dim=8,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        initializer_range=0.3,
        tie_word_embeddings=kind == "tied",
    )
    model = Qwen2ForCausalLM(config).eval()
    if kind == "frozen":
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("q_proj" in name)
    if kind == "recomputed":
        checkpoint_activations(model)
    return model


def make_learner(model: nn.Module, ranks: Ranks) -> Learner:
    forward = LogprobModel(model)
    shard_module(forward, ranks)
    return Learner(SETTINGS, LearnerContext(forward, ClippedLoss(), ranks=ranks))


def make_samples(n: int, seed: int) -> list[TrainingSample]:
    rng = random.Random(seed)
    samples = []
    for _ in range(n):
        mask = [False] * rng.randint(1, 5) + [True] * rng.randint(1, 6) + [False] * 2 + [True] * rng.randint(1, 6)
        advantage = rng.choice([-1.0, 0.5, 1.5])
        logprobs = tuple(rng.uniform(-4.0, -2.0) if on else 0.0 for on in mask)
        samples.append(
            TrainingSample(
                token_ids=tuple(rng.randrange(23) for _ in mask),
                loss_mask=tuple(mask),
                rollout_logprobs=logprobs,
                old_logprobs=logprobs,
                advantages=tuple(advantage if on else 0.0 for on in mask),
            )
        )
    return samples


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


def whole_state(learner: Learner) -> dict[str, torch.Tensor]:
    tensors, _ = learner.state_dict()
    return {name: whole(tensor) for name, tensor in tensors.items()}


def keep(tensors: dict[str, torch.Tensor], path: str, ranks: Ranks) -> None:
    if ranks.is_first:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


def die_at(moment: str) -> None:
    """Kill this process with SIGKILL when the save calls a function of that name."""

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(checkpoint_module, moment, die)


def run(order: dict, rank: int, port: int, output: Path) -> None:
    log = os.open(output / f"{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(order["size"])}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if order["scenario"] == "evoseek":
        os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}
        sys.argv = ["evoseek", *order["options"]["words"]]
        main()
    try:
        with joined_ranks("cpu") as ranks:
            result = SCENARIOS[order["scenario"]](ranks, **order["options"])
        left = time.time()
        (output / f"{rank}.json").write_text(json.dumps(left if order["scenario"] == "idle" else result))
        os._exit(0)
    except EvoseekError as error:
        (output / f"{rank}.json").write_text(json.dumps(f"{type(error).__name__}: {error}"))
        os._exit(2)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def warm_up() -> None:
    """Fill what libraries keep after their first use, which each child would else do for itself."""
    model = make_model("plain")
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        AutoModelForCausalLM.from_pretrained(directory)
    make_learner(model, ALONE).update(make_samples(3, seed=0))
    warm_up_sharded()


def warm_up_sharded() -> None:
    """Also what DTensor keeps of every operation on parts of these shapes. The second rank is not there, and what it
    would send has no value."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        forward = LogprobModel(make_model("plain"))
        shard_module(forward, Ranks(0, 2, torch.device("cpu")))
        learner = Learner(SETTINGS, LearnerContext(forward, ClippedLoss()))
        samples = make_samples(3, seed=0)
        learner.accumulate(samples, Totals(sum(sum(s.loss_mask) for s in samples), len(samples)))
        for parameter in learner.trained:
            parameter.grad = torch.zeros_like(parameter)
        nn.utils.clip_grad_norm_(learner.trained, 1.0).full_tensor()
        learner.optimizer.step()
        for parameter in learner.trained:
            parameter.full_tensor()
    finally:
        dist.destroy_process_group()


def end_all_after_a_failure(children: list[int]) -> list[int]:
    """Their statuses, that of the first to end at the front. As torchrun does, which looks as often, end the others
    with SIGTERM once one has failed."""
    statuses: list[int] = []
    while children:
        time.sleep(0.1)
        for child in list(children):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                children.remove(child)
                statuses.append(os.waitstatus_to_exitcode(status))
        if any(statuses):
            for child in children:
                os.kill(child, signal.SIGTERM)
    return statuses


def answer(order: dict) -> dict:
    """Run the ranks of an order to their end."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        output, children = Path(folder), []
        if order["scenario"] == "evoseek":
            store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)  # noqa: F841, until the end
        for rank in range(order["size"]):
            children.append(os.fork())
            if children[-1] == 0:
                run(order, rank, port, output)
        if order["options"].get("as_torchrun"):
            statuses = end_all_after_a_failure(children)
        else:
            statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        files = [output / f"{rank}.json" for rank in range(order["size"])]
        return {
            "statuses": statuses,
            "results": [json.loads(file.read_text()) if file.exists() else None for file in files],
            "output": "".join(file.read_text() for file in sorted(output.glob("*.log"))),
        }


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        collectives,
        gone,
        one_fails,
        idle,
        loaded_by_an_answer,
        gradient,
        together,
        train,
        save,
        resume,
        publish,
        read,
        read_fails,
        export,
    )
}
