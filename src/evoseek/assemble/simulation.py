"""From a config to a simulated search engine, and to how noisy it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from evoseek.assemble.chat import make_chat
from evoseek.config import Config
from evoseek.env.simulator import SimulatorPrompts
from evoseek.errors import ConfigError
from evoseek.files import write_atomic
from evoseek.search.simulated import SimulatedEngine
from evoseek.selfplay.curriculum import noise_probability

CARD = "simulator.json"
"""Beside the weights of a tuned simulator: what its replies are made of."""


def write_card(config: Config, directory: Path) -> None:
    """Say in a tuned simulator's directory how many documents it writes, and how long they are."""
    write_atomic(directory / CARD, json.dumps(_replies(config)) + "\n")


def simulated_engine(config: Config) -> SimulatedEngine:
    """The simulator of the config as an engine, without noise.

    Raises ConfigError, also for one that was tuned to write another number of documents or longer ones; PolicyError.
    """
    if not config.simulator.base_url:
        _check_card(config)
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


def _replies(config: Config) -> dict[str, int]:
    return {"search.top_k": config.search.top_k, "simulator.max_words": config.simulator.max_words}


def _check_card(config: Config) -> None:
    card = Path(config.simulator.model) / CARD
    if not card.is_file():  # not one that was tuned here
        return
    try:
        tuned, wanted = json.loads(card.read_text(encoding="utf-8")), _replies(config)
        fits = tuned["search.top_k"] == wanted["search.top_k"] and (
            tuned["simulator.max_words"] <= wanted["simulator.max_words"]
        )
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{card} cannot be read ({type(error).__name__}: {error}), so nothing says what this simulator was tuned "
            "to write. Tune it again (evoseek simulator tune), or take the file away if its replies are known to fit."
        ) from error
    if not fits:
        raise ConfigError(
            f"The simulator {config.simulator.model} was tuned for {tuned}, but the settings are {wanted}: none of its "
            "replies could be read. Use the settings it was tuned with, or tune another."
        )
