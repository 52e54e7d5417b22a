"""A turn from a server: its replies are checked, joined and timed, and cut where the turn ends."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from evoseek.http.limits import TransientError
from evoseek.samplers.torch.stops import PassTimes, StopRules
from evoseek.types import Completion, SampleRequest

ROUNDING = 1e-3  # of logprobs
_ENDS = ("stop", "length")
_TIMED = 16  # minimum tokens for measuring a pace; fewer may arrive together


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens of a reply. Without a finish reason, more will follow. Other fields are None if the reply lacks them."""

    token_ids: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: str | None
    prompt_ids: Sequence[int] | None = None
    version: str | None = None  # of the weights, or the adapter's name
    expected_version: str | None = None


class Turn:
    """A turn, joined from a server's replies. `vocabulary` is the number of the policy's tokens, `version` the version
    of the weights. A failed reply is continued after its tokens (`rest`), never drawn again: otherwise short turns
    would prevail.

    The policy's own time is from the first tokens of a reply to its last ones, so it includes no queue. `paces` holds
    the seconds per token in earlier turns; time beyond a few times as much is a stall. None: replies arrive whole.
    """

    def __init__(
        self, request: SampleRequest, rules: StopRules, *, vocabulary: int, version: int, paces: PassTimes | None
    ) -> None:
        self._request, self._rest, self._vocabulary, self._version = request, request, vocabulary, version
        self._rules, self.rule, self._paces = rules, rules.rule(request.stop), paces
        self._ids, self._logprobs = list[int](), list[float]()
        self._began: tuple[float, int] | None = None  # this reply: the time, and the number of tokens
        self._pace: float | None = None  # of this reply, in seconds a token
        self._seconds, self._seconds_before = 0.0, 0.0

    @property
    def written(self) -> int:
        """The number of tokens of this reply so far."""
        return len(self._ids) + len(self._request.token_ids) - len(self._rest.token_ids)

    def rest(self) -> SampleRequest:
        """Return the request for the rest of the turn."""
        self._began, self._seconds_before = None, self._seconds
        ids, missing = (*self._request.token_ids, *self._ids), self._request.max_tokens - len(self._ids)
        self._rest = replace(self._request, token_ids=ids, max_tokens=missing)
        return self._rest

    def add(self, sampled: Sampled) -> Completion | None:
        """Add tokens. Return the turn, cut where it first ends by the policy's own rule (an engine may overrun it) or
        by a limit; None if it continues. Raises TransientError, which says what is wrong with the tokens."""
        check_sampled(sampled, self._rest, self._vocabulary, self.written)
        before = len(self._ids)
        self._ids += sampled.token_ids
        self._logprobs += map(float, sampled.logprobs)
        self._measure()
        length = self._rules.cut(self.rule, self._ids, before)
        if length is not None:
            return self._completion("stop", length)
        if sampled.finish_reason == "stop":
            stopped = len(self._ids)
            del self._ids[before:], self._logprobs[before:]  # or the turn would continue after the refused tokens
            raise TransientError(
                f"it stopped after {stopped} tokens, but at none of the stop strings and stop tokens that were "
                "sent; check that it has the policy's own tokenizer"
            )
        if len(self._ids) == self._request.max_tokens:
            return self._completion("length", len(self._ids))
        return self._completion("time", len(self._ids)) if self._seconds >= self._request.max_seconds else None

    def _measure(self) -> None:
        if self._paces is None:
            return
        now = asyncio.get_running_loop().time()
        began, first = self._began = self._began or (now, len(self._ids))
        if number := len(self._ids) - first:
            pace = (now - began) / number
            self._seconds = self._seconds_before + number * min(pace, self._paces.most)
            self._pace = pace if number >= _TIMED else None

    def _completion(self, reason: Literal["stop", "length", "time"], length: int) -> Completion:
        if self._paces is not None and self._pace is not None:
            self._paces.own(self._pace)
        seconds = None if self._paces is None else self._seconds
        return Completion(tuple(self._ids[:length]), tuple(self._logprobs[:length]), reason, self._version, seconds)


def check_sampled(sampled: Sampled, request: SampleRequest, vocabulary: int, written: int = 0) -> None:
    """Raise TransientError for tokens that do not fit the request, after `written` ones of the same reply."""
    ids, logprobs, most = sampled.token_ids, sampled.logprobs, request.max_tokens - written
    wrong = ""
    if not ids or len(ids) > most:
        wrong = f"{len(ids)} token ids, where 1 to {most} were expected"
    elif len(ids) != len(logprobs):
        wrong = f"{len(ids)} token ids with {len(logprobs)} logprobs"
    elif bad := [token for token in ids if not _is_id(token, vocabulary)]:
        wrong = f"the token id {bad[0]!r}, but the policy's go from 0 to {vocabulary - 1}"
    elif any(not _is_logprob(value) for value in logprobs):
        wrong = f"the logprob {next(value for value in logprobs if not _is_logprob(value))!r}"
    elif sampled.finish_reason not in (None, *_ENDS):
        wrong = f"the finish reason {sampled.finish_reason!r}, where stop or length was expected"
    elif sampled.finish_reason == "length" and len(ids) < most:
        wrong = f"{written + len(ids)} of {request.max_tokens} tokens, ended by length"
    elif sampled.prompt_ids is not None and list(sampled.prompt_ids) != list(request.token_ids):
        wrong = f"a prompt of {len(sampled.prompt_ids)} ids that are not the {len(request.token_ids)} that were sent"
    elif sampled.version != sampled.expected_version:
        wrong = f"a sample from the weights {sampled.version!r} instead of {sampled.expected_version!r}"
    if wrong:
        raise TransientError(f"it replied with {wrong}")


def _is_id(token: object, vocabulary: int) -> bool:
    return isinstance(token, int) and not isinstance(token, bool) and 0 <= token < vocabulary


def _is_logprob(value: object) -> bool:
    """Return whether a number is finite and at most 0, except for rounding. (Engines use -9999 for -infinity.)"""
    return isinstance(value, int | float) and math.isfinite(value) and -9999 < value < ROUNDING
