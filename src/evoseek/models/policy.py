"""A policy: a causal language model, its tokenizer, and which of the model's adapters is the policy's own.

Several policies may share one model object (a proposer, a solver and their frozen reference: two adapters over one
base, and the base itself). The model's state decides which policy it computes, so run it inside
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
        """Make the model compute this policy while the block runs: its adapter is on and every other is off.

        If gradients are recorded, only this policy's parameters, among all adapters, require them. Afterwards the
        earlier state is restored. A model without adapters is not changed. Raises PolicyError if the model lacks the
        adapter.
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
    """A policy that a service trains: its `model` has a config, but no weights. `str` names what is trained, and
    where."""

    __slots__ = ()

    def save(self, directory: Path) -> None:
        """Write the tokenizer and the address of the weights at the service (`models.source.REMOTE`), atomically."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SamplerRun:
    """The run that samplers belong to: a directory for their files (None: a temporary one), what to close at the run's
    end, and the number of processes that train together; this is number `rank`. `broadcast` gives all processes the
    text of the first, once all have called it.

    `launched` are the addresses of servers that the first sampler started and the others share. `policies` are the
    policies whose weights the servers receive.
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
    """The context for building a sampler: the policy, the longest trajectory in tokens, whether trajectories take their
    turns in lockstep (see TorchSampler), the sampler's run, and the type of number in which servers compute."""

    policy: Policy
    max_length: int
    lockstep: bool = False
    run: SamplerRun = field(default_factory=SamplerRun)
    dtype: str = "float32"


def base_of(policy: Policy) -> Policy:
    """Return the frozen base of a policy's adapter, over the same model. Raises PolicyError if it has no adapter."""
    if policy.adapter is None:
        raise PolicyError(
            f"the policy '{policy.name}' has no adapter, so it has no frozen base. Train with "
            "an adapter (lora.rank above 0), or load the policy a second time to have a frozen copy."
        )
    return replace(policy, adapter=None)


def prompts_of(policy: Policy, setting: str) -> str:
    """Return a policy's prompt set: the setting, or for "auto" the one in the model's config, else `default`."""
    return str(getattr(policy.model.config, "evoseek_prompts", "default")) if setting == "auto" else setting


def eos_ids(policy: Policy) -> list[int]:
    """Return the end-of-sequence ids of the model's generation settings, or else of its tokenizer."""
    generation: Any = policy.model.generation_config
    ids: Any = getattr(generation, "eos_token_id", None)
    ids = policy.tokenizer.eos_token_id if ids is None else ids
    return [] if ids is None else [ids] if isinstance(ids, int) else [int(token) for token in ids]


def is_spelled(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> bool:
    """Return whether a tokenizer would spell these texts: its tokens of the first ones are often single letters."""
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
        f"Warning: the policy {policy.name} knows only the words of the generated world and would have to spell "
        f"{what} letter by letter: it can neither read nor answer them, and training will not change that. Give a "
        "language model with --model (a directory or a Hugging Face name, such as Qwen/Qwen2.5-0.5B-Instruct), or try "
        "this policy on a generated world (evoseek demo; evoseek world serve --questions FILE)."
    )


def has_adapters(model: PreTrainedModel) -> bool:
    """Return whether any adapter was added to the model."""
    return bool(model._hf_peft_config_loaded)  # pyright: ignore[reportPrivateUsage]


def find_adapter_layers(model: PreTrainedModel) -> dict[str, BaseTunerLayer]:
    """Return the model's layers that carry adapters, by their names in it."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {path: module for path, module in model.named_modules() if isinstance(module, BaseTunerLayer)}


_FOUND: WeakKeyDictionary[PreTrainedModel, tuple[tuple[str, ...], list[BaseTunerLayer]]] = WeakKeyDictionary()


def _layers(model: PreTrainedModel) -> list[BaseTunerLayer]:
    """Return the layers with adapters, cached until an adapter is added: finding takes longer than switching."""
    names = tuple(model.peft_config)
    known = _FOUND.get(model)
    if known is None or known[0] != names:
        known = _FOUND[model] = names, list(find_adapter_layers(model).values())
    return known[1]


def _current(layers: list[BaseTunerLayer]) -> str | None:
    """Return the active adapter; all layers are switched together, so the first one tells."""
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
