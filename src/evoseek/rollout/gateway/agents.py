"""Agents: a function of the user's, or a program."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shlex
import signal
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from evoseek.rollout.gateway.attempts import Agent, AgentFailedError, Client
from evoseek.rollout.settings import AgentSettings, CommandSettings

_READ = 64 * 2**10  # last bytes of what a program writes


class OwnLoop:
    """The package's own turn loop, in place of an agent."""

    Settings = AgentSettings

    @classmethod
    def build(cls, settings: AgentSettings, context: object) -> None:
        """Return no agent."""


class Command:
    """A program that answers one question and ends: what it prints is the answer. Its environment has OPENAI_BASE_URL,
    OPENAI_API_KEY, and EVOSEEK_TASK, the path of a JSON file with the `question`."""

    Settings = CommandSettings

    def __init__(self, settings: CommandSettings) -> None:
        self._program = shlex.split(settings.program)

    async def __call__(self, task: str, client: Client) -> str | None:
        with TemporaryDirectory(prefix="evoseek-agent-") as name:
            folder = Path(name)
            (folder / "task.json").write_text(json.dumps({"question": task}, ensure_ascii=False), encoding="utf-8")
            given = {"OPENAI_BASE_URL": client.base_url, "OPENAI_API_KEY": client.api_key}
            environment = {**os.environ, **given, "EVOSEEK_TASK": str(folder / "task.json")}
            with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
                code = await _run(self._program, environment, out, err)
            if code:
                lines = _end_of(folder / "err").strip().splitlines() or ["it wrote nothing to standard error"]
                raise AgentFailedError(f"the program {self._program[0]} ended with {_named(code)}: {lines[-1]}")
            return _end_of(folder / "out").strip() or None


async def _run(program: list[str], environment: dict[str, str], out: Any, err: Any) -> int:
    """Return a program's exit code. All that it started ends with it."""
    try:
        process = await asyncio.create_subprocess_exec(
            *program,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    except OSError as error:
        raise AgentFailedError(f"the program {program[0]} cannot be started: {error}") from error
    try:
        return await process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def as_agent(part: Callable[..., Any]) -> Agent:
    """Return an agent from a user's function or object. One that is not a coroutine function runs in its own thread."""
    if inspect.iscoroutinefunction(part) or inspect.iscoroutinefunction(getattr(part, "__call__", None)):  # noqa: B004
        return part

    async def agent(task: str, client: Client) -> object:
        done: Future[object] = Future()

        def run() -> None:
            with suppress(InvalidStateError):  # it is no longer awaited
                try:
                    done.set_result(part(task, client))
                except BaseException as error:  # the thread ends with it
                    done.set_exception(AgentFailedError(f"{type(error).__name__}: {error}"))

        Thread(target=run, name="agent", daemon=True).start()
        return await asyncio.wrap_future(done)

    return agent


def _end_of(file: Path) -> str:
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - _READ))
        return opened.read().decode("utf-8", "replace")


def _named(code: int) -> str:
    return f"the signal {signal.Signals(-code).name}" if code < 0 else f"the exit code {code}"
