"""Whether a tiny policy knows the words of its input."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from transformers import PreTrainedTokenizerBase

from evoseek.policy.policy import Policy, prompts_of

_TEXTS = 100
_MOST_SPELLED = 0.2  # generated worlds: below 0.01; Wikipedia and software's documentation: 0.5


def is_spelled(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> bool:
    """Whether a tokenizer would spell these texts letter by letter."""
    return spelled_share(tokenizer, texts) > _MOST_SPELLED


def spelled_share(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> float:
    """The share of single letters among the tokens of the first texts: words that the tokenizer does not know are
    spelled."""
    spelled, count = 0, 0
    for text in islice(texts, _TEXTS):
        tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False))
        count += len(tokens)
        spelled += sum(len(piece) == 1 and piece.isalpha() for piece in (token.removeprefix("##") for token in tokens))
    return spelled / max(1, count)


def vocabulary_notice(policy: Policy, texts: Iterable[str], *, what: str) -> str | None:
    """The warning about a tiny policy that cannot read these texts; None for any other policy."""
    if prompts_of(policy, "auto") != "tiny" or not is_spelled(policy.tokenizer, texts):
        return None
    return (
        f"Warning: the policy {policy.name} knows the words of the generated world alone and would have to spell "
        f"{what} letter by letter: it can neither read nor answer them, and training will not change that. Give a "
        "language model with --model (a directory or a Hugging Face name, such as Qwen/Qwen2.5-0.5B-Instruct), or try "
        "this policy on a generated world (evoseek demo; evoseek world serve --questions FILE)."
    )
