"""Rejection sampling: the best rollouts of an earlier run, to be learnt from as demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evoseek.corpus.resumable_jsonl import ResumableJsonl
from evoseek.errors import DataError
from evoseek.rollout.record import record_of
from evoseek.rollout.roller import Roller
from evoseek.types import Scored, Trajectory


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rollouts of a run are kept: answers of a solver worth at least `min_reward`, and of each question at most
    `per_question` (None: all), the shortest ones. The same tokens are kept once."""

    min_reward: float = 1.0
    per_question: int | None = None


@dataclass(frozen=True, slots=True)
class KeptRollout:
    """A rollout, and the text of each of its segments as it was recorded."""

    trajectory: Trajectory
    texts: tuple[str, ...]

    def is_of(self, solver: Roller, decode: Callable[[Sequence[int]], str]) -> bool:
        """Whether this solver's tokenizer and prompt are those that the rollout was sampled with: it would be given the
        same prompt ids, and reads the recorded texts from the recorded ids."""
        segments = self.trajectory.segments
        prompt = solver.renderer.render_prompt(solver.env.messages(self.trajectory.question))
        read = (decode(segment.token_ids) for segment in segments)
        return segments[0].token_ids == prompt and all(map(str.__eq__, read, self.texts))


def kept_rollouts(path: Path, selection: Selection) -> list[KeptRollout]:
    """The rollouts that are kept of a record (trajectories.jsonl), in its order. Raises DataError if there are none."""
    seen = best = 0
    chosen: dict[str, dict[tuple[int, ...], KeptRollout]] = {}
    for reward, kept in filter(None, ResumableJsonl(path).rows(_read, "trajectory")):
        seen, best = seen + 1, max(best, reward)
        if kept is not None and reward >= selection.min_reward:
            chosen.setdefault(kept.trajectory.question.text, {}).setdefault(kept.trajectory.token_ids, kept)
    if not chosen:
        raise DataError(
            f"None of the {seen} rollouts of a solver in {path} can be a demonstration: the highest reward of one is "
            f"{best:g}, and demonstrations.min_reward is {selection.min_reward:g}. Lower it, or name a run whose "
            "policy was right more often."
        )
    order = {id(kept): number for number, kept in enumerate(k for of in chosen.values() for k in of.values())}
    few = (sorted(of.values(), key=_length)[: selection.per_question] for of in chosen.values())
    return sorted((kept for of in few for kept in of), key=lambda kept: order[id(kept)])


def _length(kept: KeptRollout) -> int:
    return kept.trajectory.num_action_tokens


def _read(row: Any) -> tuple[float, KeptRollout | None] | None:
    """The reward of a solver's line, and its rollout if that answered; None for another role's: a proposal is worth
    what the solver did with it, and its passage is no question."""
    record = record_of(row)
    if record.trajectory.role != "solver":
        return None
    if not isinstance(record.outcome, Scored):
        return 0.0, None
    texts = tuple(str(segment["text"]) for segment in row["segments"])
    answered = record.trajectory.answer is not None
    return record.outcome.reward, KeptRollout(record.trajectory, texts) if answered else None
