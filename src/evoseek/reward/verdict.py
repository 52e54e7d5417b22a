"""Reading a judge's verdict: strictly, or not at all.

A verdict that is looked for in a longer text is found in "Incorrect", in "not correct", in a quotation, and in whatever
an answer has persuaded its judge to repeat. So the reply must be the verdict and nothing else, in one of two forms:

    {"correct": true}    a JSON object; beside that key at most texts named reason, reasoning, rationale or explanation
    Verdict: correct     "correct" or "incorrect" in any letter case, alone or after "verdict" or "judgment" (also as a
                         heading), with a full stop, exclamation marks, emphasis or quotation marks

It may be in a ``` fence and after one leading <think> ... </think>. Neither the reasoning nor a reason is interpreted:
reasoning weighs both sides, and only the verdict states its result. Everything else is no verdict, and so no reward:
neither right nor wrong. The two words may be others, such as "useful" and "noisy"; the key is the first of them. Where
there are more than two to choose from, the object is {"verdict": "good"}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from evoseek.errors import ToolError

_SPACE = " \t\r\n"
_FENCE = re.compile(r"\A```(?:json)?[ \t]*\r?\n(.*)\n```\Z", re.DOTALL)
_REASONS = frozenset({"reason", "reasoning", "rationale", "explanation"})

_LONGEST = 100  # characters of a verdict in words, with its heading
_EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|_{1,3}|`|\"|')(?=\S)(.+?)(?<=\S)\1(?!\w)", re.DOTALL)
_HEADING = r"(?:(?:the|my|final|overall) )*(?:verdict|judge?ment)(?:[ ]*:[ \t\r\n]*| [-–—] |[ ]*\r?\n[ \t\r\n]*)"


def verdict_form(word: str = "correct") -> Mapping[str, object]:
    """A JSON schema of the reply, for models that can be held to one. `word` is the first of the two."""
    return {
        "type": "object",
        "properties": {word: {"type": "boolean"}},
        "required": [word],
        "additionalProperties": False,
    }


def label_form(labels: Sequence[str]) -> Mapping[str, object]:
    """The same for a choice among labels."""
    return {
        "type": "object",
        "properties": {"verdict": {"type": "string", "enum": list(labels)}},
        "required": ["verdict"],
        "additionalProperties": False,
    }


def parse_verdict(reply: str, words: tuple[str, str] = ("correct", "incorrect")) -> bool:
    """True for the first word, False for the second. Raises ToolError if the reply is anything but one verdict."""
    text = _bare(reply)
    if text.startswith("{"):
        verdict = _of_object(text, words[0])
    else:
        verdict = {words[0]: True, words[1]: False}.get(_of_words(text, words))
    if not isinstance(verdict, bool):
        raise _no_verdict(text, f'{{"{words[0]}": true}} (or false), or "{words[0]}" or "{words[1]}"')
    return verdict


def parse_label(reply: str, labels: Sequence[str]) -> str:
    """The one label (in small letters) that a reply gives. Raises ToolError if it is anything but that."""
    text = _bare(reply)
    label = _of_object(text, "verdict") if text.startswith("{") else _of_words(text, labels)
    if not isinstance(label, str) or label not in labels:
        raise _no_verdict(text, f'{{"verdict": "{labels[0]}"}}, or one of {", ".join(labels)}')
    return label


def _bare(reply: str) -> str:
    text = reply.strip(_SPACE)
    if text.startswith("<think>"):
        text = text.partition("</think>")[2].strip(_SPACE)
    if fenced := _FENCE.match(text):
        text = fenced[1].strip(_SPACE)
    return text


def _no_verdict(text: str, expected: str) -> ToolError:
    shown = text if len(text) <= 80 else f"{text[:80]}..."
    return ToolError(
        f"The reply {shown!r} holds no single verdict. Expected the object {expected}, and nothing else. Ask for that "
        "form in the prompt, or take another model."
    )


def _of_object(text: str, key: str) -> object:
    try:
        fields: dict[str, Any] = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        return None
    verdict = fields.pop(key, None)
    reasons = all(key in _REASONS and isinstance(value, str) for key, value in fields.items())
    return verdict if reasons else None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key stands twice")
    return fields


def _of_words(text: str, words: Sequence[str]) -> str:
    """The word that the reply is; "" for none."""
    if len(text) > _LONGEST:
        return ""
    while (bare := _EMPHASIS.sub(r"\2", text)) != text:
        text = bare
    form = rf"(?:#+ )?(?:{_HEADING})?({'|'.join(map(re.escape, words))})(?:\.|!*)"
    found = re.fullmatch(form, text, re.IGNORECASE | re.ASCII)
    return found[1].lower() if found else ""
