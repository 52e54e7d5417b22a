"""A policy whose weights are at a service: here there are its tokenizer and its config."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from evoseek.errors import CheckpointError
from evoseek.files import replace_directory
from evoseek.policy.load import load_shell
from evoseek.policy.policy import Policy
from evoseek.policy.source import REMOTE
from evoseek.policy.tinker.sdk import RemoteModel


@dataclass(slots=True)
class RemotePolicy(Policy):
    """A policy whose `model` has a config, but no weights: those are what `remote` trains. `adapter` is the name of
    the policy, or None for the frozen base."""

    remote: RemoteModel = field(kw_only=True)

    @classmethod
    def over(cls, remote: RemoteModel, model: str, name: str) -> RemotePolicy:
        """A policy of this name, with the tokenizer and the config of a model (a directory, or a Hugging Face name).
        Raises PolicyError."""
        shell = load_shell(model)
        return cls(shell.model, shell.tokenizer, model, name, remote=remote)

    @contextmanager
    def active(self) -> Generator[None]:
        """While the block runs, logprobs are those of this policy, not of its base, or the other way round."""
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
