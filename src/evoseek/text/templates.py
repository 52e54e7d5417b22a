"""The only environment of Jinja for rendering templates: a sandbox, since anybody may have written a template, with
bounds for other people's templates.

The sandbox runs no code, but a template can loop and multiply without end. So its first rendering is tried in a copy of
this process, with limits of time and memory. The trial costs milliseconds once and bounds what is long or large in the
template itself; later values are not tried again.
"""

from __future__ import annotations

import os
import resource
import signal
import time
import warnings
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader, StrictUndefined, TemplateError, TemplateRuntimeError, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment


def sandbox(
    *folders: Path, escapes: bool = False, finalize: Callable[..., Any] | None = None
) -> ImmutableSandboxedEnvironment:
    """Return the environment of the templates in these folders; of equal names the first counts.

    They run no code: access to the inside of an object, or a change of one, raises jinja2's SecurityError, a
    TemplateError. Nothing is computed before rendering, not even constants, so loading a template is quick."""

    @pass_context
    def finalized(context: Context, value: Any) -> Any:
        return finalize(value) if finalize is not None else value

    return ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        finalize=finalized,
        optimized=False,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=escapes,
    )


_SECONDS, _BYTES, _CHARACTERS = 10, 2**30, 10_000_000  # maximum for a rendering
_FINE, _TOO_LARGE, _TOO_LONG = 0, 3, 4  # the meaning of a trial's exit status
_PROBLEMS = {
    _TOO_LARGE: f"it takes more than {_BYTES >> 30} GiB of memory",
    _TOO_LONG: f"its text has more than {_CHARACTERS:,} characters",
}
_tried: dict[Hashable, str] = {}  # what is wrong with each ("": nothing)


def bounded(template: Hashable, render: Callable[[], str], parts: Hashable = None) -> str:
    """Render a template that others have written. `parts` says which of its parts `render` uses. New parts are tried
    first, unless the template exceeded the limits before. Raises TemplateError for any failure."""
    problem = _tried.get(template, "")
    if not problem and (template, parts) not in _tried:
        _tried[template, parts] = problem = _trial(render)
        _tried[template] = problem
    try:
        if not problem and len(text := render()) <= _CHARACTERS:
            return text
    except TemplateError:
        raise
    except Exception as error:  # operators and filters may raise anything
        said = (
            "it calls itself without end" if isinstance(error, RecursionError) else f"{type(error).__name__}: {error}"
        )
        raise TemplateRuntimeError(said) from error
    raise TemplateRuntimeError(problem or _PROBLEMS[_TOO_LONG])


def _trial(render: Callable[[], str]) -> str:
    """Render in a copy of this process; return which limit it exceeds, "" if none or if it fails immediately."""
    with warnings.catch_warnings():  # about other threads: the copy has none, and needs none of their locks
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os._exit(_status(render))
    deadline, pause = time.monotonic() + _SECONDS, 0.001
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return _PROBLEMS.get(_TOO_LARGE if code < 0 else code, "")
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"it takes more than {_SECONDS} seconds"


def _status(render: Callable[[], str]) -> int:
    try:
        with suppress(OSError, ValueError):  # a system that does not report, or does not bound, memory
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + _BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
        return _FINE if len(render()) <= _CHARACTERS else _TOO_LONG
    except MemoryError:
        return _TOO_LARGE
    except BaseException:
        return _FINE  # the rendering itself will fail again
