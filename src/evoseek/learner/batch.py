"""From TrainingSamples to micro-batches of bounded size: padded, and as a row of tokens that holds shared prefixes
once."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import torch
from torch.nn.utils.rnn import pad_sequence

from evoseek.errors import TrainingError
from evoseek.learner.distributed import Ranks
from evoseek.loss.base import LossInputs
from evoseek.samplers.torch.packed import SHARED, common_length
from evoseek.types import TrainingSample

Path = list[tuple[int, int]]  # where in a row the tokens of a sample are: ranges, in the order of the tokens


@dataclass(frozen=True, slots=True)
class PackedRow:
    """N tokens of B samples, a prefix tree: each sample adds a span of the tokens, maybe none, that it does not share
    with the sample before it.

    token_ids  [N]
    positions  [N]     each token's position in its samples
    index      [B, T]  where in the row a sample's token is; 0 past its end
    spans      [S]     tokens of each span, in the order of the row: they add up to N
    pieces     [P]     the same N tokens, cut also where a later sample branches off inside a span
    seen       [S]     per span: the pieces that its last token sees, from the beginning of the sample to that token
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    index: torch.Tensor
    spans: tuple[int, ...]
    pieces: tuple[int, ...]
    seen: tuple[tuple[int, ...], ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest sample."""
        return self.index.shape[1]


@dataclass(slots=True)
class Branch:
    """The last sample of a row, and the positions where it and earlier samples branch off."""

    shortest: int = SHARED
    token_ids: tuple[int, ...] = ()
    cuts: tuple[int, ...] = (0,)

    def grow(self, token_ids: tuple[int, ...]) -> int:
        """Let a sample follow the last one; return the length of the prefix that they share in the row.

        It is their whole common prefix if that has at least `shortest` tokens, and reaches that far behind the last cut
        or to the end of either sample; otherwise only the part before that cut, since every cut costs time.
        """
        common = common_length(self.token_ids, token_ids)
        cuts = tuple(cut for cut in self.cuts if cut <= common)
        at_end = common in (len(self.token_ids), len(token_ids))
        if common >= self.shortest and (common - cuts[-1] >= self.shortest or at_end):
            cuts = (*cuts, common)
        self.token_ids, self.cuts = token_ids, cuts
        return cuts[-1]


def trained_length(sample: TrainingSample) -> int:
    """Return the number of tokens up to the last action token (0: none). Later tokens cannot affect the loss.

    Raises TrainingError if the very first token is an action: nothing precedes it, so it has no logprob.
    """
    if sample.loss_mask and sample.loss_mask[0]:
        raise TrainingError(
            f"The first token of a training sample (role {sample.role!r}, group {sample.group!r}) is an action, but "
            "a token's logprob needs a context. Put a prompt of at least one token before it."
        )
    for position in range(len(sample.loss_mask) - 1, -1, -1):
        if sample.loss_mask[position]:
            return position + 1
    return 0


def tree_order(token_ids: Sequence[tuple[int, ...]]) -> list[int]:
    """Order samples, by number, so that each follows the earlier sample with the longest common prefix.

    It is the order of their prefix tree, depth first. The branch with the longest sample comes first, or else the one
    that was given first.
    """
    order: list[int] = []
    pending = [list(range(len(token_ids)))] if token_ids else []
    while pending:
        members = pending.pop()
        ids = [token_ids[member] for member in members]
        common = common_length(min(ids), max(ids))  # the alphabetically first and last: all in between share it
        branches: dict[tuple[int, ...], list[int]] = {}
        for member in members:
            branches.setdefault(token_ids[member][common : common + 1], []).append(member)
        if len(branches) == 1:  # equal samples
            order += members
        else:
            last_first = reversed(branches.values())
            pending += sorted(last_first, key=lambda branch: max(len(token_ids[member]) for member in branch))
    return order


def lay_out(token_ids: Sequence[tuple[int, ...]], device: torch.device, shortest: int = SHARED) -> PackedRow:
    """Lay out samples with these tokens in a row, each sharing a prefix with the one before it, as in `Branch`. A
    sample without tokens is skipped."""
    branch, path = Branch(shortest), Path()
    paths: list[Path] = []
    spans: list[tuple[int, Path]] = []
    row_ids: list[int] = []
    positions: list[int] = []
    for ids in token_ids:
        if not ids:
            paths.append([])
            continue
        shared = branch.grow(ids)
        path = _beginning(path, shared)
        if added := len(ids) - shared:
            path.append((len(row_ids), len(row_ids) + added))
            spans.append((added, path))
            row_ids += ids[shared:]
            positions += range(shared, len(ids))
        paths.append(path)
    cuts = sorted({edge for path in paths for part in path for edge in part})
    number = {cut: piece for piece, cut in enumerate(cuts)}
    places = [torch.tensor([place for part in path for place in range(*part)], dtype=torch.long) for path in paths]
    return PackedRow(
        token_ids=torch.tensor(row_ids, dtype=torch.long, device=device),
        positions=torch.tensor(positions, dtype=torch.long, device=device),
        index=pad_sequence(places, batch_first=True).to(device),
        spans=tuple(added for added, _ in spans),
        pieces=tuple(end - start for start, end in pairwise(cuts)),
        seen=tuple(tuple(n for a, b in path for n in range(number[a], number[b])) for _, path in spans),
    )


def _beginning(path: Path, length: int) -> Path:
    kept = Path()
    for start, end in path:
        if length > 0:
            kept.append((start, min(end, start + length)))
        length -= end - start
    return kept


PADDING = 0  # any valid id: in a causal model, real tokens never attend to padding on their right


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """B samples, padded on the right to T tokens; `weights` is [B], all else [B, T].

    `values` and `returns` are 0 if a sample has none, `old_logprobs` and `ref_logprobs` None unless every sample has
    them. `row` is the same tokens without padding; a sample shares a prefix with the one before it.
    """

    token_ids: torch.Tensor
    loss_mask: torch.Tensor
    rollout_logprobs: torch.Tensor
    old_logprobs: torch.Tensor | None
    advantages: torch.Tensor
    values: torch.Tensor
    returns: torch.Tensor
    ref_logprobs: torch.Tensor | None
    weights: torch.Tensor
    row: PackedRow


def loss_inputs(batch: MicroBatch, logprobs: torch.Tensor, entropies: torch.Tensor) -> LossInputs:
    """Return the inputs of a policy's loss, for logprobs and entropies [B, T] computed now, the ratio's reference if
    the samples have no `old_logprobs`."""
    return LossInputs(
        logprobs=logprobs,
        rollout_logprobs=batch.rollout_logprobs,
        old_logprobs=logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs,
        advantages=batch.advantages,
        loss_mask=batch.loss_mask,
        weights=batch.weights,
        entropies=entropies,
        ref_logprobs=batch.ref_logprobs,
    )


def split_by_tokens(
    samples: Sequence[TrainingSample], token_budget: int, limit: int = sys.maxsize
) -> list[list[TrainingSample]]:
    """Split samples into lists whose rows have at most `token_budget` tokens, shared prefixes counted once.

    Samples come in the order of their prefix tree, so that similar samples are neighbours; longest first, so that a
    model that needs padded rows pads little. Neighbours with the same prompt (the tokens before the first action) stay
    together if one list can hold them. A sample longer than the budget gets its own list; one without actions gets
    none. Samples longer than `limit`, which a model cannot pack, come first, in their own lists, and share nothing. The
    same samples in the same order always give the same lists.
    """
    trained = [(sample, sample.token_ids[:length]) for sample in samples if (length := trained_length(sample))]
    long = sorted((pair for pair in trained if len(pair[1]) > limit), key=lambda pair: -len(pair[1]))
    packed = [pair for pair in trained if len(pair[1]) <= limit]
    packed = [packed[number] for number in tree_order([ids for _, ids in packed])]
    return _fill(long, token_budget, sys.maxsize) + _fill(packed, token_budget, SHARED)


def _fill(
    samples: Sequence[tuple[TrainingSample, tuple[int, ...]]], token_budget: int, shortest: int
) -> list[list[TrainingSample]]:
    """Fill lists, as in `split_by_tokens`, with samples and their trained tokens in this order."""
    batches: list[list[TrainingSample]] = []
    row, used = Branch(shortest), math.inf
    for _, family in groupby(samples, key=lambda pair: pair[0].token_ids[: pair[0].loss_mask.index(True)]):
        members = list(family)
        ahead = replace(row)
        together = used + sum(len(ids) - ahead.grow(ids) for _, ids in members) <= token_budget
        for number, (sample, ids) in enumerate(members):
            added = len(ids) - row.grow(ids)
            if used + added > token_budget or (number == 0 and not together):
                batches.append([])
                row, used, added = Branch(shortest, ids), 0, len(ids)
            batches[-1].append(sample)
            used += added
    return batches


def make_batch(samples: Sequence[TrainingSample], device: torch.device) -> MicroBatch:
    """Make one micro-batch of the samples, in their order, each cut after its last action token.

    Raises TrainingError if a sample's first token is an action, ValueError if some samples have `old_logprobs` and
    others have none.
    """
    lengths = [trained_length(sample) for sample in samples]

    def stack(rows: Sequence[Sequence[float] | None], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        cut = [(row or (0.0,) * n)[:n] for row, n in zip(rows, lengths, strict=True)]
        return pad_sequence([torch.tensor(row, dtype=dtype) for row in cut], batch_first=True).to(device)

    old = [sample.old_logprobs for sample in samples if sample.old_logprobs is not None]
    references = [sample.ref_logprobs for sample in samples]
    return MicroBatch(
        token_ids=stack([sample.token_ids for sample in samples], torch.long),
        loss_mask=stack([sample.loss_mask for sample in samples], torch.bool),
        rollout_logprobs=stack([sample.rollout_logprobs for sample in samples]),
        old_logprobs=stack(old) if old else None,
        advantages=stack([sample.advantages for sample in samples]),
        values=stack([sample.values for sample in samples]),
        returns=stack([sample.returns for sample in samples]),
        ref_logprobs=None if None in references else stack(references),
        weights=torch.tensor([sample.weight for sample in samples], dtype=torch.float32, device=device),
        row=lay_out([sample.token_ids[:n] for sample, n in zip(samples, lengths, strict=True)], device),
    )


def smaller_budget(
    token_budget: int, parts: Sequence[Sequence[TrainingSample]], ranks: Ranks, message: str, *, remedy: str = ""
) -> int:
    """Return half of a token budget that was too large for these micro-batches.

    Raises TrainingError, with `message` and the remedies (`remedy`, which ends in ", ", is one more), if halving cannot
    help: the largest micro-batch is a single sample, or other ranks are in the middle of the same passes.
    """
    largest = max(len(part) for part in parts)
    if largest == 1 or ranks.size > 1:
        raise TrainingError(
            f"Memory ran out in a micro-batch of at most {token_budget} tokens and {largest} samples ({message}). "
            f"Lower learner.token_budget, {remedy}and resume from the last checkpoint; or begin a new run with "
            "the policy of this one (--model RUN) and a smaller rollout.max_total_tokens."
        ) from None
    return token_budget // 2
