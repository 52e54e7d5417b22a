"""The players and the rules of self-play, from settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from evoseek.env.environments import AnswerProposerEnv, PassageProposerEnv, ReaderEnv
from evoseek.protocols import RewardFn
from evoseek.reward.answer import GRADED
from evoseek.reward.proposer import ProposerReward
from evoseek.reward.shaping import EvidenceReward
from evoseek.rollout.agent import Agent
from evoseek.rollout.roller import Roller
from evoseek.selfplay.episode import SelfPlay
from evoseek.selfplay.evidence import seen_passages, supporting_passages
from evoseek.selfplay.filters import RuleFilter
from evoseek.selfplay.majority import relabel
from evoseek.selfplay.settings import GameSettings
from evoseek.selfplay.verify import Verifier
from evoseek.training.plan import TrainingContext
from evoseek.training.settings import TrainingSettings
from evoseek.types import Passage

_Settings = TypeVar("_Settings", bound=GameSettings)
_Any = TypeVar("_Any", bound=TrainingSettings)


def make_play(
    settings: GameSettings,
    context: TrainingContext,
    proposer: Agent,
    solver: Agent,
    env: type[AnswerProposerEnv | PassageProposerEnv],
) -> SelfPlay:
    """Episodes between two agents (or one in both roles) that search the context's engine. `env` is the proposer's."""
    tools = context.tools(proposer.prompts, context.engine)
    own, filters, game = settings.proposer, settings.filters, settings.selfplay
    limits = replace(proposer.limits, max_turns=own.max_turns, max_tokens_per_turn=own.max_tokens_per_turn)
    weight, metric = game.evidence_weight, context.metric
    return SelfPlay(
        proposer=proposer.proposer(tools, env, limits=limits, temperature=own.temperature),
        solver=context.solver(context.engine, solver),
        rules=RuleFilter(min_words=filters.min_words, min_searches=filters.min_searches, rules=filters.rules),
        reward=EvidenceReward(context.reward, weight) if weight > 0 else context.reward,
        worth=ProposerReward(
            own.difficulty,
            own.format_weight,
            own.rejected_reward,
            success=metric,
        ),
        attempts=own.attempts,
        metric=metric,
        verifier=_verifier(settings, solver, context.reward, exact=metric in GRADED),
        evidence=supporting_passages if settings.verification.passages == "supporting" else seen_passages,
        near_duplicates=filters.near_duplicates,
        label=partial(relabel, metric=metric) if game.label == "majority" else None,
        ranks=context.ranks,
    )


def _verifier(settings: GameSettings, agent: Agent, correct: RewardFn, *, exact: bool) -> Verifier | None:
    own = settings.verification
    if not (own.readings or own.closed_book):
        return None
    renderer = agent.renderer([])
    limits = replace(agent.limits, max_turns=1)

    def reader(passages: Sequence[Passage]) -> Roller:
        env = ReaderEnv(passages, agent.prompts, renderer.format)
        return agent.roller(env, renderer, limits=limits, temperature=0.0)

    return Verifier(
        reader,
        correct,
        seed=settings.run.seed,
        readings=own.readings,
        noise_passages=own.noise_passages,
        noise=own.noise,
        closed_book=own.closed_book,
        exact=exact,
    )
