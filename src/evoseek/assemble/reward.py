"""From a config to the reward of an answer."""

from __future__ import annotations

from evoseek.assemble.chat import make_chat
from evoseek.config import Config
from evoseek.protocols import RewardFn
from evoseek.reward.functions import AnswerReward
from evoseek.reward.judge import Judge, same_family
from evoseek.reward.overlong import OverlongReward
from evoseek.reward.web_format import WebFormatReward


def make_reward(config: Config) -> RewardFn:
    """An answer metric, or the judge of the config. Raises ConfigError or PolicyError."""
    if config.reward.metric == "format_f1":
        return WebFormatReward()
    if config.reward.metric != "judge":
        return AnswerReward(config.reward.metric)
    chat, prompts = make_chat(config.judge, section="judge", seed=config.run.seed, device=config.policy.device)
    return Judge(chat, prompts)


def training_reward(config: Config, reward: RewardFn) -> RewardFn:
    """The reward that the solver learns by: DAPO's penalty for overlong rollouts on top, if the config sets one."""
    longest, cache = config.reward.overlong_max, config.reward.overlong_cache
    return reward if longest is None or cache is None else OverlongReward(reward, longest, cache)


def judge_notice(config: Config) -> str | None:
    """A warning, in words, that the judge is a relative of the policy; None if it is none, or there is no judge."""
    if config.reward.metric != "judge" or not same_family(config.judge.model, config.policy.model):
        return None
    return (
        f"The judge {config.judge.model} is of the same family as the policy {config.policy.model}. A model may be "
        "a lenient judge of its own kind: take another one (judge.model), and see how it agrees with people (evoseek "
        "judge check)."
    )
