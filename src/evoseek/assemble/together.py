"""Which settings go together, in any system. No torch is loaded for this."""

from __future__ import annotations

from evoseek.config import Config
from evoseek.errors import ConfigError


def check_settings(config: Config) -> None:
    """Settings that are each possible, but not together. Raises ConfigError."""
    algorithm = config.algorithm
    if algorithm.advantage == "gae" and algorithm.filter_limit:
        raise ConfigError(
            f"algorithm.filter_limit is {algorithm.filter_limit}, which keeps only groups whose rewards differ, but "
            "algorithm.advantage is gae: a critic must see the others too. Set algorithm.filter_limit to 0."
        )
    _check_overlong(config)
    if config.run.system in ("zerosearch", "deepresearcher") and algorithm.filter_limit:
        raise ConfigError(
            f"algorithm.filter_limit is {algorithm.filter_limit}, but {config.run.system} trains on all groups. Leave "
            "it at 0."
        )
    if not algorithm.mask_observations and algorithm.kl_in == "reward" and algorithm.kl_coefficient > 0:
        raise ConfigError(
            "algorithm.mask_observations is false and algorithm.kl_in is reward, but the sampler knows no logprobs of "
            "tool results to take a KL from. Set algorithm.kl_in to loss, or mask the observations."
        )
    if algorithm.loss == "reinforce" and algorithm.mini_batches > 1:
        raise ConfigError(
            f"algorithm.loss is reinforce, whose gradient is right for tokens of the current policy alone, but "
            f"algorithm.mini_batches is {algorithm.mini_batches}. Set it to 1, or algorithm.loss to clipped."
        )


def _check_overlong(config: Config) -> None:
    longest, cache = config.reward.overlong_max, config.reward.overlong_cache
    if (longest is None) != (cache is None):
        raise ConfigError(
            f"reward.overlong_max is {longest or 'not set'} and reward.overlong_cache {cache or 'not set'}, but the "
            "penalty for overlong rollouts needs both. Set both, or leave both out."
        )
    if longest is not None and cache is not None and cache > longest:
        raise ConfigError(
            f"reward.overlong_cache is {cache}, more than reward.overlong_max, {longest}: every rollout would be "
            "overlong. Set reward.overlong_cache to a part of it, such as a fifth."
        )
