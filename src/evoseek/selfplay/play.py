"""The players and the rules of self-play, from settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from evoseek.env.environments import AnswerProposerEnv, PassageProposerEnv, ReaderEnv
from evoseek.policy.policy import Policy, prompts_of
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
from evoseek.settings import lookup, with_setting
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
    own, filters, game = settings.proposer, with_rules(settings, proposer.policy).filters, settings.selfplay
    limits = replace(proposer.limits, max_turns=own.max_turns, max_tokens_per_turn=own.max_tokens_per_turn)
    weight, metric = game.evidence_weight, context.metric
    return SelfPlay(
        proposer=proposer.proposer(tools, env, limits=limits, temperature=own.temperature),
        solver=context.solver(context.engine, solver),
        rules=RuleFilter(
            min_words=filters.min_words,
            min_characters=filters.min_characters,
            max_characters=filters.max_characters,
            min_searches=filters.min_searches,
            repeated_queries=filters.repeated_queries,
            rules="full" if filters.rules == "full" else "basic",
        ),
        reward=EvidenceReward(context.reward, weight) if weight > 0 else context.reward,
        worth=ProposerReward(
            own.difficulty,
            own.format_weight,
            own.rejected_reward,
            success=metric,
            right_from=game.right_from,
            max_failed=own.max_failed_attempts,
        ),
        attempts=own.attempts,
        metric=metric,
        right_from=game.right_from,
        verifier=_verifier(settings, solver, context.reward, exact=metric in GRADED),
        evidence=supporting_passages if settings.verification.passages == "supporting" else seen_passages,
        near_duplicates=filters.near_duplicates,
        label=partial(relabel, metric=metric) if game.label == "majority" else None,
        ranks=context.ranks,
    )


def with_rules(settings: _Settings, proposer: Policy) -> _Settings:
    """The settings with filters.rules decided where it is `auto`: basic for a policy with the tiny prompts, which are
    in the generated world's grammar, else full."""
    return with_rules_for(settings, prompts_of(proposer, settings.policy.prompts))


def with_rules_for(settings: _Any, prompts: str) -> _Any:
    """The same for a prompt set by its name; settings without rules are as they were."""
    if lookup(settings, "filters.rules") != "auto":
        return settings
    return with_setting(settings, "filters.rules", "basic" if prompts == "tiny" else "full")


def _verifier(settings: GameSettings, agent: Agent, correct: RewardFn, *, exact: bool) -> Verifier | None:
    own = settings.verification
    if not (own.from_passages or own.closed_book or own.ambiguity):
        return None
    renderer = agent.renderer([])
    limits = replace(agent.limits, max_turns=1)

    def reader(passages: Sequence[Passage]) -> Roller:
        env = ReaderEnv(passages, agent.prompts, renderer.format)
        return agent.roller(env, renderer, limits=limits, temperature=own.temperature)

    return Verifier(
        reader,
        correct,
        seed=settings.run.seed,
        from_passages=own.from_passages,
        noise_passages=own.noise_passages,
        noise=own.noise,
        closed_book=own.closed_book,
        ambiguity=own.ambiguity,
        right_from=settings.selfplay.right_from,
        exact=exact,
    )
