"""What a run does on a GPU, beside what the card can do. Run: python bench/gpu.py [--only PART ...] [--out FILE]

    card      the ceilings: a product of two matrices of 8,192 x 8,192 in bfloat16, a copy of 2 GiB in its memory
    equal     a small random model: logprobs and gradients of the learner against those of the CPU, in float32 by
              |difference| / |CPU's|; what the sampler draws twice, and against the CPU's; its logprobs and the
              learner's, mean |difference|
    sampler   a random model of the size of --model in bfloat16: tokens a second of prompts that have nothing in common,
              of prompts in groups of 8, and of decoding; decoding's share of the copy's bytes a second (weights and
              keys and values are read once a pass), the prompts' of the product's arithmetic
    adapter   the learner's step on rollouts in groups of 6, with an adapter over that model in bfloat16: tokens a
              second (a prompt that rollouts share counts for each); the share of the product's arithmetic, for what is
              computed (shared prompts once; two passes forward, as activations are recomputed, and one backward); the
              most memory, and what `--dry-run` expects
    weights   the same with all weights, in float32 computing in bfloat16 (`learner.bf16`)
    run       the tiny policy: `evoseek train` for four steps, and two steps, killed, and two more: the same bits or not

Each part is a process of its own, and one that fails is a row that says how. With `--device cpu` it is a dry run with a
small model, which shows that all of it works. "busy" is the share of the time in which kernels run.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen2Config

from evoseek.assembly.memory_needs import training_needs
from evoseek.assembly.sources import load_settings
from evoseek.cli.learning_demo import RECIPE, TRAINING_HOPS, demo_options
from evoseek.config.settings_tree import find_recipe
from evoseek.learner.batch import make_batch, split_by_tokens
from evoseek.learner.learner import Learner, LearnerContext
from evoseek.learner.logprobs import LogprobModel, checkpoint_activations
from evoseek.learner.settings import LearnerSettings
from evoseek.loss.clipped import ClippedLoss
from evoseek.models.load import load_tokenizer
from evoseek.models.lora import add_adapter
from evoseek.models.policy import Policy
from evoseek.models.shape import shape_of
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.storage.checkpoints import latest_checkpoint
from evoseek.types import TrainingSample
from evoseek.world.world import make_world
from real_speed import GROUP, PROMPT, difference, learn, prompts_of, rollouts_of, sample

MODELS = {
    "qwen2.5-3b": {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16},
    "qwen2.5-0.5b": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "small": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4},
}
RANK, BUDGET = 32, 16384
GIB = 2**30


class Card:
    """A device, and how to time it."""

    def __init__(self, device: str) -> None:
        self.device, self.is_gpu = device, device != "cpu"

    def synchronize(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize()

    def seconds(self, action: Callable[[], object], rounds: int = 3) -> float:
        """The median, after a round that does not count."""
        found: list[float] = []
        for _ in range(rounds + 1):
            self.synchronize()
            started = perf_counter()
            action()
            self.synchronize()
            found.append(perf_counter() - started)
        return median(found[1:])

    def busy(self, action: Callable[[], object]) -> dict[str, float]:
        """The share of the time in which kernels ran, and how many a millisecond; the rest is Python's."""
        if not self.is_gpu:
            return {}
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            started = perf_counter()
            action()
            self.synchronize()
            second = perf_counter() - started
        kernels = [event for event in profiler.events() or () if event.device_type == DeviceType.CUDA]
        return {
            "busy": sum(event.time_range.elapsed_us() for event in kernels) / 1e6 / second,
            "kernels a ms": len(kernels) / second / 1e3,
        }

    @contextmanager
    def peak(self, found: dict[str, object]) -> Iterator[None]:
        """The most memory that tensors took in the block, in GiB."""
        if self.is_gpu:
            torch.cuda.reset_peak_memory_stats()
        yield
        if self.is_gpu:
            found["peak GiB"] = torch.cuda.max_memory_allocated() / GIB


def random_model(name: str, card: Card, dtype: torch.dtype) -> Policy:
    """With random weights, and the tiny policy's tokenizer."""
    heads = 2
    vocabulary = 8192 if name == "small" else 151_936
    config = Qwen2Config(
        **MODELS[name], num_key_value_heads=heads, vocab_size=vocabulary, tie_word_embeddings=True, use_cache=True
    )
    return _policy(config, card, dtype, name)


def _policy(config: object, card: Card, dtype: torch.dtype, name: str) -> Policy:
    torch.manual_seed(0)
    with torch.device(card.device):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return Policy(model.eval(), load_tokenizer("tiny"), name)


def parameters(policy: Policy) -> int:
    return sum(parameter.numel() for parameter in policy.model.parameters())


def ceilings(card: Card) -> dict[str, float]:
    """Operations, and bytes read and written, a second."""
    size, copied = (8192, 2 * GIB) if card.is_gpu else (1024, GIB // 8)
    one, other = (torch.randn(size, size, device=card.device, dtype=torch.bfloat16) for _ in range(2))
    source = torch.randint(100, (copied,), device=card.device, dtype=torch.uint8)
    target = torch.empty_like(source)
    times = 20 if card.is_gpu else 2
    product = card.seconds(lambda: [one @ other for _ in range(times)]) / times
    copy = card.seconds(lambda: [target.copy_(source) for _ in range(times)]) / times
    return {"operations": 2 * size**3 / product, "bytes": 2 * copied / copy}


def measure_card(card: Card, _: str) -> dict[str, object]:
    found = ceilings(card)
    name = torch.cuda.get_device_name() if card.is_gpu else "CPU"
    versions = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    return {"name": name, "TFLOP/s": found["operations"] / 1e12, "TB/s": found["bytes"] / 1e12, "versions": versions}


def measure_equal(card: Card, _: str) -> dict[str, object]:
    """A model of four layers in float32 on both, and in bfloat16 on the card."""
    config = LlamaConfig(
        **{**MODELS["small"], "num_hidden_layers": 4}, num_key_value_heads=2, vocab_size=8192, tie_word_embeddings=True
    )
    rng = random.Random(0)
    samples, prompts = rollouts_of(rng, 12, 8192), prompts_of(rng, 16, 1, 8192)
    here, there = (_policy(config, each, torch.float32, "equal") for each in (Card("cpu"), card))
    there.model.load_state_dict(here.model.state_dict())
    found: dict[str, object] = {}
    logprobs, gradients, drawn = [], [], []
    for policy in (here, there):
        forward = LogprobModel(policy.model)
        found["layout"] = forward.layout
        learn(forward, samples)  # the gradients are set to zero by it, so they are taken by a step of its own below
        logprobs.append(_logprobs(forward, samples))
        gradients.append(_gradients(forward, samples))
        drawn.append([_drawn(policy, prompts) for _ in range(2)])
    found["logprobs"] = float((logprobs[1] - logprobs[0]).norm() / logprobs[0].norm())
    found["gradients"] = float((gradients[1] - gradients[0]).norm() / gradients[0].norm())
    found["drawn twice"] = "equal" if drawn[1][0] == drawn[1][1] else "differ"
    found["drawn as on the CPU"] = sum(map(tuple.__eq__, drawn[0][0], drawn[1][0])) / len(prompts)
    found["sampler - learner, float32"] = difference(there, LogprobModel(there.model), prompts, 16)
    there.model.to(torch.bfloat16)
    found["sampler - learner, bfloat16"] = difference(there, LogprobModel(there.model), prompts, 16)
    return found


def _logprobs(forward: LogprobModel, samples: Sequence[TrainingSample]) -> torch.Tensor:
    with torch.no_grad():
        return forward(make_batch(samples, forward.model.device)).logprobs.cpu().double()


def _gradients(forward: LogprobModel, samples: Sequence[TrainingSample]) -> torch.Tensor:
    forward(make_batch(samples, forward.model.device)).logprobs.sum().neg().backward()
    found = torch.cat([p.grad.flatten().cpu().double() for p in forward.model.parameters() if p.grad is not None])
    forward.model.zero_grad()
    return found


def _drawn(policy: Policy, prompts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    sampler = TorchSampler(policy, slots=len(prompts), max_length=256)
    return [completion.token_ids for completion in sample(sampler, prompts, 24)]


def measure_sampler(card: Card, name: str) -> dict[str, object]:
    policy, limits = random_model(name, card, torch.bfloat16), ceilings(card)
    slots, tokens = (160, 64) if card.is_gpu else (8, 4)
    vocabulary = int(policy.model.config.vocab_size)
    single, groups = (prompts_of(random.Random(0), slots, group, vocabulary) for group in (1, GROUP))
    found: dict[str, object] = {"parameters": parameters(policy)}
    with card.peak(found):
        sampler = TorchSampler(policy, slots=slots, max_length=PROMPT + tokens + 1)
        first = card.seconds(lambda: sample(sampler, single, 1))
        grouped = card.seconds(lambda: sample(sampler, groups, 1))
        decoding = card.seconds(lambda: sample(sampler, single, 1 + tokens), 1) - first
    config = policy.model.config
    held = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * (config.hidden_size // _heads(config))
    read = 2 * parameters(policy) + slots * (PROMPT + tokens / 2) * held  # bytes a pass
    body = parameters(policy) - config.vocab_size * config.hidden_size
    return found | {
        "prompts, tokens/s": slots * PROMPT / first,
        "of the arithmetic": 2 * body * slots * PROMPT / first / limits["operations"],
        "in groups, tokens/s": slots * PROMPT / grouped,
        "decoding, tokens/s": slots * tokens / decoding,
        "a pass, ms": 1e3 * decoding / tokens,
        "of the bytes": read / (decoding / tokens) / limits["bytes"],
        **card.busy(lambda: sample(sampler, single, 9)),
    }


def _heads(config: object) -> int:
    return int(config.num_attention_heads)  # pyright: ignore[reportAttributeAccessIssue]


def measure_adapter(card: Card, name: str) -> dict[str, object]:
    base = random_model(name, card, torch.bfloat16)
    policy = add_adapter(base, "solver", rank=RANK, alpha=RANK)
    return _measure_learner(policy, card, backward=1)


def measure_weights(card: Card, name: str) -> dict[str, object]:
    return _measure_learner(random_model(name, card, torch.float32), card, backward=2)


def _measure_learner(policy: Policy, card: Card, *, backward: int) -> dict[str, object]:
    """Steps of the learner; `backward` products are computed for one of the forward pass, and one more forward pass,
    since activations are recomputed."""
    limits = ceilings(card)
    config = policy.model.config
    body = parameters(policy) - config.vocab_size * config.hidden_size
    samples = rollouts_of(random.Random(0), 96 if card.is_gpu else 6, int(config.vocab_size))
    found: dict[str, object] = {"parameters": parameters(policy)}
    checkpoint_activations(policy.model)
    forward = LogprobModel(policy.model, temperature=1.0)
    budget = BUDGET if card.is_gpu else 1024
    settings = LearnerSettings(learning_rate=1e-6, token_budget=budget, bf16=policy.adapter is None)
    learner = Learner(settings, LearnerContext(forward, ClippedLoss(), active=policy.active))
    found["expected GiB"] = _expected(policy, learner.token_budget)
    with card.peak(found):
        second = card.seconds(lambda: learner.update(samples), 2)
    tokens = sum(len(one.token_ids) for one in samples)
    parts = split_by_tokens(samples, learner.token_budget, forward.packing_limit)
    computed = sum(len(make_batch(part, policy.model.device).row.token_ids) for part in parts)
    return found | {
        "layout": forward.layout,
        "s a step": second,
        "tokens/s": tokens / second,
        "computed": computed / tokens,
        "of the arithmetic": 2 * body * computed * (2 + backward) / second / limits["operations"],
        **card.busy(lambda: learner.update(samples)),
    }


def _expected(policy: Policy, budget: int) -> float:
    """The GiB that a dry run names for the learner and its activations."""
    options = {
        "questions.path": "none",
        "search.index": "none",
        "learner.token_budget": budget,
        "learner.gradient_checkpointing": True,
        "lora.rank": RANK * (policy.adapter is not None),
        "policy.dtype": str(policy.model.dtype).removeprefix("torch."),
    }
    shape = shape_of(policy.model.config.to_dict())
    if shape is None:
        return 0.0
    needs = training_needs(load_settings(find_recipe("search-r1/3b"), options=options), shape)
    return sum(needs[name] for name in ("learner", "activations")) / GIB


def measure_run(card: Card, _: str) -> dict[str, object]:
    """Runs of the command."""
    with TemporaryDirectory() as place:
        for part in ("train", "evaluation"):
            make_world(Path(place) / part, part, 0, 200, TRAINING_HOPS, entities=300)
        options = demo_options(Path(place), 0) | {"policy.device": card.device, "run.checkpoint_every": 2}
        settings = ["--config", RECIPE, *(f"--set={name}={value}" for name, value in options.items())]
        started = perf_counter()
        _evoseek(place, "train", "--run-dir", "whole", "--steps", "4", *settings)
        seconds = perf_counter() - started
        _evoseek(place, "train", "--run-dir", "parts", "--steps", "4", *settings, until="step 3/4")
        _evoseek(place, "train", "--run-dir", "parts")
        weights = [_fingerprint(Path(place, name)) for name in ("whole", "parts")]
    return {"s of four steps, with the start": seconds, "resumed": "equal" if len(set(weights)) == 1 else "differs"}


def _fingerprint(run: Path) -> str:
    checkpoint = latest_checkpoint(run)
    return (
        sha256((checkpoint.directory / "policy" / "model.safetensors").read_bytes()).hexdigest() if checkpoint else ""
    )


def _evoseek(place: str, *words: str, until: str = "") -> None:
    """Run the command; with `until`, kill it once it prints that."""
    command = [sys.executable, "-m", "evoseek", *words]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        printed = ""
        for line in process.stdout or ():
            printed += line
            if until and until in line:
                process.kill()
    if process.returncode and not until:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}:\n{printed[-2000:]}")


PARTS = {
    "card": measure_card,
    "equal": measure_equal,
    "sampler": measure_sampler,
    "adapter": measure_adapter,
    "weights": measure_weights,
    "run": measure_run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", choices=MODELS, help="default: qwen2.5-3b, on a CPU small")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, help="a file for the rows, as JSON")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    model = options.model or ("small" if options.device == "cpu" else "qwen2.5-3b")
    if options.child:
        print(json.dumps(PARTS[options.only[0]](Card(options.device), model)))
        return
    rows: dict[str, object] = {}
    for part in options.only:
        rows[part] = run_part(part, options.device, model)
        print(f"{part:8s} {describe(rows[part])}", flush=True)
        if options.out:
            options.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def run_part(part: str, device: str, model: str) -> dict[str, object]:
    command = [sys.executable, __file__, "--child", "--device", device, "--model", model, "--only", part]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip()[-1500:] or f"status {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def describe(row: dict[str, object]) -> str:
    shown = (f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items())
    return "; ".join(shown)


if __name__ == "__main__":
    main()
