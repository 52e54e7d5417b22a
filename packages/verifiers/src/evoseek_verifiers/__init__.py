"""evoseek's questions, search environment and rewards as an environment of the `verifiers` package (0.4), under the
name `evoseek-verifiers`: for its `vf-eval`, and for prime-rl.

Importing this package needs no verifiers; the classes do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evoseek.errors import ConfigError

if TYPE_CHECKING:
    from evoseek_verifiers.bridge import EvoseekEnv, EvoseekHarness, EvoseekTaskset

__all__ = ["EvoseekEnv", "EvoseekHarness", "EvoseekTaskset"]


def __getattr__(name: str) -> Any:
    """The classes by which verifiers finds the environment. Raises ConfigError if verifiers is not installed."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from evoseek_verifiers import bridge
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "verifiers":
            raise
        raise ConfigError(
            f"evoseek_verifiers.{name} needs the package verifiers 0.4, but there is no verifiers.v1: {error}. "
            "Install it in an environment of its own, pip install 'verifiers>=0.4,<0.5': it pins mcp 2.0, so it does "
            "not go together with evoseek's extra serve."
        ) from error
    return getattr(bridge, name)
