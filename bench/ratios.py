"""Ratios before the first update: what rounding alone makes of them, in each mini-batch of a step.

    python bench/ratios.py [--model smollm2-135m] [--dtype bfloat16 float32] [--mini-batches 1 3 4]

For each type of number and number of mini-batches, made rollouts of `--groups` questions are put through the update of
DSPO's settings, without an optimizer step, and the ratios of the sequences and tokens are compared with 1. The row
`whole step` scores the old logprobs over all samples at once, as trainers commonly do; the row `mini-batch` is this
project's update. `cosine` is that of the first optimizer step's gradient to the gradient with ratios of exactly 1.
"""

from __future__ import annotations

import argparse
import math
import random
from dataclasses import replace
from typing import Any

import torch

from evoseek.assembly.sources import load_settings
from evoseek.credit import Credit
from evoseek.learner.distributed import ALONE
from evoseek.learner.learner import Learner, LearnerContext
from evoseek.learner.logprobs import LogprobModel, score
from evoseek.loss.base import LossInputs, Totals
from evoseek.loss.clipped import SequenceLoss
from evoseek.models.load import load_policy
from evoseek.models.policy import Policy
from evoseek.training.trainer import Trainer
from evoseek.training.update import GroupUpdate
from evoseek.types import Question, Scored, Segment, StopReason, TrainingSample, Trajectory, TrajectoryGroup

NAMES = ["Ada Birk", "Oto Vale", "Ines Oduya", "Rufus Jones", "Lew Oman", "Mira Tolu", "Hugo Falk", "Petra Sand"]
PROMPT = "Answer the question. Search with <search> words </search>.\nQuestion: When was {} born?\n"
SIZE = 4


class RecordedLoss:
    """A loss that keeps how far the ratios of its sequences and of its tokens are from 1."""

    def __init__(self, loss: Any) -> None:
        self.loss, self.sequences, self.tokens, self.clipped = loss, [0.0] * 0, [0.0] * 0, 0.0

    def contributes(self, sample: TrainingSample) -> bool:
        return self.loss.contributes(sample)

    def __call__(self, inputs: LossInputs, totals: Totals) -> Any:
        apart = (inputs.logprobs - inputs.old_logprobs).detach()
        for row, mask in zip(apart, inputs.loss_mask, strict=True):
            self.tokens += [math.exp(value) - 1 for value in row[mask].tolist()]
            self.sequences.append(math.exp(float(row[mask].mean())) - 1)
        result = self.loss(inputs, totals)
        self.clipped += float(result.metrics["clip_ratio/region_mean"])
        return result


def made_groups(policy: Policy, groups: int) -> list[TrajectoryGroup]:
    """Rollouts of one search each, which differ in their words and lengths; one group in four without a signal."""
    rng = random.Random(0)

    def ids(text: str) -> tuple[int, ...]:
        return tuple(policy.tokenizer(text, add_special_tokens=False)["input_ids"])

    def day() -> str:
        return f"{rng.randint(1, 28)} May 19{rng.randint(10, 60)}"

    made: list[TrajectoryGroup] = []
    for number in range(groups):
        prompt = Segment("prompt", ids(PROMPT.format(NAMES[number % len(NAMES)])))
        members: list[Trajectory] = []
        for member in range(SIZE):
            name = NAMES[(number + member) % len(NAMES)]
            query = ids(f"<think> I look for {name}. </think> <search> {name} </search>")
            seen = ids(f"\n<information> {name} was a director, born on {day()} in Marlow. </information>\n")
            answer = ids(f"<answer> {day()} </answer>")
            acts = [Segment("action", words, (0.0,) * len(words)) for words in (query, answer)]
            parts = (prompt, acts[0], Segment("observation", seen), acts[1])
            question = Question(str(number), "?", ("1",))
            ended = StopReason.ANSWERED
            members.append(Trajectory(f"{number}/{member}", question, "solver", parts, (), (), ended))
        members = [recorded(policy, member) for member in members]
        rewards = [Scored(float(member % 2) if number % 4 else 1.0) for member in range(SIZE)]
        made.append(TrajectoryGroup(str(number), tuple(members), tuple(rewards)))
    return made


def recorded(policy: Policy, made: Trajectory) -> Trajectory:
    """A rollout with the logprobs that a sampler would record: those of a pass by itself."""
    zeros = (0.0,) * len(made.token_ids)
    sample = TrainingSample(made.token_ids, made.loss_mask, zeros, zeros)
    (row,) = score(LogprobModel(policy.model), [sample], token_budget=1)
    segments, place = [], 0
    for segment in made.segments:
        end = place + len(segment.token_ids)
        is_action = segment.kind == "action"
        segments.append(replace(segment, logprobs=row[place:end]) if is_action else segment)
        place = end
    return replace(made, segments=tuple(segments))


def credit(rewards: Any, groups: Any) -> list[float | None]:
    """1 for a right rollout, -1 for a wrong one, 0 in a group without a signal."""
    mixed = {group for group in groups if len({r for r, g in zip(rewards, groups, strict=True) if g == group}) > 1}
    return [(1.0 if r else -1.0) if g in mixed else 0.0 for r, g in zip(rewards, groups, strict=True)]


def trainer_of(policy: Policy, dtype: str, mini_batches: int, token_budget: int, **options: Any) -> Trainer:
    """The trainer of a policy by DSPO's loss."""
    own = {
        "policy.dtype": dtype,
        "algorithm.mini_batches": mini_batches,
        "learner.token_budget": token_budget,
        "loss.name": "sequence",
    }
    settings = load_settings(options=own | options)
    context = LearnerContext(LogprobModel(policy.model), RecordedLoss(SequenceLoss()), active=policy.active)
    learner = Learner.build(settings.learner, context)
    given: Credit = credit
    return Trainer(settings, policy, policy, learner, given, None, ALONE, "policy")


def ratios(update: GroupUpdate, groups: list[TrajectoryGroup]) -> tuple[RecordedLoss, list[torch.Tensor]]:
    """What the loss saw in the passes of a step's mini-batches, without an optimizer step, and the first gradient."""
    learner: Any = update.learner
    loss = learner.loss = RecordedLoss(SequenceLoss())
    first: list[torch.Tensor] = []
    for batch in update.batches(1, groups):
        passed = [sample for sample in batch if loss.contributes(sample)]
        totals = Totals(sum(sum(sample.loss_mask) for sample in batch), len(batch))
        learner.optimizer.zero_grad(set_to_none=True)
        learner.accumulate(passed, totals)
        first = first or [p.grad.float().flatten().clone() for p in learner.trained if p.grad is not None]
    learner.optimizer.zero_grad(set_to_none=True)
    return loss, first


def compare(policy: Policy, dtype: str, mini_batches: int, groups: int, token_budget: int = 2048) -> dict[str, Any]:
    """Both ways of scoring, by name: the recorded loss and the cosine of the first gradient."""
    update = trainer_of(policy, dtype, mini_batches, token_budget).update()
    made = made_groups(policy, groups)
    whole = replace(update, transforms=[trainer_of(policy, dtype, 2, token_budget).own_logprobs()], compared=[])
    exact = replace(update, compared=[_without])
    _, right = ratios(exact, made)
    found: dict[str, Any] = {}
    for name, way in (("whole step", whole), ("mini-batch", update)):
        loss, gradient = ratios(way, made)
        cosine = torch.nn.functional.cosine_similarity(torch.cat(gradient).double(), torch.cat(right).double(), 0)
        found[name] = (loss, float(cosine))
    return found


def _without(samples: Any) -> list[TrainingSample]:
    return [replace(sample, old_logprobs=None) for sample in samples]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--mini-batches", nargs="+", type=int, default=[1, 3, 4])
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--token-budget", type=int, default=2048)
    given = parser.parse_args()
    print(
        "| dtype | mini-batches | scored by | ratio - 1, mean abs | largest | beyond DSPO's clip | clipped | cosine |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for dtype in given.dtype:
        policy = load_policy(given.model, dtype=dtype)
        for many in given.mini_batches:
            for name, (loss, cosine) in compare(policy, dtype, many, given.groups, given.token_budget).items():
                apart = [abs(value) for value in loss.sequences]
                beyond = sum(not -3e-4 <= value <= 4e-4 for value in loss.sequences) / len(apart)
                clipped = loss.clipped / many
                numbers = (
                    f"{sum(apart) / len(apart):.1e} | {max(apart):.1e} | {beyond:.2f} | {clipped:.2f} | {cosine:.4f}"
                )
                print(f"| {dtype} | {many} | {name} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
