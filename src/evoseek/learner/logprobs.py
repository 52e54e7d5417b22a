"""Logprobs of the action tokens under a causal language model, without the [T, V] logits of everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from evoseek.errors import PolicyError

MAX_LOGITS = 1 << 24  # logits alive at once (64 MiB in float32); beyond, they are recomputed in the backward pass

Head = Callable[[torch.Tensor], torch.Tensor]


class LogprobModel:
    """Computes logprobs and entropies at masked positions for any Hugging Face causal language model.

    The decoder's body runs over the whole batch [B, T]; the output head runs only where an action token is predicted.
    At construction a short input is passed both ways: a model whose logits are not simply head(body(...)), for
    example because they are scaled or soft-capped, is then used through its own forward pass, at the price of logits
    for all tokens. No attention mask is passed: rows are padded on the right, and a causal model's real tokens never
    see the padding, which lets attention run on its fast causal path. That the model is causal is checked too.

    Raises PolicyError if the model is not causal.
    """

    def __init__(self, model: PreTrainedModel, *, temperature: float = 1.0) -> None:
        self.model = model
        self.temperature = temperature
        self.body, self.head = _split(model)

    def __call__(self, token_ids: torch.Tensor, loss_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`(logprobs, entropies)`, both [B, T] float32, of each token given those before it; 0 off the mask.

        `loss_mask[:, 0]` must be False. Both are of the distribution at the given temperature; entropies carry no
        gradient.
        """
        positions = loss_mask[:, 1:].nonzero(as_tuple=True)  # row b, column t: position t predicts token t + 1
        states = self.body(token_ids)[positions]
        targets = token_ids[:, 1:][positions]
        logprobs, entropies = self._score(states, targets)
        rows, columns = positions
        index = (rows, columns + 1)
        zeros = torch.zeros(token_ids.shape, dtype=torch.float32, device=token_ids.device)
        return zeros.index_put(index, logprobs), zeros.index_put(index, entropies)

    def _score(self, states: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logprobs and entropies [N] at N positions, in chunks when their logits would be too large to keep."""
        rows = max(1, MAX_LOGITS // self.model.config.get_text_config().vocab_size)
        if len(states) <= rows:
            return self._score_chunk(states, targets)
        chunks = [
            cast(
                "tuple[torch.Tensor, torch.Tensor]",
                checkpoint(self._score_chunk, *chunk, use_reentrant=False, preserve_rng_state=False),
            )
            for chunk in zip(states.split(rows), targets.split(rows), strict=True)
        ]
        logprobs, entropies = zip(*chunks, strict=True)
        return torch.cat(logprobs), torch.cat(entropies)

    def _score_chunk(self, states: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_p = (self.head(states).float() / self.temperature).log_softmax(dim=-1)
        with torch.no_grad():
            entropies = -(log_p.exp() * log_p).sum(dim=-1)
        return log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1), entropies


def _split(model: PreTrainedModel) -> tuple[Head, Head]:
    """The model as body and head, checked on a short input; the head is the identity where they do not fit."""
    vocabulary = model.config.get_text_config().vocab_size
    token_ids = (torch.arange(8, device=model.device) % vocabulary).unsqueeze(0)
    changed = token_ids.clone()
    changed[0, -1] = (changed[0, -1] + 1) % vocabulary
    base = cast("Any", model.base_model)
    output = cast("Head | None", model.get_output_embeddings())

    def logits(ids: torch.Tensor) -> torch.Tensor:
        return cast("Any", model)(input_ids=ids, use_cache=False).logits

    def states(ids: torch.Tensor) -> torch.Tensor:
        return base(input_ids=ids, use_cache=False).last_hidden_state

    with torch.no_grad():
        expected = logits(token_ids)
        effect = (expected - logits(changed)).abs().amax(dim=-1)[0]
        if effect[:-1].max() > 1e-3 * effect[-1]:
            raise PolicyError(
                f"{type(model).__name__} is not causal: changing a token changed the logits before it. Training needs "
                "a decoder-only causal language model; choose another model."
            )
        if output is not None and base is not model and torch.equal(expected, output(states(token_ids))):
            return states, output
    return logits, lambda logits: logits
