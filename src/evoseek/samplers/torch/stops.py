"""Decides where a completion ends, how much of its time is the policy's own, and which requests can be served."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from transformers import PreTrainedTokenizerBase

from evoseek.errors import SamplerError
from evoseek.types import SampleRequest, StopConditions

MOST = 5  # a pass counts as this many usual passes at most: reading a prompt takes longer than a token
_RECENT = 101  # passes
_MIN_TAIL = 16
_REPLACEMENT = "\ufffd"  # decoded from a token that is part of a character


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a completion ends: after one of `token_ids`, or after one of `enders` if the tail then holds a string."""

    token_ids: frozenset[int]
    enders: frozenset[int]  # tokens that may complete a stop string
    checked: frozenset[int]  # both: the only tokens after which to check anything
    strings: tuple[str, ...]
    tail: int  # number of last tokens that can hold any of the strings


class StopRules:
    """Stop rules for one tokenizer, made once per distinct StopConditions.

    Only a token whose own text has the last character of a stop string can complete that string. So the text of a
    completion is checked only after such tokens, and then only its tail.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, eos_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._eos_ids = frozenset(eos_ids)
        self._texts: list[str] | None = None
        self._rules: dict[StopConditions, StopRule] = {}

    def rule(self, stop: StopConditions) -> StopRule:
        """Return the rule for these conditions. The model's end-of-sequence ids always end a completion."""
        rule = self._rules.get(stop)
        if rule is None:
            token_ids = self._eos_ids | frozenset(stop.token_ids)
            strings = tuple(string for string in stop.strings if string)
            enders = frozenset[int]().union(*(self._tokens_ending(string) for string in strings))
            longest = max((len(string.encode()) for string in strings), default=0)  # a token has at least one byte
            rule = StopRule(token_ids, enders, token_ids | enders, strings, _MIN_TAIL + longest)
            self._rules[stop] = rule
        return rule

    def ends(self, rule: StopRule, completion: Sequence[int]) -> bool:
        """Return whether the completion, which ends with one of `rule.checked`, ends here."""
        if completion[-1] in rule.token_ids:
            return True
        text = self._decode(completion[-rule.tail :])
        return any(string in text for string in rule.strings)

    def cut(self, rule: StopRule, token_ids: Sequence[int], start: int = 0) -> int | None:
        """Return the number of tokens after which a completion with these ids ends; None if it does not end. The first
        `start` tokens are known not to end it."""
        for length in range(start + 1, len(token_ids) + 1):
            if token_ids[length - 1] in rule.checked and self.ends(rule, token_ids[:length]):
                return length
        return None

    def _tokens_ending(self, string: str) -> frozenset[int]:
        if self._texts is None:
            self._texts = [self._decode([token]) for token in range(len(self._tokenizer))]
        last = string[-1]
        if last.isspace():  # decoders add and drop spaces between tokens
            return frozenset(range(len(self._texts)))
        return frozenset(token for token, text in enumerate(self._texts) if last in text or _REPLACEMENT in text)

    def _decode(self, token_ids: Sequence[int]) -> str:
        text = self._tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text if isinstance(text, str) else "".join(text)


class PassTimes:
    """Takes the seconds of each forward pass and returns how many of them are the policy's own.

    A pass counts as at most `MOST` times the median of the last 101 passes, itself included. The surplus is waiting:
    the machine swapped, was stopped or computed something else, or a long tool result was prefilled. A machine that
    stays slower is recognised after half as many passes. Of the first two passes, the shorter one is the usual one.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_RECENT)

    @property
    def most(self) -> float:
        """The maximum seconds of a pass that are the policy's own; no limit before the first pass."""
        return MOST * median_low(self._recent) if self._recent else math.inf

    def own(self, seconds: float) -> float:
        """Record a pass, and return the seconds that are the policy's own."""
        self._recent.append(seconds)
        return min(seconds, self.most)


def check_request(request: SampleRequest, *, max_length: int, vocabulary: int) -> None:
    """Raise SamplerError for a request that no model with this vocabulary size could serve in a trajectory of at most
    `max_length` tokens."""
    ids, name = request.token_ids, request.trajectory_id
    if not ids or request.max_tokens < 1 or not 0 <= request.temperature < math.inf:
        raise SamplerError(
            f"the request of '{name}' has {len(ids)} context ids, max_tokens={request.max_tokens} and "
            f"temperature={request.temperature}; expected at least one id, at least one token and a finite "
            "temperature of 0 or more."
        )
    if len(ids) + request.max_tokens > max_length:
        raise SamplerError(
            f"the request of '{name}' has {len(ids)} context ids and max_tokens={request.max_tokens}, "
            f"but the sampler holds {max_length} per trajectory. Raise max_length (if the model allows), "
            "or lower the token limits of a turn or of the trajectory."
        )
    if min(ids) < 0 or max(ids) >= vocabulary:
        raise SamplerError(
            f"the request of '{name}' has ids from {min(ids)} to {max(ids)}, but the model has ids from 0 to "
            f"{vocabulary - 1}. Use the tokenizer that belongs to the model."
        )
