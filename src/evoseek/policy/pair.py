"""Two policies that begin as the same model, a solver and a proposer: two adapters over one base, or two separate
models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evoseek.errors import PolicyError
from evoseek.files import expanded
from evoseek.policy.adapter_files import is_adapter, load_adapter
from evoseek.policy.load import load_policy
from evoseek.policy.lora import ALL_LINEAR, add_adapter
from evoseek.policy.policy import Policy

SOLVER, PROPOSER = "policy", "proposer"  # the adapters' names


@dataclass(frozen=True, slots=True)
class NewAdapter:
    """An adapter to be made; see `add_adapter`."""

    rank: int
    alpha: float
    targets: str | Sequence[str] = ALL_LINEAR
    seed: int = 0

    def on(self, policy: Policy, name: str) -> Policy:
        """A policy that is `policy`'s model with such an adapter over it."""
        return add_adapter(policy, name, rank=self.rank, alpha=self.alpha, targets=self.targets, seed=self.seed)


def load_pair(
    model: str,
    *,
    solver_directory: Path | None = None,
    proposer_directory: Path | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    lora: NewAdapter | None = None,
) -> tuple[Policy, Policy]:
    """The solver and the proposer, each loaded from its directory (written by `save_policy`) or, without one, created.

    A player is created as `model` with a new adapter, the same for both, if `lora` is given; else as `model` itself,
    which may be an adapter too. Where both are adapters they share one model object, of which the solver's is the
    adapter "policy" and the proposer's "proposer"; else each has its own model. Raises PolicyError.
    """
    solver = load_policy(str(solver_directory or model), device=device, dtype=dtype, adapter=SOLVER)
    if lora is not None and solver_directory is None:
        _check_plain(solver, lora)
        solver = lora.on(solver, SOLVER)
    new = lora if proposer_directory is None else None
    source = str(proposer_directory or model)
    path = expanded(source)
    if solver.adapter is None or not (new or is_adapter(path)):
        proposer = load_policy(source, device=device, dtype=dtype, adapter=PROPOSER)
        return solver, new.on(proposer, PROPOSER) if new else proposer
    proposer = new.on(solver, PROPOSER) if new else load_adapter(solver, PROPOSER, path)
    return solver, replace(proposer, name=source)


def _check_plain(policy: Policy, lora: NewAdapter) -> None:
    if policy.adapter is not None:
        raise PolicyError(
            f"a new adapter (of rank {lora.rank}) was asked for, but '{policy.name}' is one already. Leave lora.rank "
            "at 0 to train it on, or merge it (evoseek export) and give the merged model."
        )
