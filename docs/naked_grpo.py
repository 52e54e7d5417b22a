"""GRPO for a search agent with nothing around it: plain torch, to be read from top to bottom.

Run: python docs/naked_grpo.py

A small language model plays a game about a generated world that it has never read:

    solve : what is Kalo 's mayor ?                                the prompt
    <search> Kalo 's mayor </search>                               written by the policy, hence trained
    <information> Kalo 's mayor is Meri Tosa . ... </information>  what the search found: read, never trained
    <answer> Meri Tosa </answer>                                   written by the policy, hence trained

One training step (Search-R1, arXiv 2503.09516, with GRPO, arXiv 2402.03300):

    1  draw questions, and let the policy play each of them several times
    2  reward: 1 if the answer is right, else 0
    3  advantage: how much better than the other attempts at the same question
    4  one optimizer step that makes the tokens of good attempts likelier and the tokens of bad ones less likely

From evoseek come the world and the search engine; all else is here. tests/docs/test_naked_grpo.py runs evoseek's own
SearchR1, with its batched sampler, rollout loop and learner, beside it: after three steps the weights are the same.
"""

from __future__ import annotations

import hashlib
import random
import re
import string
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from evoseek.search.lexical import LexicalIndex
from evoseek.world.world import World

SEED, STEPS = 2, 3
QUESTIONS, GROUP = 6, 8  # a step plays 6 questions, 8 times each
MAX_TURNS, MAX_TURN_TOKENS = 5, 96  # with what is found in between, this stays below the model's 2048 tokens
TOP_K = 3  # passages that a search shows
CLIP, MAX_GRAD_NORM = 0.2, 0.1
LEARNING_RATE, WEIGHT_DECAY, BETAS = 1e-4, 0.1, (0.9, 0.999)


@dataclass
class Rollout:
    """One game. The lists have an entry per token: `written` is True where the policy wrote it, and `logprobs` then
    holds the logarithm of the probability with which it did."""

    ids: list[int] = field(default_factory=list)
    written: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    answer: str | None = None

    def add(self, token: int, written: bool = False, logprob: float = 0.0) -> None:
        """One more token."""
        self.ids.append(token)
        self.written.append(written)
        self.logprobs.append(logprob)


@torch.inference_mode()
def play(model, tokenizer, index: LexicalIndex, question: str, *, seed: int, name: str) -> Rollout:
    """1. Let the policy write. When it has written a query, show it what the search finds; end with its answer."""
    rollout = Rollout()
    for token in tokenizer.encode(f"solve : {question}"):
        rollout.add(token)
    ends = tokenizer.convert_tokens_to_ids(["</search>", "</answer>", tokenizer.eos_token])
    cache, cached = None, 0  # keys and values of the tokens that the model has read already
    for turn in range(MAX_TURNS):
        start = len(rollout.ids)
        for uniform in uniforms(seed, name, turn):
            output = model(torch.tensor([rollout.ids[cached:]]), past_key_values=cache, use_cache=True)
            cache, cached = output.past_key_values, len(rollout.ids)
            token, logprob = draw(output.logits[0, -1], uniform)
            rollout.add(token, True, logprob)
            if token in ends:
                break
        tag, content = parse(tokenizer.decode(rollout.ids[start:]))
        if tag == "answer":
            rollout.answer = content
        if tag != "search":
            break
        found = "\n".join(passage.text for passage in index.find(content, TOP_K)) or "nothing found"
        for token in tokenizer.encode(f"<information>{found}</information>"):
            rollout.add(token)
    return rollout


def uniforms(seed: int, name: str, turn: int) -> list[float]:
    """The luck of a turn: numbers in [0, 1), one a token, that depend on nothing but what they are for."""
    digest = hashlib.blake2b(f"{seed}\0{name}\0{turn}".encode(), digest_size=16).digest()
    generator = np.random.Generator(np.random.Philox(key=np.frombuffer(digest, dtype=np.uint64)))
    return generator.random(MAX_TURN_TOKENS, dtype=np.float32).tolist()


def draw(logits: Tensor, uniform: float) -> tuple[int, float]:
    """The token at which the running sum of the probabilities exceeds a uniform number, and its logprob."""
    logprobs = logits.log_softmax(dim=-1)
    running = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
    token = int(torch.searchsorted(running, uniform * running[-1:], right=True))
    return token, float(logprobs[token])


def parse(text: str) -> tuple[str | None, str]:
    """What a turn says: ("search", query), ("answer", answer), or neither. It ends with the first closing tag."""
    for tag in ("search", "answer"):
        if text.endswith(f"</{tag}>") and f"<{tag}>" in text:
            return tag, text.removesuffix(f"</{tag}>").rpartition(f"<{tag}>")[2].strip()
    return None, ""


def exact_match(answer: str | None, golden: Sequence[str]) -> float:
    """2. The reward: 1 if the answer is a golden one but for letter case, punctuation, articles and spaces."""
    return float(answer is not None and normalise(answer) in map(normalise, golden))


def normalise(text: str) -> str:
    """What is left of an answer without those."""
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def advantages(rewards: Sequence[float]) -> list[float]:
    """3. Of one question's attempts: (reward - mean) / std. Where all are alike there is nothing to learn."""
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    return [(reward - mean(rewards)) / (stdev(rewards) + 1e-6) for reward in rewards]


def clipped_loss(model, rollout: Rollout, advantage: float) -> Tensor:
    """4. PPO's clipped surrogate (arXiv 1707.06347, eq. 7), summed over the tokens that the policy wrote."""
    ids, written = torch.tensor(rollout.ids), torch.tensor(rollout.written)[1:]
    following = model(ids[None, :-1]).logits[0].log_softmax(dim=-1)  # at each place, of the token that comes next
    new = following.gather(1, ids[1:, None]).squeeze(1)[written]
    old = torch.tensor(rollout.logprobs)[1:][written]
    ratio = (new - old).exp()  # 1: the weights are still those that played. What counts is its gradient
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).sum()


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW (arXiv 1711.05101). Decay is for matrices that multiply: not for norms, biases and embeddings."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    groups = {True: [], False: []}
    for parameter in model.parameters():
        groups[parameter.ndim >= 2 and id(parameter) not in embeddings].append(parameter)
    decayed, others = ({"params": groups[True]}, {"params": groups[False], "weight_decay": 0.0})
    return torch.optim.AdamW([decayed, others], lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY)


def train(model, tokenizer, index: LexicalIndex, questions: Sequence, *, seed: int, steps: int) -> list[float]:
    """Train the model in place; the gradient's norm of each step. No question is played in two steps."""
    order = list(range(len(questions)))
    random.Random(f"{seed}/questions/0").shuffle(order)
    optimizer, norms = make_optimizer(model), []
    for step in range(1, steps + 1):
        rollouts, rewards, weights = [], [], []
        for question in (questions[place] for place in order[(step - 1) * QUESTIONS : step * QUESTIONS]):
            names = [f"step-{step:06d}/{question.id}/{member}" for member in range(GROUP)]
            group = [play(model, tokenizer, index, question.text, seed=seed, name=name) for name in names]
            scores = [exact_match(rollout.answer, question.golden_answers) for rollout in group]
            rollouts, rewards, weights = rollouts + group, rewards + scores, weights + advantages(scores)
        tokens = sum(sum(rollout.written) for rollout in rollouts)
        for rollout, advantage in zip(rollouts, weights, strict=True):
            if advantage:
                (clipped_loss(model, rollout, advantage) / tokens).backward()  # a mean over the step's tokens
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)))
        if any(weights):
            optimizer.step()
            optimizer.zero_grad()
        print(f"step {step}: reward {mean(rewards):.3f}, {tokens / len(rollouts):.1f} tokens written a rollout")
    return norms


def main() -> None:
    """Train the tiny policy that evoseek carries."""
    torch.set_num_threads(1)  # a model so small gains nothing from more
    policy = resources.files("evoseek") / "tiny"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(policy), AutoTokenizer.from_pretrained(policy)
    world = World.generate(SEED, 1000, "train")
    with tempfile.TemporaryDirectory() as folder:
        index = LexicalIndex.build(Path(folder), world.passages())
        train(model, tokenizer, index, world.questions(STEPS * QUESTIONS, seed=1), seed=SEED, steps=STEPS)


if __name__ == "__main__":
    main()
