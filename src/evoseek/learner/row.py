"""The samples of a micro-batch one after the other in one row, without padding; what they share laid out once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch.nn.utils.rnn import pad_sequence

from evoseek.errors import TrainingError
from evoseek.policy.sharing import SHARED, common_length
from evoseek.types import TrainingSample

Path = list[tuple[int, int]]  # where in a row the tokens of a sample are: ranges, in the order of the tokens


@dataclass(frozen=True, slots=True)
class Row:
    """N tokens of B samples, a prefix tree: each sample adds a span of those tokens that it does not share with the
    sample before it. A sample may add none.

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
    """The last sample of a row, and the positions at which samples branch off from it or it did from them."""

    shortest: int = SHARED
    token_ids: tuple[int, ...] = ()
    cuts: tuple[int, ...] = (0,)

    def grow(self, token_ids: tuple[int, ...]) -> int:
        """Let a sample follow the last one. Gives the number of tokens at its beginning that it shares with it.

        That is all that they have in common if it is `shortest` tokens or more, and so far behind the last cut or up to
        the end of either sample: else only what is ahead of that cut, for every cut costs time.
        """
        common = common_length(self.token_ids, token_ids)
        cuts = tuple(cut for cut in self.cuts if cut <= common)
        at_end = common in (len(self.token_ids), len(token_ids))
        if common >= self.shortest and (common - cuts[-1] >= self.shortest or at_end):
            cuts = (*cuts, common)
        self.token_ids, self.cuts = token_ids, cuts
        return cuts[-1]


def trained_length(sample: TrainingSample) -> int:
    """Number of tokens up to the last action token (0 if there is none). Later tokens cannot affect the loss.

    Raises TrainingError if the very first token is an action: nothing precedes it, so it has no logprob.
    """
    if sample.loss_mask and sample.loss_mask[0]:
        raise TrainingError(
            "A training sample's first token is marked as an action, but a token's logprob needs a context: "
            f"put a prompt of at least one token before it (role {sample.role!r}, group {sample.group!r})."
        )
    for position in range(len(sample.loss_mask) - 1, -1, -1):
        if sample.loss_mask[position]:
            return position + 1
    return 0


def tree_order(token_ids: Sequence[tuple[int, ...]]) -> list[int]:
    """The numbers of the samples so that each follows one that has most in common with it, of all before it.

    It is the order of their prefix tree, depth first. Of several branches the one with the longest sample comes first,
    or else the one that was given first.
    """
    order: list[int] = []
    pending = [list(range(len(token_ids)))] if token_ids else []
    while pending:
        members = pending.pop()
        ids = [token_ids[member] for member in members]
        common = common_length(min(ids), max(ids))  # in alphabetical order, so that all between have it too
        branches: dict[tuple[int, ...], list[int]] = {}
        for member in members:
            branches.setdefault(token_ids[member][common : common + 1], []).append(member)
        if len(branches) == 1:  # equal samples
            order += members
        else:
            last_first = reversed(branches.values())
            pending += sorted(last_first, key=lambda branch: max(len(token_ids[member]) for member in branch))
    return order


def lay_out(token_ids: Sequence[tuple[int, ...]], device: torch.device, shortest: int = SHARED) -> Row:
    """The row of samples with these tokens, each of which shares at most what it has in common with the one before it,
    as `Branch` has it. A sample without tokens is passed over."""
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
    return Row(
        token_ids=torch.tensor(row_ids, dtype=torch.long, device=device),
        positions=torch.tensor(positions, dtype=torch.long, device=device),
        index=pad_sequence(places, batch_first=True).to(device),
        spans=tuple(added for added, _ in spans),
        pieces=tuple(end - start for start, end in pairwise(cuts)),
        seen=tuple(tuple(n for a, b in path for n in range(number[a], number[b])) for _, path in spans),
    )


def _beginning(path: Path, length: int) -> Path:
    """Where the first tokens of a sample are."""
    kept = Path()
    for start, end in path:
        if length > 0:
            kept.append((start, min(end, start + length)))
        length -= end - start
    return kept
