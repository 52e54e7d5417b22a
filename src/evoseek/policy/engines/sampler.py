"""A sampler over the servers of an engine. A trajectory stays with one server, whose cache holds its beginning."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, cast

from evoseek.errors import ConfigError
from evoseek.files import expanded
from evoseek.policy.engines.engine import Engine, Publisher
from evoseek.policy.engines.launch import HOST, Command, Model, free_ports, gpus_of, launch
from evoseek.policy.engines.link import Link, check_address
from evoseek.policy.engines.replica import Replica
from evoseek.policy.engines.settings import ServerSettings
from evoseek.policy.engines.weight_files import WeightFiles, save_untied
from evoseek.policy.load import merged
from evoseek.policy.policy import Policy, SamplerContext, SamplerHome, eos_ids
from evoseek.policy.requests import check_request
from evoseek.policy.stops import StopRules
from evoseek.types import Completion, SampleRequest

_PROMPT = "The capital of France is"  # any text will do


class EngineSampler:
    """Samples with servers that hold the policy's weights (protocols.Sampler). What the servers speak is a class
    derived from it.

    New trajectories are spread over the servers by their ids. Those of a server that is lost fail, with SamplerError,
    and later ones go to the others until it is found to be back. New weights are written by `update_weights`; each
    server takes them before its next turn. The random numbers are the servers' own, so that runs differ from each
    other. Of several processes each has servers of its own, a share of all; the first writes the weights.

    files: what hands weights over; None: the servers have the policy's weights, and keep them. engine: the class's,
    unless it takes weights in another way.
    """

    engine: ClassVar[Engine]

    @classmethod
    def build(cls, settings: ServerSettings, context: SamplerContext) -> EngineSampler:
        """From settings. Raises ConfigError."""
        policy, home, key = context.policy, context.home, _key(settings.api_key_env)
        _check_processes(settings, home.processes)
        engine, files = cls.engine, None
        if settings.weights == "update":
            _check_sharing(policy, home)
            home.policies.append(policy)
            engine, files = cls.publishing(settings, context)
        if settings.launch and not home.launched:
            home.launched.extend(cls._launch(settings, context))
        urls = (settings.urls or home.launched)[home.rank :: home.processes]
        links = [Link(url, settings, api_key=key) for url in urls]
        return cls(policy, links, max_length=context.max_length, model=settings.model, files=files, engine=engine)

    @classmethod
    def publishing(cls, settings: ServerSettings, context: SamplerContext) -> tuple[Engine, Publisher]:
        """What hands the policy's weights over, and the engine that takes them so: as files. Raises ConfigError."""
        home = context.home
        folder = expanded(settings.weights_directory) if settings.weights_directory else home.directory
        return cls.engine, WeightFiles.opened(context.policy, folder, home)

    @classmethod
    def commands(cls, settings: ServerSettings, model: Model, ports: Sequence[int]) -> dict[str, Command]:
        """How the servers of a model are started, by their addresses."""
        return {
            f"http://{HOST}:{port}": cls.engine.command(settings, model, gpus, port)
            for gpus, port in zip(gpus_of(settings), ports, strict=True)
        }

    @classmethod
    def planned(
        cls, settings: ServerSettings, directory: Path, max_length: int, dtype: str, rank: int, processes: int
    ) -> dict[str, Command]:
        """How a run would start its servers, of a model in a directory below this one, by addresses that are free now;
        none if it is given addresses. Raises ConfigError for so many processes, for an address that is none, and
        without the API key."""
        _check_processes(settings, processes)
        _key(settings.api_key_env)
        for url in settings.urls:
            check_address(url)
        if not settings.launch:
            return {}
        served = Model(str((directory / "model").absolute()), max_length, dtype, rank)
        return cls.commands(settings, served, free_ports(len(gpus_of(settings))))

    @classmethod
    def _launch(cls, settings: ServerSettings, context: SamplerContext) -> list[str]:
        """Start servers of the policy's base, and wait until they are up; their addresses. Raises ConfigError."""
        policy, home = context.policy, context.home
        directory = home.directory or Path(home.closing.enter_context(TemporaryDirectory(prefix="evoseek-")))
        base = replace(policy, adapter=None)
        save_untied(merged(base), directory / "model")
        model = cast("Any", policy.model)
        rank = int(model.peft_config[policy.adapter].r) if policy.adapter is not None else 0
        dtype = str(policy.model.dtype).removeprefix("torch.")
        commands = cls.planned(settings, directory, context.max_length, dtype, rank, home.processes)
        launch(commands, directory, home.closing)
        return list(commands)

    def __init__(
        self,
        policy: Policy,
        links: Sequence[Link],
        *,
        max_length: int,
        model: str = "",
        files: Publisher | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.max_length, self._files = max_length, files
        self._vocabulary = int(policy.model.config.get_text_config().vocab_size)
        self._version, self._is_published = 0, False
        prompt = [int(token) for token in policy.tokenizer.encode(_PROMPT, add_special_tokens=False)]
        rules = StopRules(policy.tokenizer, eos_ids(policy))
        self._replicas = tuple(
            Replica(
                engine or self.engine,
                link,
                rules,
                model=model,
                vocabulary=self._vocabulary,
                prompt=prompt,
                max_length=max_length,
            )
            for link in links
        )
        self._homes: dict[str, Replica] = {}

    @property
    def policy_version(self) -> int:
        """The version of the last `update_weights`; 0 before the first."""
        return self._version

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Each server as a sampler of its own, with the policy's weights."""
        self._publish_first()
        return self._replicas

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one completion at the trajectory's server. Raises SamplerError, and ConfigError for a server that
        cannot be used."""
        check_request(request, max_length=self.max_length, vocabulary=self._vocabulary)
        self._publish_first()
        return await self._home(request.trajectory_id).sample(request)

    def release(self, trajectory_id: str) -> None:
        """Forget where a trajectory was sampled. Unknown ids are ignored."""
        self._homes.pop(trajectory_id, None)

    def update_weights(self, version: int, weights: Mapping[str, Any] | None = None) -> None:
        """Write the policy's weights as they are now, or these, as those of a version. Every server takes them before
        its next turn. All of several processes call it; those of the first are written. Raises SamplerError if they
        cannot be written, ConfigError if the servers keep their own."""
        if version == self._version and weights is None and (self._is_published or version == 0):
            return
        self._publish(version, weights)

    def _publish_first(self) -> None:
        """Hand the policy's weights over before the first turn, so that nothing depends on what the servers began
        with."""
        if not self._is_published:
            self._publish(self._version, None)

    def _publish(self, version: int, weights: Mapping[str, Any] | None) -> None:
        if self._files is None and version != self._version:
            raise ConfigError(
                f"The servers were to get the weights of version {version}, but sampler.weights is served: they keep "
                "those that they were started with. Set sampler.weights to update to train."
            )
        self._version, self._is_published = version, True
        if self._files is not None:
            written = self._files.write(version, weights)
            for replica in self._replicas:
                replica.publish(written)

    def _home(self, trajectory_id: str) -> Replica:
        """The server of a trajectory: of those that are up, the one that a hash of both puts first. It stays the same,
        and whoever else comes or goes changes the servers of no other new trajectory."""
        home = self._homes.get(trajectory_id)
        if home is None:
            up = [replica for replica in self._replicas if not replica.is_lost] or self._replicas
            home = self._homes[trajectory_id] = max(up, key=lambda replica: _rank(replica.link.url, trajectory_id))
        return home


def _check_processes(settings: ServerSettings, processes: int) -> None:
    if processes > 1 and settings.launch:
        raise ConfigError(
            f"sampler.launch starts servers for one process, but {processes} processes train together. Start the "
            "servers yourself, as --dry-run with one process prints it, and give their addresses in sampler.urls."
        )
    if processes > 1 and len(settings.urls) < processes:
        raise ConfigError(
            f"sampler.urls names {len(settings.urls)} servers, but {processes} processes train together, and each "
            "needs one of its own. Give more addresses, or train in fewer processes."
        )


def _check_sharing(policy: Policy, home: SamplerHome) -> None:
    """Raise ConfigError for a second policy on the same servers, unless both are adapters."""
    if home.policies and not all(other.adapter is not None for other in (policy, *home.policies)):
        raise ConfigError(
            "The run trains all weights of two policies, but its servers can hold those of one. Train adapters "
            "(lora.rank above 0), which share a base on the same servers, or set sampler.name to torch."
        )


def _rank(url: str, trajectory_id: str) -> bytes:
    return hashlib.sha256(f"{url} {trajectory_id}".encode()).digest()


def _key(variable: str) -> str:
    if not variable:
        return ""
    if not (key := os.environ.get(variable, "")):
        raise ConfigError(
            f"sampler.api_key_env names the environment variable {variable}, which is not set. Set it to the servers' "
            "API key, or leave the setting out if they need none."
        )
    return key
