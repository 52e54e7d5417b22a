"""The rollouts of a run in the terminal: a list with one line each, or one rollout turn by turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from rich.console import Console

from evoseek.errors import ConfigError, did_you_mean
from evoseek.report.view.rollouts import RecordedRollout, detail_of, rollout_of
from evoseek.report.view.source import RunSource
from evoseek.text.printable import say

_SHOWN = 2000  # characters of a turn
_LINE = 160  # characters of a question with its answer in the list


def list_rollouts(console: Console, source: RunSource, last: int) -> None:
    """Print the last rollouts in the order of recording."""
    shown: deque[RecordedRollout] = deque(maxlen=last)
    total = 0
    for rollout in source.rollouts(rollout_of):
        shown.append(rollout)
        total += 1
    for rollout in shown:
        say(console, _line(rollout))
    say(console, f"{total} trajectories{f', the last {last} are shown' if total > last else ''}.")
    if total:
        say(console, "One in full: the same command with its id. As a page: without --terminal.")
    for note in source.notes:
        say(console, note)


def show_rollout(console: Console, source: RunSource, id: str) -> None:
    """Print the rollout with this id turn by turn. Raises ConfigError, with the nearest id, if missing."""
    ids: list[str] = []
    for rollout, row in source.rollouts(lambda row: (rollout_of(row), row)):
        if rollout.id == id:
            say(console, rollout_text(rollout, detail_of(row, source.credits.get(id))))
            return
        ids.append(rollout.id)
    hint = did_you_mean(id, ids)
    raise ConfigError(
        f"{source.directory} has no trajectory {id!r}.{hint} To list them, run `evoseek view {source.directory} "
        "--terminal`."
    )


def rollout_text(rollout: RecordedRollout, detail: Mapping[str, Any]) -> str:
    """Write the question, every turn, and the outcome."""
    lines = [f"{rollout.id}  step {rollout.step}, {rollout.shown_role}", f"Question: {rollout.question}"]
    lines += [f"Golden answers: {' | '.join(rollout.golden_answers)}"] if rollout.golden_answers else []
    for result in detail["opening"]:
        titles = ", ".join(str(passage["title"]) for passage in result["passages"]) or "nothing found"
        lines += ["", f"In the prompt: {titles}"]
    for segment in detail["segments"]:
        if segment["kind"] != "prompt":
            writer = "Policy" if segment["kind"] == "action" else "Observation"
            lines += ["", f"{writer}:", _cut(str(segment["text"]).strip())]
    lines += ["", f"Ended: {rollout.stop_reason}. Answer: {rollout.answer or 'none'}."]
    if rollout.invalid is not None:
        lines.append(f"Invalid: {rollout.invalid}. {rollout.detail}".strip())
    else:
        parts = ", ".join(f"{name} {value:g}" for name, value in rollout.parts.items())
        lines.append(f"Reward: {rollout.reward:g} ({parts})" if parts else f"Reward: {rollout.reward:g}")
    if isinstance(detail.get("advantages"), float):
        lines.append(f"Advantage: {detail['advantages']:+g}")
    return "\n".join(lines)


def _line(rollout: RecordedRollout) -> str:
    reward = "Invalid" if rollout.reward is None else f"{rollout.reward:.2f}"
    searches = "1 search" if rollout.searches == 1 else f"{rollout.searches} searches"
    facts = f"step {rollout.step}, {rollout.shown_role}, {rollout.stop_reason}, {searches}"
    text = f"{rollout.stated or rollout.question}  ->  {rollout.answer or 'no answer'}"
    return f"{reward:>7}  {rollout.id}  ({facts})  {shorten(text, _LINE, placeholder=' ...')}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ... ({len(text) - _SHOWN:,} more characters)"
