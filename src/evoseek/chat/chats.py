"""Chat models from their settings, with their prompt sets."""

from __future__ import annotations

from evoseek.chat.endpoint import EndpointChat
from evoseek.chat.local import SamplerChat
from evoseek.chat.settings import AnswererSettings, EndpointSettings, SimulatorSettings
from evoseek.http.server import key_of
from evoseek.models.load import load_policy, prepare_process
from evoseek.models.policy import prompts_of
from evoseek.models.settings import PolicySettings
from evoseek.protocols import Chat
from evoseek.rollout.prompts import PromptSet, load_prompts
from evoseek.samplers.torch.sampler import TorchSampler

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
        temperature=_temperature(settings),
        seed=seed,
    )
    return chat, load_prompts(prompts_of(model, policy.prompts))


def _temperature(settings: EndpointSettings) -> float:
    return settings.temperature if isinstance(settings, AnswererSettings | SimulatorSettings) else 0.0


def _endpoint(settings: EndpointSettings, section: str, seed: int) -> EndpointChat:
    return EndpointChat(
        settings.base_url,
        settings.model,
        api_key=key_of(settings.api_key_env, setting=f"{section}.api_key_env"),
        max_tokens=settings.max_tokens,
        temperature=_temperature(settings),
        timeout_s=settings.timeout_s,
        attempts=settings.attempts,
        concurrency=settings.concurrency,
        seed=seed,
    )
