"""From a config to who plays with whom, and by which rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from evoseek.assemble.agent import Agent
from evoseek.config import Config
from evoseek.env.proposer import AnswerProposerEnv, PassageProposerEnv
from evoseek.env.reader import ReaderEnv
from evoseek.learner.checkpoint import Checkpoint
from evoseek.policy.pair import NewAdapter, load_pair
from evoseek.policy.policy import Policy, prompts_of
from evoseek.protocols import RewardFn, SearchEngine
from evoseek.reward.answer import GRADED
from evoseek.reward.evidence import EvidenceReward
from evoseek.reward.proposer import ProposerReward
from evoseek.rollout.player import Player
from evoseek.selfplay.episode import SelfPlay
from evoseek.selfplay.evidence import seen_passages, supporting_passages
from evoseek.selfplay.filters import RuleFilter
from evoseek.selfplay.majority import relabel
from evoseek.selfplay.verify import Verifier
from evoseek.types import Passage


def make_play(
    config: Config, proposer: Agent, solver: Agent, engine: SearchEngine, answer_reward: RewardFn
) -> SelfPlay:
    """Episodes between two agents (for Search Self-play twice the same) that search with an engine."""
    tools = proposer.tools(engine)
    renderer = proposer.renderer(tools)
    if config.run.system == "ssp":
        env = AnswerProposerEnv(tools, proposer.prompts, renderer.format)
    else:
        env = PassageProposerEnv(tools, proposer.prompts, renderer.format)
    settings = config.proposer
    limits = replace(proposer.limits, max_turns=settings.max_turns, max_tokens_per_turn=settings.max_tokens_per_turn)
    solving, metric, right_from = solver.solver(engine), config.reward.metric, config.selfplay.right_from
    weight, filters = config.selfplay.evidence_weight, with_rules(config, proposer.policy).filters
    return SelfPlay(
        proposer=proposer.player(env, renderer, limits=limits, temperature=settings.temperature),
        solver=solver.player(solving.env, solving.renderer),
        rules=RuleFilter(
            min_words=filters.min_words,
            min_characters=filters.min_characters,
            max_characters=filters.max_characters,
            min_searches=filters.min_searches,
            repeated_queries=filters.repeated_queries,
            rules="full" if filters.rules == "full" else "basic",
        ),
        reward=EvidenceReward(answer_reward, weight) if weight > 0 else answer_reward,
        worth=ProposerReward(
            settings.difficulty,
            settings.format_weight,
            settings.rejected_reward,
            success=metric,
            right_from=right_from,
            max_failed=settings.max_failed_attempts,
        ),
        attempts=settings.attempts,
        metric=metric,
        right_from=right_from,
        verifier=_verifier(config, solver, answer_reward),
        evidence=supporting_passages if config.verification.passages == "supporting" else seen_passages,
        near_duplicates=filters.near_duplicates,
        label=partial(relabel, metric=metric) if config.selfplay.label == "majority" else None,
    )


def with_rules(config: Config, proposer: Policy) -> Config:
    """The config with filters.rules decided where it is `auto`: basic for a policy that is spoken to as the tiny ones
    are, whose grammar is the generated world's, else full."""
    if config.filters.rules != "auto":
        return config
    rules = "basic" if prompts_of(proposer, config.policy.prompts) == "tiny" else "full"
    return config.model_copy(update={"filters": config.filters.model_copy(update={"rules": rules})})


def _verifier(config: Config, agent: Agent, correct: RewardFn) -> Verifier | None:
    settings = config.verification
    if not (settings.from_passages or settings.closed_book or settings.ambiguity):
        return None
    renderer = agent.renderer([])
    limits = replace(agent.limits, max_turns=1)

    def reader(passages: Sequence[Passage]) -> Player:
        env = ReaderEnv(passages, agent.prompts, renderer.format)
        return agent.player(env, renderer, limits=limits, temperature=settings.temperature)

    return Verifier(
        reader,
        correct,
        seed=config.run.seed,
        from_passages=settings.from_passages,
        noise_passages=settings.noise_passages,
        noise=settings.noise,
        closed_book=settings.closed_book,
        ambiguity=settings.ambiguity,
        right_from=config.selfplay.right_from,
        exact=config.reward.metric in GRADED,
    )


def load_players(config: Config, checkpoint: Checkpoint | None) -> tuple[Policy, Policy]:
    """Dr. Zero's solver and proposer: a checkpoint's, or both begun as the config's model. Raises PolicyError."""
    settings, lora = config.policy, config.lora
    return load_pair(
        settings.model,
        solver_directory=checkpoint and checkpoint.part_directory("policy"),
        proposer_directory=checkpoint and checkpoint.part_directory("proposer"),
        device=settings.device,
        dtype=settings.dtype,
        lora=NewAdapter(lora.rank, lora.alpha, lora.targets, config.run.seed) if lora.rank > 0 else None,
    )


def at_temperature(play: SelfPlay, temperature: float | None) -> SelfPlay:
    """The same with a proposer of another temperature, unless that is None."""
    return play if temperature is None else replace(play, proposer=replace(play.proposer, temperature=temperature))
