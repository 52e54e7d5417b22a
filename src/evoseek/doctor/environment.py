"""Python, the packages, and the extras that the settings need."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from evoseek import __version__
from evoseek.doctor.finding import Finding, fault, fine, warning
from evoseek.doctor.patient import Patient
from evoseek.settings import lookup

_PYTHON = (3, 11)
_PACKAGES = ("torch", "transformers", "safetensors", "tantivy", "pydantic")
_EXTRAS = {  # by what in the settings needs it: the module, and the extra that brings it
    "lora": ("peft", "lora"),
    "dense": ("wordllama", "static"),
    "hybrid": ("wordllama", "static"),
    "faiss": ("faiss", "faiss"),
    "gguf": ("gguf", "gguf"),
    "tensorboard": ("tensorboard", "track"),
    "wandb": ("wandb", "track"),
    "trackio": ("trackio", "track"),
}


def check_environment(patient: Patient) -> Iterator[Finding]:
    """Versions, and what is missing."""
    if sys.version_info < _PYTHON:
        yield fault("python", f"This is Python {platform.python_version()}.", "Install Python 3.11 or newer.")
    versions = {package: _version(package) for package in _PACKAGES}
    if missing := [package for package, found in versions.items() if found is None]:
        yield fault("packages", f"Not installed: {', '.join(missing)}.", f"pip install {' '.join(missing)}")
    known = ", ".join(f"{package} {found}" for package, found in versions.items() if found)
    yield fine("environment", f"evoseek {__version__}, Python {platform.python_version()}, {known}")
    for need in _needs(patient):
        module, extra = _EXTRAS[need]
        if find_spec(module) is None:
            words = f"The settings need {need}, but the package {module} is not installed."
            yield fault("extras", words, f"pip install 'evoseek[{extra}]'")
    if find_spec("matplotlib") is None:
        yield warning("extras", "Curves are not drawn without matplotlib.", "pip install 'evoseek[report]'")


def _needs(patient: Patient) -> Iterator[str]:
    """The names in `_EXTRAS` that the settings call for."""
    settings = patient.settings
    if settings.lora.rank > 0:
        yield "lora"
    if settings.policy.model.endswith(".gguf") or settings.policy.model == "smollm2-135m":
        yield "gguf"
    encoder = str(lookup(settings, "search.encoder") or "static")
    names = [tracker.name for tracker in settings.trackers]
    names += [settings.search.name] if settings.search.name == "faiss" or encoder == "static" else []
    yield from dict.fromkeys(name for name in names if name in _EXTRAS)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
