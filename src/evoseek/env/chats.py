"""Chat models from their settings, with their prompt sets."""

from __future__ import annotations

import os

from evoseek.chat.endpoint import EndpointChat
from evoseek.chat.local import SamplerChat
from evoseek.chat.settings import ChatSettings
from evoseek.env.prompts import PromptSet, load_prompts
from evoseek.errors import ConfigError
from evoseek.policy.load import load_policy, prepare_process
from evoseek.policy.policy import prompts_of
from evoseek.policy.sampler import TorchSampler
from evoseek.protocols import Chat


def make_chat(settings: ChatSettings, *, section: str, seed: int, device: str = "cpu") -> tuple[Chat, PromptSet]:
    """The chat model of the settings, with its prompt set. `section` names them in errors; `device` is the policy's.

    Raises ConfigError, or PolicyError for a model that cannot be loaded.
    """
    settings.check(section)
    if settings.base_url:
        return _endpoint(settings, section, seed), load_prompts(
            "default" if settings.prompts == "auto" else settings.prompts
        )
    policy = load_policy(settings.model, device=settings.device or device, dtype=settings.dtype)
    prepare_process(policy)
    longest = getattr(policy.model.config.get_text_config(), "max_position_embeddings", settings.max_total_tokens)
    sampler = TorchSampler(policy, slots=settings.concurrency, max_length=min(longest, settings.max_total_tokens))
    chat = SamplerChat(
        sampler,
        policy.tokenizer,
        settings.model,
        max_tokens=settings.max_tokens,
        max_total_tokens=sampler.max_length,
        temperature=settings.temperature,
        seed=seed,
    )
    return chat, load_prompts(prompts_of(policy, settings.prompts))


def _endpoint(settings: ChatSettings, section: str, seed: int) -> EndpointChat:
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
        temperature=settings.temperature,
        timeout_s=settings.timeout_s,
        attempts=settings.attempts,
        concurrency=settings.concurrency,
        seed=seed,
        structured=settings.structured,
        max_tokens_name=settings.max_tokens_name,
        omit=settings.omit,
        prices=settings.prices,
        part=section,
    )
