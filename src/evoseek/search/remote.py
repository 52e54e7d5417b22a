"""The engine `remote`: a retrieval server, Search-R1's or `evoseek serve retrieval`."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Sequence

import httpx2
from pydantic import Field

from evoseek.errors import ConfigError, ToolError
from evoseek.http.limits import CallPool, Retry
from evoseek.http.server import Server, check_url, json_of
from evoseek.search.settings import SearchSettings
from evoseek.search.wire import Request, read_result
from evoseek.types import Passage

BATCH = 64  # queries of a request, at most
_MAX_WAIT_S = 20.0  # the longest wait before a retry


class RemoteSettings(SearchSettings):
    """A retrieval server."""

    name: str = Field(default="remote", description="Name of the engine.")
    url: str = Field(default="", description="Address of the server, with the path, such as http://host:8000/retrieve.")
    api_key_env: str = Field(default="", description="Environment variable that holds the server's key, if it has one.")
    timeout_s: float = Field(default=30.0, gt=0, le=3600, description="Seconds in which the server has to reply.")
    concurrency: int = Field(default=64, ge=1, le=10_000, description="Number of requests at once.")

    def problems(self) -> Iterator[str]:
        """The server needs an address."""
        yield from super().problems()
        if not self.url:
            yield (
                "search.name is remote, but search.url is empty. Set search.url to the server's address, such as "
                "http://127.0.0.1:8000/retrieve."
            )


class RemoteEngine:
    """Searches by POST, called and retried as `http.server.Server` says. A failure is a ToolError, also a reply that is
    not of the wire format: it is never taken for a search that found nothing.

    Raises ConfigError for an address or a key that cannot be used.
    """

    is_local = False
    retries = True  # by itself, as only it knows which failures are worth it: `SearchTool` adds no retries

    def __init__(self, settings: RemoteSettings) -> None:
        check_url(settings.url, setting="search.url", example="http://127.0.0.1:8000/retrieve")
        self._url = settings.url
        self._api_key = _key(settings.api_key_env)
        self._server = Server(
            setting="search.url",
            api_key=self._api_key,
            timeout_s=settings.timeout_s,
            retry=Retry(settings.attempts, settings.wait_s, _MAX_WAIT_S),
            pool=CallPool(concurrency=settings.concurrency),
            headers={"Authorization": f"Bearer {self._api_key}"} if self._api_key else None,
        )

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """For each query at most k passages, best first. Raises ToolError."""
        if k < 1:
            return [[] for _ in queries]
        parts = [queries[start : start + BATCH] for start in range(0, len(queries), BATCH)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._part(part, k)) for part in parts]
        except* ToolError as errors:
            raise ToolError(f"The retrieval server {self._url} gave nothing: {_first(errors)}") from errors
        return [passages for task in tasks for passages in task.result()]

    async def _part(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        async def attempt(client: httpx2.AsyncClient) -> list[list[Passage]]:
            body = json.dumps(Request(tuple(queries), k, return_scores=True).body())  # ASCII, whatever the text
            reply = await self._server.send(
                client, "POST", self._url, content=body, headers={"Content-Type": "application/json"}
            )
            if not reply.is_success:
                raise ToolError(f"{self._server.refusal(reply)}. It is not retried: correct search.url or the key.")
            return read_result(json_of(reply.body, secret=self._api_key), queries=len(queries), k=k)

        return await self._server.call(attempt)


class Remote:
    """The part `remote`."""

    Settings = RemoteSettings

    @classmethod
    def build(cls, settings: RemoteSettings, context: object) -> RemoteEngine:
        """The engine. Raises ConfigError; the server is not called yet."""
        return RemoteEngine(settings)


def _key(variable: str) -> str:
    key = os.environ.get(variable, "") if variable else ""
    if variable and not key:
        raise ConfigError(
            f"search.api_key_env is {variable}, but there is no environment variable of that name, or it is empty. Set "
            f"it (export {variable}=...), or leave search.api_key_env empty."
        )
    return key


def _first(errors: BaseException) -> BaseException:
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    return errors
