"""Reading a judge's verdict: strictly, or not at all.

A verdict that is looked for anywhere in the reply is found in "Incorrect" and in "not correct". Here the reply must be
one of these, and nothing that speaks against it may stand in it:

    {"correct": true}          a JSON object with that key, also within a ``` fence
    ... correct                a last line that is the word alone, or after "verdict:"; in any case, with a full stop or
    ... Verdict: INCORRECT     emphasis around it; "correct" or "incorrect"

Everything else is no verdict, and so no reward: neither right nor wrong.
"""

from __future__ import annotations

import json
import re
from typing import Any

from evoseek.errors import ToolError

_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)
_LINE = re.compile(r"[\W_]*(?:(?:final |my )?(?:verdict|judge?ment)[\W_]*)?(correct|incorrect)[\W_]*", re.IGNORECASE)


def parse_verdict(reply: str) -> bool:
    """True for "correct", False for "incorrect". Raises ToolError if the reply has no verdict, or two that differ."""
    text = reply.strip()
    if fenced := _FENCE.match(text):
        text = fenced[1].strip()
    if text.startswith("{"):
        return _of_object(text, reply)
    lines = [line for line in text.splitlines() if line.strip()]
    words = [match[1].lower() for line in lines if (match := _LINE.fullmatch(line))]
    if not lines or not _LINE.fullmatch(lines[-1]) or len(set(words)) > 1:
        raise _unreadable(reply)
    return words[-1] == "correct"


def _of_object(text: str, reply: str) -> bool:
    def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError("a key stands twice")
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=no_repeats)["correct"]
    except (ValueError, KeyError, RecursionError) as error:
        raise _unreadable(reply) from error
    if not isinstance(value, bool):
        raise _unreadable(reply)
    return value


def _unreadable(reply: str) -> ToolError:
    shown = reply if len(reply) <= 80 else f"{reply[:80]}..."
    return ToolError(
        f'The judge\'s reply {shown!r} holds no single verdict. Expected the object {{"correct": true}} (or false), or '
        'a last line that is "correct" or "incorrect". Ask the judge for that form in its prompt.'
    )
