"""A policy whose weights are at a service: here there are its tokenizer and its config."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from evoseek.errors import CheckpointError, PolicyError
from evoseek.models.load import first_line, generation_config, load_tokenizer, quietly
from evoseek.models.policy import Policy, RemotePolicy
from evoseek.models.source import REMOTE, find_policy, is_adapter, is_gguf
from evoseek.storage.files import expanded, replace_directory
from evoseek_tinker.sdk import RemoteModel


@dataclass(slots=True)
class TinkerPolicy(RemotePolicy):
    """A policy whose weights `remote` trains. `adapter` is the name of the policy, or None for the frozen base."""

    remote: RemoteModel = field(kw_only=True)

    @classmethod
    def over(cls, remote: RemoteModel, model: str, name: str) -> TinkerPolicy:
        """A policy of this name, with the tokenizer and the config of a model (a directory, or a Hugging Face name).
        Raises PolicyError."""
        shell = load_shell(model)
        return cls(shell.model, shell.tokenizer, model, name, remote=remote)

    def __str__(self) -> str:
        return str(self.remote)

    @contextmanager
    def active(self) -> Generator[None]:
        """Let logprobs be this policy's while the block runs, not its base's, or the other way round."""
        before, self.remote.adapted = self.remote.adapted, self.adapter is not None
        try:
            yield
        finally:
            self.remote.adapted = before

    def save(self, directory: Path) -> None:
        """Write where the weights were saved last, and the tokenizer; whole or not at all."""
        new = self.remote.new
        kept = {"state": self.remote.state, "base_model": new.base, "rank": new.rank}
        with replace_directory(directory) as partial:
            (partial / REMOTE).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
            self.tokenizer.save_pretrained(partial)


def saved_state(directory: Path) -> str:
    """Where the weights of a directory that `save` wrote are. Raises CheckpointError."""
    try:
        return str(json.loads((directory / REMOTE).read_text(encoding="utf-8"))["state"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{directory} was expected to say in {REMOTE} where the service keeps the weights, but it does not "
            f"({type(error).__name__}: {error}). The run was begun with another learner, or the file was damaged: "
            "resume it with the settings that it was begun with, or restore the file from a copy."
        ) from error


def load_shell(name_or_dir: str) -> Policy:
    """Return a policy without weights (they are on the device `meta`), with the config and tokenizer of a model that is
    trained elsewhere. Raises PolicyError, also for an adapter or a GGUF file."""
    source = find_policy(name_or_dir)
    path = expanded(source)
    if is_gguf(source) or is_adapter(path):
        raise PolicyError(
            f"got '{name_or_dir}' as the policy, but the weights are to be trained at a service, which makes an "
            "adapter of its own over a model that it has. Give that model's Hugging Face name, or a directory with its "
            "config.json and tokenizer; neither a GGUF file nor an adapter will do."
        )
    tokenizer = load_tokenizer(name_or_dir)
    try:
        with quietly():
            config = AutoConfig.from_pretrained(str(path) if path.is_dir() else source, trust_remote_code=False)
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
            model.generation_config = generation_config(str(path) if path.is_dir() else source, model)
    except Exception as error:  # as in load_policy
        raise PolicyError(
            f"the config of '{name_or_dir}' could not be loaded: {first_line(error)} Expected a directory with a "
            "config.json, or the name of a causal language model on the Hugging Face hub. Check the name and the "
            "network."
        ) from error
    return Policy(model.eval(), tokenizer, name_or_dir)
