"""A simulated search engine from its settings: its prompt, the form of its replies, and the card of a tuned one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from evoseek.chat.settings import SimulatorSettings
from evoseek.env.chats import make_chat
from evoseek.env.prompts import PromptSet
from evoseek.env.web import Seeded
from evoseek.errors import ConfigError
from evoseek.files import write_atomic
from evoseek.policy.settings import PolicySettings
from evoseek.search.settings import SearchSettings
from evoseek.search.simulated import SimulatedEngine
from evoseek.types import Message


class SimulatorPrompts:
    """A `SimulatorPrompt` from the files simulator_useful.jinja and simulator_noisy.jinja of a prompt set."""

    def __init__(self, prompts: PromptSet) -> None:
        self._useful, self._noisy = prompts["simulator_useful"], prompts["simulator_noisy"]

    def __call__(
        self,
        *,
        question: str,
        answers: Sequence[str],
        query: str,
        earlier: Sequence[str],
        useful: bool,
        documents: int,
        max_words: int,
    ) -> list[Message]:
        """One user message."""
        template = self._useful if useful else self._noisy
        values = {"question": question, "answers": tuple(answers), "query": query, "earlier": tuple(earlier)}
        return [Message("user", template.marked(**values, documents=documents, max_words=max_words))]


def simulator_reply(texts: Sequence[str]) -> str:
    """The reply that holds these documents, each in one line (see `search.simulated.parse_documents`)."""
    return "\n".join(f"Document {number}: {' '.join(text.split())}" for number, text in enumerate(texts, start=1))


CARD = "simulator.json"
"""The card beside the weights of a tuned simulator: how many documents its replies have, and how long they are."""


class Simulating(Protocol):
    """The settings of a run with a simulator, as far as they are read here."""

    simulator: SimulatorSettings
    search: SearchSettings
    policy: PolicySettings
    run: Seeded


def write_card(directory: Path, *, top_k: int, max_words: int) -> None:
    """Record in a tuned simulator's directory how many documents it writes and how long they are."""
    write_atomic(directory / CARD, json.dumps(_replies(top_k, max_words)) + "\n")


def simulated_engine(config: Simulating) -> SimulatedEngine:
    """The simulator of the settings as an engine, without noise.

    Raises ConfigError, also for a simulator that was tuned to write another number of documents or longer ones, and
    PolicyError.
    """
    if not config.simulator.base_url:
        _check_card(config)
    chat, prompts = make_chat(config.simulator, section="simulator", seed=config.run.seed, policy=config.policy)
    return SimulatedEngine(chat, SimulatorPrompts(prompts), config.simulator.max_words, config.run.seed)


def _replies(top_k: int, max_words: int) -> dict[str, int]:
    return {"search.top_k": top_k, "simulator.max_words": max_words}


def _check_card(config: Simulating) -> None:
    card = Path(config.simulator.model) / CARD
    if not card.is_file():  # not tuned by evoseek
        return
    try:
        tuned, wanted = (
            json.loads(card.read_text(encoding="utf-8")),
            _replies(config.search.top_k, config.simulator.max_words),
        )
        fits = tuned["search.top_k"] == wanted["search.top_k"] and (
            tuned["simulator.max_words"] <= wanted["simulator.max_words"]
        )
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{card} cannot be read ({type(error).__name__}: {error}), so what this simulator was "
            "tuned to write is not known. Tune it again (evoseek simulator tune), or remove the file if its replies "
            "are known to fit."
        ) from error
    if not fits:
        raise ConfigError(
            f"The simulator {config.simulator.model} was tuned for {tuned}, but the settings are {wanted}: none of its "
            "replies could be read. Use the settings it was tuned with, or tune another."
        )
