"""A sampler over servers of vLLM, which read each version of the policy's weights from a directory. A trajectory stays
with one server, whose cache holds its prefix."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from evoseek.errors import ConfigError, EvoseekError, SamplerError
from evoseek.http.server import key_of
from evoseek.models.load import merged, quietly, save_policy
from evoseek.models.policy import Policy, SamplerContext, SamplerRun, eos_ids
from evoseek.models.settings import ONE_POLICY, EngineSettings
from evoseek.samplers.torch.stops import StopRules, check_request
from evoseek.samplers.vllm.process import Model, ServerCommand, commands, free_ports, launch
from evoseek.samplers.vllm.server import VLLM, Link, Weights, check_address
from evoseek.storage.files import remove_directory, replace_directory
from evoseek.types import Completion, SampleRequest

_PROMPT = "The capital of France is"  # any text will do
_KEPT = 2  # directories of weights: a server may still be reading the last but one


class VLLMSampler:
    """Samples with servers of vLLM that hold the policy's weights (protocols.Sampler).

    New trajectories are spread over the servers by their ids. If a server is lost, its trajectories fail with
    SamplerError, and later ones go to the other servers until it is back. Servers load new weights before their next
    turn. They use their own random numbers, so runs differ. Each of several processes has its share of the servers; the
    first process writes the weights.

    files: writes the weights for the servers; None: the servers keep their weights, which are the policy's.
    """

    Settings = EngineSettings

    @classmethod
    def build(cls, settings: EngineSettings, context: SamplerContext) -> VLLMSampler:
        policy, run, key = context.policy, context.run, key_of(settings.api_key_env, setting="sampler.api_key_env")
        _check_sharing(policy, run)
        run.policies.append(policy)
        files = WeightFiles(policy, run)
        if not (settings.urls or run.launched):
            run.launched.extend(cls._launch(settings, context))
        urls = (settings.urls or run.launched)[run.rank :: run.processes]
        links = [Link(url, settings, api_key=key) for url in urls]
        return cls(policy, links, max_length=context.max_length, files=files)

    @classmethod
    def planned(
        cls, settings: EngineSettings, directory: Path, max_length: int, dtype: str, rank: int
    ) -> dict[str, ServerCommand]:
        """Return how a run would start its servers, for a model in a directory below this one, by addresses that are
        free now; none if addresses are given. Raises ConfigError for an invalid address, or a missing API key."""
        key_of(settings.api_key_env, setting="sampler.api_key_env")
        for url in settings.urls:
            check_address(url)
        if settings.urls:
            return {}
        served = Model(str((directory / "model").absolute()), max_length, dtype, rank)
        return commands(settings, served, free_ports(max(1, len(settings.gpus))))

    @classmethod
    def _launch(cls, settings: EngineSettings, context: SamplerContext) -> list[str]:
        """Start servers of the policy's base, wait until they are up, return their addresses. Raises ConfigError."""
        policy, run = context.policy, context.run
        directory = run.directory or Path(run.closing.enter_context(TemporaryDirectory(prefix="evoseek-")))
        save_untied(merged(replace(policy, adapter=None)), directory / "model")
        model = cast("Any", policy.model)
        rank = int(model.peft_config[policy.adapter].r) if policy.adapter is not None else 0
        planned = cls.planned(settings, directory, context.max_length, context.dtype, rank)
        launch(planned, directory, run.closing)
        return list(planned)

    def __init__(
        self, policy: Policy, links: Sequence[Link], *, max_length: int, files: WeightFiles | None = None
    ) -> None:
        self.max_length, self._files = max_length, files
        self._vocabulary = int(policy.model.config.get_text_config().vocab_size)
        self._version, self._is_published = 0, False
        prompt = [int(token) for token in policy.tokenizer.encode(_PROMPT, add_special_tokens=False)]
        rules = StopRules(policy.tokenizer, eos_ids(policy))
        self._servers = [
            VLLM(link, rules, vocabulary=self._vocabulary, prompt=prompt, max_length=max_length) for link in links
        ]
        self._homes: dict[str, VLLM] = {}

    @property
    def policy_version(self) -> int:
        return self._version

    @property
    def replicas(self) -> Sequence[VLLM]:
        """Each server as a separate sampler with the policy's weights."""
        self._publish_first()
        return self._servers

    async def sample(self, request: SampleRequest) -> Completion:
        check_request(request, max_length=self.max_length, vocabulary=self._vocabulary)
        self._publish_first()
        return await self._home(request.trajectory_id).sample(request)

    def release(self, trajectory_id: str) -> None:
        self._homes.pop(trajectory_id, None)

    def update_weights(self, version: int, weights: Mapping[str, Any] | None = None) -> None:
        """Publish the policy's weights, or `weights`, as a version; servers load them before their next turn. All
        processes call this, and the first one's weights are written. Raises SamplerError if that fails."""
        if version != self._version or weights is not None or not (self._is_published or version == 0):
            self._publish(version, weights)

    def _publish_first(self) -> None:
        """Publish before the first turn, so that nothing depends on the servers' initial weights."""
        if not self._is_published:
            self._publish(self._version, None)

    def _publish(self, version: int, weights: Mapping[str, Any] | None) -> None:
        self._version, self._is_published = version, True
        if self._files is not None:
            written = self._files.write(version, weights)
            for server in self._servers:
                server.publish(written)

    def _home(self, trajectory_id: str) -> VLLM:
        """Return the server of a trajectory: the first live one, ordered by a hash of trajectory and server. It stays
        the same. If a server comes or goes, other new trajectories keep their servers."""
        home = self._homes.get(trajectory_id)
        if home is None:
            up = [server for server in self._servers if not server.is_lost] or self._servers
            home = self._homes[trajectory_id] = max(up, key=lambda server: _rank(server.link.url, trajectory_id))
        return home


def _check_sharing(policy: Policy, run: SamplerRun) -> None:
    if run.policies and not all(other.adapter is not None for other in (policy, *run.policies)):
        raise ConfigError(ONE_POLICY)


def _rank(url: str, trajectory_id: str) -> bytes:
    return hashlib.sha256(f"{url} {trajectory_id}".encode()).digest()


class WeightFiles:
    """Writes the weights of a policy, each version into a directory with a new name, since engines may cache what they
    read.

    For an adapter, only the adapter is written. Otherwise all weights are, with a separate copy for a tied output head
    and a config that does not tie it: engines that reload in place may not update a tied head. The first process writes
    where all can read. The folder is in the run's directory, or a temporary one, and is removed with the run.
    """

    def __init__(self, policy: Policy, run: SamplerRun) -> None:
        self._policy, self._run, kind = policy, run, policy.adapter or "weights"
        directory = run.directory or Path(run.closing.enter_context(TemporaryDirectory(prefix="evoseek-")))
        self._folder = directory.absolute() / f"{kind}-versions"
        self._name = f"{kind}-{uuid.uuid4().hex[:8]}"
        self._kept: list[Path] = []
        if run.rank == 0:
            shutil.rmtree(self._folder, ignore_errors=True)
            run.closing.callback(shutil.rmtree, self._folder, ignore_errors=True)

    def write(self, version: int, weights: Mapping[str, Any] | None = None) -> Weights:
        """Write the policy's current weights, or `weights`; a collective operation. Raises SamplerError."""
        path = self._folder / f"{self._name}-{version}"
        failure = self._save(path, weights) if self._run.rank == 0 else None
        written = self._run.broadcast("" if failure else str(path))
        if not written:
            raise SamplerError(
                f"The weights of version {version} could not be written to {path}: {failure or 'see the first one'}. "
                "Free space on the disk; the servers must be able to read that folder."
            ) from failure
        if self._run.rank == 0:
            self._keep(path)
        return Weights(version, Path(written), Path(written).name if self._policy.adapter is not None else "")

    def _save(self, path: Path, weights: Mapping[str, Any] | None) -> Exception | None:
        try:
            if self._policy.adapter is not None:
                save_policy(self._policy, path, None if weights is None else dict(weights))
            else:
                save_untied(self._policy, path, weights)
        except (OSError, EvoseekError) as error:
            return error
        return None

    def _keep(self, path: Path) -> None:
        self._kept = [*(old for old in self._kept if old != path), path]
        for old in self._kept[:-_KEPT]:
            remove_directory(old)
        self._kept = self._kept[-_KEPT:]


def save_untied(policy: Policy, directory: Path, weights: Mapping[str, Any] | None = None) -> None:
    """Write a policy as a model whose output head has separate weights. Raises OSError or EvoseekError."""
    model, state = policy.model, untied(policy, weights)
    with replace_directory(directory) as partial, quietly(), _untied(model):
        model.save_pretrained(partial, state_dict=state, max_shard_size="1TB")
        policy.tokenizer.save_pretrained(partial)


def untied(policy: Policy, weights: Mapping[str, Any] | None = None) -> dict[str, torch.Tensor]:
    """Return the weights of a policy, or `weights`, by name, with a separate copy for a tied output head."""
    model = policy.model
    state: dict[str, torch.Tensor] = dict(model.state_dict() if weights is None else weights)
    head = cast("nn.Module | None", model.get_output_embeddings())
    if head is not None:
        own, embeddings = (_weight_of(model, module) for module in (head, model.get_input_embeddings()))
        state[own] = state[own if own in state else embeddings].clone()
    return state


def _weight_of(model: PreTrainedModel, module: object) -> str:
    return next(path for path, other in model.named_modules() if other is module) + ".weight"


@contextmanager
def _untied(model: PreTrainedModel) -> Generator[None]:
    config = model.config.get_text_config()
    tied = config.tie_word_embeddings
    config.tie_word_embeddings = False
    try:
        yield
    finally:
        config.tie_word_embeddings = tied
