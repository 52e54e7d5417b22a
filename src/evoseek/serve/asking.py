"""Questions under way: each has a place in the queue, a rollout in the worker's thread, and events to follow it by."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from evoseek.jobs.answering import Answered, Answerer
from evoseek.serve.errors import StoppedError
from evoseek.serve.metrics import ServerMetrics
from evoseek.serve.places import Place, Places
from evoseek.serve.worker import Worker
from evoseek.types import Action, Message, ToolResult

_KEPT = 256
_ID = re.compile(r"chatcmpl-[0-9a-f]{32}")


class Asked:
    """A question under way."""

    def __init__(self, id: str, task: asyncio.Task[Answered], events: asyncio.Queue[Action | ToolResult]) -> None:
        self.id, self.task, self._events = id, task, events
        self._is_stopped = False

    def stop(self) -> None:
        """End the rollout because the server is stopped."""
        self._is_stopped = True
        self.task.cancel()

    async def answered(self) -> Answered:
        """The answer. Raises StoppedError after `stop`, and whatever the rollout raises."""
        try:
            return await self.task
        except asyncio.CancelledError as error:
            if self._is_stopped:
                raise StoppedError from error
            raise

    async def events(self, pause_s: float) -> AsyncIterator[Action | ToolResult | None]:
        """What happens until the rollout ends, in order; None whenever nothing has happened for `pause_s` seconds."""
        while True:
            while not self._events.empty():
                yield self._events.get_nowait()
            if self.task.done():
                return
            following = asyncio.ensure_future(self._events.get())
            try:
                done, _ = await asyncio.wait({following, self.task}, timeout=pause_s, return_when="FIRST_COMPLETED")
                if following in done:
                    yield following.result()
                elif not done:
                    yield None
            finally:
                following.cancel()


class Asking:
    """Asks an answerer. The last answers are kept in memory, as JSON values by their ids; `kept` gives one."""

    def __init__(self, answerer: Answerer, worker: Worker, places: Places) -> None:
        self.answerer, self.places, self.metrics = answerer, places, ServerMetrics(places)
        self._worker = worker
        self._answers: OrderedDict[str, dict[str, object]] = OrderedDict()
        self._under_way = set[Asked]()

    def stop(self) -> None:
        """End all questions under way or waiting: whoever asked gets StoppedError."""
        for asked in tuple(self._under_way):
            asked.stop()

    def ask(self, question: str, history: Sequence[Message]) -> Asked:
        """Begin to answer, or wait for a place. Raises BusyError if the queue is full. Cancelling the task ends the
        rollout, and the sampler's slot is free."""
        place = self.places.reserve()
        id, events = f"chatcmpl-{secrets.token_hex(16)}", asyncio.Queue[Action | ToolResult]()
        task = asyncio.create_task(self._answer(id, place, question, history, events))
        asked = Asked(id, task, events)
        self._under_way.add(asked)

        def leave(task: asyncio.Task[Answered]) -> None:
            place.leave()
            self._under_way.discard(asked)

        task.add_done_callback(leave)
        return asked

    def kept(self, id: str) -> dict[str, object] | None:
        """The answer with an id; None if there is none (any more), or if it is no id."""
        return self._answers.get(id) if _ID.fullmatch(id) else None

    async def _answer(
        self,
        id: str,
        place: Place,
        question: str,
        history: Sequence[Message],
        events: asyncio.Queue[Action | ToolResult],
    ) -> Answered:
        await place.begin()
        began, loop, outcome, searches = time.monotonic(), asyncio.get_running_loop(), "failed", 0

        def watch(record: Action | ToolResult) -> None:
            loop.call_soon_threadsafe(events.put_nowait, record)

        try:
            answered = await self._worker.run(self.answerer.answer(question, id, history=history, watch=watch))
            outcome, searches = _outcome(answered), len(answered.trajectory.tool_results)
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            seconds = time.monotonic() - began
            self.metrics.ended(outcome, seconds, searches)
            self.places.learn(seconds)
        self._keep(id, answered.json)
        return answered

    def _keep(self, id: str, answer: dict[str, object]) -> None:
        self._answers[id] = answer
        while len(self._answers) > _KEPT:
            self._answers.popitem(last=False)


def _outcome(answered: Answered) -> str:
    if answered.trajectory.failure:
        return "failed"
    if answered.trajectory.answer is None:
        return "no_answer"
    return "answered" if answered.support.is_given else "unsupported"
