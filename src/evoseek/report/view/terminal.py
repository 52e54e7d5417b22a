"""The rollouts of a run in the terminal: a list with filters, or one of them turn by turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from textwrap import shorten
from typing import Any

from rich.console import Console

from evoseek.errors import ConfigError
from evoseek.report.printable import say
from evoseek.report.view.rollouts import Rollout, detail_of
from evoseek.report.view.source import Source

_SHOWN = 2000  # characters of a turn
_LINE = 160  # characters of a question with its answer in the list


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rollouts are listed; None lists all. An Invalid rollout has no reward, so a bound leaves it out."""

    role: str | None = None
    stop_reason: str | None = None
    min_reward: float | None = None
    max_reward: float | None = None
    hops: int | None = None
    invalid: bool | None = None
    text: str | None = None

    def __call__(self, rollout: Rollout) -> bool:
        """Whether a rollout is listed."""
        return (
            self.role in (None, rollout.shown_role)
            and self.stop_reason in (None, rollout.stop_reason)
            and self.hops in (None, rollout.hops)
            and self.invalid in (None, rollout.invalid is not None)
            and self._is_between(rollout.reward)
            and (self.text is None or self.text.casefold() in _searched(rollout).casefold())
        )

    def _is_between(self, reward: float | None) -> bool:
        if self.min_reward is None and self.max_reward is None:
            return True
        return reward is not None and (
            (self.min_reward is None or reward >= self.min_reward)
            and (self.max_reward is None or reward <= self.max_reward)
        )


def say_rollouts(console: Console, source: Source, wanted: Filter, last: int) -> None:
    """List the last rollouts that are wanted, in the order in which they were recorded.

    Raises ConfigError if the run has some, but none of this role or with this stop reason.
    """
    shown: deque[Rollout] = deque(maxlen=last)
    roles: set[str] = set()
    reasons: set[str] = set()
    found = total = 0
    for rollout, _ in source.rollouts():
        roles.add(rollout.shown_role)
        reasons.add(rollout.stop_reason)
        total += 1
        if wanted(rollout):
            found += 1
            shown.append(rollout)
    if total:
        _check_known("role", wanted.role, roles)
        _check_known("stop-reason", wanted.stop_reason, reasons)
    for rollout in shown:
        say(console, _row(rollout))
    say(console, f"{found} of {total} trajectories{f', the last {last}' if found > last else ''}.")
    if found:
        say(console, "One in full: the same command with its id. As a page: without --terminal.")
    for note in source.notes:
        say(console, note)


def say_rollout(console: Console, source: Source, id: str) -> None:
    """Show the rollout with this id turn by turn. Raises ConfigError, with the nearest id, if there is none."""
    ids: list[str] = []
    for rollout, row in source.rollouts():
        if rollout.id == id:
            say(console, rollout_text(rollout, detail_of(row, source.credits.get(id))))
            return
        ids.append(rollout.id)
    nearest = get_close_matches(id, ids, 1)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    raise ConfigError(
        f"{source.directory} has no trajectory {id!r}.{hint} `evoseek view {source.directory} --terminal` lists those "
        "that it has."
    )


def rollout_text(rollout: Rollout, detail: Mapping[str, Any]) -> str:
    """The question, every turn, and the outcome."""
    lines = [f"{rollout.id}  step {rollout.step}, {rollout.shown_role}", f"Question: {rollout.question}"]
    lines += [f"Golden answers: {' | '.join(rollout.golden_answers)}"] if rollout.golden_answers else []
    for segment in detail["segments"]:
        if segment["kind"] == "prompt":
            continue
        who = "Policy" if segment["kind"] == "action" else "Observation"
        lines += ["", f"{who}:", _cut(str(segment["text"]).strip())]
    lines += ["", f"Ended: {rollout.stop_reason}. Answer: {rollout.answer or 'none'}."]
    if rollout.invalid is not None:
        lines.append(f"Invalid: {rollout.invalid}. {rollout.detail}".strip())
    else:
        parts = ", ".join(f"{name} {value:g}" for name, value in rollout.parts.items())
        lines.append(f"Reward: {rollout.reward:g} ({parts})" if parts else f"Reward: {rollout.reward:g}")
    if isinstance(detail.get("advantages"), float):
        lines.append(f"Advantage: {detail['advantages']:+g}")
    return "\n".join(lines)


def _row(rollout: Rollout) -> str:
    """Two lines: the facts with the id, and what was asked and answered, cut to a line."""
    reward = "Invalid" if rollout.reward is None else f"{rollout.reward:.2f}"
    searches = "1 search" if rollout.searches == 1 else f"{rollout.searches} searches"
    facts = f"step {rollout.step}, {rollout.shown_role}, {rollout.stop_reason}, {searches}"
    asked = f"{rollout.stated or rollout.question}  ->  {rollout.answer or 'no answer'}"
    return f"{reward:>7}  {rollout.id}  ({facts})\n         {shorten(asked, _LINE, placeholder=' ...')}"


def _searched(rollout: Rollout) -> str:
    return "\n".join((rollout.id, rollout.question, rollout.stated or "", rollout.answer or ""))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ... ({len(text) - _SHOWN:,} more characters)"


def _check_known(option: str, wanted: str | None, known: set[str]) -> None:
    if wanted is not None and wanted not in known:
        raise ConfigError(
            f"The run has no trajectory with the {option} {wanted!r}. Those that it has: {', '.join(sorted(known))}."
        )
