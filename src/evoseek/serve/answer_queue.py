"""Pending questions: each has a place in the queue, a rollout in the worker's thread, and events to follow."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from threading import Thread
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from evoseek.agent.answer import Answered, Answerer
from evoseek.serve.connection import BusyError, StoppedError
from evoseek.types import Action, Message, ToolResult

T = TypeVar("T")
_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300)
Event = Action | ToolResult
Ended = Callable[[str, str, str, str, float, Answered | None], object]


def reply_id() -> str:
    """Return a new reply id."""
    return f"chatcmpl-{secrets.token_hex(16)}"


class PendingAnswer:
    """A pending question."""

    def __init__(self, id: str, task: asyncio.Task[Answered], events: asyncio.Queue[Event | None]) -> None:
        self.id, self.task, self._events = id, task, events
        task.add_done_callback(lambda _: events.put_nowait(None))

    async def answered(self) -> Answered:
        """Await the answer; a caller that leaves ends the rollout. Raises StoppedError if the task was cancelled, and
        what the rollout raises."""
        try:
            return await asyncio.shield(self.task)
        except asyncio.CancelledError as error:
            if self.task.cancelled():
                raise StoppedError from error
            raise
        finally:
            self.task.cancel()

    async def events(self, pause_s: float) -> AsyncIterator[Event | None]:
        """Yield events until the rollout ends; None after every `pause_s` seconds without events."""
        while True:
            try:
                event = await asyncio.wait_for(self._events.get(), pause_s)
            except TimeoutError:
                yield None
                continue
            if event is None:
                return
            yield event


class AnswerQueue:
    """A queue of questions: at most `running` run concurrently, up to `waiting` wait in order of arrival. `ended` gets
    the name of the key, the question, its reply id, its outcome, its seconds and maybe its answer."""

    def __init__(self, worker: Worker, *, running: int, waiting: int, ended: Ended | None = None) -> None:
        self._worker, self._on_end = worker, ended
        self.running, self.most = 0, running + waiting
        self._room = asyncio.Semaphore(running)
        self._under_way = set[asyncio.Task[Answered]]()
        registry = self.registry = CollectorRegistry()
        self._ended = Counter(
            "evoseek_answers",
            "Rollouts that ended: answered, unsupported, no_answer, failed or cancelled.",
            ["outcome"],
            registry=registry,
        )
        self._refused = Counter("evoseek_busy", "Requests that found the queue full.", registry=registry)
        self._searches = Counter("evoseek_searches", "Calls of tools.", registry=registry)
        self._seconds = Histogram(
            "evoseek_answer_seconds", "Seconds of an answer, without the queue.", buckets=_SECONDS, registry=registry
        )
        under_way = Gauge("evoseek_running", "Answers under way.", registry=registry)
        under_way.set_function(lambda: self.running)
        queued = Gauge("evoseek_waiting", "Requests that wait for a place.", registry=registry)
        queued.set_function(lambda: self.taken - self.running)

    @property
    def taken(self) -> int:
        return len(self._under_way)

    @property
    def metrics(self) -> bytes:
        return generate_latest(self.registry)

    def stop(self) -> None:
        """End all running or waiting questions with StoppedError."""
        for task in self._under_way:
            task.cancel()

    async def idle(self) -> None:
        """Wait until the questions that are under way now have ended."""
        if self._under_way:
            await asyncio.wait(set(self._under_way))

    def ask(self, answerer: Answerer, question: str, history: Sequence[Message] = (), *, by: str = "") -> PendingAnswer:
        """Begin to answer a question of the key `by`, or wait for a place. Raises BusyError if the queue is full.
        Cancelling the task ends the rollout and frees the sampler's slot."""
        if self.taken >= self.most:
            self._refused.inc()
            raise BusyError(f"{self.most} questions are under way or waiting. Ask again later.")
        id, events = reply_id(), asyncio.Queue[Event | None]()
        task = asyncio.create_task(self._answer(answerer, id, question, history, events, by))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return PendingAnswer(id, task, events)

    async def _answer(
        self,
        answerer: Answerer,
        id: str,
        question: str,
        history: Sequence[Message],
        events: asyncio.Queue[Event | None],
        by: str,
    ) -> Answered:
        loop = asyncio.get_running_loop()

        def watch(event: Event) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        async with self._room:
            self.running += 1
            began, outcome, answered = time.monotonic(), "failed", None
            try:
                answered = await self._worker.run(answerer.answer(question, id, history=history, watch=watch))
                outcome = _outcome(answered)
                self._searches.inc(len(answered.trajectory.results))
                return answered
            except asyncio.CancelledError:
                outcome = "cancelled"
                raise
            finally:
                self.running -= 1
                self._ended.labels(outcome).inc()
                seconds = time.monotonic() - began
                self._seconds.observe(seconds)
                if self._on_end is not None:
                    self._on_end(by, question, id, outcome, seconds, answered)


def _outcome(answered: Answered) -> str:
    if answered.trajectory.failure:
        return "failed"
    if answered.trajectory.answer is None:
        return "no_answer"
    return "answered" if answered.support.is_given else "unsupported"


class Worker:
    """A thread with its own event loop for rollouts, from `start` to `stop`: the server stays responsive while a model
    computes."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="rollouts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. If the caller is cancelled, so is the coroutine."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    def stop(self, limit_s: float) -> bool:
        """Cancel running coroutines, and end; False if this takes more than `limit_s` seconds. A computing model cannot
        be interrupted: the thread then ends with it, or with the process."""

        async def cancel() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        ending = asyncio.run_coroutine_threadsafe(cancel(), self._loop)
        ending.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        self._thread.join(limit_s)
        if self._thread.is_alive():
            return False
        self._loop.close()
        return True
