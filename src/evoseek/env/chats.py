"""Chat models from their settings, with their prompt sets."""

from __future__ import annotations

import os

from evoseek.chat.endpoint import EndpointChat
from evoseek.chat.local import SamplerChat
from evoseek.chat.settings import EndpointSettings
from evoseek.env.prompts import PromptSet, load_prompts
from evoseek.errors import ConfigError
from evoseek.policy.load import load_policy, prepare_process
from evoseek.policy.policy import prompts_of
from evoseek.policy.sampler import TorchSampler
from evoseek.policy.settings import PolicySettings
from evoseek.protocols import Chat

LONGEST = 4096
"""Maximum number of tokens of prompt and reply together, for an in-process model."""


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
        temperature=settings.temperature,
        seed=seed,
    )
    return chat, load_prompts(prompts_of(model, policy.prompts))


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
        temperature=settings.temperature,
        timeout_s=settings.timeout_s,
        concurrency=settings.concurrency,
        seed=seed,
    )
