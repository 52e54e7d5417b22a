"""Settings of chat models: judges, simulators, readers, and a model that answers instead of the policy."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from evoseek.errors import ConfigError
from evoseek.http.spending import Prices
from evoseek.policy.settings import Dtype
from evoseek.settings import MANY, AnyTemperature, Needs, Section

_ENDPOINT = "api_key_env timeout_s attempts structured max_tokens_name omit price_input price_output price_cached"
_IN_PROCESS = "device dtype max_total_tokens"


class ChatSettings(Section):
    """A model that replies to messages, either in-process or behind an endpoint."""

    model: str = Field(
        default="", description="Model as in policy.model, or its name at the endpoint. Default: no model."
    )
    base_url: str = Field(default="", description="URL of an OpenAI-compatible endpoint. Default: an in-process model.")
    api_key_env: str = Field(default="", description="Environment variable that holds the endpoint's key.")
    device: str = Field(default="", description="Device of an in-process model. Default: that of the policy.")
    dtype: Dtype = Field(default="float32", description="Data type of an in-process model's weights.")
    prompts: str = Field(default="auto", description="Prompt set, as in policy.prompts.")
    temperature: AnyTemperature = Field(default=0.0, description="Sampling temperature of replies; 0 is greedy.")
    max_tokens: int = Field(
        default=512, ge=1, le=MANY, description="Maximum number of tokens of a reply; a longer one is a failure."
    )
    max_total_tokens: int = Field(
        default=4096,
        ge=2,
        le=MANY,
        description="Maximum number of tokens of prompt and reply together, for an in-process model.",
    )
    timeout_s: float = Field(
        default=60.0, gt=0, le=86_400, description="Seconds that one call of the endpoint may take."
    )
    attempts: int = Field(
        default=4, ge=1, le=100, description="Number of times a failing endpoint is called before it counts as failed."
    )
    concurrency: int = Field(
        default=32,
        ge=1,
        le=10_000,
        description="Maximum number of concurrent calls, or of replies sampled at once by an in-process model.",
    )
    structured: bool = Field(
        default=True, description="Whether a JSON schema of the expected reply is sent to the endpoint."
    )
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="Name of the endpoint's parameter for the maximum number of tokens."
    )
    omit: tuple[Literal["temperature", "seed"], ...] = Field(
        default=(), description="Parameters that are not sent, because the endpoint does not accept them."
    )
    price_input: float | None = Field(
        default=None, ge=0, description="Price of a million tokens that the endpoint reads. Default: not known."
    )
    price_output: float | None = Field(
        default=None, ge=0, description="Price of a million tokens that the endpoint writes. Default: not known."
    )
    price_cached: float | None = Field(
        default=None,
        ge=0,
        description="Price of a million tokens that the endpoint reads from its cache. Default: that of other input.",
    )

    @property
    def prices(self) -> Prices | None:
        """The prices of the endpoint, if they are known."""
        if self.price_input is None or self.price_output is None:
            return None
        return Prices(self.price_input, self.price_output, self.price_cached)

    def check(self, section: str) -> None:
        """Raises ConfigError if no model is named, or a part of the prices. `section` names the settings."""
        if self.prices is None and {self.price_input, self.price_output, self.price_cached} != {None}:
            raise ConfigError(
                f"Only some prices of {section} are known. Set {section}.price_input and {section}.price_output (0 for "
                "what is free), or neither: then no money is counted."
            )
        if not self.model:
            raise ConfigError(
                f"No model was given to play this part: set {section}.model to a model's name or directory, or, with "
                f"{section}.base_url, to the name that an endpoint knows it by."
            )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Which settings apply to an endpoint, and which to an in-process model."""
        return Needs(_ENDPOINT, "base_url"), Needs(_IN_PROCESS, "base_url", (False,))


class AskedSettings(ChatSettings):
    """The model that answers `evoseek ask` instead of the policy, if asked.model or asked.base_url is set."""

    model: str = Field(
        default="",
        description="Model, as policy.model, that ends its turns by itself (an instruct model), or its name at the "
        "endpoint. Default: the policy answers.",
    )
    max_tokens: int = Field(
        default=2048,
        ge=1,
        le=MANY,
        description="Maximum number of tokens of a reply, reasoning included; a longer one ends the rollout without an "
        "answer.",
    )


class SupportSettings(ChatSettings):
    """How an answer is checked against the passages found for it, by `evoseek ask`, `serve agent` and `eval`."""

    model: str = Field(
        default="",
        description="Model, as in judge.model, that judges whether the passages support an answer. Default: the "
        "answer's words are looked for in them.",
    )
    unsupported: Literal["refuse", "show"] = Field(
        default="refuse",
        description="What is done with an answer that the passages do not support: refuse says that it was not found "
        "in the documents, show gives it with a note.",
    )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Settings of a judge need one."""
        return *super().effects(), Needs("base_url prompts temperature max_tokens concurrency", "model")


class JudgeSettings(ChatSettings):
    """The model that says whether an answer is right (reward.name = "judge")."""


class SimulatorSettings(ChatSettings):
    """The model that plays the search engine (ZeroSearch, arXiv 2505.04588)."""

    temperature: AnyTemperature = Field(default=1.0, description="Sampling temperature of replies; 0 is greedy.")
    max_words: int = Field(
        default=100, ge=1, le=MANY, description="Maximum number of words of a document; a longer one is a failure."
    )


class ReaderSettings(ChatSettings):
    """The model that reads pages for the policy. Without reader.model, the policy sees the beginning of a page."""

    segment_words: int = Field(
        default=800, ge=1, le=MANY, description="Number of words of a page that the reader sees at a time."
    )
    memory_words: int = Field(
        default=400, ge=1, le=MANY, description="Maximum number of words of the reader's notes about a page."
    )
    max_segments: int = Field(
        default=8, ge=1, le=10_000, description="Maximum number of segments that are read of a page."
    )
    skip_after: int = Field(
        default=2,
        ge=1,
        le=10_000,
        description="Number of useless segments at the beginning of a page after which the rest is skipped.",
    )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Settings of reading need a reader."""
        return *super().effects(), Needs("segment_words memory_words max_segments skip_after", "model")
