"""The one environment of Jinja in which templates are rendered: a sandbox, since anybody may have written them, and
the bounds of what one of somebody else's may take.

The sandbox runs no code, but a template can loop and multiply without end. So the first time that one is rendered, a
copy of this process tries it, which is ended after a time and may take so much memory. That costs milliseconds once,
and bounds what in a template is long or large; what depends on the contents of later values is not tried again.
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

    They run no code: what reaches for the inside of an object, or changes one, raises jinja2's SecurityError, which is
    a TemplateError. Nothing is computed before a template is rendered, constants neither: reading one is quick."""

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


_SECONDS, _BYTES, _CHARACTERS = 10, 2**30, 10_000_000  # of a rendering at most
_FINE, _TOO_LARGE, _TOO_LONG = 0, 3, 4  # what the status of a trial means
_PROBLEMS = {
    _TOO_LARGE: f"it takes more than {_BYTES >> 30} GiB of memory",
    _TOO_LONG: f"its text has more than {_CHARACTERS:,} characters",
}
_tried: dict[Hashable, str] = {}  # what is wrong with each ("": nothing)


def bounded(template: Hashable, render: Callable[[], str], parts: Hashable = None) -> str:
    """Return the text of a template that others have written. `parts` says which of its parts `render` uses; with new
    ones it is tried first, unless the template was too much before. Raises TemplateError for any failure."""
    problem = _tried.get(template, "")
    if not problem and (template, parts) not in _tried:
        _tried[template, parts] = problem = _trial(render)
        _tried[template] = problem
    try:
        if not problem and len(text := render()) <= _CHARACTERS:
            return text
    except TemplateError:
        raise
    except Exception as error:  # operators and filters raise what they like
        said = (
            "it calls itself without end" if isinstance(error, RecursionError) else f"{type(error).__name__}: {error}"
        )
        raise TemplateRuntimeError(said) from error
    raise TemplateRuntimeError(problem or _PROBLEMS[_TOO_LONG])


def _trial(render: Callable[[], str]) -> str:
    """Return what is too much when a copy of this process renders; "" if nothing is, also where that fails at once."""
    with warnings.catch_warnings():  # of other threads: the copy has none, and needs none of their locks
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
        with suppress(OSError, ValueError):  # a system that does not tell, or does not bound
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + _BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
        return _FINE if len(render()) <= _CHARACTERS else _TOO_LONG
    except MemoryError:
        return _TOO_LARGE
    except BaseException:
        return _FINE  # whoever renders next is told
