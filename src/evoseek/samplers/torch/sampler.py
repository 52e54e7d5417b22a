"""Continuous batching of turns over a fixed number of key/value slots, inside the event loop.

A trajectory holds one slot from its first turn until it is released. Its keys and values stay while it waits for a
tool, so that its next turn computes only the new observation. A common prefix of trajectories, such as the prompt of a
group and the results of equal searches, is computed for one of them and copied to the others. One asyncio task makes
the forward passes. Each has the next token of every sampling trajectory and new context of trajectories that are about
to sample; other coroutines run in between. No thread and no clock is involved: the same requests in the same order give
the same bits. Tools that wait for external events make this order depend on time; `lockstep` removes the dependence.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal

import torch

from evoseek.errors import SamplerError
from evoseek.models.policy import Policy, SamplerContext, eos_ids
from evoseek.models.settings import CPU_PREFILL_TOKENS, GPU_PREFILL_TOKENS, TorchSamplerSettings
from evoseek.samplers.torch.draw import draw_tokens, turn_uniforms
from evoseek.samplers.torch.packed import SHARED, Span, common_length, find_longest, packed_logits
from evoseek.samplers.torch.slots import SlotCache
from evoseek.samplers.torch.stops import PassTimes, StopRule, StopRules, check_request
from evoseek.types import Completion, SampleRequest

# Single tokens attend over slots 0 .. last one that decodes. When fewer than this share of them decode, slots are
# exchanged so that decoding ones come first.
_COMPACT_BELOW = 0.75
# How often to yield after turns have finished, so that short chains of callbacks come back with their next request.
_YIELDS_AFTER_FINISH = 4


@dataclass(slots=True)
class SamplerStats:
    """Counts since the start."""

    action_tokens: int = 0
    prefill_tokens: int = 0
    copied_tokens: int = 0  # of prefixes that were computed for another trajectory
    steps: int = 0
    busy_s: float = 0.0


@dataclass(slots=True, eq=False)
class _SampledTurn:
    request: SampleRequest
    future: asyncio.Future[Completion]
    rule: StopRule
    uniforms: list[float]  # one per token that may be sampled
    policy_version: int = 0
    queued_at: float = 0.0  # seconds of the clock
    waited: float = 0.0  # seconds until it began
    seconds: float = 0.0  # of the passes that took part in it, without stalls
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])

    @property
    def given(self) -> int | None:
        """The next token, if the turn is forced to begin with it."""
        begins = self.request.begins
        return begins[len(self.ids)] if len(self.ids) < len(begins) else None


@dataclass(slots=True, eq=False)
class _BatchRow:
    """A trajectory in its slot. `ids[:cached]` have keys and values; a row without a turn waits for its tool."""

    trajectory_id: str
    slot: int
    ids: list[int] = field(default_factory=list[int])
    cached: int = 0
    turn: _SampledTurn | None = None


class TorchSampler:
    """Samples with the policy's model in place, on its device (protocols.Sampler).

    slots: number of trajectories held concurrently; others wait in order of arrival until one is released. max_length:
    the longest context plus completion, by default the maximum of the model's configuration. prefill_tokens: maximum
    tokens of new context to compute before every sampling trajectory gets its next token. lockstep: all turns begin
    together, in the order of their ids, when every trajectory with a slot has asked for one or was released. The bits
    then do not depend on the time of tools, but all wait for the slowest. clock: returns seconds; it times the passes.

    Call `update_weights` after a change of the model's weights. The model is put in evaluation mode.
    """

    Settings = TorchSamplerSettings

    @classmethod
    def build(cls, settings: TorchSamplerSettings, context: SamplerContext) -> TorchSampler:
        """Make the sampler from its settings."""
        return cls(context.policy, slots=settings.slots, max_length=context.max_length, lockstep=context.lockstep)

    def __init__(
        self,
        policy: Policy,
        *,
        slots: int = TorchSamplerSettings().slots,
        max_length: int | None = None,
        prefill_tokens: int | None = None,
        lockstep: bool = False,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._policy_version = 0
        self.lockstep = lockstep
        self.stats = SamplerStats()
        self._clock = clock
        self._pass_times = PassTimes()
        self.max_length = max_length or int(policy.model.config.get_text_config().max_position_embeddings)
        self._policy = policy
        self._vocabulary = policy.model.config.get_text_config().vocab_size
        on_cpu = policy.model.device.type == "cpu"
        self._prefill_tokens = prefill_tokens or (CPU_PREFILL_TOKENS if on_cpu else GPU_PREFILL_TOKENS)
        self._cache = SlotCache(policy.model, slots=slots, max_length=self.max_length)
        self._rules = StopRules(policy.tokenizer, eos_ids(policy))
        self._slots: list[_BatchRow | None] = [None] * slots
        self._rows: dict[str, _BatchRow] = {}  # by trajectory, as are the turns
        self._turns: dict[str, _SampledTurn] = {}  # queued, or in a row
        self._queue: deque[_SampledTurn] = deque()
        self._driver: asyncio.Task[None] | None = None

    @property
    def policy_version(self) -> int:
        """The version of the last `update_weights`; 0 before the first."""
        return self._policy_version

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one completion. Raises SamplerError if the request cannot be served or the model fails."""
        self._check(request)
        loop = asyncio.get_running_loop()
        if self._driver is not None and self._driver.get_loop() is not loop:
            self._abandon()
        # whether a turn begins again depends on drawn tokens, so it has its own random numbers
        stream = f"{request.trajectory_id}/begun" if request.begins else request.trajectory_id
        turn = _SampledTurn(
            request,
            loop.create_future(),
            self._rules.rule(request.stop),
            turn_uniforms(request.seed, stream, request.turn, request.max_tokens),
            queued_at=self._clock(),
        )
        self._turns[request.trajectory_id] = turn
        self._queue.append(turn)
        self._wake()
        try:
            return await turn.future
        except asyncio.CancelledError:
            self.release(request.trajectory_id)
            raise

    def release(self, trajectory_id: str) -> None:
        """Free the slot of a trajectory that has ended. Unknown ids are ignored."""
        turn = self._turns.pop(trajectory_id, None)
        row = self._rows.pop(trajectory_id, None)
        if row is not None:
            self._slots[row.slot] = None
        if turn in self._queue:  # also of a trajectory that has a slot
            self._queue.remove(turn)
        if turn is not None and not turn.future.done():
            turn.future.set_exception(SamplerError(f"trajectory '{trajectory_id}' was released while sampling."))
        self._wake()

    def update_weights(self, version: int, weights: Mapping[str, Any] | None = None) -> None:
        """Sample with the model's current weights, or with `weights`, as the policy of this version. Raises
        SamplerError for weights that are not the model's."""
        if weights is not None:
            try:
                self._policy.model.load_state_dict(dict(weights))
            except RuntimeError as error:
                raise SamplerError(f"the weights of version {version} do not fit the model: {error}") from error
        self._policy_version = version
        self.reset()

    def reset(self) -> None:
        """Forget all keys and values, as after a change of weights. Turns in progress continue from their ids, and
        waiting turns keep their places."""
        for row in list(self._rows.values()):
            row.cached = 0
            if row.turn is None:
                del self._rows[row.trajectory_id]
                self._slots[row.slot] = None
        self._cache.clear()
        self._wake()

    def _check(self, request: SampleRequest) -> None:
        check_request(request, max_length=self.max_length, vocabulary=self._vocabulary)
        name = request.trajectory_id
        if name in self._turns:
            raise SamplerError(
                f"trajectory '{name}' asked for a turn while another is being sampled; expected one at a time. Await "
                "the first, or give trajectories ids of their own."
            )

    # The driver

    def _wake(self) -> None:
        if self._queue and self._driver is None:
            self._driver = self._queue[0].future.get_loop().create_task(self._drive())

    async def _drive(self) -> None:
        self._policy.model.eval()
        try:
            while True:
                started = self._clock()
                self._admit()
                busy = [row for row in self._slots if row is not None and row.turn is not None]
                if not busy:
                    return
                finished = self._step(busy)
                self.stats.busy_s += self._clock() - started
                for _ in range(_YIELDS_AFTER_FINISH if finished else 1):
                    await asyncio.sleep(0)
        except Exception as error:
            self._fail(error)
        finally:
            self._driver = None

    def _admit(self) -> None:
        """Give requests their trajectory's slot, or a free one in order of arrival; in lockstep in order of
        ids, once all have asked."""
        if self.lockstep:
            if any(row.turn is not None or name not in self._turns for name, row in self._rows.items()):
                return
            self._queue = deque(sorted(self._queue, key=lambda turn: turn.request.trajectory_id))
        free = iter([number for number, row in enumerate(self._slots) if row is None])
        waiting: deque[_SampledTurn] = deque()
        for turn in self._queue:
            row = self._rows.get(turn.request.trajectory_id)
            if row is None:
                slot = next(free, None)
                if slot is None:
                    waiting.append(turn)
                    continue
                row = _BatchRow(turn.request.trajectory_id, slot)
                self._rows[row.trajectory_id] = self._slots[slot] = row
            turn.waited = self._clock() - turn.queued_at
            _begin(row, turn, self._policy_version)
        self._queue = waiting

    @torch.inference_mode()
    def _step(self, busy: list[_BatchRow]) -> bool:
        """Make one forward pass, and draw a token for every row whose context is then complete. True if a turn
        ended."""
        started = self._clock()
        spans = self._spans(busy)
        rows = [row for span in spans if (row := self._slots[span.slot]) is not None]
        turns = [row.turn for row in rows if row.turn is not None]
        with self._policy.active():
            logits = packed_logits(self._policy.model, self._cache, spans)
        ids, logprobs = draw_tokens(
            logits,
            torch.tensor([turn.request.temperature for turn in turns], device=logits.device),
            torch.tensor([turn.uniforms[len(turn.ids)] for turn in turns], dtype=torch.float64, device=logits.device),
            [turn.given for turn in turns],
        )
        drawn = list(zip(ids.tolist(), logprobs.tolist(), strict=True))  # waits for the GPU
        own = self._pass_times.own(self._clock() - started)
        for turn in turns:
            turn.seconds += own
        finished = False
        for row, span, (token, logprob) in zip(rows, spans, drawn, strict=True):
            row.cached = span.end
            if row.cached == len(row.ids):
                finished |= self._append(row, token, logprob)
        self.stats.steps += 1
        return finished

    def _spans(self, busy: list[_BatchRow]) -> list[Span]:
        """Return the spans of the next forward pass: the last token of rows that decode, and missing tokens of the
        other rows, in order of slots, up to the budget."""
        decoding = [row for row in busy if _missing(row) == 1]
        if decoding and len(decoding) < _COMPACT_BELOW * (decoding[-1].slot + 1):
            self._compact(decoding)
        spans = [Span(row.slot, row.cached, row.ids[row.cached :]) for row in decoding]
        budget = self._prefill_tokens
        for row in self._share([row for row in busy if _missing(row) > 1]):
            if budget > 0:
                ids = row.ids[row.cached : row.cached + budget]
                spans.append(Span(row.slot, row.cached, ids))
                budget -= len(ids)
        self.stats.prefill_tokens += self._prefill_tokens - budget
        return sorted(spans, key=lambda span: (len(span.ids), span.slot))

    def _share(self, rows: list[_BatchRow]) -> list[_BatchRow]:
        """Copy to rows the prefixes of their contexts in other slots. Return the rows to prefill now: a row waits while
        an earlier one computes a longer part of its context."""
        held = [row for row in self._slots if row is not None and row.cached >= SHARED]
        computed: list[_BatchRow] = []
        for row in rows:
            length, number = find_longest(row.ids, ((other.ids, other.cached) for other in held), row.cached)
            if find_longest(row.ids, ((other.ids, len(other.ids)) for other in computed), length)[1] is not None:
                continue
            if number is not None:
                self._cache.copy(held[number].slot, row.slot, row.cached, length)
                self.stats.copied_tokens += length - row.cached
                row.cached = length
            computed.append(row)
        return computed

    def _append(self, row: _BatchRow, token: int, logprob: float) -> bool:
        """Add a sampled token to a row. If its turn ends there, deliver the completion and return True."""
        turn = row.turn
        if turn is None:
            return False
        if not math.isfinite(logprob):
            raise SamplerError(
                f"the model gave logits that are not finite for trajectory '{row.trajectory_id}'; expected numbers. "
                "Its weights have probably diverged: go back to an earlier checkpoint and lower the learning rate."
            )
        row.ids.append(token)
        turn.ids.append(token)
        turn.logprobs.append(logprob)
        self.stats.action_tokens += 1
        reason = self._finish_reason(turn, token)
        if reason is None:
            return False
        row.turn = None
        del self._turns[row.trajectory_id]
        if not turn.future.done():
            ids, logprobs = tuple(turn.ids), tuple(turn.logprobs)
            done = Completion(ids, logprobs, reason, turn.policy_version, turn.seconds, turn.waited)
            turn.future.set_result(done)
        return True

    def _finish_reason(self, turn: _SampledTurn, token: int) -> Literal["stop", "length", "time"] | None:
        """Return why a turn ends with its last token; None if it continues."""
        if token in turn.rule.checked and self._rules.ends(turn.rule, turn.ids):
            return "stop"
        if len(turn.ids) >= turn.request.max_tokens:
            return "length"
        return "time" if turn.seconds >= turn.request.max_seconds else None

    def _compact(self, rows: list[_BatchRow]) -> None:
        """Exchange slots so that these rows, given in order of slots, have the first slots."""
        kept = {row.slot for row in rows}
        vacant = [slot for slot in range(len(rows)) if slot not in kept]
        moving = rows[len(rows) - len(vacant) :]
        others = [self._slots[slot] for slot in vacant]
        length = max(row.cached for row in (*moving, *others) if row is not None)
        self._cache.swap(vacant, [row.slot for row in moving], length)
        for slot, row, other in zip(vacant, moving, others, strict=True):
            self._slots[slot], self._slots[row.slot] = row, other
            if other is not None:
                other.slot = row.slot
            row.slot = slot

    def _fail(self, error: Exception) -> None:
        """Raise an error in every waiting caller, and reset to an empty state."""
        turns = list(self._turns.values())
        self._abandon()
        for turn in turns:
            if not turn.future.done():
                turn.future.set_exception(_as_sampler_error(error))

    def _abandon(self) -> None:
        self._queue.clear()
        self._turns.clear()
        self._rows.clear()
        self._slots = [None] * len(self._slots)
        self._cache.clear()
        self._driver = None


def _as_sampler_error(error: Exception) -> SamplerError:
    """Make the caller's error for an error in the driver: a new object each time, since each is raised separately."""
    if isinstance(error, SamplerError):
        return SamplerError(str(error))
    wrapped = SamplerError(
        f"the embedded sampler failed while computing: {type(error).__name__}: {error} Every turn that was being "
        "sampled ended with this error. If memory ran out, lower the number of slots, max_length or prefill_tokens."
    )
    wrapped.__cause__ = error
    return wrapped


def _begin(row: _BatchRow, turn: _SampledTurn, policy_version: int) -> None:
    """Start a turn in a row, keeping the part of its context that the row already holds."""
    context = list(turn.request.token_ids)
    known = common_length(row.ids[: row.cached], context)
    row.cached = min(known, len(context) - 1)  # the last id is always computed: its logits are needed
    row.ids, row.turn, turn.policy_version = context, turn, policy_version


def _missing(row: _BatchRow) -> int:
    return len(row.ids) - row.cached
