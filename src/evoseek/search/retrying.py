"""A search engine with retries."""

from __future__ import annotations

from collections.abc import Sequence

from evoseek.errors import ConfigError, ToolError
from evoseek.http.retry import Retry
from evoseek.protocols import QuestionEngine, SearchEngine
from evoseek.types import Passage


class RetryingEngine:
    """Calls `engine` up to `attempts` times, `wait_s` seconds after the first failure and twice as long after each
    further one.

    Without retries a failing engine changes what is learnt, although no failed rollout is ever scored: a rollout that
    searches often fails more often, so mostly rollouts with few searches would be left to learn from.

    Only ToolError is retried; any other exception, cancellation included, passes through at once. Raises ConfigError
    for fewer than one attempt or a negative wait.
    """

    def __init__(self, engine: SearchEngine, attempts: int, wait_s: float) -> None:
        if attempts < 1 or wait_s < 0:
            raise ConfigError(
                f"A search engine cannot be asked {attempts} times, {wait_s} seconds apart: expected at least one "
                "attempt and a wait of at least 0 seconds."
            )
        self._engine, self._retry = engine, Retry(attempts, wait_s, errors=ToolError, jitter=False)

    @property
    def is_local(self) -> bool:
        """As for the engine."""
        return self._engine.is_local

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The engine's results. Raises ToolError, with the last cause, when no attempt succeeded."""
        try:
            return await self._retry.run(lambda: self._engine.search(queries, k))
        except ToolError as error:
            raise ToolError(
                f"The search engine failed at each of {self._retry.attempts} attempts; the last time: {error}"
            ) from error


def retried(engine: SearchEngine | QuestionEngine, *, attempts: int, wait_s: float) -> SearchEngine | QuestionEngine:
    """The engine with retries, unless it retries by itself or is bound to a question first."""
    if isinstance(engine, QuestionEngine) or getattr(engine, "retries", False):
        return engine
    return RetryingEngine(engine, attempts=attempts, wait_s=wait_s)
