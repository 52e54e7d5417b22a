"""A sampler at the service that trains the policy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from evoseek.errors import ConfigError, SamplerError
from evoseek.http.limits import TransientError
from evoseek.models.policy import SamplerContext, eos_ids
from evoseek.samplers.torch.stops import StopRules, check_request
from evoseek.samplers.vllm.turn import Turn
from evoseek.types import Completion, SampleRequest
from evoseek_tinker.policy import TinkerPolicy
from evoseek_tinker.sdk import ServiceError
from evoseek_tinker.settings import TinkerSamplerSettings

TRAINED, GREEDY = 1.0, 0.0  # the temperatures whose logprobs the service reports


class TinkerSampler:
    """Samples a TinkerPolicy (protocols.Sampler) with the weights of the last `update_weights`, which the service keeps
    for it.

    The service reports logprobs of temperature 1 at any temperature, so only 1, and 0 for greedy answers, are taken.
    Where a turn ends is decided here, by the rule of the embedded sampler. The seed of each turn is sent along; whether
    it counts is up to the service.
    """

    Settings = TinkerSamplerSettings

    @classmethod
    def build(cls, settings: TinkerSamplerSettings, context: SamplerContext) -> TinkerSampler:
        """From settings. Raises ConfigError."""
        policy = context.policy
        if not isinstance(policy, TinkerPolicy):
            raise ConfigError(
                "sampler.name is tinker, which samples what the learner tinker trains, but the policy's weights are "
                "here. Set learner.name to tinker, too, or sampler.name to torch."
            )
        if context.run.processes > 1:
            raise ConfigError(
                f"sampler.name is tinker, but {context.run.processes} processes train together, and the service "
                "trains for one. Start the run in one process: it computes next to nothing by itself."
            )
        return cls(policy, max_length=context.max_length)

    def __init__(self, policy: TinkerPolicy, *, max_length: int) -> None:
        self._remote, self._max_length = policy.remote, max_length
        self._vocabulary = int(policy.model.config.get_text_config().vocab_size)
        self._rules = StopRules(policy.tokenizer, eos_ids(policy))
        self._version, self._client = 0, None

    @property
    def policy_version(self) -> int:
        """The version of the last `update_weights`; 0 before the first."""
        return self._version

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one completion. Raises SamplerError."""
        check_request(request, max_length=self._max_length, vocabulary=self._vocabulary)
        if request.temperature not in (TRAINED, GREEDY):
            raise SamplerError(
                f"the request of '{request.trajectory_id}' has the temperature {request.temperature:g}, but the "
                "service reports logprobs of temperature 1 alone. Sample at 1, or at 0 for greedy answers."
            )
        if self._client is None:
            self.update_weights(self._version)
        turn = Turn(request, self._rules, vocabulary=self._vocabulary, version=self._version, paces=None)
        try:
            sampled = await self._remote.sample(
                self._client,
                request.token_ids,
                turn.rule,
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                seed=_seed(request),
            )
            if (completion := turn.add(sampled)) is None:
                raise TransientError("it replied without a finish reason")
            return completion
        except (ServiceError, TransientError) as error:
            raise SamplerError(f"The turn {request.turn} of '{request.trajectory_id}' failed: {error}") from error

    def release(self, trajectory_id: str) -> None:
        """Nothing is kept for a trajectory."""

    def update_weights(self, version: int, weights: Mapping[str, Any] | None = None) -> None:
        """Sample with the weights as they are at the service now. Raises SamplerError, also for `weights`, which cannot
        be sent there."""
        if weights is not None:
            raise SamplerError("The service samples with the weights that it trained; it cannot be given others.")
        if self._client is not None and version == self._version:
            return
        try:
            self._client = self._remote.sampling()
        except ServiceError as error:
            raise SamplerError(f"The weights of version {version} cannot be sampled from: {error}") from error
        self._version = version


def _seed(request: SampleRequest) -> int:
    """The random stream of a turn as a number of 31 bits."""
    text = f"{request.seed}/{request.trajectory_id}/{request.turn}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1
