"""Settings of models that are called: answerer, judge, support, simulator and reader."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from evoseek.config.sections import MANY, AnyTemperature, Needs, Section
from evoseek.errors import ConfigError


class EndpointSettings(Section):
    """A model that replies to messages, behind an endpoint or in-process (on policy.device, in policy.dtype). It uses
    policy.prompts. Its replies are greedy, unless its table has a temperature."""

    on_resume = "base_url api_key_env max_tokens concurrency timeout_s attempts"
    model: str = Field(
        default="", description="Model as in policy.model, or its name at the endpoint. Default: no model."
    )
    base_url: str = Field(default="", description="URL of an OpenAI-compatible endpoint. Default: an in-process model.")
    api_key_env: str = Field(default="", description="Environment variable that holds the endpoint's key.")
    max_tokens: int = Field(
        default=512, ge=1, le=MANY, description="Maximum number of tokens of a reply; a longer one is a failure."
    )
    concurrency: int = Field(
        default=32,
        ge=1,
        le=10_000,
        description="Maximum number of concurrent calls, or of replies that an in-process model samples concurrently.",
    )
    timeout_s: float = Field(
        default=300.0,
        gt=0,
        le=1e6,
        description="Maximum seconds for a reply of the endpoint; models that reason are slow.",
    )
    attempts: int = Field(
        default=4, ge=1, le=100, description="Number of attempts before a call to the endpoint fails."
    )

    def check(self, section: str) -> None:
        """Raise ConfigError if no model is named. `section` names the settings."""
        if not self.model:
            raise ConfigError(
                f"{section}.model is empty. Set {section}.model to a model's name or directory, or, with "
                f"{section}.base_url, to the model's name at that endpoint.",
                code="model.not_given",
            )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        return (Needs("api_key_env timeout_s attempts", "base_url"),)


class AnswererSettings(EndpointSettings):
    """The model that answers instead of the policy, if answerer.model or answerer.base_url is set."""

    model: str = Field(
        default="",
        description="Instruct model, as in policy.model, or its name at the endpoint. Default: the policy answers.",
    )
    temperature: AnyTemperature = Field(default=0.0, description="Sampling temperature of replies; 0 is greedy.")
    max_tokens: int = Field(
        default=2048,
        ge=1,
        le=MANY,
        description="Maximum number of tokens of a reply, reasoning included; a longer one ends the rollout without an "
        "answer.",
    )


class SupportSettings(EndpointSettings):
    """How an answer is checked against the passages found for it, by `evoseek ask`, `serve agent` and `eval`."""

    model: str = Field(
        default="",
        description="Model, as in judge.model, that judges whether the passages support an answer. Default: they must "
        "contain the answer's words.",
    )
    unsupported: Literal["refuse", "show"] = Field(
        default="refuse",
        description='What happens to an answer that the passages do not support: refuse replaces it by "not found in '
        'the documents", show gives it with a note.',
    )
    bound: str = Field(
        default="",
        description="File that `evoseek eval --most-wrong` wrote: less certain answers are not shown. Default: the "
        "run's, or the project's; in Python none.",
    )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        return *super().effects(), Needs("base_url max_tokens concurrency", "model")


class JudgeSettings(EndpointSettings):
    """The model that says whether an answer is right (reward.name = "judge")."""


class SimulatorSettings(EndpointSettings):
    """The model that plays the search engine (ZeroSearch, arXiv 2505.04588)."""

    temperature: AnyTemperature = Field(default=1.0, description="Sampling temperature of replies; 0 is greedy.")
    max_words: int = Field(
        default=100, ge=1, le=MANY, description="Maximum number of words of a document; a longer one is a failure."
    )


class ReaderSettings(EndpointSettings):
    """The model that reads pages for the policy. Without reader.model, the policy sees the beginning of a page."""
