"""What is examined: the settings of a command line, and the directory of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from evoseek.answer import uses_chat_model
from evoseek.files import expanded
from evoseek.policy.machine import Machine, find_machine
from evoseek.policy.shape import ModelShape, read_config, shape_of
from evoseek.policy.source import find_policy, is_gguf
from evoseek.runs import RunDirectory
from evoseek.settings import is_given
from evoseek.training.settings import TrainingSettings


@dataclass(frozen=True, slots=True)
class Patient:
    """Settings, the run that they would make or resume (None: none was named), how many processes would train, and the
    index of the project, which `evoseek index` builds (None: it is not one of a project)."""

    settings: TrainingSettings
    run: RunDirectory | None = None
    processes: int = 1
    own_index: Path | None = None

    @property
    def is_trained(self) -> bool:
        """Whether there is a policy to train, and not only a model behind [answerer]."""
        return not uses_chat_model(self.settings) or is_given(self.settings, "policy.model")

    @property
    def has_model(self) -> bool:
        """Whether the model's files are on this machine, so that looking at them downloads nothing."""
        return is_here(self.settings.policy.model)

    @property
    def shape(self) -> ModelShape | None:
        """The sizes of the model, if they can be told."""
        return shape_of(read_config(self.settings.policy.model)) if self.has_model else None

    @property
    def machine(self) -> Machine:
        """The device that the settings name, and its free memory."""
        return find_machine(self.settings.policy.device)


def is_here(model: str) -> bool:
    """Whether a model is a file or a folder, or in the cache of the Hugging Face hub."""
    source = find_policy(model)
    if is_gguf(source) or expanded(source).exists():
        return expanded(source).exists()
    try:
        return isinstance(try_to_load_from_cache(source, "config.json"), str)
    except ValueError:  # no name of the hub: a path that is not there
        return False
