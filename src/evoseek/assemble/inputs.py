"""From a config to what is read on its behalf: which settings name files and folders, and what those hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from evoseek.config import ChatConfig, Config
from evoseek.env.prompts import load_prompts
from evoseek.errors import ConfigError
from evoseek.files import file_digest, json_digest, model_digest
from evoseek.learner.checkpoint import Checkpoint
from evoseek.policy.adapter_files import base_name, is_adapter
from evoseek.policy.load import find_policy
from evoseek.runs import Input, with_digests
from evoseek.search.manifest import Manifest

_CHATS = ("judge", "simulator", "reader")


def inputs_of(config: Config) -> dict[str, Input]:
    """Every file and folder that the settings name, by the dotted key of the setting, with its digest.

    Left out is what has no place here: a model on the Hugging Face hub or behind an endpoint, whose name is all that
    there is to compare, and the web. Raises ConfigError for what cannot be read, SearchIndexError for a damaged index.
    """
    files = {
        "questions.path": config.questions.path,
        "evaluation.path": config.evaluation.path,
        "ssp.answers": config.ssp.answers,
        "selfplay.world": config.selfplay.world,
    }
    indexes = {"search.index": config.search.index, "evaluation.index": config.evaluation.index}
    models, prompts = {"policy.model": config.policy.model}, {"policy.prompts": config.policy.prompts}
    for name in _CHATS:
        chat: ChatConfig = getattr(config, name)
        prompts[f"{name}.prompts"] = chat.prompts if chat.model else "auto"
        models[f"{name}.model"] = "" if chat.base_url else chat.model
    named = {key: Path(find_policy(name)).expanduser() for key, name in models.items() if name}
    sets = {key: load_prompts(name).directory for key, name in prompts.items() if name != "auto"}
    return {
        **_digested({key: Path(path) for key, path in files.items() if path}, file_digest),
        **_digested({key: Path(path) for key, path in indexes.items() if path}, _index),
        **_digested({key: path for key, path in named.items() if path.is_dir()}, _model),
        **_digested(sets, _prompts),
    }


def identity(config: Config, checkpoint: Checkpoint | None = None) -> dict[str, object]:
    """The resolved config with what files hold in the place of their names, and the checkpoint that is worked with: a
    file that was begun with the same is gone on with. Raises as `inputs_of`."""
    origin = {"sha256": checkpoint.digest, "step": checkpoint.step} if checkpoint else {}
    return {**with_digests(config.resolved(), inputs_of(config)), "checkpoint": origin}


def _digested(paths: Mapping[str, Path], digest: Callable[[Path], str]) -> dict[str, Input]:
    found: dict[str, Input] = {}
    for key, path in paths.items():
        try:
            found[key] = Input(str(path.absolute()), digest(path))
        except OSError as error:
            raise ConfigError(
                f"{key} is {path}, which cannot be read ({error.strerror or error}). Correct the path."
            ) from error
    return found


def _index(directory: Path) -> str:
    return Manifest.read(directory).identity


def _model(directory: Path) -> str:
    """Of an adapter, together with its base."""
    if not is_adapter(directory):
        return model_digest(directory)
    base = Path(find_policy(base_name(directory))).expanduser()
    return json_digest([model_digest(directory), _model(base) if base.is_dir() else str(base)])


def _prompts(directory: Path) -> str:
    paths = [*directory.glob("*.jinja"), *directory.glob("*.examples.json")]
    return json_digest({path.name: file_digest(path) for path in paths})
