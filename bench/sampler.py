"""Speed of the embedded sampler, on made-up trajectories of a search agent. Run: python bench/sampler.py

Each trajectory has a prompt, 1-5 turns of 5-25 sampled tokens, and an observation of 30-90 tokens between turns; the
model is random, and the number of tokens of a turn is forced. Three measures, as medians of paired repetitions; the
first two count CPU seconds per thread, so that other processes matter less, the last counts real seconds:

plain decoding    action tokens/s of all slots decoding at a KV length of about 300, nothing else.
full batch        action tokens/s over everything, prefill included, of continuous batching with instant tools, against
                  a fixed full batch that never waits. That batch does the same work with the same lengths and knows
                  it all in advance: every decode step has all slots busy (a row whose turn ends resumes its next
                  turn, or with the next trajectory, at no cost), and its prefills are sorted by length beforehand,
                  so that there is no padding. It has no ramp, no tail, no stop conditions and no coroutines.
slow tools        trajectories/s when every tool call takes 0-500 ms (uniform), against a loop on the same sampler that
                  takes as many trajectories as there are slots, samples a turn of each, waits for all tools of that
                  turn, and goes on until all are done before it takes the next ones.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time

import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from evoseek.models.load import Policy
from evoseek.samplers.torch.draw import draw_tokens
from evoseek.samplers.torch.packed import Span, packed_logits
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.samplers.torch.slots import SlotCache
from evoseek.types import SampleRequest, StopConditions

VOCABULARY = 512
MAX_LENGTH = 640
PREFILL_TOKENS = 512  # per pass of the full batch: the best of 240 to 8,000 on one core


@dataclass(frozen=True)
class Script:
    """Lengths of a trajectory: prompt, then per turn (sampled tokens, observation), and its tools' latencies."""

    name: str
    prompt: int
    turns: tuple[tuple[int, int], ...]
    latencies: tuple[float, ...]

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Per turn: context held, tokens to prefill, tokens to sample. The last sampled token is prefilled later."""
        held, new = 0, self.prompt
        for sampled, observation in self.turns:
            yield held, new, sampled
            held, new = held + new + sampled - 1, 1 + observation


def make_scripts(count: int, seed: int) -> list[Script]:
    rng = random.Random(seed)
    scripts: list[Script] = []
    for number in range(count):
        turns = tuple((rng.randint(5, 25), rng.randint(30, 90)) for _ in range(rng.randint(1, 5)))
        latencies = tuple(rng.uniform(0, 0.5) for _ in turns)
        scripts.append(Script(f"{seed}/{number}", rng.randint(10, 30), turns, latencies))
    return scripts


def make_policy(kv_heads: int) -> Policy:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        max_position_embeddings=MAX_LENGTH,
        eos_token_id=None,
        bos_token_id=None,
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>")))
    return Policy(Qwen2ForCausalLM(config).eval(), tokenizer, "random")


# Continuous batching, and the loop that waits


async def one_turn(sampler: TorchSampler, script: Script, turn: int, ids: list[int]) -> None:
    """Sample a turn and add what it gave, and its observation, to the ids."""
    sampled, observation = script.turns[turn]
    request = SampleRequest(script.name, turn, tuple(ids), sampled, 1.0, StopConditions(), seed=0)
    ids += (await sampler.sample(request)).token_ids
    ids += [number % VOCABULARY for number in range(observation)]


async def rollout(sampler: TorchSampler, script: Script, slow_tools: bool) -> None:
    ids = list(range(script.prompt))
    for turn in range(len(script.turns)):
        if turn and slow_tools:
            await asyncio.sleep(script.latencies[turn])
        await one_turn(sampler, script, turn, ids)
    sampler.release(script.name)


async def run_continuous(sampler: TorchSampler, scripts: list[Script], slow_tools: bool) -> None:
    await asyncio.gather(*(rollout(sampler, script, slow_tools) for script in scripts))


async def run_in_lock_step(sampler: TorchSampler, scripts: list[Script], slots: int) -> None:
    for start in range(0, len(scripts), slots):
        batch = [(script, list(range(script.prompt))) for script in scripts[start : start + slots]]
        for turn in range(max(len(script.turns) for script, _ in batch)):
            going_on = [(script, ids) for script, ids in batch if turn < len(script.turns)]
            if turn:
                await asyncio.gather(*(asyncio.sleep(script.latencies[turn]) for script, _ in going_on))
            await asyncio.gather(*(one_turn(sampler, script, turn, ids) for script, ids in going_on))
        for script, _ in batch:
            sampler.release(script.name)


# The fixed full batch


class FullBatch:
    """The model on a slot cache, with nothing around it."""

    def __init__(self, policy: Policy, slots: int) -> None:
        self.model = policy.model
        self.slots = slots
        self.cache = SlotCache(policy.model, slots=slots, max_length=MAX_LENGTH)

    @torch.inference_mode()
    def forward(self, spans: list[tuple[int, int]]) -> None:
        """One pass over (context held, new tokens) of the first slots; one token drawn for each, with its logprob."""
        packed = [Span(slot, held, [1] * new) for slot, (held, new) in enumerate(spans)]
        logits = packed_logits(self.model, self.cache, packed)
        ids, logprobs = draw_tokens(logits, torch.ones(len(spans)), torch.rand(len(spans)))
        ids.tolist(), logprobs.tolist()

    def run(self, scripts: list[Script]) -> None:
        """All the work of the scripts, but for the last decode steps, which would not fill the batch."""
        steps = [
            length
            for script in scripts
            for held, new, sampled in script.spans()
            for length in range(held + new, held + new + sampled - 1)
        ]
        # Slot s decodes a contiguous share of the sequence of all steps, so that all slots are always busy.
        share = len(steps) // self.slots
        for step in range(share):
            self.forward([(steps[slot * share + step], 1) for slot in range(self.slots)])
        spans = sorted(((held, new) for script in scripts for held, new, _ in script.spans()), key=lambda span: span[1])
        while spans:
            rows = min(self.slots, PREFILL_TOKENS // spans[-1][1])
            self.forward(spans[-rows:])
            del spans[-rows:]


# Measuring


def seconds(action: Callable[[], object], clock: Callable[[], float]) -> float:
    started = clock()
    action()
    return clock() - started


def cpu_clock() -> float:
    """CPU seconds of this process per thread: what a quiet machine's clock would show for work that never waits."""
    return process_time() / torch.get_num_threads()


def action_tokens(scripts: list[Script]) -> int:
    return sum(sampled for script in scripts for sampled, _ in script.turns)


def plain_decoding(policy: Policy, slots: int, length: int = 300, steps: int = 20) -> float:
    """Action tokens/s of a full batch at a KV length of `length` in the middle."""
    batch = FullBatch(policy, slots)
    batch.forward([(length, 1)] * slots)
    lengths = range(length - steps // 2, length + steps // 2)
    return slots * steps / seconds(lambda: [batch.forward([(length, 1)] * slots) for length in lengths], cpu_clock)


def against_full_batch(policy: Policy, slots: int, count: int, seed: int) -> tuple[float, float]:
    """Action tokens/s of continuous batching and of the fixed full batch."""
    scripts = make_scripts(count, seed)
    sampler, batch = TorchSampler(policy, slots=slots), FullBatch(policy, slots)
    continuous = seconds(lambda: asyncio.run(run_continuous(sampler, scripts, slow_tools=False)), cpu_clock)
    fixed = seconds(lambda: batch.run(scripts), cpu_clock)
    return action_tokens(scripts) / continuous, action_tokens(scripts) / fixed


def against_lock_step(policy: Policy, slots: int, count: int, seed: int) -> tuple[float, float]:
    """Trajectories/s of continuous batching and of the loop that waits, with slow tools."""
    scripts = make_scripts(count, seed)
    sampler = TorchSampler(policy, slots=slots)
    continuous = seconds(lambda: asyncio.run(run_continuous(sampler, scripts, slow_tools=True)), perf_counter)
    sampler.update_weights(sampler.policy_version)
    waiting = seconds(lambda: asyncio.run(run_in_lock_step(sampler, scripts, slots)), perf_counter)
    return count / continuous, count / waiting


def report(title: str, unit: str, pairs: list[tuple[float, float]], target: float) -> None:
    ours, other = (median(column) for column in zip(*pairs, strict=True))
    ratios = sorted(left / right for left, right in pairs)
    print(
        f"{title}: continuous {ours:.0f} {unit}, other {other:.0f} {unit}, "
        f"ratio {median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f}), target {target:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--slow-slots", type=int, default=32, help="slots for the measure with slow tools")
    parser.add_argument("--trajectories", type=int, default=512)
    parser.add_argument("--kv-heads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    policy = make_policy(options.kv_heads)
    slots, count, seeds = options.slots, options.trajectories, range(options.repeats)
    print(f"{options.kv_heads} KV heads, {options.threads} threads, {count} trajectories, {options.repeats} repeats")
    speed = median(plain_decoding(policy, slots) for _ in seeds)
    print(f"plain decoding, {slots} slots: {speed:.0f} tokens/s at a KV length of about 300")
    pairs = [against_full_batch(policy, slots, count, seed) for seed in seeds]
    report(f"full batch, {slots} slots", "tokens/s", pairs, 0.85)
    pairs = [against_lock_step(policy, options.slow_slots, count, seed) for seed in seeds]
    report(f"slow tools, {options.slow_slots} slots", "rollouts/s", pairs, 3.0)


if __name__ == "__main__":
    main()
