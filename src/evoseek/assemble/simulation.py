"""From a config to a simulated search engine, and to how noisy it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from evoseek.assemble.chat import make_chat
from evoseek.config import Config
from evoseek.env.simulator import SimulatorPrompts
from evoseek.search.simulated import SimulatedEngine
from evoseek.selfplay.curriculum import noise_probability


def simulated_engine(config: Config) -> SimulatedEngine:
    """The simulator of the config as an engine, without noise. Raises ConfigError or PolicyError."""
    chat, prompts = make_chat(config.simulator, section="simulator", seed=config.run.seed, device=config.policy.device)
    return SimulatedEngine(chat, SimulatorPrompts(prompts), config.simulator.max_words, config.run.seed)


def noise_of_step(config: Config) -> Callable[[int], float]:
    """The curriculum: the noise of each step of the run."""
    settings = config.zerosearch
    return partial(
        noise_probability,
        total_steps=config.run.steps,
        start=settings.noise_start,
        end=settings.noise_end,
        base=settings.noise_base,
    )
