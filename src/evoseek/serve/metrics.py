"""Numbers of a server for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from evoseek.serve.places import Places

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300)


class ServerMetrics:
    """What is counted; `text` is the page /metrics."""

    def __init__(self, places: Places) -> None:
        registry = self._registry = CollectorRegistry()
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
        running = Gauge("evoseek_running", "Answers under way.", registry=registry)
        running.set_function(lambda: places.running)
        waiting = Gauge("evoseek_waiting", "Requests that wait for a place.", registry=registry)
        waiting.set_function(lambda: places.waiting)

    def ended(self, outcome: str, seconds: float, searches: int = 0) -> None:
        """Count a rollout."""
        self._ended.labels(outcome).inc()
        self._seconds.observe(seconds)
        self._searches.inc(searches)

    def busy(self) -> None:
        """Count a request that found the queue full."""
        self._refused.inc()

    @property
    def text(self) -> bytes:
        """In Prometheus's text format."""
        return generate_latest(self._registry)
