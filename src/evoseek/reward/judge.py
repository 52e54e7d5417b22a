"""A judge: a language model that decides whether an answer is right.

It reads text by the policy that it rewards, so this text must not be able to give it instructions. The answer (and the
question, which a proposer may have written) is put on one line, in which nothing can close or open a tag or a turn on
the way to the model. The judge's reply is parsed strictly (`parse_verdict`). A prompt cannot do more: measure whether
answers can persuade a judge (`evoseek eval --check-judge`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from evoseek.errors import ToolError
from evoseek.protocols import Chat
from evoseek.renderers.encoding import harmless
from evoseek.reward.functions import RewardSettings
from evoseek.rollout.prompts import PromptSet
from evoseek.text.scripts import well_formed
from evoseek.types import Invalid, Message, Outcome, Question, Scored, StopReason, Trajectory

_SPACE = " \t\r\n"
_FENCE = re.compile(r"\A```(?:json)?[ \t]*\r?\n(.*)\n```\Z", re.DOTALL)
_REASONS = frozenset({"reason", "reasoning", "rationale", "explanation"})

_LONGEST_ANSWER = 2_000  # characters; an endless answer must be wrong, not a judge's failure, which teaches nothing
_LONGEST = 100  # characters of a verdict in words, with its heading
_EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|_{1,3}|`|\"|')(?=\S)(.+?)(?<=\S)\1(?!\w)", re.DOTALL)
_HEADING = r"(?:(?:the|my|final|overall) )*(?:verdict|judge?ment)(?:[ ]*:[ \t\r\n]*| [-–—] |[ ]*\r?\n[ \t\r\n]*)"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WORD = re.compile(r"[^\W\d_]{3,}")


def verdict_form(word: str = "correct") -> Mapping[str, object]:
    """Return a JSON schema of the reply, for models with constrained output. `word` is the first of the two."""
    return {
        "type": "object",
        "properties": {word: {"type": "boolean"}},
        "required": [word],
        "additionalProperties": False,
    }


def label_form(labels: Sequence[str]) -> Mapping[str, object]:
    """Return a JSON schema of a reply that chooses among labels."""
    return {
        "type": "object",
        "properties": {"verdict": {"type": "string", "enum": list(labels)}},
        "required": ["verdict"],
        "additionalProperties": False,
    }


def parse_verdict(reply: str, words: tuple[str, str] = ("correct", "incorrect")) -> bool:
    """Return True for the first word, False for the second. Raises ToolError if the reply is not exactly one verdict.

    Searching a longer text for a verdict would find one in "Incorrect", in "not correct", in a quotation, and in
    anything that an answer persuades its judge to repeat. So the reply must be the verdict and nothing else, in one of
    two forms:

        {"correct": true}    a JSON object; beside that key at most texts named reason, reasoning, rationale or
                             explanation
        Verdict: correct     "correct" or "incorrect" in any letter case, alone or after "verdict" or "judgment" (also
                             as a heading), with a full stop, exclamation marks, emphasis or quotation marks

    The verdict may be in a ``` fence and after one leading <think> ... </think>. Neither the reasoning nor a reason is
    interpreted: reasoning weighs both sides, and only the verdict states its result. The two words may be others, such
    as "useful" and "noisy"; the first is the key.
    """
    text = _bare(reply)
    if text.startswith("{"):
        verdict = _of_object(text, words[0])
    else:
        verdict = {words[0]: True, words[1]: False}.get(_of_words(text, words))
    if not isinstance(verdict, bool):
        raise _no_verdict(text, f'{{"{words[0]}": true}} (or false), or "{words[0]}" or "{words[1]}"')
    return verdict


def parse_label(reply: str, labels: Sequence[str]) -> str:
    """Return a reply's one label in lower case. Raises ToolError if the reply is not exactly one label."""
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
        f"The reply {shown!r} is not a single verdict. Expected the object {expected}, and nothing else. Ask for that "
        "form in the prompt, or use another model."
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
    """Return the word of a reply; "" for none."""
    if len(text) > _LONGEST:
        return ""
    while (bare := _EMPHASIS.sub(r"\2", text)) != text:
        text = bare
    form = rf"(?:#+ )?(?:{_HEADING})?({'|'.join(map(re.escape, words))})(?:\.|!*)"
    found = re.fullmatch(form, text, re.IGNORECASE | re.ASCII)
    return found[1].lower() if found else ""


FORM = verdict_form("correct")


class Judge:
    """A RewardFn: 1 if a model judges that the trajectory's answer is right, else 0; the part `judge` is the same.

    An answer that is missing or blank, or has more than 2,000 characters, is wrong, and the model is not called.
    Otherwise it is called once. If it does not reply with exactly one verdict, the outcome is Invalid. Raises
    ConfigError if the prompt set has no judge.jinja.
    """

    @classmethod
    def build(cls, settings: RewardSettings, context: Any) -> Judge:
        return cls(*context.chat("judge"))

    def __init__(self, chat: Chat, prompts: PromptSet) -> None:
        self._chat, self._template = chat, prompts["judge"]

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        try:
            correct = await self.verdict(trajectory.question, trajectory.answer or "", key=f"{trajectory.id}/judge")
        except ToolError as error:
            return Invalid(StopReason.REWARD_FAILED, str(error))
        return Scored(float(correct), {"judge": float(correct)})

    async def verdict(self, question: Question, answer: str, *, key: str) -> bool:
        """Return whether an answer to a question is right. Raises ToolError."""
        if not (given := on_one_line(answer)) or len(given) > _LONGEST_ANSWER:
            return False
        golden = [on_one_line(golden) for golden in question.golden_answers]
        content = self._template.marked(question=on_one_line(question.text), golden_answers=golden, answer=given)
        return parse_verdict(await self._chat.chat([Message("user", content)], key=key, form=FORM))


def same_family(a: str, b: str) -> bool:
    """Return whether the names of two models, from a hub, an endpoint or a directory, suggest one family.

    The first word of one name must be among the other's words, without organisation, versions and sizes:
    Qwen/Qwen2.5-3B, qwen2.5-7b-instruct and DeepSeek-R1-Distill-Qwen-7B are one family.
    """
    one, other = (name.strip().rstrip("/").rpartition("/")[2].lower() for name in (a, b))
    first, second = _WORD.findall(one), _WORD.findall(other)
    if first and second:
        return first[0] in second or second[0] in first
    return bool(one) and one == other


def on_one_line(text: str) -> str:
    """Put outside text on one line of a judge's prompt, where it can end neither the line nor a tag."""
    return harmless(" ".join(_CONTROL.sub(" ", well_formed(text)).split()))
