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
    python bench/contexts.py --directory runs/reader --seeds 0 1 2 --reader

With --reader no model is trained: a reader that makes no mistake plays the policy, and knows nothing but its context.
Its scores are what a context permits.

Finished parts are kept in the directory and not computed again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from evoseek.text.normalization import exact_match
from evoseek.training.demonstrations import WrittenTurns, samples_of
from evoseek.types import Completion, Question, SampleRequest, StopReason, ToolCall, Trajectory
from evoseek.world.grammar import ParsedQuestion, fact_text, parse, possessive

HOPS = (6, 7, 8)
WAYS = {"no limit": (1600, ("search",)), "oldest leave": (160, ("search",)), "notes": (160, ("search", "note"))}
PER_STEP = 12  # demonstrations of an optimizer step
QUIET = Console(quiet=True)
CALL = re.compile("<(search|note)> (.*?) </")


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


class Reader:
    """A `Sampler` that reads its context without a mistake. It guesses how far the search has come where the context
    leaves this open."""

    policy_version = 0

    def __init__(self, roller: Roller, decode: Callable[[Sequence[int]], str], *, notes: bool) -> None:
        self._renderer, self._decode, self._notes = roller.renderer, decode, notes

    async def sample(self, request: SampleRequest) -> Completion:
        """The next turn of a context."""
        rng = random.Random(f"{request.seed}/{request.trajectory_id}/{request.turn}")
        ids = self._renderer.render_turn(*self._turn(self._decode(request.token_ids), rng))
        return Completion(ids, (0.0,) * len(ids), "stop")

    def release(self, trajectory_id: str) -> None:
        """Keep nothing."""

    def update_weights(self, version: int, weights: Mapping[str, object] | None = None) -> None:
        """Change nothing."""

    def _turn(self, context: str, rng: random.Random) -> tuple[str, ToolCall | str]:
        asked = parse(context.partition("<")[0].partition(":")[2])
        calls = [(tag, parse(f"what is {text}")) for tag, text in CALL.findall(context)]
        noted = [call for tag, call in calls if tag == "note"]
        start = noted[-1] if noted else asked
        if not calls or calls[-1][0] == "note":
            return "", ToolCall("search", {"query": f"{start.name}'s {start.relations[0]}"})
        subject, relation = calls[-1][1].name, calls[-1][1].relations[0]
        shown = context.rpartition("<information>")[2]
        found = re.search(rf"\b{re.escape(subject)} 's {relation} is (.+?) \.", shown)
        if found is None:
            return "", "unknown"
        left = start.relations[1:] if self._notes else self._left(asked, [call for _, call in calls], rng)
        thought = f"{subject}'s {relation} is {found[1]}."
        if not left:
            return thought, found[1]
        text = f"{found[1]}'s {possessive(left)}"
        if self._notes:
            return thought, ToolCall("note", {"text": text})
        return thought, ToolCall("search", {"query": f"{found[1]}'s {left[0]}"})

    def _left(self, asked: ParsedQuestion, searches: Sequence[ParsedQuestion], rng: random.Random) -> tuple[str, ...]:
        """The relations that are left, at a place of the chain where the searches of the context fit."""
        relations, made = asked.relations, tuple(search.relations[0] for search in searches)
        if searches[0].name == asked.name:
            return relations[len(made) :]
        places = [n for n in range(1, len(relations)) if relations[n : n + len(made)] == made]
        return relations[rng.choice(places) + len(made) :]


def read(way: str, seed: int, folder: Path, number: int) -> tuple[float, float]:
    """The reader's score and the number of its contexts a question, in a way."""
    notes = "note" in WAYS[way][1]
    policy: Path | str = "tiny"
    if notes:
        tagged = load_policy("tiny")
        add_tags(tagged, {"note": "search"})
        policy = folder / "tagged"
        save_policy(tagged, policy)
    questions = load_questions(folder / f"seed-{seed}" / "questions.jsonl")[:number]
    own = {**settings(way, folder, policy, seed), "search.index": str(folder / f"seed-{seed}" / "index")}
    with Run("search-r1", settings=own).context() as context:
        roller = context.solver(context.engine)
        roller = replace(roller, sampler=Reader(roller, context.agent.decode, notes=notes))

        async def all_of_them() -> list[Trajectory]:
            return [await roller.one(question, f"{seed}/{question.id}") for question in questions]

        rolled = asyncio.run(all_of_them())
    right = fmean(exact_match(one.answer or "", one.question.golden_answers) for one in rolled)
    return right, fmean(len(one.branches) for one in rolled)


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
    parser.add_argument("--reader", action="store_true")
    arguments = parser.parse_args()
    if arguments.reader:
        print("| context | seed | n | score | contexts a question |\n|---|---|---|---|---|")
        for seed in arguments.seeds:
            folder, number = arguments.directory / f"seed-{seed}", arguments.questions
            make_world(folder, "evaluation", seed, number, HOPS, entities=arguments.entities)
        for way in arguments.ways:
            for seed in arguments.seeds:
                score, branches = read(way, seed, arguments.directory, arguments.questions)
                print(f"| {way} | {seed} | {arguments.questions} | {score:.2f} | {branches:.1f} |", flush=True)
        return
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
