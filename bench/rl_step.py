"""Seconds per training step, beside TRL's GRPOTrainer with tools. Run: python bench/rl_step.py (with the extra `bench`)

One process, two trainers, taking turns step by step (A B A B ...), on the CPU:

    evoseek   SearchR1.step: rollouts by TorchSampler with search in the loop, rewards, advantages, one optimizer step
    TRL       GRPOTrainer(tools=[search]): rollouts by transformers' generate, its default, then the same

The same in both: the policy's weights at the start, the prompts token by token (this is checked), the questions of each
step, the search index and the text of its results, rollouts per question, temperature, limits of turns and of tokens a
turn, exact match as reward, token-mean clipped loss without KL, AdamW with its settings, number format, threads. The
learning rate is as small as large models have it, so the two policies stay alike. Each side has the micro-batch that
was fastest for it. TRL gets two settings that make it faster than its defaults: no gradient checkpointing, and a limit
of tokens per turn, so that no rollout that fails to stop holds up the batch.

Not the same: the random streams, hence the rollouts (calls and action tokens per rollout say how alike the work was),
and what a trainer does to reach the same gradient: evoseek leaves groups whose rewards are all equal out of the
learner's passes, because their gradient is 0 (the column "no signal" is their share), TRL computes them.

TRL needs a chat template with tools that it knows, so the policy speaks Qwen2.5's. It is made at the first run
(`search_task.teach`, some minutes) and kept in the folder.

A step's clock runs from its questions to the updated weights; what is logged afterwards does not count, except for
evoseek's trajectory file. CPU seconds (of all threads) say more where the machine does other things at the same time.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean, median
from time import perf_counter, process_time

import torch
from datasets import Dataset
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen2_5_chat_template

from evoseek.credit import group_advantages
from evoseek.learner.learner import Learner, LearnerContext
from evoseek.learner.logprobs import LogprobModel
from evoseek.learner.optim import adamw
from evoseek.learner.settings import LearnerSettings
from evoseek.loss.clipped import ClippedLoss
from evoseek.models.load import load_policy
from evoseek.renderers.tool_calls import ToolCallRenderer
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.limits import Limits
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.roller import Roller
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.systems.search_r1 import SearchR1
from evoseek.text.normalization import exact_match
from evoseek.training.question_order import Passes
from evoseek.training.rollouts import QuestionRollouts
from evoseek.training.update import GroupUpdate
from search_task import SEED, SearchTask, teach

LIMITS = Limits(max_turns=5, max_tool_calls=64, max_tokens_per_turn=64, max_total_tokens=1536)
LEARNING_RATE, WEIGHT_DECAY, CLIP = 1e-6, 0.01, 0.2
OUR_TOKEN_BUDGET, TRL_MICRO_BATCH = 2048, 20  # tokens, rollouts: the fastest of 1024 to 16384, and of 8 to 160
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


@dataclass(frozen=True)
class Work:
    """What both sides are given."""

    policy: Path
    task: SearchTask
    questions: int
    rollouts: int
    steps: int
    bf16: bool


def our_side(work: Work) -> SearchR1:
    policy = load_policy(str(work.policy))
    sampler = TorchSampler(policy, slots=work.questions * work.rollouts, max_length=LIMITS.max_total_tokens)
    renderer = ToolCallRenderer(policy.tokenizer, [work.task.tool.schema])
    rollouts = QuestionRollouts(
        roller=Roller(work.task.env, renderer, sampler, LIMITS, seed=SEED),
        reward=AnswerReward("exact_match"),
        trajectories=TrajectoryWriter(work.policy.parent / "trajectories.jsonl", policy.tokenizer.decode),
        group_size=work.rollouts,
    )
    settings = LearnerSettings(learning_rate=LEARNING_RATE, token_budget=OUR_TOKEN_BUDGET, bf16=work.bf16)
    context = LearnerContext(LogprobModel(policy.model), ClippedLoss(CLIP, CLIP, "token-mean"))
    learner = Learner(settings, context, partial(adamw, weight_decay=WEIGHT_DECAY))
    update = GroupUpdate(learner, group_advantages, seed=SEED)
    return SearchR1(work.task.questions, rollouts, update, sampler.update_weights, work.questions)


def trl_side(work: Work, ours: SearchR1) -> GRPOTrainer:
    policy = load_policy(str(work.policy))
    passes, ids, places = Passes(), [question.id for question in work.task.questions], list[int]()
    for step in range(1, work.steps + 1):  # as our side does
        places += passes.draw(ids, seed=SEED, step=step, size=work.questions)
        passes.count(step, ids)
    questions = [work.task.questions[place] for place in places]
    prompts = [[{"role": "user", "content": f"solve : {question.text}"}] for question in questions]
    options = {"tools": [work.task.search], "add_generation_prompt": True, "return_dict": False}
    roller = ours.rollouts.roller
    prompt = roller.renderer.render_prompt(roller.env.messages(questions[0]))
    if list(prompt) != policy.tokenizer.apply_chat_template(prompts[0], **options):
        raise SystemExit("The two sides do not have the same prompt, so this would be no comparison.")
    trainer = GRPOTrainer(
        model=policy.model,
        processing_class=policy.tokenizer,
        args=trl_config(work),
        train_dataset=Dataset.from_dict({"prompt": prompts, "golden": [list(q.golden_answers) for q in questions]}),
        reward_funcs=trl_reward,
        tools=[work.task.search],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def trl_config(work: Work) -> GRPOConfig:
    return GRPOConfig(
        output_dir=str(work.policy.parent / "trl"),
        max_steps=work.steps,
        per_device_train_batch_size=TRL_MICRO_BATCH,
        gradient_accumulation_steps=work.questions * work.rollouts // TRL_MICRO_BATCH,
        num_generations=work.rollouts,
        max_tool_calling_iterations=LIMITS.max_turns - 1,
        max_completion_length=LIMITS.max_total_tokens,
        generation_kwargs={"max_new_tokens": LIMITS.max_tokens_per_turn},
        temperature=1.0,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=1.0,
        beta=0.0,
        epsilon=CLIP,
        loss_type="dapo",
        shuffle_dataset=False,
        use_cpu=True,
        bf16=work.bf16,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def trl_reward(completions: list, golden: list[list[str]], **_: object) -> list[float]:
    """Exact match of the answer in the last message, as ToolCallRenderer and AnswerReward take it."""

    def score(message: dict, accepted: list[str]) -> float:
        if message["role"] != "assistant" or message.get("tool_calls"):
            return 0.0
        return exact_match((ANSWER.findall(message["content"]) or [message["content"]])[-1], accepted)

    return [score(messages[-1], accepted) for messages, accepted in zip(completions, golden, strict=True)]


@dataclass
class Side:
    """What one trainer's steps took and did; the first, a warm-up, does not count. Metrics are named as TRL does."""

    name: str
    seconds: list[tuple[float, float]] = field(default_factory=list)  # real, CPU
    metrics: list[dict[str, float]] = field(default_factory=list)

    def start(self) -> None:
        self.started = perf_counter(), process_time()

    def stop(self) -> None:
        self.seconds.append((perf_counter() - self.started[0], process_time() - self.started[1]))

    def medians(self) -> tuple[float, float]:
        return median(real for real, _ in self.seconds[1:]), median(cpu for _, cpu in self.seconds[1:])

    def mean(self, name: str) -> float:
        return fmean(row[name] for row in self.metrics[1:])


class TakingTurns(TrainerCallback):
    """Lets evoseek make a step before each of TRL's, and times both."""

    def __init__(self, system: SearchR1) -> None:
        self.system, self.ours, self.theirs = system, Side("evoseek"), Side("TRL")

    def on_step_begin(self, args, state, control, **_):
        self.ours.start()
        report = asyncio.run(self.system.step(state.global_step + 1))
        self.ours.stop()
        self.ours.metrics.append(dict(report.metrics))
        self.theirs.start()

    def on_step_end(self, args, state, control, **_):
        self.theirs.stop()

    def on_log(self, args, state, control, logs, **_):
        if "tools/call_frequency" in logs:  # the log of a step, not the one of the whole training
            self.theirs.metrics.append(logs)
            print(
                "   ".join(f"{side.name} {side.seconds[-1][0]:.1f} s" for side in (self.ours, self.theirs)), flush=True
            )


def report(sides: tuple[Side, Side], rollouts: int) -> None:
    print(f"{'':8}{'s/step':>18}{'CPU s':>8}{'s/1k action tokens':>20}{'calls':>8}{'action tokens':>15}", end="")
    print(f"{'reward':>8}{'no signal':>11}")
    for side in sides:
        (real, cpu), (low, *_, high) = side.medians(), sorted(seconds for seconds, _ in side.seconds[1:])
        tokens, calls = side.mean("completions/mean_length"), side.mean("tools/call_frequency")
        print(f"{side.name:8}{f'{real:.1f} ({low:.1f}-{high:.1f})':>18}{cpu:8.1f}", end="")
        print(f"{1000 * real / (tokens * rollouts):20.2f}{calls:8.2f}{tokens:15.1f}", end="")
        print(f"{side.mean('reward'):8.2f}{side.mean('frac_reward_zero_std'):11.2f}")
    (our_real, our_cpu), (real, cpu) = (side.medians() for side in sides)
    print(f"TRL / evoseek, medians: {real / our_real:.2f} (CPU seconds: {cpu / our_cpu:.2f}), target 3.00")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=20, help="questions a step")
    parser.add_argument("--rollouts", type=int, default=8, help="rollouts a question")
    parser.add_argument("--steps", type=int, default=4, help="steps of each; the first is a warm-up")
    parser.add_argument("--bf16", action="store_true", help="both learners' matrix products in bfloat16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("out/rl_step"), help="for the policy and everything else")
    options = parser.parse_args()
    if options.steps < 3 or options.questions * options.rollouts % TRL_MICRO_BATCH:
        parser.error(f"at least 3 steps are needed, and a multiple of {TRL_MICRO_BATCH} rollouts a step")
    torch.set_num_threads(options.threads)
    transformers_logging.disable_progress_bar()
    task, policy = SearchTask(options.folder), options.folder / "policy"
    if not policy.exists():
        teach(policy, task, qwen2_5_chat_template)
    work = Work(policy, task, options.questions, options.rollouts, options.steps, options.bf16)
    form = "bfloat16" if options.bf16 else "float32"
    print(f"{options.questions} x {options.rollouts} rollouts a step, {options.threads} threads, {form}", flush=True)
    turns = TakingTurns(our_side(work))
    trainer = trl_side(work, turns.system)
    trainer.add_callback(turns)
    trainer.train()
    report((turns.ours, turns.theirs), options.questions * options.rollouts)


if __name__ == "__main__":
    main()
