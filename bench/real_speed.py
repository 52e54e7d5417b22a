"""Speed of a real model on a CPU by phase, beside transformers on the same work. Run: python bench/real_speed.py

    prefill     prompts of 100 tokens that have nothing in common
    groups      the same number of prompts, in groups of 8 that share one
    decode      one token for every slot in a pass, after those prompts
    learner     logprobs and gradients of rollouts in groups of 6 that share their prompt (LogprobModel)
    generate    transformers' generate on the prompts of `prefill`, prefill and decoding
    plain       transformers' forward and backward pass over the same rollouts, padded
    limits      what prefill, decode and learner would reach if only the products of the linear layers took time: those
                of 1,024 tokens, without the head, which few of them need; of a token for every slot; of 1,024 forward
                and twice as much backward

Tokens per CPU second (of all threads together), so that other processes matter less; with `--clock` by the clock, to
compare numbers of threads on a quiet machine. Medians over rounds. A prompt that rollouts share counts once for each of
them. `sampler` is `generate` by the sampler, `difference` the mean absolute difference of the sampler's logprobs and
the learner's, and MiB the greatest memory of all but `generate` and `plain`.
Each data type runs in a process of its own. `--beside DIR` takes turns with another checkout of this project:

    git worktree add ../before COMMIT && python bench/real_speed.py --beside ../before
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import torch

from evoseek.learner.batch import make_batch, split_by_tokens
from evoseek.learner.logprobs import LogprobModel
from evoseek.models import load
from evoseek.models.policy import Policy
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.types import Completion, SampleRequest, StopConditions, TrainingSample

PROMPT, GROUP = 100, 8


def prompts_of(rng: random.Random, count: int, group: int, vocabulary: int) -> list[tuple[int, ...]]:
    distinct = [tuple(rng.randrange(5, vocabulary) for _ in range(PROMPT)) for _ in range(-(-count // group))]
    return [distinct[number // group] for number in range(count)]


def rollouts_of(rng: random.Random, count: int, vocabulary: int) -> list[TrainingSample]:
    """Rollouts in groups of 6: the prompt, 25 tokens acted of every 200, 180 to 320 in all."""
    samples: list[TrainingSample] = []
    for prompt in prompts_of(rng, count, 6, vocabulary):
        added = rng.randrange(180, 320)
        mask = (False,) * PROMPT + tuple(place % 200 < 25 for place in range(added))
        ids = prompt + tuple(rng.randrange(5, vocabulary) for _ in range(added))
        while not mask[-1]:
            mask, ids = mask[:-1], ids[:-1]
        samples.append(TrainingSample(ids, mask, (-1.0,) * len(ids), tuple(map(float, mask))))
    return samples


def sample(sampler: TorchSampler, prompts: Sequence[tuple[int, ...]], tokens: int) -> list[Completion]:
    requests = [
        SampleRequest(f"t{number}", 0, prompt, tokens, 1.0, StopConditions(), seed=0)
        for number, prompt in enumerate(prompts)
    ]

    async def main() -> list[Completion]:
        return list(await asyncio.gather(*(sampler.sample(request) for request in requests)))

    completions = asyncio.run(main())
    for request in requests:
        sampler.release(request.trajectory_id)
    return completions


def timed(clock: Callable[[], float], action: Callable[[], object]) -> float:
    started = clock()
    action()
    return clock() - started


def learn(forward: LogprobModel, samples: Sequence[TrainingSample]) -> None:
    for part in split_by_tokens(samples, 2048):
        inputs = forward(make_batch(part, forward.model.device))
        (inputs.logprobs * inputs.advantages).sum().neg().backward()
    forward.model.zero_grad()


def learn_plain(policy: Policy, samples: Sequence[TrainingSample]) -> None:
    longest = max(len(sample.token_ids) for sample in samples)
    ids = torch.tensor([[*sample.token_ids] + [0] * (longest - len(sample.token_ids)) for sample in samples])
    mask = torch.tensor([[*sample.loss_mask] + [False] * (longest - len(sample.loss_mask)) for sample in samples])
    logits = policy.model(input_ids=ids, use_cache=False).logits[:, :-1][mask[:, 1:]].float()
    logits.log_softmax(-1).gather(-1, ids[:, 1:][mask[:, 1:]][:, None]).sum().neg().backward()
    policy.model.zero_grad()


def generate(policy: Policy, prompts: Sequence[tuple[int, ...]], tokens: int) -> None:
    ids = torch.tensor(prompts)
    with torch.inference_mode():
        policy.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, max_new_tokens=tokens, min_new_tokens=tokens
        )


def products(layers: Sequence[torch.nn.Linear], tokens: int) -> Callable[[], None]:
    """A pass of linear layers over so many tokens, with nothing between them."""
    inputs = [torch.randn(tokens, layer.in_features, dtype=layer.weight.dtype) for layer in layers]

    def run() -> None:
        with torch.inference_mode():
            for layer, values in zip(layers, inputs, strict=True):
                torch.nn.functional.linear(values, layer.weight)

    run()
    return run


def difference(policy: Policy, forward: LogprobModel, prompts: Sequence[tuple[int, ...]], tokens: int) -> float:
    """Mean absolute difference of the sampler's logprobs and the learner's (sampling_logp_difference)."""
    completions = sample(TorchSampler(policy, slots=len(prompts), max_length=256), prompts, tokens)
    samples = [
        TrainingSample(
            prompt + completion.token_ids,
            (False,) * len(prompt) + (True,) * tokens,
            (0.0,) * len(prompt) + completion.logprobs,
            (0.0,) * (len(prompt) + tokens),
        )
        for prompt, completion in zip(prompts, completions, strict=True)
    ]
    batch = make_batch(samples, policy.model.device)
    with torch.inference_mode():
        inputs = forward(batch)
    return float((inputs.logprobs - inputs.rollout_logprobs)[batch.loss_mask].abs().mean())


def measure(options: argparse.Namespace) -> dict[str, float]:
    """One round in this process."""
    seconds = partial(timed, perf_counter if options.clock else process_time)
    torch.set_num_threads(options.threads)
    policy = load.load_policy(options.model, dtype=options.dtype)
    if hasattr(load, "prepare_process"):  # of a checkout that has it
        load.prepare_process(policy)
    rng, slots, tokens = random.Random(0), options.slots, options.tokens
    vocabulary = int(policy.model.config.vocab_size)
    single, groups = (prompts_of(rng, slots, group, vocabulary) for group in (1, GROUP))
    samples = rollouts_of(rng, 6, vocabulary)
    sampler = TorchSampler(policy, slots=slots, max_length=256)
    forward = LogprobModel(policy.model)
    sample(sampler, [prompt[:32] for prompt in single], 2)
    first = seconds(lambda: sample(sampler, single, 1))
    grouped = seconds(lambda: sample(sampler, groups, 1))
    whole = seconds(lambda: sample(sampler, single, 1 + tokens))
    learn(forward, samples[:1])
    trained = sum(len(sample.token_ids) for sample in samples)
    found = {
        "prefill": slots * PROMPT / first,
        "groups": slots * PROMPT / grouped,
        "decode": slots * tokens / max(whole - first, 1e-9),
        "learner": trained / seconds(lambda: learn(forward, samples)),
        "difference": difference(policy, forward, single[:8], 16),
        "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }
    if not options.quick:
        head = policy.model.get_output_embeddings()
        linear = [layer for layer in policy.model.modules() if isinstance(layer, torch.nn.Linear)]
        many = seconds(products([layer for layer in linear if layer is not head], 1024))
        found["prefill_limit"], found["learner_limit"] = 1024 / many, 1024 / (3 * many)
        found["decode_limit"] = slots / seconds(products(linear, slots))
        found["generate"] = slots * tokens / seconds(lambda: generate(policy, single, tokens))
        found["sampler"] = slots * tokens / whole
        found["plain"] = trained / seconds(lambda: learn_plain(policy, samples))
    return found


def run_child(checkout: Path, dtype: str, options: argparse.Namespace, quick: bool) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", "--dtype", dtype, "--model", options.model]
    command += ["--slots", str(options.slots), "--tokens", str(options.tokens), "--threads", str(options.threads)]
    command += ["--clock"] * options.clock
    path = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
    done = subprocess.run(
        command + ["--quick"] * quick,
        env=path,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", action="store_true", help="tokens per second by the clock: on a quiet machine")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="another checkout")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--dtype", default="bfloat16", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options)))
        return
    here = Path(__file__).parents[1]
    checkouts = {"before": options.beside} if options.beside else {}
    checkouts["now"] = here
    unit = "second" if options.clock else "CPU second"
    print(f"{options.model}, {options.slots} slots, {options.threads} threads, tokens per {unit}")
    for dtype in options.dtypes:
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
        for number in range(options.rounds):
            for name, checkout in checkouts.items():
                rounds[name].append(run_child(checkout, dtype, options, quick=name == "before" or number > 0))
        for name, found in rounds.items():
            values = {key: median(row[key] for row in found if key in row) for key in found[0]}
            print(f"{dtype:9s} {name:7s}" + "".join(f" {key} {value:.4g}" for key, value in values.items()), flush=True)


if __name__ == "__main__":
    main()
