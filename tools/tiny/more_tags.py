"""Tags that a policy's tokenizer does not know yet, as one token each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import nn
from transformers import AddedToken

from evoseek.models.policy import Policy


@torch.no_grad()
def add_tags(policy: Policy, like: Mapping[str, str]) -> None:
    """Give a policy the tags that are keys of `like`; each begins as a copy of the tag that it is like.

    Tokenizer and model are changed in place: the embeddings and the output head get a row for each new token.
    """
    tokenizer, model = policy.tokenizer, policy.model
    tokens = {form.format(new): form.format(old) for new, old in like.items() for form in ("<{}>", "</{}>")}
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in tokens])
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    vocabulary = tokenizer.get_vocab()
    for module in (model.get_input_embeddings(), model.get_output_embeddings()):
        weight = cast(nn.Embedding | nn.Linear, module).weight
        for new, old in tokens.items():
            weight[vocabulary[new]] = weight[vocabulary[old]]
