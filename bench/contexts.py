"""A search that is longer than its context: notes, cutting the oldest turns, or no limit.

Questions of six to eight hops on a generated world, for the tiny policy; a search shows one passage. Ways:

    no limit      a context of 1,600 tokens, which nothing leaves
    oldest leave  a context of 160 tokens, which the oldest turns leave when it is full (the environment `notes`)
    notes         the same with the tool `note`: calls of it stay. The tag is new to the policy, a copy of <search>

Each way begins with demonstrations, played in its own environment: it states the fact that it found, and searches for
the next; in `notes` it first writes what is left of the question. GRPO follows. Scores are exact matches on a world
whose names occur nowhere in training, sampled at temperature 1, before and after GRPO.

    python bench/contexts.py --directory runs/contexts --seeds 0 1 2
    python bench/contexts.py --directory runs/contexts --seeds 0 --demonstrations 600 --questions 60 --steps 10

Finished parts are kept in the directory and not computed again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from time import perf_counter

from rich.console import Console
from tools.tiny.more_tags import add_tags

from evoseek import Run
from evoseek.cli.learning_demo import make_world
from evoseek.learner.learner import Learner, LearnerContext
from evoseek.learner.logprobs import LogprobModel
from evoseek.learner.settings import LearnerSettings
from evoseek.loss.likelihood import CrossEntropyLoss
from evoseek.models.load import load_policy, save_policy
from evoseek.questions.questions import load_questions
from evoseek.rollout.roller import Roller
from evoseek.storage.files import write_atomic
from evoseek.storage.metrics import read_metrics
from evoseek.training.demonstrations import WrittenTurns, samples_of
from evoseek.types import Question, StopReason, ToolCall, Trajectory
from evoseek.world.grammar import fact_text, possessive

HOPS = (6, 7, 8)
WAYS = {"no limit": (1600, ("search",)), "oldest leave": (160, ("search",)), "notes": (160, ("search", "note"))}
PER_STEP = 12  # demonstrations of an optimizer step
QUIET = Console(quiet=True)


def settings(way: str, folder: Path, policy: Path | str, seed: int) -> dict[str, object]:
    """The settings of a way: everything but the number of steps."""
    length, tools = WAYS[way]
    return {
        "policy.model": str(policy),
        "environment.name": "notes",
        "tools": [{"name": name} for name in tools],
        "search.index": str(folder / "train" / "index"),
        "search.top_k": 1,
        "questions.path": str(folder / "train" / "questions.jsonl"),
        "questions.per_step": 8,
        "rollout.max_turns": 2 * max(HOPS) + 2,
        "rollout.max_tool_calls": 2 * max(HOPS) + 2,
        "rollout.max_tokens_per_turn": 44,
        "rollout.max_total_tokens": length,
        "run.seed": seed,
    }


def turns(question: Question, *, notes: bool) -> Iterator[tuple[str, ToolCall | str]]:
    """Yield the thought and the ending of each turn that a question should be answered with."""
    chain = [tuple(map(str, fact)) for fact in question.metadata["chain"]]
    thought = ""
    for place, (subject, relation, found) in enumerate(chain):
        yield thought, ToolCall("search", {"query": f"{subject}'s {relation}"})
        thought = fact_text(subject, relation, found)
        left = [other for _, other, _ in chain[place + 1 :]]
        if notes and left:
            yield thought, ToolCall("note", {"text": f"{found}'s {possessive(left)}"})
            thought = ""
    yield thought, chain[-1][2]


async def play(questions: Sequence[Question], roller: Roller, *, notes: bool) -> list[Trajectory]:
    """The demonstrations of the questions that can be answered so, each with its results."""
    played: list[Trajectory] = []
    for question in questions:
        ids = [roller.renderer.render_turn(*turn) for turn in turns(question, notes=notes)]
        own = replace(roller, sampler=WrittenTurns(ids))
        trajectory = await own.one(question, f"demonstration/{question.id}")
        found = " ".join(passage.text for passage in trajectory.passages)
        told = all(fact_text(*map(str, fact)) in found for fact in question.metadata["chain"])
        if trajectory.stop_reason is StopReason.ANSWERED and told:
            played.append(trajectory)
    return played


def demonstrated(way: str, folder: Path, number: int, epochs: int) -> Path:
    """The policy of a way after its demonstrations."""
    directory = folder / way.replace(" ", "-") / f"demonstrations-{number}"
    if directory.is_dir():
        return directory
    questions = load_questions(folder / "demonstrations" / "questions.jsonl")[:number]
    policy = load_policy("tiny")
    if "note" in WAYS[way][1]:
        add_tags(policy, {"note": "search"})
        save_policy(policy, folder / "tagged")
    started = perf_counter()
    own = settings(way, folder, folder / "tagged" if "note" in WAYS[way][1] else "tiny", 0)
    with Run(
        "search-r1", settings={**own, "search.index": str(folder / "demonstrations" / "index")}
    ).context() as context:
        roller = context.solver(context.engine)
        trajectories = asyncio.run(play(questions, roller, notes="note" in WAYS[way][1]))
    total = epochs * len(trajectories) // PER_STEP
    rate = LearnerSettings(learning_rate=1e-3, warmup_steps=5)
    learner = Learner(rate, LearnerContext(LogprobModel(policy.model), CrossEntropyLoss(), total_steps=total))
    losses = [0.0]
    for step in range(total):
        first = step * PER_STEP % len(trajectories)
        losses.append(learner.update(samples_of((trajectories * 2)[first : first + PER_STEP]))["loss"])
    print(
        f"{way}: {len(trajectories)} of {len(questions)} demonstrations, {total} steps, loss {losses[1]:.3f} to "
        f"{fmean(losses[-5:]):.3f}; branches {fmean(len(t.branches) for t in trajectories):.1f}, longest context "
        f"{max(len(b.token_ids) for t in trajectories for b in t.branches)}; {perf_counter() - started:.0f} s",
        flush=True,
    )
    save_policy(policy, directory)
    return directory


def measured(way: str, seed: int, folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """The scores of a way before and after GRPO."""
    directory = folder / way.replace(" ", "-") / f"seed-{seed}"
    path = directory / "scores.json"
    if path.is_file():
        return json.loads(path.read_text())
    policy = demonstrated(way, folder, arguments.demonstrations, arguments.epochs)
    own = {**settings(way, folder, policy, seed), "run.steps": max(arguments.steps, 1)}
    run = Run("search-r1", directory / "run", settings=own, console=QUIET)
    held_out = {**own, "search.index": str(folder / "evaluation" / "index")}
    examined = Run("search-r1", run.directory, settings=held_out, console=QUIET)
    questions = load_questions(folder / "evaluation" / "questions.jsonl")[: arguments.questions]
    before = examined.evaluate(questions, temperature=1.0).score
    started = perf_counter()
    if arguments.steps:
        run.train()
    seconds = perf_counter() - started
    after = examined.evaluate(questions, temperature=1.0).score if arguments.steps else before
    rows = list(read_metrics(run.directory.metrics)) if arguments.steps else []
    scores = {
        "before": before.mean,
        "after": after.mean,
        "n": after.n,
        "branches": fmean([row.get("rollout/branches") or 1.0 for row in rows] or [0.0]),
        "seconds a step": seconds / max(arguments.steps, 1),
    }
    write_atomic(path, json.dumps(scores))
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--demonstrations", type=int, default=2400)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--entities", type=int, default=1000)
    arguments = parser.parse_args()
    for name, split, seed in (("demonstrations", "train", 1), ("train", "train", 0), ("evaluation", "evaluation", 0)):
        number = arguments.demonstrations if name == "demonstrations" else 600
        make_world(arguments.directory / name, split, seed, number, HOPS, entities=arguments.entities)
    print("| context | seed | n | before | after GRPO | contexts a rollout | s a step |\n|---|---|---|---|---|---|---|")
    for way in arguments.ways:
        for seed in arguments.seeds:
            found = measured(way, seed, arguments.directory, arguments)
            print(
                f"| {way} | {seed} | {found['n']} | {found['before']:.2f} | {found['after']:.2f} "
                f"| {found['branches']:.1f} | {found['seconds a step']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
