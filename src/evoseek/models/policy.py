"""A policy: a causal language model, its tokenizer, and which of the model's adapters is the policy's own.

Several policies may share one model object (a proposer, a solver and their frozen reference: two adapters over one
base, and the base itself). Which of them the model computes is a state of the model, so run it inside
`Policy.active()`, and do not await anything in that block.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from evoseek.errors import PolicyError

if TYPE_CHECKING:
    from peft.tuners.tuners_utils import BaseTunerLayer


_TEXTS = 100
_MOST_SPELLED = 0.2  # generated worlds: below 0.01; Wikipedia and software's documentation: 0.5


@dataclass(slots=True)
class Policy:
    """A model, its tokenizer, the name it was loaded by, and the model's adapter that is its own (None: no adapter).
    `deferred_weights` are the files to read the weights from, if the model has none yet (`learner.sharding`)."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    adapter: str | None = None
    deferred_weights: tuple[Path, ...] = ()

    @contextmanager
    def active(self) -> Generator[None]:
        """While the block runs, the model computes this policy: its adapter is on and every other is off.

        Where gradients are recorded, this policy's parameters are then the only ones of all adapters that require
        them. Afterwards everything is as before. A model without adapters is left alone. Raises PolicyError if the
        model does not have the adapter.
        """
        if not has_adapters(self.model):
            if self.adapter is not None:
                raise self._lacks_adapter()
            yield
            return
        if self.adapter is not None and self.adapter not in self.model.peft_config:
            raise self._lacks_adapter()
        layers = _layers(self.model)
        before = _current(layers)
        _switch(layers, before, self.adapter)
        try:
            yield
        finally:
            _switch(layers, self.adapter, before)

    def _lacks_adapter(self) -> PolicyError:
        return PolicyError(
            f"the policy '{self.name}' names the adapter '{self.adapter}', which its model does not have. Make "
            "policies with adapters by add_adapter, load_adapter or load_policy."
        )


class RemotePolicy(Policy):
    """A policy that a service trains: its `model` has a config, but no weights. Its `str` says what is trained, and
    where."""

    __slots__ = ()

    def save(self, directory: Path) -> None:
        """Write the tokenizer and where the service saved the weights (`models.source.REMOTE`); whole or not at all."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SamplerRun:
    """The run that samplers belong to: a directory for what they write (None: a temporary one), what is closed at the
    run's end, and the number of processes that train together; this is number `rank`. `broadcast` gives every
    one of them the text of the first, once all have called it.

    `launched` are the addresses of servers that the first sampler has started and the others share; `policies` are
    those that servers are given the weights of.
    """

    directory: Path | None = None
    closing: ExitStack = field(default_factory=ExitStack)
    processes: int = 1
    rank: int = 0
    broadcast: Callable[[str], str] = str
    launched: list[str] = field(default_factory=list[str])
    policies: list[Policy] = field(default_factory=list[Policy])


@dataclass(frozen=True, slots=True)
class SamplerContext:
    """The context that a sampler is built from: the policy, the longest trajectory in tokens, whether trajectories take
    their turns in lockstep (see TorchSampler), the run that it belongs to, and the type of number in which servers
    compute."""

    policy: Policy
    max_length: int
    lockstep: bool = False
    run: SamplerRun = field(default_factory=SamplerRun)
    dtype: str = "float32"


def base_of(policy: Policy) -> Policy:
    """Return the frozen base of a policy's adapter, over the same model. Raises PolicyError for a policy without
    one."""
    if policy.adapter is None:
        raise PolicyError(
            f"the policy '{policy.name}' has no adapter, so there is no frozen base below what is trained. Train with "
            "an adapter (lora.rank above 0), or load the policy a second time to have a frozen copy."
        )
    return replace(policy, adapter=None)


def prompts_of(policy: Policy, setting: str) -> str:
    """Return a policy's prompt set: the setting, or for "auto" the one that the model's config names, else
    `default`."""
    return str(getattr(policy.model.config, "evoseek_prompts", "default")) if setting == "auto" else setting


def eos_ids(policy: Policy) -> list[int]:
    """End-of-sequence ids of the model's generation settings, or else of its tokenizer."""
    generation: Any = policy.model.generation_config
    ids: Any = getattr(generation, "eos_token_id", None)
    ids = policy.tokenizer.eos_token_id if ids is None else ids
    return [] if ids is None else [ids] if isinstance(ids, int) else [int(token) for token in ids]


def is_spelled(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> bool:
    """Whether a tokenizer would spell these texts: by the share of single letters among tokens of the first of them."""
    spelled, count = 0, 0
    for text in islice(texts, _TEXTS):
        tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False))
        count += len(tokens)
        spelled += sum(len(piece) == 1 and piece.isalpha() for piece in (token.removeprefix("##") for token in tokens))
    return spelled > _MOST_SPELLED * count


def vocabulary_notice(policy: Policy, texts: Iterable[str], *, what: str) -> str | None:
    """Return the warning about a tiny policy that cannot read these texts; None for any other policy."""
    if prompts_of(policy, "auto") != "tiny" or not is_spelled(policy.tokenizer, texts):
        return None
    return (
        f"Warning: the policy {policy.name} knows the words of the generated world alone and would have to spell "
        f"{what} letter by letter: it can neither read nor answer them, and training will not change that. Give a "
        "language model with --model (a directory or a Hugging Face name, such as Qwen/Qwen2.5-0.5B-Instruct), or try "
        "this policy on a generated world (evoseek demo; evoseek world serve --questions FILE)."
    )


def has_adapters(model: PreTrainedModel) -> bool:
    """Return whether any adapter was added to the model."""
    return bool(model._hf_peft_config_loaded)  # pyright: ignore[reportPrivateUsage]


def find_adapter_layers(model: PreTrainedModel) -> dict[str, BaseTunerLayer]:
    """Return the model's layers that carry adapters, by where they are in it."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {path: module for path, module in model.named_modules() if isinstance(module, BaseTunerLayer)}


_FOUND: WeakKeyDictionary[PreTrainedModel, tuple[tuple[str, ...], list[BaseTunerLayer]]] = WeakKeyDictionary()


def _layers(model: PreTrainedModel) -> list[BaseTunerLayer]:
    """Return those layers, remembered until an adapter is added: to look for them takes longer than to switch them."""
    names = tuple(model.peft_config)
    known = _FOUND.get(model)
    if known is None or known[0] != names:
        known = _FOUND[model] = names, list(find_adapter_layers(model).values())
    return known[1]


def _current(layers: list[BaseTunerLayer]) -> str | None:
    """Return the adapter that is on; all layers are switched together, so the first one is read."""
    active = layers[0]
    return None if active.disable_adapters else active.active_adapters[0]


def _switch(layers: list[BaseTunerLayer], before: str | None, after: str | None) -> None:
    """Turn one adapter on and every other off (None: all).

    peft's own methods also set requires_grad on each weight, which takes as long as a small forward pass.
    """
    if before == after:
        return
    for layer in layers:
        if after is not None:
            layer._active_adapter = [after]  # pyright: ignore[reportPrivateUsage]
        layer._disable_adapters = after is None  # pyright: ignore[reportPrivateUsage]
        if torch.is_grad_enabled():
            layer.enable_adapters(after is not None)
