"""Chat models from their settings, with their prompt sets; the one that plays the search engine, with its card."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from evoseek.chat.endpoint import EndpointChat
from evoseek.chat.local import SamplerChat
from evoseek.chat.settings import AnswererSettings, EndpointSettings, SimulatorSettings
from evoseek.env.prompts import PromptSet, load_prompts
from evoseek.errors import ConfigError
from evoseek.files import write_atomic
from evoseek.policy.load import load_policy, prepare_process
from evoseek.policy.policy import prompts_of
from evoseek.policy.sampler import TorchSampler
from evoseek.policy.settings import PolicySettings
from evoseek.protocols import Chat
from evoseek.search.settings import SearchSettings
from evoseek.search.simulated import SimulatedEngine
from evoseek.types import Message

LONGEST = 4096
"""Maximum number of tokens of prompt and reply together, for an in-process model."""
TIMEOUT_S = 300.0
"""Seconds that one call of an endpoint may take: models that reason are slow."""

CARD = "simulator.json"
"""The card beside the weights of a tuned simulator: how many documents its replies have, and how long they are."""


def make_chat(settings: EndpointSettings, *, section: str, seed: int, policy: PolicySettings) -> tuple[Chat, PromptSet]:
    """The chat model of the settings, with its prompt set. `section` names them in errors; device, data type and
    prompts are those of `policy`.

    Raises ConfigError, or PolicyError for a model that cannot be loaded.
    """
    settings.check(section)
    if settings.base_url:
        prompts = load_prompts("default" if policy.prompts == "auto" else policy.prompts)
        return _endpoint(settings, section, seed), prompts
    model = load_policy(settings.model, device=policy.device, dtype=policy.dtype)
    prepare_process(model)
    longest = getattr(model.model.config.get_text_config(), "max_position_embeddings", LONGEST)
    sampler = TorchSampler(model, slots=settings.concurrency, max_length=min(longest, LONGEST))
    chat = SamplerChat(
        sampler,
        model.tokenizer,
        settings.model,
        max_tokens=settings.max_tokens,
        max_total_tokens=sampler.max_length,
        temperature=_temperature(settings),
        seed=seed,
    )
    return chat, load_prompts(prompts_of(model, policy.prompts))


def _temperature(settings: EndpointSettings) -> float:
    return settings.temperature if isinstance(settings, AnswererSettings | SimulatorSettings) else 0.0


def _endpoint(settings: EndpointSettings, section: str, seed: int) -> EndpointChat:
    key = os.environ.get(settings.api_key_env, "") if settings.api_key_env else ""
    if settings.api_key_env and not key:
        raise ConfigError(
            f"{section}.api_key_env is {settings.api_key_env}, but there is no environment variable of that name, or "
            f"it is empty. Set it (export {settings.api_key_env}=...), or leave {section}.api_key_env empty."
        )
    return EndpointChat(
        settings.base_url,
        settings.model,
        api_key=key,
        max_tokens=settings.max_tokens,
        temperature=_temperature(settings),
        timeout_s=TIMEOUT_S,
        concurrency=settings.concurrency,
        seed=seed,
    )


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


class Seeded(Protocol):
    """Settings with a seed."""

    @property
    def seed(self) -> int:
        """Everything random follows from it."""
        ...


class Simulating(Protocol):
    """The settings of a run with a simulator that are read here."""

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
