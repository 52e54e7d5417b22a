"""What the workers of tests/extra/test_ray_pool.py run; they import it by name."""

import asyncio
import os

from evoseek.errors import PageError, ToolError
from evoseek.types import Page, Passage


class Web:
    """An engine and a fetcher that do what they are told; passages tell of the process that they come from."""

    is_local = False

    def __init__(self, name):
        self.name, self.running, self.most = name, 0, 0

    async def search(self, queries, k):
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self._do(queries[0])
            told = f"{os.getpid()} {self.running} {self.most}"
            return [[Passage(query, self.name, "title", told, score=0.5)] for query in queries]
        finally:
            self.running -= 1

    async def _do(self, query):
        if query == "die":
            os._exit(1)
        if query == "hang":
            await asyncio.sleep(3600)
        if query == "down":
            raise ToolError("the engine is down")
        if query == "bug":
            raise KeyError("a bug")
        await asyncio.sleep(0.05 if query.startswith("slow") else 0)

    async def fetch(self, url):
        if "gone" in url:
            raise PageError(f"{url} is gone")
        return Page(url, self.name, "text")


def make(name):
    return Web(name)
