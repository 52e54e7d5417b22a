"""The samples of a micro-batch laid one after the other in one row, without padding; a prompt they share laid once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence

from evoseek.errors import TrainingError
from evoseek.types import TrainingSample

SHARED_PROMPT = 16  # tokens from which a common prompt is computed once; `bench/learner.py --only prefix` measures it


@dataclass(frozen=True, slots=True)
class Family:
    """Samples, by their number, that begin with the same `shared` tokens and compute them once; 0 for one alone."""

    members: tuple[int, ...]
    shared: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """N tokens of B samples. A family's shared tokens come first, then what each member adds; then the next family.

    token_ids  [N]
    positions  [N]     each token's position in its own sample
    index      [B, T]  where in the row a sample's token is; 0 past its end
    shared     [F]     per family: tokens of its shared prompt, or 0
    added      [F]     per family: tokens that each member adds to it
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    index: torch.Tensor
    shared: tuple[int, ...]
    added: tuple[tuple[int, ...], ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest sample."""
        return self.index.shape[1]

    @property
    def sizes(self) -> list[int]:
        """Tokens of each span, in the order of the row: they add up to N."""
        spans = (
            (*((shared,) if shared else ()), *added) for shared, added in zip(self.shared, self.added, strict=True)
        )
        return [size for family in spans for size in family]


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


def find_families(samples: Sequence[TrainingSample]) -> list[Family]:
    """The samples by their prompt, the tokens before their first action, in the order in which each is first seen.

    Samples with a prompt that is short, or like no other's, are a family each. A sample without actions is left out.
    """
    prompts: dict[tuple[int, ...], list[int]] = {}
    for number, sample in enumerate(samples):
        if trained_length(sample):
            prompts.setdefault(sample.token_ids[: sample.loss_mask.index(True)], []).append(number)
    families: list[Family] = []
    for prompt, members in prompts.items():
        if len(members) > 1 and len(prompt) >= SHARED_PROMPT:
            families.append(Family(tuple(members), len(prompt)))
        else:
            families += [Family((member,)) for member in members]
    return families


def lay_out(token_ids: Sequence[Sequence[int]], families: Sequence[Family], device: torch.device) -> Row:
    """The row of samples with these tokens. A sample that is in no family must be empty."""
    places = [torch.empty(0, dtype=torch.long)] * len(token_ids)
    end = 0
    for family in families:
        prompt = torch.arange(end, end + family.shared)
        end += family.shared
        for member in family.members:
            start, end = end, end + len(token_ids[member]) - family.shared
            places[member] = torch.cat([prompt, torch.arange(start, end)])
    row_ids, positions = torch.zeros(end, dtype=torch.long), torch.zeros(end, dtype=torch.long)
    for place, ids in zip(places, token_ids, strict=True):
        row_ids[place] = torch.tensor(ids, dtype=torch.long)
        positions[place] = torch.arange(len(ids))
    return Row(
        token_ids=row_ids.to(device),
        positions=positions.to(device),
        index=pad_sequence(places, batch_first=True).to(device),
        shared=tuple(family.shared for family in families),
        added=tuple(tuple(len(token_ids[member]) - family.shared for member in family.members) for family in families),
    )
