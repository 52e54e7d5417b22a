"""Seconds per training step, beside TRL's GRPOTrainer with tools. Run: python bench/rl_step.py (needs the extra `bench`)

One process, two trainers, taking turns step by step (A B A B ...), on the CPU in float32:

    evoseek   SearchR1.step: rollouts by TorchSampler with search in the loop, rewards, advantages, one optimizer step
    TRL       GRPOTrainer(tools=[search]): rollouts by transformers' generate, its default, then the same

The same in both: the policy's weights at the start (d = 128, 4 layers), the prompts token by token (which is checked),
the questions of each step, the search index and the text of its results, rollouts per question, temperature, limits of
turns and of tokens a turn, exact match as reward, token-mean clipped loss without KL, AdamW with its settings, and the
number of threads. TRL gets settings that make it faster than its defaults: no gradient checkpointing, no bfloat16
(slow on a CPU), and its tokens per turn are limited, so that no rollout that fails to stop holds up the batch.

TRL needs a chat template with tools that it knows, so the policy speaks Qwen2.5's: it is made here (a byte-level
tokenizer, some minutes of supervised learning on demonstrations that search once a hop) and kept in the folder.

A step's clock runs from its questions to the updated weights; what is logged afterwards does not count, except for
evoseek's trajectory file. The random streams differ, hence also the rollouts: calls and action tokens per rollout say
how alike the work was. CPU seconds are those of all threads, and matter less for what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from time import perf_counter, process_time

import torch
from datasets import Dataset
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, TrainerCallback
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen2_5_chat_template

from evoseek.corpus.world import RELATIONS, World
from evoseek.env.prompts import load_prompts
from evoseek.env.solver import SolverEnv
from evoseek.env.tools import SearchTool
from evoseek.learner.learner import Learner
from evoseek.learner.muon import MuonAdamW
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.cross_entropy import CrossEntropyLoss
from evoseek.policy.load import Policy, load_policy, save_policy
from evoseek.policy.sampler import TorchSampler
from evoseek.policy.tiny_model import tiny_config, tiny_model
from evoseek.policy.tool_calls import ToolCallRenderer
from evoseek.reward.answer import exact_match
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.limits import Limits
from evoseek.rollout.record import TrajectoryWriter
from evoseek.search.lexical import LexicalIndex
from evoseek.systems.question_order import questions_of_step
from evoseek.systems.search_r1 import SearchR1
from evoseek.types import Question, TrainingSample

TOP_K, VOCABULARY, SEED = 3, 1024, 0
LIMITS = Limits(max_turns=5, max_tool_calls=64, max_tokens_per_turn=64, max_total_tokens=1536)
LEARNING_RATE, WEIGHT_DECAY = 2e-4, 0.01
DEMONSTRATIONS, TEACHING_STEPS, DEMONSTRATIONS_PER_STEP = 800, 200, 12
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class Task:
    """What both sides work on: questions about a generated world, its index, and how it is searched."""

    def __init__(self, folder: Path) -> None:
        world = World.generate(SEED, 1000, "train")
        self.passages = list(world.passages())
        self.index = LexicalIndex.build(folder / "index", self.passages)
        self.questions = world.questions(400, seed=1)
        self.taught = world.questions(DEMONSTRATIONS, seed=2)
        prompts = load_prompts("tiny")
        self.tool = SearchTool(self.index, TOP_K, template=prompts["observation"])
        self.observation = prompts["observation"]
        self.env = SolverEnv([self.tool], prompts, "tools")

    def search(self, query: str):  # a return type would become part of the schema that TRL makes of this
        """Search a collection of documents and read the best passages.

        Args:
            query: What to look for, in a few words.
        """
        return self.observation.text(passages=self.index.find(query, TOP_K))


# The policy


def make_tokenizer(task: Task) -> PreTrainedTokenizerFast:
    """Byte-level BPE with Qwen's control tokens. A word takes the space after it, so names look the same everywhere."""
    engine = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(r"'s ?|\w+ ?|[^\w\s]+ ?|\s"), "isolated")
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    engine.decoder = decoders.ByteLevel()
    texts = [passage.text for passage in task.passages] + [question.text for question in task.taught]
    texts += 300 * [qwen2_5_chat_template, json.dumps(task.tool.schema), "solve : ", *RELATIONS]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    engine.train_from_iterator(texts, trainer)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    engine.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    tags = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
    engine.add_tokens([AddedToken(text, special=False, normalized=False) for text in tags])
    made = PreTrainedTokenizerFast(tokenizer_object=engine, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    made.chat_template = qwen2_5_chat_template
    return made


def demonstration(question: Question, task: Task, renderer: ToolCallRenderer, policy: Policy) -> TrainingSample:
    """One search a hop, what it told, and the answer, in the ids that the rollout loop would have."""
    ids = list(renderer.render_prompt(task.env.messages(question)))
    mask = [False] * len(ids)

    def write(text: str) -> None:
        new = policy.tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False)
        ids.extend(new)
        mask.extend([True] * len(new))

    found = ""
    for subject, relation, name in question.metadata["chain"]:
        query = f"{subject}'s {relation}"
        call = json.dumps({"name": "search", "arguments": {"query": query}})
        write(f"{found}<tool_call>\n{call}\n</tool_call>")
        ids += renderer.render_observation([task.search(query)])
        mask += [False] * (len(ids) - len(mask))
        found = f"{query} is {name}.\n"
    write(f"{found}<answer>{name}</answer>")
    zeros = (0.0,) * len(ids)
    return TrainingSample(tuple(ids), tuple(mask), zeros, zeros)


def teach(directory: Path, task: Task) -> None:
    """Make the policy by supervised learning."""
    tokenizer = make_tokenizer(task)
    config = tiny_config(len(tokenizer), eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    policy = Policy(tiny_model(config, SEED), tokenizer, "bench")
    renderer = ToolCallRenderer(tokenizer, [task.tool.schema])
    samples = [demonstration(question, task, renderer, policy) for question in task.taught]
    schedule = {"learning_rate": 0.02, "warmup_steps": 10, "total_steps": TEACHING_STEPS}
    learner = Learner(policy.model, loss=CrossEntropyLoss(), optimizer=MuonAdamW, **schedule)
    rng = random.Random(SEED)
    for step in range(1, TEACHING_STEPS + 1):
        loss = learner.update(rng.sample(samples, DEMONSTRATIONS_PER_STEP))["loss"]
        if step % 10 == 0:
            print(f"teaching {step}/{TEACHING_STEPS}  loss {loss:.3f}", flush=True)
    save_policy(policy, directory)


# The two sides


def our_side(directory: Path, task: Task, batch: int, group: int) -> SearchR1:
    policy = load_policy(str(directory))
    loss = ClippedLoss(0.2, 0.2, "token-mean")
    return SearchR1(
        questions=task.questions,
        env=task.env,
        renderer=ToolCallRenderer(policy.tokenizer, [task.tool.schema]),
        sampler=TorchSampler(policy, slots=batch * group, max_length=LIMITS.max_total_tokens),
        limits=LIMITS,
        reward=AnswerReward("exact_match"),
        learner=Learner(policy.model, loss=loss, learning_rate=LEARNING_RATE, weight_decay=WEIGHT_DECAY),
        trajectories=TrajectoryWriter(directory.parent / "trajectories.jsonl", policy.tokenizer.decode),
        seed=SEED,
        questions_per_step=batch,
        group_size=group,
    )


def trl_reward(completions: list, golden_answers: list[list[str]], **_: object) -> list[float]:
    """Exact match of the answer in the last message, as ToolCallRenderer and AnswerReward take it."""

    def score(message: dict, golden: list[str]) -> float:
        if message["role"] != "assistant" or message.get("tool_calls"):
            return 0.0
        return exact_match((ANSWER.findall(message["content"]) or [message["content"]])[-1], golden)

    return [score(messages[-1], golden) for messages, golden in zip(completions, golden_answers, strict=True)]


def trl_side(directory: Path, task: Task, batch: int, group: int, steps: int, micro_batch: int) -> GRPOTrainer:
    policy = load_policy(str(directory))
    order = [
        question
        for step in range(1, steps + 1)
        for question in questions_of_step(task.questions, seed=SEED, step=step, size=batch)
    ]
    rows = [
        {
            "prompt": [{"role": "user", "content": f"solve : {question.text}"}],
            "golden_answers": list(question.golden_answers),
        }
        for question in order
    ]
    config = GRPOConfig(
        output_dir=str(directory.parent / "trl"),
        max_steps=steps,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=batch * group // micro_batch,
        num_generations=group,
        max_tool_calling_iterations=LIMITS.max_turns - 1,
        max_completion_length=LIMITS.max_total_tokens,
        generation_kwargs={"max_new_tokens": LIMITS.max_tokens_per_turn},
        temperature=1.0,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=1.0,
        beta=0.0,
        epsilon=0.2,
        loss_type="dapo",
        shuffle_dataset=False,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    theirs = policy.tokenizer.apply_chat_template(
        rows[0]["prompt"], tools=[task.search], add_generation_prompt=True, return_dict=False
    )
    ours = ToolCallRenderer(policy.tokenizer, [task.tool.schema]).render_prompt(task.env.messages(order[0]))
    if list(ours) != theirs:
        raise SystemExit("The two sides do not have the same prompt, so this would be no comparison.")
    trainer = GRPOTrainer(
        model=policy.model,
        processing_class=policy.tokenizer,
        args=config,
        train_dataset=Dataset.from_list(rows),
        reward_funcs=trl_reward,
        tools=[task.search],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


# Taking turns


@dataclass
class Side:
    """What one trainer's steps cost and did. Seconds are (real, CPU); the rest is named as TRL names it."""

    name: str
    seconds: list[tuple[float, float]] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)

    def start(self) -> None:
        self.started = perf_counter(), process_time()

    def stop(self) -> None:
        self.seconds.append((perf_counter() - self.started[0], process_time() - self.started[1]))

    def medians(self) -> tuple[float, float]:
        """Seconds of a step, real and CPU; the first step, a warm-up, does not count."""
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
        if "tools/call_frequency" in logs:
            self.theirs.metrics.append(logs)
            print("  ".join(f"{side.name} {side.seconds[-1][0]:.1f} s" for side in (self.ours, self.theirs)), flush=True)


COLUMNS = {
    "calls": "tools/call_frequency",
    "action tokens": "completions/mean_length",
    "reward": "reward",
    "no signal": "frac_reward_zero_std",
}


def report(sides: tuple[Side, Side], rollouts: int) -> None:
    print(f"\n{'':8}{'s/step':>16}{'CPU s':>8}{'s/1k action tokens':>20}" + "".join(f"{c:>15}" for c in COLUMNS))
    for side in sides:
        real, cpu = side.medians()
        every = sorted(seconds for seconds, _ in side.seconds[1:])
        thousands = side.mean("completions/mean_length") * rollouts / 1000
        print(
            f"{side.name:8}{f'{real:.1f} ({every[0]:.1f}-{every[-1]:.1f})':>16}{cpu:8.1f}{real / thousands:20.2f}"
            + "".join(f"{side.mean(name):15.2f}" for name in COLUMNS.values())
        )
    ours, theirs = (side.medians() for side in sides)
    print(f"TRL / evoseek, medians: {theirs[0] / ours[0]:.2f} (CPU {theirs[1] / ours[1]:.2f}), target 3.00")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=20, help="questions a step")
    parser.add_argument("--rollouts", type=int, default=8, help="rollouts a question")
    parser.add_argument("--steps", type=int, default=4, help="steps of each, the first is a warm-up")
    parser.add_argument("--trl-micro-batch", type=int, default=20, help="rollouts in one of TRL's backward passes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("out/rl_step"), help="for the policy and everything else")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    task, directory = Task(options.folder), options.folder / "policy"
    if not directory.exists():
        teach(directory, task)
    size = (directory, task, options.questions, options.rollouts)
    turns = TakingTurns(our_side(*size))
    trainer = trl_side(*size, options.steps, options.trl_micro_batch)
    trainer.add_callback(turns)
    print(f"{options.questions} x {options.rollouts} rollouts a step, {options.threads} threads", flush=True)
    trainer.train()
    report((turns.ours, turns.theirs), options.questions * options.rollouts)


if __name__ == "__main__":
    main()
