"""From a config to a run of self-play: Dr. Zero or Search Self-play."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

from evoseek.assemble.agent import Agent, evaluation_setting, evaluation_temperature
from evoseek.assemble.algorithm import make_proposer_credit, make_proposer_loss
from evoseek.assemble.inputs import inputs_of
from evoseek.assemble.play import at_temperature, load_players, make_play, with_rules
from evoseek.assemble.reward import judge_notice, make_reward
from evoseek.assemble.selfplay_settings import check_selfplay
from evoseek.assemble.solving import probe, question_rollouts, search_system, watched_metrics
from evoseek.assemble.sources import open_index
from evoseek.assemble.tasks import answer_tasks, passage_pool, passage_tasks
from evoseek.assemble.trained import Trained, make_proposer_learner
from evoseek.config import Config, may_differ_on_resume
from evoseek.env.teacher import TeacherEnv
from evoseek.learner.checkpoint import Checkpoint, Part, latest_checkpoint
from evoseek.learner.distributed import ALONE
from evoseek.policy.load import save_policy
from evoseek.policy.vocabulary import vocabulary_notice
from evoseek.protocols import RewardFn, SearchEngine
from evoseek.report.alarm import AlarmedMetrics
from evoseek.report.metrics import JsonlMetrics, read_metrics
from evoseek.rollout.record import TrajectoryWriter
from evoseek.runs import RunDirectory
from evoseek.search.lexical import LexicalIndex
from evoseek.selfplay.question_log import QuestionLog
from evoseek.systems.dr_zero import DrZero, Schedule
from evoseek.systems.ssp import SSP
from evoseek.training.distillation import SelfDistillation
from evoseek.training.loop import Evaluate, System, TrainingLoop
from evoseek.training.run_state import RunState, resume
from evoseek.training.two_roles import RoleUpdate, TwoRoleUpdate
from evoseek.training.update import GroupUpdate
from evoseek.types import TrainingSample
from evoseek.world.oracle import Oracle, load_world, world_oracle


def selfplay_loop(
    config: Config,
    run: RunDirectory,
    *,
    notify: Callable[[str], None],
    engine: SearchEngine | None = None,
) -> TrainingLoop:
    """A loop of self-play ready to run; it goes on from the run's last checkpoint if it has one.

    Everything is opened and checked before the config is claimed for the directory, so a mistake leaves no trace. The
    caller holds the run's lock. `engine` is searched instead of the config's index, from which passages and answers are
    taken all the same. Raises EvoseekError.
    """
    check_selfplay(config)
    checkpoint = latest_checkpoint(run.path)
    index = open_index(config.search.index, setting="search.index")
    oracle = world_oracle(load_world(Path(config.selfplay.world))) if config.selfplay.world else None
    build = _ssp if config.run.system == "ssp" else _dr_zero
    reward = make_reward(config)
    made = build(config, run, checkpoint, index, engine or index, oracle, reward)
    texts = (passage.text for passage in index.passages())
    unread = vocabulary_notice(made.agent.policy, texts, what="the passages of the index")
    for notice in (made.agent.template_notice(), judge_notice(config), unread):
        if notice:
            notify(notice)
    held_out = evaluation_setting(config, made.agent)
    evaluate = held_out and probe(*held_out, reward, temperature=evaluation_temperature(config))
    claimed = with_rules(config, made.agent.policy).resolved()
    run.claim(claimed, inputs_of(config), may_differ=may_differ_on_resume(config))
    start = resume(run, checkpoint, made.parts)
    made.published(start)
    earlier = read_metrics(run.metrics)
    metrics = watched_metrics(config, run, notify)
    return TrainingLoop(
        system=made.system,
        checkpoints=RunState(run, made.parts, keep_last=config.run.keep_checkpoints),
        metrics=AlarmedMetrics(metrics, notify, earlier=earlier),
        timings=JsonlMetrics(run.timings),
        start=start,
        steps=min(config.run.steps, made.steps),
        checkpoint_every=config.run.checkpoint_every,
        evaluate=_when(made.is_due, evaluate) if evaluate and made.is_due else evaluate,
        evaluate_every=config.evaluation.every if made.is_due is None else 1,
        max_invalid=config.run.max_invalid,
        pause_s=config.run.pause_s,
        notify=notify,
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """A system with all that the loop around it needs."""

    system: System
    agent: Agent
    parts: Mapping[str, Part]
    published: Callable[[int], None]
    steps: int
    is_due: Callable[[int], bool] | None = None
    """Whether a step ends with a probe; None: as the config says."""


def _when(is_due: Callable[[int], bool], evaluate: Evaluate) -> Evaluate:
    async def evaluate_if_due(step: int) -> Mapping[str, float]:
        return await evaluate(step) if is_due(step) else {}

    return evaluate_if_due


def _dr_zero(
    config: Config,
    run: RunDirectory,
    checkpoint: Checkpoint | None,
    index: LexicalIndex,
    engine: SearchEngine,
    oracle: Oracle | None,
    reward: RewardFn,
) -> _Made:
    solver, proposer = (Agent.of(config, policy) for policy in load_players(config, checkpoint))
    trained = Trained.load(config, solver.policy, run, checkpoint, ALONE)
    learner = make_proposer_learner(config, proposer.policy, dump=run.dump)
    settings, play = config.dr_zero, make_play(config, proposer, solver, engine, reward)
    schedule = Schedule(settings.iterations, settings.proposer_steps, settings.writing_steps, settings.solver_steps)
    tasks = partial(passage_tasks, config, proposer, passage_pool(config, index))
    rollouts = question_rollouts(config, solver.solver(engine), run, play.reward, label=play.label)
    questions = QuestionLog(run.questions)
    distillation = _distillation(config, trained, solver, index, questions)
    update = GroupUpdate(learner, make_proposer_credit(config), config.run.seed)
    system = DrZero(
        schedule=schedule,
        play=play,
        writing=at_temperature(play, settings.writing_temperature),
        tasks=tasks(purpose="training", copies=config.proposer.per_task),
        written_tasks=tasks(purpose="writing", copies=settings.questions_per_passage),
        solving=search_system(config, [], rollouts, trained.group_update(distillation), solver.publish),
        proposer_update=None if config.proposer.frozen else update,
        publish_proposer=proposer.publish,
        restart_solver=trained.learner.restart if settings.fresh_optimizer else None,
        questions=questions,
        trajectories=rollouts.trajectories,
        proposals_per_step=config.selfplay.proposals_per_step,
        passages_per_writing_step=settings.passages_per_writing_step,
        group_by=config.proposer.group_by,
        oracle=oracle,
    )

    def published(step: int) -> None:
        solver.publish(schedule.last("solve", step))
        proposer.publish(0 if config.proposer.frozen else schedule.last("propose", step))

    def is_due(step: int) -> bool:
        """Before anything, and while the solver learns: every so many steps, and at the end of its phase."""
        turn, every = schedule.turn(max(1, step)), config.evaluation.every
        last = turn.number == schedule.solver_steps
        return step == 0 or (turn.phase == "solve" and (last or (every > 0 and turn.number % every == 0)))

    parts = {**trained.parts, "proposer": Part(partial(save_policy, proposer.policy), learner)}
    return _Made(system, solver, parts, published, schedule.steps, is_due)


def _ssp(
    config: Config,
    run: RunDirectory,
    checkpoint: Checkpoint | None,
    index: LexicalIndex,
    engine: SearchEngine,
    oracle: Oracle | None,
    reward: RewardFn,
) -> _Made:
    agent = Agent.load(config, checkpoint=checkpoint)
    trained = Trained.load(config, agent.policy, run, checkpoint, ALONE)
    questions = QuestionLog(run.questions)
    solving = trained.group_update(_distillation(config, trained, agent, index, questions))
    credit = make_proposer_credit(config)
    proposing = replace(solving, credit=credit, completions=(), penalty=None, distillation=None)
    roles = {
        "proposer": RoleUpdate(proposing.samples, make_proposer_loss(config)),
        "solver": RoleUpdate(solving.samples, trained.learner.loss),
    }
    system = SSP(
        play=make_play(config, agent, agent, engine, reward),
        tasks=answer_tasks(config, index),
        update=TwoRoleUpdate(trained.learner, roles, config.run.seed, config.algorithm.mini_batches),
        publish=agent.publish,
        questions=questions,
        trajectories=TrajectoryWriter(run.trajectories, agent.decode),
        seed=config.run.seed,
        proposals_per_step=config.selfplay.proposals_per_step,
        trained=("proposer", "solver") if config.ssp.train == "both" else (config.ssp.train,),
        fill=config.ssp.fill,
        reset_every=config.ssp.reset_every,
        resample_limit=config.ssp.resample_limit,
        group_by=config.proposer.group_by,
        oracle=oracle,
    )

    return _Made(system, agent, trained.parts, agent.publish, config.run.steps)


def _distillation(
    config: Config, trained: Trained, agent: Agent, index: LexicalIndex, questions: QuestionLog
) -> SelfDistillation | None:
    """The pull towards the policy that sees the path of a question's proposer; None if it is switched off."""
    if config.selfplay.distillation == 0:
        return None
    renderer = agent.solver(index).renderer

    def prompt(sample: TrainingSample) -> Sequence[int] | None:
        """What the teacher is shown. A group's key ends with its question's id."""
        question = questions.find(sample.group.rsplit("/", 1)[-1])
        evidence = cast("Sequence[str]", question.metadata["evidence"])
        env = TeacherEnv([index.get(passage) for passage in evidence], agent.prompts, renderer.format)
        ids = renderer.render_prompt(env.messages(question))
        written = len(sample.token_ids) - sample.loss_mask.index(True)
        return ids if len(ids) + written <= agent.limits.max_total_tokens else None

    return SelfDistillation(trained.own_logprobs(), prompt, config.selfplay.distillation)
