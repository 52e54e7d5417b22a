"""The one environment of Jinja in which templates are rendered: a sandbox, since anybody may have written them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment


def sandbox(
    *folders: Path, escapes: bool = False, finalize: Callable[..., Any] | None = None
) -> ImmutableSandboxedEnvironment:
    """The templates in these folders, of which the first that has one counts. They run no code: what reaches for the
    inside of an object, or changes one, raises jinja2's SecurityError, which is a TemplateError."""
    return ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=escapes,
    )
