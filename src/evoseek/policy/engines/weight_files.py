"""The weights of a policy as directories that servers read, one for each version."""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from evoseek.errors import EvoseekError, SamplerError
from evoseek.files import remove_directory, replace_directory
from evoseek.policy.engines.vllm import Weights
from evoseek.policy.load import quietly, save_policy
from evoseek.policy.policy import Policy, SamplerRun

_KEPT = 2  # directories: a server may still be reading the last but one
_OURS = re.compile(r"[A-Za-z_]\w*-[0-9a-f]{8}-\d+")


class WeightFiles:
    """Writes the weights of a policy below a directory, each version in a directory with a name that was never used
    before: engines may keep what they once read from a path.

    Of a policy with an adapter that adapter alone is written. Of any other all weights are, those of a tied output head
    once more beside the embeddings, and the config says that they are not tied: engines that reload weights in place
    may leave a tied head as it was. Of several processes the first one writes, where all can read.
    """

    def __init__(self, policy: Policy, directory: Path, run: SamplerRun) -> None:
        self._policy, self._directory, self._run = policy, directory, run
        self._name = f"{policy.adapter or 'weights'}-{uuid.uuid4().hex[:8]}"
        self._written: list[Path] = []

    @classmethod
    def opened(cls, policy: Policy, run: SamplerRun) -> WeightFiles:
        """In the run's directory, or a temporary one; what was written goes with the run. Remains of killed processes
        are removed: the directory belongs to one run."""
        directory = run.directory or Path(run.closing.enter_context(tempfile.TemporaryDirectory(prefix="evoseek-")))
        files = cls(policy, directory, run)
        run.closing.callback(files.clear)
        if directory.is_dir() and run.rank == 0:
            kind = f"{policy.adapter or 'weights'}-"
            for path in directory.iterdir():
                if path.name.startswith(kind) and _OURS.fullmatch(path.name):
                    remove_directory(path)
        return files

    def write(self, version: int, weights: Mapping[str, Any] | None = None) -> Weights:
        """Write the policy's weights as they are now, or these; a collective. Raises SamplerError."""
        path = self._directory.absolute() / f"{self._name}-{version}"
        failure = self._save(path, weights) if self._run.rank == 0 else None
        written = self._run.broadcast("" if failure else str(path))
        if not written:
            raise SamplerError(
                f"The weights of version {version} could not be written to {path}: {failure or 'see the first one'}. "
                "Free space on the disk; the servers have to be able to read what lies there."
            ) from failure
        if self._run.rank == 0:
            self._keep(path)
        return Weights(version, Path(written), Path(written).name if self._policy.adapter is not None else "")

    def _save(self, path: Path, weights: Mapping[str, Any] | None) -> Exception | None:
        """Write a directory; what went wrong."""
        try:
            if self._policy.adapter is not None:
                save_policy(self._policy, path, None if weights is None else dict(weights))
            else:
                save_untied(self._policy, path, weights)
        except (OSError, EvoseekError) as error:
            return error
        return None

    def _keep(self, path: Path) -> None:
        """Remove older directories."""
        self._written = [*(old for old in self._written if old != path), path]
        for old in self._written[:-_KEPT]:
            remove_directory(old)
        self._written = self._written[-_KEPT:]

    def clear(self) -> None:
        """Remove everything that was written."""
        for path in self._written:
            shutil.rmtree(path, ignore_errors=True)
        self._written = []


def save_untied(policy: Policy, directory: Path, weights: Mapping[str, Any] | None = None) -> None:
    """Write a policy without adapters as a model whose output head has weights of its own. OSError, EvoseekError."""
    model, state = policy.model, untied(policy, weights)
    with replace_directory(directory) as partial, quietly(), _untied(model):
        model.save_pretrained(partial, state_dict=state, max_shard_size="1TB")
        policy.tokenizer.save_pretrained(partial)


def untied(policy: Policy, weights: Mapping[str, Any] | None = None) -> dict[str, torch.Tensor]:
    """The weights of a policy, or these, by name, with those of a tied output head once more as its own."""
    model = policy.model
    state: dict[str, torch.Tensor] = dict(model.state_dict() if weights is None else weights)
    head = cast("nn.Module | None", model.get_output_embeddings())
    if head is not None:
        own, embeddings = (_weight_of(model, module) for module in (head, model.get_input_embeddings()))
        state[own] = state[own if own in state else embeddings].clone()
    return state


def _weight_of(model: PreTrainedModel, module: object) -> str:
    """The name of a module's weight in the model's state."""
    return next(path for path, other in model.named_modules() if other is module) + ".weight"


@contextmanager
def _untied(model: PreTrainedModel) -> Generator[None]:
    """While the block runs, the model's config says that the head has weights of its own."""
    config = model.config.get_text_config()
    tied = config.tie_word_embeddings
    config.tie_word_embeddings = False
    try:
        yield
    finally:
        config.tie_word_embeddings = tied
