"""From a config to a training run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from evoseek.assemble.agent import Agent, Solver, evaluation_setting, evaluation_temperature
from evoseek.assemble.effect import check_effect
from evoseek.assemble.inputs import inputs_of
from evoseek.assemble.reward import judge_notice, make_reward, training_reward
from evoseek.assemble.selfplay import selfplay_loop
from evoseek.assemble.simulation import simulated_engine
from evoseek.assemble.solving import probe, question_rollouts, search_system, watched_metrics
from evoseek.assemble.sources import open_index, read_questions
from evoseek.assemble.together import check_settings
from evoseek.assemble.trained import Trained, check_dtype
from evoseek.assemble.web import Web
from evoseek.config import Config, may_differ_on_resume
from evoseek.errors import ConfigError
from evoseek.learner.checkpoint import latest_checkpoint
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.learner.sharding import copy_weights
from evoseek.policy.vocabulary import vocabulary_notice
from evoseek.report.metrics import JsonlMetrics, NoMetrics
from evoseek.runs import RunDirectory
from evoseek.training.loop import TrainingLoop
from evoseek.training.question_order import questions_of_step
from evoseek.training.run_state import RunState, resume
from evoseek.types import Question


def training_loop(
    config: Config, run: RunDirectory, *, notify: Callable[[str], None], ranks: Ranks = ALONE, web: Web | None = None
) -> TrainingLoop:
    """A training loop ready to run; it goes on from the run's last checkpoint if it has one.

    Everything is opened and checked before the config is claimed for the directory, so a mistake leaves no trace. The
    caller holds the run's lock. `notify` is told what the model's chat template can do. Every one of `ranks` makes its
    own loop of the same config; they work as one. `web` is for a system that is trained on it, which leaves it open.
    """
    if not run.config.is_file():  # what a run was begun with can only be kept
        check_effect(config)
    if config.run.system in ("dr-zero", "ssp"):
        if ranks.size > 1:
            raise ConfigError(
                f"{config.run.system} trains in one process, but {ranks.size} were started. Start it without torchrun."
            )
        return selfplay_loop(config, run, notify=notify)
    check_settings(config)
    checkpoint = latest_checkpoint(run.path, ranks=ranks)
    agent = Agent.load(config, checkpoint=checkpoint, device=str(ranks.device))
    check_dtype(config, agent.policy, ranks)
    for notice in (agent.template_notice(), judge_notice(config)):
        if notice:
            notify(notice)
    simulated = simulated_engine(config) if config.run.system == "zerosearch" else None
    if web is not None:
        solver = web.solver(agent)
    else:
        solver = agent.solver(simulated or open_index(config.search.index, setting="search.index"))
    questions = read_questions(config.questions.path, setting="questions.path")
    _check_prompt(solver, questions_of_step(questions, seed=config.run.seed, step=1, size=config.questions.per_step)[0])
    if notice := vocabulary_notice(agent.policy, (question.text for question in questions), what="the questions"):
        notify(notice)
    reward = make_reward(config)
    held_out = evaluation_setting(config, agent, None if web is None else solver)
    if ranks.is_first:
        run.claim(config.resolved(), inputs_of(config), may_differ=may_differ_on_resume(config))
    trained = Trained.load(config, agent.policy, run, checkpoint, ranks)
    start = resume(run, checkpoint, trained.parts, ranks)
    agent.sampler.policy_version = start
    publish = partial(_publish, trained, agent)
    rollouts = question_rollouts(config, solver, run, training_reward(config, reward), ranks=ranks)
    return TrainingLoop(
        system=search_system(config, questions, rollouts, trained.update(), publish, simulated),
        checkpoints=RunState(run, trained.parts, keep_last=config.run.keep_checkpoints, ranks=ranks),
        metrics=watched_metrics(config, run, notify) if ranks.is_first else NoMetrics(),
        timings=JsonlMetrics(run.timings) if ranks.is_first else NoMetrics(),
        start=start,
        steps=config.run.steps,
        checkpoint_every=config.run.checkpoint_every,
        evaluate=held_out and probe(*held_out, reward, temperature=evaluation_temperature(config), ranks=ranks),
        evaluate_every=config.evaluation.every,
        max_invalid=config.run.max_invalid,
        pause_s=config.run.pause_s,
        notify=notify,
        agree=ranks.any,
    )


def _publish(trained: Trained, agent: Agent, step: int) -> None:
    """Let the sampler go on with the weights of a step."""
    if trained.policy.model is not agent.policy.model:
        copy_weights(trained.policy.model, agent.policy.model)
    agent.publish(step)


def _check_prompt(solver: Solver, question: Question) -> None:
    length = len(solver.renderer.render_prompt(solver.env.messages(question)))
    longest = solver.agent.limits.max_total_tokens
    if length >= longest:
        raise ConfigError(
            f"The prompt of question {question.id} has {length} tokens, but rollout.max_total_tokens is {longest}: no "
            "room is left to answer. Raise rollout.max_total_tokens, or shorten the prompt or the question."
        )
