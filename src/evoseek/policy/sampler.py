"""Continuous batching of turns over a fixed number of key/value slots, inside the event loop.

A trajectory holds one slot from its first turn until it is released; while it waits for a tool its keys and values
stay, so that its next turn computes the new observation only. One asyncio task alternates between prefill (several new
tokens for each of some rows) and decoding (one token for every row that is sampling), and lets other coroutines run
after each step. No thread and no clock is involved: the same requests in the same order give the same bits.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch

from evoseek.errors import SamplerError
from evoseek.policy.draw import draw_tokens
from evoseek.policy.load import Policy
from evoseek.policy.random_streams import turn_uniforms
from evoseek.policy.slots import PADDING, SlotCache
from evoseek.policy.stops import StopRule, StopRules
from evoseek.types import Completion, SampleRequest

# Scheduling, in counts and never in seconds. Rows wait for each other so that prefill batches are not tiny, but no
# longer than this: a sixth as many rows as are decoding, or so many decode steps.
_PREFILL_SHARE = 6
_PREFILL_MAX_WAIT = 4
# The largest prefill batch by default, in tokens. A CPU is fully busy with a small batch, and rows of like lengths need
# less padding; a GPU needs a large one. A batch ends earlier when so large a share of that size would be padding.
CPU_PREFILL_TOKENS = 512
GPU_PREFILL_TOKENS = 16384
_PADDING_SHARE = 12
# Decoding covers slots 0 .. last busy one. When fewer than this share of them are busy, busy ones move to the front.
_COMPACT_BELOW = 0.8
# How often to yield after turns have finished, so that short chains of callbacks come back with their next request.
_YIELDS_AFTER_FINISH = 4


@dataclass(slots=True)
class SamplerStats:
    """Counts since the start or the last `clear`."""

    action_tokens: int = 0
    prefill_tokens: int = 0
    prefill_batches: int = 0
    decode_steps: int = 0
    busy_s: float = 0.0

    def clear(self) -> None:
        """Set every count to zero."""
        self.action_tokens = self.prefill_tokens = self.prefill_batches = self.decode_steps = 0
        self.busy_s = 0.0


@dataclass(slots=True, eq=False)
class _Turn:
    """A request being served."""

    request: SampleRequest
    future: asyncio.Future[Completion]
    rule: StopRule
    uniforms: list[float]  # one per token that may be sampled
    policy_version: int = 0
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])


@dataclass(slots=True, eq=False)
class _Row:
    """A trajectory in its slot. `ids[:cached]` have keys and values; a row without a turn waits for its tool."""

    trajectory_id: str
    slot: int
    ids: list[int] = field(default_factory=list[int])
    cached: int = 0
    turn: _Turn | None = None


class TorchSampler:
    """Samples with the policy's model in place, on its device (protocols.Sampler).

    slots: how many trajectories are held at once; others wait until one is released, in order of arrival. max_length:
    the longest context plus completion, by default what the model's configuration allows. prefill_tokens: the largest
    prefill batch, in tokens with padding. After a change of the model's weights call `reset`, raise `policy_version`.
    """

    def __init__(
        self, policy: Policy, *, slots: int = 160, max_length: int | None = None, prefill_tokens: int | None = None
    ) -> None:
        self.policy_version = 0
        self.stats = SamplerStats()
        self.max_length = max_length or int(policy.model.config.get_text_config().max_position_embeddings)
        self._model = policy.model
        self._vocabulary = policy.model.config.get_text_config().vocab_size
        on_cpu = policy.model.device.type == "cpu"
        self._prefill_tokens = prefill_tokens or (CPU_PREFILL_TOKENS if on_cpu else GPU_PREFILL_TOKENS)
        self._cache = SlotCache(policy.model, slots=slots, max_length=self.max_length)
        self._rules = StopRules(policy.tokenizer, _eos_ids(policy))
        self._slots: list[_Row | None] = [None] * slots
        self._rows: dict[str, _Row] = {}
        self._queue: deque[_Turn] = deque()
        self._steps_waited = 0
        self._driver: asyncio.Task[None] | None = None

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one completion. Raises SamplerError if the request cannot be served or the model fails."""
        self._check(request)
        loop = asyncio.get_running_loop()
        if self._driver is not None and self._driver.get_loop() is not loop:
            self._abandon()
        turn = _Turn(
            request,
            loop.create_future(),
            self._rules.rule(request.stop),
            turn_uniforms(request.seed, request.trajectory_id, request.turn, request.max_tokens),
        )
        self._queue.append(turn)
        self._wake()
        try:
            return await turn.future
        except asyncio.CancelledError:
            self._drop(turn)
            raise

    def release(self, trajectory_id: str) -> None:
        """Free the slot of a trajectory that has ended. Unknown ids are ignored."""
        row = self._rows.pop(trajectory_id, None)
        if row is None:
            return
        self._slots[row.slot] = None
        self._wake()
        if row.turn is not None and not row.turn.future.done():
            row.turn.future.set_exception(SamplerError(f"trajectory '{trajectory_id}' was released while sampling."))

    def reset(self) -> None:
        """Forget all keys and values, as after a change of weights. Turns under way start over from their ids."""
        for row in list(self._rows.values()):
            row.cached = 0
            if row.turn is None:
                self.release(row.trajectory_id)
        self._cache.clear()

    def _check(self, request: SampleRequest) -> None:
        """Raise SamplerError for a request that cannot be served."""
        ids, name = request.token_ids, request.trajectory_id
        if not ids or request.max_tokens < 1 or not 0 <= request.temperature < math.inf:
            raise SamplerError(
                f"the request of '{name}' has {len(ids)} context ids, max_tokens={request.max_tokens} and "
                f"temperature={request.temperature}; expected at least one id, at least one token and a finite "
                "temperature of 0 or more."
            )
        if len(ids) + request.max_tokens > self.max_length:
            raise SamplerError(
                f"the request of '{name}' has {len(ids)} context ids and asks for up to {request.max_tokens} tokens, "
                f"but the sampler holds {self.max_length} per trajectory. Raise max_length (if the model allows), "
                "or lower the token limits of a turn or of the trajectory."
            )
        if min(ids) < 0 or max(ids) >= self._vocabulary:
            raise SamplerError(
                f"the request of '{name}' has ids from {min(ids)} to {max(ids)}, but the model knows 0 to "
                f"{self._vocabulary - 1}. Use the tokenizer that belongs to the model."
            )
        row = self._rows.get(name)
        if (row and row.turn) or any(turn.request.trajectory_id == name for turn in self._queue):
            raise SamplerError(
                f"trajectory '{name}' asked for a turn while another is being sampled; await that first."
            )

    # The driver

    def _wake(self) -> None:
        """Start the driver if there are requests and it is not running."""
        if self._queue and self._driver is None:
            self._driver = self._queue[0].future.get_loop().create_task(self._drive())

    async def _drive(self) -> None:
        """Serve requests until there are none."""
        self._model.eval()
        try:
            while True:
                started = perf_counter()
                self._admit()
                busy = [row for row in self._slots if row is not None and row.turn is not None]
                if not busy:
                    return
                finished = self._step(busy)
                self.stats.busy_s += perf_counter() - started
                for _ in range(_YIELDS_AFTER_FINISH if finished else 1):
                    await asyncio.sleep(0)
        except Exception as error:
            self._fail(error)
        finally:
            self._driver = None

    def _admit(self) -> None:
        """Give requests their trajectory's slot, or a free one in order of arrival."""
        free = iter([number for number, row in enumerate(self._slots) if row is None])
        waiting: deque[_Turn] = deque()
        for turn in self._queue:
            row = self._rows.get(turn.request.trajectory_id)
            if row is None:
                slot = next(free, None)
                if slot is None:
                    waiting.append(turn)
                    continue
                row = _Row(turn.request.trajectory_id, slot)
                self._rows[row.trajectory_id] = self._slots[slot] = row
            _begin(row, turn, self.policy_version)
        self._queue = waiting

    def _step(self, busy: list[_Row]) -> bool:
        """One round: prefill if it is due, then one token for every row that is decoding. True if a turn finished."""
        decoding = [row for row in busy if _missing(row) == 1]
        waiting = [row for row in busy if _missing(row) > 1]
        finished = False
        if waiting and (self._steps_waited >= _PREFILL_MAX_WAIT or len(waiting) * _PREFILL_SHARE >= len(decoding)):
            finished = self._prefill(waiting)
            self._steps_waited = 0
            decoding = [row for row in busy if row.turn is not None and _missing(row) == 1]
        elif waiting:
            self._steps_waited += 1
        if decoding:
            finished |= self._decode(decoding)
        return finished

    @torch.inference_mode()
    def _prefill(self, rows: list[_Row]) -> bool:
        """Compute what is missing of each row, longest first, in batches; sample where nothing is left to compute."""
        finished = False
        while rows:
            rows.sort(key=_missing, reverse=True)
            width = min(_missing(rows[0]), self._prefill_tokens)
            batch = sorted(rows[: self._batch_size(rows, width)], key=_slot)
            starts = [row.cached for row in batch]
            ends = [min(row.cached + width, len(row.ids)) for row in batch]
            # Padding stands on the left, so that every row's last token is in the last column.
            pads = [width - end + start for start, end in zip(starts, ends, strict=True)]
            spans = list(zip(batch, starts, ends, pads, strict=True))
            ids, logprobs = self._forward(
                [row.slot for row in batch],
                [row.turn for row in batch],
                [[0] * pad + row.ids[start:end] for row, start, end, pad in spans],
                [[PADDING] * pad + list(range(start, end)) for _, start, end, pad in spans],
                length=max(ends),
            )
            for row, end, token, logprob in zip(batch, ends, ids, logprobs, strict=True):
                row.cached = end
                if end == len(row.ids):
                    finished |= self._append(row, token, logprob)
            rows = [row for row in rows if row.turn is not None and _missing(row) > 1]
            self.stats.prefill_tokens += sum(ends) - sum(starts)
            self.stats.prefill_batches += 1
        return finished

    def _batch_size(self, rows: list[_Row], width: int) -> int:
        """How many of the rows, longest first, make one prefill batch: all that fit, until padding costs too much."""
        allowed = self._prefill_tokens // _PADDING_SHARE
        for size, row in enumerate(rows):
            allowed -= max(0, width - _missing(row))
            if allowed < 0 or (size + 1) * width > self._prefill_tokens:
                return max(1, size)
        return len(rows)

    @torch.inference_mode()
    def _decode(self, rows: list[_Row]) -> bool:
        """Sample the next token of every row, given in order of slots. Slots in between compute to no effect."""
        if len(rows) < _COMPACT_BELOW * (rows[-1].slot + 1):
            rows = self._compact(rows)
        count = rows[-1].slot + 1
        turns: list[_Turn | None] = [None] * count
        tokens, positions = [[0]] * count, [[PADDING]] * count
        for row in rows:
            turns[row.slot] = row.turn
            tokens[row.slot] = [row.ids[-1]]
            positions[row.slot] = [row.cached]
        ids, logprobs = self._forward(range(count), turns, tokens, positions, length=max(len(row.ids) for row in rows))
        finished = False
        for row in rows:
            row.cached += 1
            finished |= self._append(row, ids[row.slot], logprobs[row.slot])
        self.stats.decode_steps += 1
        return finished

    def _forward(
        self,
        slots: Sequence[int],
        turns: Sequence[_Turn | None],
        tokens: list[list[int]],
        positions: list[list[int]],
        length: int,
    ) -> tuple[list[int], list[float]]:
        """Compute tokens [R, T] at positions [R, T] of slots [R]; draw one token per row from the last column."""
        position_ids, mask = self._cache.aim(slots, positions, length)
        device = position_ids.device
        logits = self._model(
            input_ids=torch.tensor(tokens, device=device),
            position_ids=position_ids,
            attention_mask=mask,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        temperatures = [turn.request.temperature if turn else 0.0 for turn in turns]
        uniforms = [turn.uniforms[len(turn.ids)] if turn else 0.0 for turn in turns]
        ids, logprobs = draw_tokens(
            logits, torch.tensor(temperatures, device=device), torch.tensor(uniforms, device=device)
        )
        return ids.tolist(), logprobs.tolist()

    def _append(self, row: _Row, token: int, logprob: float) -> bool:
        """Add a sampled token to a row; True, with the completion handed over, if its turn ends there."""
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
        stopped = token in turn.rule.checked and self._rules.ends(turn.rule, turn.ids)
        if not stopped and len(turn.ids) < turn.request.max_tokens:
            return False
        row.turn = None
        if not turn.future.done():
            reason = "stop" if stopped else "length"
            turn.future.set_result(Completion(tuple(turn.ids), tuple(turn.logprobs), reason, turn.policy_version))
        return True

    def _compact(self, rows: list[_Row]) -> list[_Row]:
        """Exchange slots so that these rows have the first ones; give them in the new order."""
        count = len(rows)
        here = {row.slot for row in rows}
        vacant = [slot for slot in range(count) if slot not in here]
        moving = [row for row in rows if row.slot >= count]
        others = [self._slots[slot] for slot in vacant]
        length = max(row.cached for row in (*moving, *others) if row is not None)
        self._cache.swap(vacant, [row.slot for row in moving], length)
        for slot, row, other in zip(vacant, moving, others, strict=True):
            self._slots[slot], self._slots[row.slot] = row, other
            if other is not None:
                other.slot = row.slot
            row.slot = slot
        return sorted(rows, key=_slot)

    # Ends other than the good one

    def _drop(self, turn: _Turn) -> None:
        """Take back a turn whose caller has gone, and the slot with it."""
        if turn in self._queue:
            self._queue.remove(turn)
            return
        row = self._rows.get(turn.request.trajectory_id)
        if row is not None and row.turn is turn:
            row.turn = None
            self.release(row.trajectory_id)

    def _fail(self, error: Exception) -> None:
        """Hand an error to everyone who waits, and start from nothing."""
        turns = [*self._queue, *(row.turn for row in self._rows.values() if row.turn is not None)]
        self._abandon()
        for turn in turns:
            if not turn.future.done():
                text = f"the embedded sampler failed while computing: {type(error).__name__}: {error}"
                told = SamplerError(text if not isinstance(error, SamplerError) else str(error))
                told.__cause__ = error
                turn.future.set_exception(told)

    def _abandon(self) -> None:
        """Forget every trajectory and request."""
        self._queue.clear()
        self._rows.clear()
        self._slots = [None] * len(self._slots)
        self._cache.clear()
        self._driver = None


def _begin(row: _Row, turn: _Turn, policy_version: int) -> None:
    """Let a row serve a turn, keeping what it holds of the turn's context."""
    context = list(turn.request.token_ids)
    known = row.ids[: row.cached]
    if context[: len(known)] != known:
        pairs = zip(known, context, strict=False)
        known = known[: next((i for i, (left, right) in enumerate(pairs) if left != right), len(context))]
    row.cached = min(len(known), len(context) - 1)  # the last id is always computed: its logits are wanted
    row.ids, row.turn, turn.policy_version = context, turn, policy_version


def _missing(row: _Row) -> int:
    return len(row.ids) - row.cached


def _slot(row: _Row) -> int:
    return row.slot


def _eos_ids(policy: Policy) -> list[int]:
    """End-of-sequence ids of the model's generation settings, or else of its tokenizer."""
    generation: Any = policy.model.generation_config
    ids: Any = getattr(generation, "eos_token_id", None)
    ids = policy.tokenizer.eos_token_id if ids is None else ids
    return [] if ids is None else [ids] if isinstance(ids, int) else [int(token) for token in ids]
