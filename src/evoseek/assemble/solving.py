"""From a config to how a solver is rolled out on questions, trained on them, and probed with held-out ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from evoseek.assemble.agent import Solver
from evoseek.assemble.simulation import noise_of_step
from evoseek.config import Config
from evoseek.eval.evaluate import Evaluation, Result
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.protocols import RewardFn
from evoseek.report.metrics import JsonlMetrics, read_metrics
from evoseek.report.signal import SignalMetrics
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.trajectory_json import (
    outcome_from_json,
    outcome_to_json,
    trajectory_from_json,
    trajectory_to_json,
)
from evoseek.runs import RunDirectory
from evoseek.search.simulated import SimulatedEngine
from evoseek.systems.deepresearcher import DeepResearcher
from evoseek.systems.dspo import DSPO
from evoseek.systems.search_r1 import QuestionRollouts, SearchR1
from evoseek.systems.zerosearch import ZeroSearch
from evoseek.training.loop import Evaluate
from evoseek.training.update import Update
from evoseek.types import Question, TrajectoryGroup


def question_rollouts(
    config: Config,
    solver: Solver,
    run: RunDirectory,
    reward: RewardFn,
    *,
    ranks: Ranks = ALONE,
    label: Callable[[TrajectoryGroup], TrajectoryGroup] | None = None,
) -> QuestionRollouts:
    """Rollouts as the config wants them, recorded in the run's directory."""
    return QuestionRollouts(
        env=solver.env,
        renderer=solver.renderer,
        sampler=solver.agent.sampler,
        limits=solver.agent.limits,
        reward=reward,
        trajectories=TrajectoryWriter(run.trajectories, solver.agent.decode),
        seed=config.run.seed,
        group_size=config.rollout.group_size,
        temperature=config.rollout.temperature,
        ranks=ranks,
        label=label,
    )


def search_system(
    config: Config,
    questions: Sequence[Question],
    rollouts: QuestionRollouts,
    update: Update,
    publish: Callable[[int], None],
    simulated: SimulatedEngine | None = None,
) -> SearchR1:
    """What trains a solver on questions: ZeroSearch where the engine is simulated, DSPO where groups are filtered,
    DeepResearcher on the web, or Search-R1."""
    per_step, limit = config.questions.per_step, config.algorithm.filter_limit
    if simulated is not None:
        noise = noise_of_step(config)
        return ZeroSearch(questions, rollouts, update, publish, per_step, engine=simulated, noise=noise)
    if limit:
        return DSPO(questions, rollouts, update, publish, per_step, limit=limit)
    if config.run.system == "deepresearcher":
        return DeepResearcher(questions, rollouts, update, publish, per_step)
    return SearchR1(questions, rollouts, update, publish, per_step)


def probe(
    solver: Solver, questions: list[Question], reward: RewardFn, *, temperature: float, ranks: Ranks = ALONE
) -> Evaluate:
    """The held-out score of the policy as it is, each rank taking a share of the questions."""

    async def evaluate_now(step: int) -> Mapping[str, float]:
        own = await solver.evaluate(questions[ranks.rank :: ranks.size], temperature=temperature, reward=reward)
        return (own if ranks.size == 1 else _together(own, ranks)).metrics()

    return evaluate_now


def _together(evaluation: Evaluation, ranks: Ranks) -> Evaluation:
    """All of the results, on every rank, from each one's share."""
    own = [(trajectory_to_json(r.trajectory, lambda _: ""), outcome_to_json(r.outcome)) for r in evaluation.results]
    pairs = (pair for share in ranks.gather(own) for pair in share)
    results = ((trajectory_from_json(trajectory), outcome_from_json(outcome)) for trajectory, outcome in pairs)
    return replace(evaluation, results=tuple(Result(t.question, t, outcome) for t, outcome in results))


def watched_metrics(config: Config, run: RunDirectory, notify: Callable[[str], None]) -> SignalMetrics:
    """The run's metrics, with a warning where nothing is learnt."""
    relative = config.algorithm.advantage in ("group", "leave-one-out")
    return SignalMetrics(JsonlMetrics(run.metrics), notify, earlier=read_metrics(run.metrics), relative=relative)
