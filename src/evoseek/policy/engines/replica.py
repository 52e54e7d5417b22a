"""One server as a sampler: it is checked before its first turn, and again after every failure, and so are its
weights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from evoseek.errors import ConfigError, SamplerError
from evoseek.policy.engines.engine import COLD, WARM, Engine, Served, Weights, check_tempered
from evoseek.policy.engines.link import Link
from evoseek.policy.engines.turn import Turn
from evoseek.policy.pass_times import PassTimes
from evoseek.policy.stops import StopRules
from evoseek.types import Completion, SampleRequest


class Replica:
    """Samples with one server. `model` is the name that it has to serve ("": the only one), `vocabulary` the number of
    the policy's tokens, `prompt` any ids that the logprobs may be tried with, and `max_length` the longest sequence.

    A server that failed may have been started anew, with other weights: before its next turn it is checked and given
    the weights again.
    """

    def __init__(
        self,
        engine: Engine,
        link: Link,
        rules: StopRules,
        *,
        model: str,
        vocabulary: int,
        prompt: Sequence[int],
        max_length: int,
    ) -> None:
        self.link, self._engine, self._rules, self._vocabulary = link, engine, rules, vocabulary
        self._asked_model, self._prompt, self._max_length = model, prompt, max_length
        self._weights: Weights | None = None  # that it should have
        self._loaded: Weights | None = None  # that it has, as far as is known
        self._model = ""  # as found by the check; "" if it has to be checked
        self._turns = 0  # in progress
        self._paces = PassTimes()
        self._ended: asyncio.Future[None] | None = None  # a turn, for whoever waits for it
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def name(self) -> str:
        """In words: which server it is."""
        return f"the server {self.link.url}"

    @property
    def is_lost(self) -> bool:
        """Whether the server is not called now."""
        return self.link.is_lost

    def publish(self, weights: Weights) -> None:
        """Use these weights from the next turn on."""
        self._weights = weights

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one completion. Raises SamplerError, and ConfigError for a server that cannot be used."""
        model, weights = await self._prepared()
        version = weights.version if weights else 0  # newer ones may be published before the turn ends
        turn = Turn(request, self._rules, vocabulary=self._vocabulary, version=version, paces=self._paces)

        def ask() -> object:
            return self._engine.ask(turn.rest(), turn.rule, model, weights)

        def read(value: Any) -> Completion | None:
            return turn.add(self._engine.read(value, model, weights, turn.written))

        self._turns += 1
        try:
            return await self.link.stream(self._engine.path, ask, read)
        except SamplerError:
            self._forget()
            raise
        finally:
            self._turns -= 1
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(None)

    def _forget(self) -> None:
        self._model, self._loaded = "", None

    async def _prepared(self) -> tuple[str, Weights | None]:
        """The model and the weights that the server has, once it was checked and given the newest, unless that was done
        since it last failed. Weights that are published while it loads are left to the next turn."""
        async with self._alone():
            await self._turns_of_older_weights()
            try:
                model, weights = self._model or await self._checked(), self._weights
                if weights is not None and self._loaded != weights:
                    await self._engine.load(self.link, model, weights, self._loaded)
                self._model, self._loaded = model, weights
                return model, weights
            except BaseException:
                self._forget()  # what was begun may be half done
                raise

    async def _turns_of_older_weights(self) -> None:
        """Wait until the turns in progress have ended, if the server is about to exchange all weights under them: it
        would abort them, or continue them with keys and values of the old ones. (An adapter stays while it is used.)"""
        new = self._weights
        while new is not None and new != self._loaded and not new.adapter and self._turns:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """One at a time, in whatever event loop."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = loop, asyncio.Lock()
        async with self._lock[1]:
            yield

    async def _checked(self) -> str:
        """The name of the model at the server. Raises ConfigError for a server that cannot be used, SamplerError."""
        served = self._chosen(await self._engine.check(self.link))
        if served.max_length is not None and served.max_length < self._max_length:
            raise ConfigError(
                f"The server {self.link.url} takes sequences of up to {served.max_length} tokens, but "
                f"rollout.max_total_tokens is {self._max_length}. Start it for longer ones, or lower the setting."
            )
        warm, cold = [
            await self._engine.top_logprobs(self.link, served.name, self._prompt, temperature)
            for temperature in (WARM, COLD)
        ]
        check_tempered(self._engine, self.link.url, warm, cold)
        return served.name

    def _chosen(self, models: Sequence[Served]) -> Served:
        asked = [served for served in models if self._asked_model in ("", served.name)]
        if len(asked) == 1:
            return asked[0]
        names = ", ".join(served.name for served in models) or "none"
        what = f"the model {self._asked_model!r}" if self._asked_model else "exactly one model"
        raise ConfigError(
            f"The server {self.link.url} was expected to serve {what}, but it serves {names}. Set sampler.model to the "
            "name of the policy's model there, or start the server with that model."
        )
