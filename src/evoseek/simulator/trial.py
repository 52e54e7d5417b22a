"""Checking a simulated search engine: its obedience, its style, and a policy's score with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from evoseek.errors import EvoseekError
from evoseek.eval.evaluate import Evaluation, Score, evaluate
from evoseek.files import write_atomic
from evoseek.report.evaluation import evaluation_table, score_text
from evoseek.report.printable import for_example, say, say_left_out
from evoseek.report.progress import CountProgress
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.agent import Agent
from evoseek.rollout.roller import Roller
from evoseek.search.simulated import SimulatedEngine
from evoseek.simulator.check import KINDS, SimulatorCheck, check_simulator
from evoseek.simulator.records import load_records
from evoseek.simulator.truth import GoldenTruth, WorldTruth
from evoseek.systems.zerosearch import ZeroSearch
from evoseek.training.context import Context
from evoseek.training.sources import read_questions
from evoseek.types import Invalid, Question
from evoseek.world.oracle import load_world

Measured = TypeVar("Measured")


def check(
    settings: ZeroSearch.Settings,
    engine: SimulatedEngine,
    source: Path,
    *,
    world: Path | None,
    count: int,
    output: Path | None,
    trial: Trial | None = None,
    console: Console,
) -> None:
    """Check the settings' simulator on held-out searches, and the score of a trial's policy with it; print the results,
    and optionally write them as JSON.

    Raises EvoseekError if not one reply could be read.
    """
    checked = _check(engine, settings.search.top_k, source, world, count, console)
    found = {**_asked(settings, engine, source), **_plain(SimulatorCheck, checked)}
    _write(output, found)
    if trial is not None:
        _write(output, {**found, "policy": trial.run(console)})


def _check(
    engine: SimulatedEngine, documents: int, source: Path, world: Path | None, count: int, console: Console
) -> SimulatorCheck:
    records = load_records(source, notify=lambda text: say(console, text))
    truth = GoldenTruth() if world is None else WorldTruth(load_world(world))
    with CountProgress(console, "replies") as progress:
        checked = asyncio.run(
            check_simulator(
                engine.chat,
                engine.prompt,
                records,
                truth,
                count=count,
                documents=documents,
                max_words=engine.max_words,
                seed=engine.seed,
                progress=progress,
            )
        )
    if all(score.mean == 0 for score in checked.readable.values()):
        raise EvoseekError(f"Not one reply of {engine.chat.name} could be read. {for_example(checked.problems)}")
    if checked.unasked:
        say(console, f"{checked.unasked} queries were left out: nothing can be said of their answers.")
    console.print(obedience_table(checked))
    console.print(style_table(checked))
    say_left_out(console, "replies could not be read", checked.problems)
    return checked


@dataclass(frozen=True, slots=True)
class Trial:
    """A policy, questions, and the engines that it is to answer them with: the simulator, without noise, and a real
    one if there is one."""

    agent: Agent
    temperature: float
    questions: list[Question]
    solvers: Mapping[str, Roller]

    @classmethod
    def load(cls, context: Context, simulator: SimulatedEngine) -> Trial:
        """The policy, evaluation questions and evaluation index of the settings. Raises EvoseekError."""
        evaluation, temperature = context.settings.evaluation, context.settings.held_out_temperature
        questions = read_questions(evaluation.path, setting="--questions")[: evaluation.limit]
        solvers = {"simulator": context.solver(simulator).at(temperature)}
        if evaluation.index:
            solvers["index"] = context.solver(context.held_out_engine).at(temperature)
        return cls(context.agent, temperature, questions, solvers)

    def run(self, console: Console) -> Mapping[str, object]:
        """Answer the questions with each engine, with the same random numbers; print the exact match and return it."""
        reward, evaluations = AnswerReward("exact_match"), dict[str, Evaluation]()
        for name, solver in self.solvers.items():
            done = asyncio.run(evaluate(self.questions, roller=solver, metric=reward.metric, reward=reward))
            say_left_out(console, f"rollouts with the {name} failed and count as wrong", _failures(done))
            evaluations[name] = done
        console.print(evaluation_table(f"Exact match of {self.agent.policy.name}, 95 % intervals", evaluations))
        scores = {name: _plain(Score, evaluation.score) for name, evaluation in evaluations.items()}
        return {"model": self.agent.policy.name, "temperature": self.temperature, "exact_match": scores}


def _failures(evaluation: Evaluation) -> list[str]:
    outcomes = [result.outcome for result in evaluation.results]
    return [outcome.detail or str(outcome.reason) for outcome in outcomes if isinstance(outcome, Invalid)]


def _asked(settings: ZeroSearch.Settings, engine: SimulatedEngine, source: Path) -> dict[str, object]:
    return {
        "simulator": engine.chat.name,
        "searches": str(source),
        "documents": settings.search.top_k,
        "max_words": engine.max_words,
        "temperature": settings.simulator.temperature,
        "seed": engine.seed,
    }


def _plain(kind: type[Measured], measured: Measured) -> dict[str, object]:
    """A record as JSON values, nan as null."""
    return json.loads(TypeAdapter(kind).dump_json(measured))


def _write(output: Path | None, found: Mapping[str, object]) -> None:
    if output is not None:
        write_atomic(output, json.dumps(found, indent=1) + "\n")


def obedience_table(check: SimulatorCheck) -> Table:
    """How often replies can be read, and what they state: asked for useful documents, and for noisy ones."""
    table = Table("replies", *KINDS, title="What the simulator was asked for, 95 % intervals")
    table.add_row("can be read", *(score_text(check.readable[kind]) for kind in KINDS))
    for name in check.stating[KINDS[0]]:
        table.add_row(f"state: {name}", *(score_text(check.stating[kind][name]) for kind in KINDS))
    return table


def style_table(check: SimulatorCheck) -> Table:
    """Length and words, beside the real engine's."""
    table = Table("documents", *check.style, title="How it reads, 95 % intervals")
    styles = check.style.values()
    table.add_row("in a reply", *(f"{style.documents:.2f}" for style in styles))
    table.add_row(
        "words each", *(f"{style.words:.1f} [{style.interval.low:.1f}, {style.interval.high:.1f}]" for style in styles)
    )
    table.add_row("divergence of words (bits)", *(f"{style.divergence:.3f}" for style in styles))
    return table
