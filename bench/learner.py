"""Memory and speed of the learner's forward and backward pass. Run: python bench/learner.py [--quick] [--only NAME]

memory    peak memory of the logprob pass, forward and backward, over the memory held before it: ours against the plain
          way, which keeps the logits of all tokens: logits[T, V].float().log_softmax().gather(). Vocabulary of 152k,
          4,096 tokens, a body of two layers of width 256. On a CPU the peak resident set of a process of its own.
speed     trained tokens/s of forward and backward, packed micro-batches of 2,048 tokens, against the same model's plain
          pass without padding: each sample a row of its own, the model's logits, log_softmax and gather at the same
          positions; and, for samples of equal lengths, all of them as one batch without padding. Medians of CPU seconds
          per thread, the sides taking turns. Target: 0.9.
padding   share of padding if the same micro-batches were padded rows.
prefix    time with what a group of 8 has in common computed once, over the time with it computed for each; completions
          of 256 tokens. All 8 share a prompt, and pairs of them half as many tokens after it. Where it is below 1,
          sharing pays: `SHARED` in samplers/torch/packed.py.
gpu       a Qwen2.5-3B-shaped model with random weights in bfloat16: seconds per optimizer step, peak memory, and model
          FLOPs utilisation: (6 x parameters + 12 x layers x width x mean context) x tokens / seconds / peak.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter, process_time

import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from evoseek.learner.batch import lay_out, make_batch, split_by_tokens, trained_length
from evoseek.learner.learner import Learner, LearnerContext
from evoseek.learner.logprobs import LogprobModel, checkpoint_activations
from evoseek.learner.settings import LearnerSettings
from evoseek.loss.clipped import ClippedLoss
from evoseek.models.load import load_policy
from evoseek.types import TrainingSample

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12}  # dense bfloat16, by part of the name
TOKEN_BUDGET = 2048
Samples = Sequence[TrainingSample]


# Models and samples


def make_model(width: int, layers: int, heads: int, kv_heads: int, vocabulary: int, inner: int = 0) -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner or 3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config).eval()


def make_sample(rng: random.Random, vocabulary: int, prompt: Sequence[int], spans: Sequence[int]) -> TrainingSample:
    """A prompt and spans of tokens: action, observation, action ..."""
    mask = [False] * len(prompt) + [on for number, size in enumerate(spans) for on in [number % 2 == 0] * size]
    ids = (*prompt, *(rng.randrange(vocabulary) for _ in range(sum(spans))))
    values = tuple(-3.0 if on else 0.0 for on in mask)
    return TrainingSample(ids, tuple(mask), values, tuple(1.0 if on else 0.0 for on in mask))


def make_searches(vocabulary: int, count: int, scale: int, seed: int = 0) -> list[TrainingSample]:
    """Rollouts of a search agent, groups of 5: a prompt, 1-4 turns that act and are told something, an answer."""
    rng, samples = random.Random(seed), list[TrainingSample]()
    for _ in range(count // 5):
        prompt = [rng.randrange(vocabulary) for _ in range(scale * rng.randint(10, 20))]
        for _ in range(5):
            turns = [(scale * rng.randint(8, 25), scale * rng.randint(30, 60)) for _ in range(rng.randint(1, 4))]
            spans = [size for turn in turns for size in turn]
            samples.append(make_sample(rng, vocabulary, prompt, [*spans, scale * rng.randint(5, 15)]))
    return samples


# The two ways


def run_ours(forward: LogprobModel, samples: Samples) -> None:
    for part in split_by_tokens(samples, TOKEN_BUDGET):
        inputs = forward(make_batch(part, forward.model.device))
        (inputs.logprobs * inputs.advantages).sum().neg().backward()


def run_plain(model: PreTrainedModel, rows: Sequence[Samples]) -> None:
    """Each element of `rows` holds samples of one length, which are a batch."""
    for samples in rows:
        ids = torch.tensor([sample.token_ids for sample in samples], device=model.device)
        mask = torch.tensor([sample.loss_mask for sample in samples], device=model.device)[:, 1:]
        advantages = torch.tensor([sample.advantages for sample in samples], device=model.device)[:, 1:]
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1][mask].float()
        logprobs = logits.log_softmax(-1).gather(-1, ids[:, 1:][mask][:, None])[:, 0]
        (logprobs * advantages[mask]).sum().neg().backward()


def take_turns(sides: Sequence[Callable[[], None]], model: PreTrainedModel, repeats: int) -> list[float]:
    """Median seconds of each side."""
    seconds: list[list[float]] = [[] for _ in sides]
    for _ in range(repeats + 1):  # the first is a warm-up
        for side, times in zip(sides, seconds, strict=True):
            model.zero_grad()
            times.append(clock(model, side))
    return [median(times[1:]) for times in seconds]


def clock(model: PreTrainedModel, action: Callable[[], object]) -> float:
    """CPU seconds per thread, so that other processes matter less; on a GPU real seconds."""
    if model.device.type == "cuda":
        torch.cuda.synchronize()
        started = perf_counter()
        action()
        torch.cuda.synchronize()
        return perf_counter() - started
    started = process_time()
    action()
    return (process_time() - started) / torch.get_num_threads()


# The measures


def measure_memory(quick: bool) -> None:
    tokens = 1024 if quick else 4096
    peaks: dict[str, float] = {}
    for way in ("plain", "ours"):
        command = [sys.executable, __file__, "--child", way, "--tokens", str(tokens)]
        peaks[way] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
    print(
        f"memory: V = 152k, T = {tokens}: plain {peaks['plain']:.0f} MiB, ours {peaks['ours']:.0f} MiB, "
        f"{peaks['plain'] / peaks['ours']:.1f} times less"
    )


def print_peak(way: str, tokens: int) -> None:
    """In a process of its own: the peak in MiB of one pass over `tokens` tokens, above what was held before it."""
    model = make_model(256, 2, 4, 2, 151936).to("cuda" if torch.cuda.is_available() else "cpu")
    rng = random.Random(0)
    samples = [make_sample(rng, 151936, [1] * 32, [480]) for _ in range(tokens // 512)]
    forward = LogprobModel(model)
    for parameter in model.parameters():  # the gradients, which both ways need, are held before
        parameter.grad = torch.zeros_like(parameter)
    held = peak_memory()
    if way == "plain":
        run_plain(model, [samples])
    else:
        inputs = forward(make_batch(samples, model.device))
        (inputs.logprobs * inputs.advantages).sum().neg().backward()
    print(peak_memory() - held)


def peak_memory() -> float:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def measure_speed(quick: bool) -> None:
    tiny = load_policy("tiny").model
    report_speed("tiny policy", tiny, make_searches(339, 40, 1), make_equal(339, 40, 140), 5 if quick else 15)
    middle = make_model(512, 8, 8, 2, 4096)
    count = 5 if quick else 10
    report_speed(
        "8 layers of 512", middle, make_searches(4096, count, 4), make_equal(4096, count, 600), 1 if quick else 5
    )


def make_equal(vocabulary: int, count: int, length: int) -> list[TrainingSample]:
    rng = random.Random(1)
    prompts = [[rng.randrange(vocabulary) for _ in range(15)] for _ in range(count)]
    return [make_sample(rng, vocabulary, prompt, [length // 4, length // 2, length // 4]) for prompt in prompts]


def report_speed(name: str, model: PreTrainedModel, uneven: Samples, even: Samples, repeats: int) -> None:
    forward = LogprobModel(model)
    together = split_by_tokens(even, TOKEN_BUDGET)
    for title, samples, rows in (("row by row", uneven, [[s] for s in uneven]), ("one batch", even, together)):
        for sample in samples:
            if trained_length(sample) != len(sample.token_ids):
                raise SystemExit("a sample's end is not trained: the two sides would not run the same tokens")
        sides = (lambda s=samples: run_ours(forward, s), lambda r=rows: run_plain(model, r))
        ours, plain = take_turns(sides, model, repeats)
        trained = sum(sum(sample.loss_mask) for sample in samples)
        print(
            f"speed: {name}, {len(samples)} samples of {sum(len(s.token_ids) for s in samples) / len(samples):.0f} "
            f"tokens, {title}: ours {trained / ours:.0f} trained tokens/s, plain {trained / plain:.0f}, "
            f"ratio {plain / ours:.2f}, target 0.90",
            flush=True,
        )


def measure_padding() -> None:
    samples = make_searches(339, 400, 1)
    batches = [make_batch(part, torch.device("cpu")) for part in split_by_tokens(samples, TOKEN_BUDGET)]
    real = sum(trained_length(sample) for sample in samples)
    padded = sum(batch.token_ids.numel() for batch in batches)
    packed = sum(batch.row.token_ids.numel() for batch in batches)
    print(
        f"padding: {1 - real / padded:.1%} of padded rows; none of {packed} packed tokens, "
        f"{1 - packed / real:.1%} fewer than the samples have, by sharing beginnings"
    )


def measure_prefix(quick: bool) -> None:
    models = [
        ("tiny policy", load_policy("tiny").model, 339, 7),
        ("8 layers of 512", make_model(512, 8, 8, 2, 4096), 4096, 1),
    ]
    for name, model, vocabulary, repeats in models[: 1 if quick else 2]:
        forward = LogprobModel(model)
        rng = random.Random(0)
        for prompt_length in (16, 64, 256, 1024):
            prompt = [rng.randrange(vocabulary) for _ in range(prompt_length)]
            halves = [[rng.randrange(vocabulary) for _ in range(prompt_length // 2)] for _ in range(4)]
            samples = [make_sample(rng, vocabulary, [*prompt, *half], [256]) for half in halves for _ in range(2)]
            shared, apart = take_turns(
                [lambda f=forward, s=samples, n=n: run_sharing(f, s, n) for n in (1, sys.maxsize)],
                model,
                3 if quick else repeats,
            )
            print(f"prefix: {name}, prompt of {prompt_length}: {shared / apart:.2f} of the time", flush=True)


def run_sharing(forward: LogprobModel, samples: Samples, shortest: int) -> None:
    """The pass, where beginnings from `shortest` tokens on are computed once."""
    device = forward.model.device
    batch = make_batch(samples, device)
    row = lay_out([sample.token_ids for sample in samples], device, shortest)
    inputs = forward(replace(batch, row=row))
    (inputs.logprobs * inputs.advantages).sum().neg().backward()


def measure_gpu() -> None:
    if not torch.cuda.is_available():
        print("gpu: not measured: no GPU")
        return
    name = torch.cuda.get_device_name()
    peak = next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)
    model = make_model(2048, 36, 16, 2, 151936, inner=11008).to("cuda")
    checkpoint_activations(model)
    samples = make_searches(151936, 80, 8)
    settings = LearnerSettings(learning_rate=1e-6, token_budget=16384, bf16=True)
    learner = Learner(settings, LearnerContext(LogprobModel(model), ClippedLoss()))
    learner.update(samples)
    torch.cuda.reset_peak_memory_stats()
    seconds = median(clock(model, lambda: learner.update(samples)) for _ in range(3))
    lengths = [trained_length(sample) for sample in samples]
    context = sum(length**2 / 2 for length in lengths) / sum(lengths)
    per_token = 6 * model.num_parameters() + 12 * 36 * 2048 * context
    used = per_token * sum(lengths) / seconds
    print(
        f"gpu: {name}, {len(samples)} samples, {sum(lengths)} tokens: {seconds:.2f} s a step, "
        f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB, {used / 1e12:.0f} TFLOP/s"
        + (f", {used / peak:.0%} of the peak" if peak else "")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measures = {
        "memory": measure_memory,
        "speed": measure_speed,
        "padding": lambda quick: measure_padding(),
        "prefix": measure_prefix,
        "gpu": lambda quick: measure_gpu(),
    }
    parser.add_argument(
        "--quick", action="store_true", help="under two minutes: fewer repeats, 1,024 tokens for memory"
    )
    parser.add_argument("--only", choices=measures)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--child", choices=("plain", "ours"), help=argparse.SUPPRESS)
    parser.add_argument("--tokens", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.child:
        print_peak(options.child, options.tokens)
        return
    for name, measure in measures.items():
        if options.only in (None, name):
            measure(options.quick)


if __name__ == "__main__":
    main()
