"""The calls of one attempt as a tree: which call continues which, and the branches that are its training samples.

A call continues an earlier one if its messages begin with that call's messages and the reply as it was sent. Its
context is then that call's ids, the sampled ones included, and the new messages. Any other call begins a branch, with
its whole conversation as the prompt. The cause of a branch is one of these:

    other        the conversation begins otherwise, as in a side call
    system       the system message changed, as with a clock
    tools        the tools changed
    again        the same request once more, or another choice of one request
    fork         a reply is continued for the second time
    shorter      the history ends earlier
    history      a message of the user, of a tool or of another turn changed
    left_out     the reply is missing
    white_space  the reply came back with other white space
    thought      the reply came back without its thought, or with another one
    arguments    the reply came back with other calls
    reply        the reply came back as another text
    inserted     a turn follows that the policy did not write
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from evoseek.types import Action, Completion, Message, Segment

_COMPARED = 64  # last calls that a new branch is compared with
_THOUGHT = re.compile(r"<think>(.*?)</think>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a conversation, and the thought of a turn if it stands in a field of its own."""

    message: Message
    thought: str = ""

    @property
    def key(self) -> bytes:
        """A digest. The layout of the JSON of calls does not count, nor where the thought of a turn stands."""
        message, thought, content = self.message, self.thought, self.message.content
        if message.role == "assistant" and not thought and (found := _THOUGHT.match(content)):
            thought, content = found[1].strip(), content[found.end() :]
        calls = [[call.name, call.arguments] for call in message.tool_calls]
        text = json.dumps([message.role, content, calls, thought], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    @property
    def shown(self) -> Message:
        """The message with its thought, for a prompt."""
        message = self.message
        if not self.thought:
            return message
        return Message(message.role, f"<think>\n{self.thought}\n</think>\n\n{message.content}", message.tool_calls)


@dataclass(slots=True, eq=False)
class AgentCall:
    """One completion. `keys` are of the messages that it answers, `replies` the forms in which its reply may come back,
    the first as it was sent. It continues the call `after`. Without being `delivered` it is not trained on."""

    context: tuple[int, ...]
    completion: Completion
    action: Action
    ended_version: int
    keys: tuple[bytes, ...]
    tools: str
    replies: tuple[Said, ...]
    after: AgentCall | None = None
    delivered: bool = False

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The context and the completion."""
        return (*self.context, *self.completion.token_ids)


@dataclass(slots=True)
class CallBranch:
    """Calls that continue each other, and why they began."""

    cause: str
    calls: list[AgentCall]


@dataclass(slots=True)
class CallTree:
    """The calls of an attempt."""

    branches: list[CallBranch] = field(default_factory=list[CallBranch])
    calls: list[AgentCall] = field(default_factory=list[AgentCall])
    _ends: dict[bytes, AgentCall] = field(default_factory=dict[bytes, AgentCall])

    def find(self, said: Sequence[Said], tools: str) -> tuple[AgentCall | None, int]:
        """Return the call that a conversation continues, and the number of messages up to its reply; (None, 0) if it
        begins a branch."""
        keys = [one.key for one in said]
        last = max((place for place, one in enumerate(said) if one.message.role == "assistant"), default=-1) + 1
        call = self._ends.get(_digest(tools, keys[:last])) if 0 < last < len(said) else None
        return (call, last) if call is not None else (None, 0)

    def add(self, call: AgentCall, said: Sequence[Said]) -> None:
        """Add a call, to the branch of the call that it continues, or as a new one."""
        branch = next((own for own in self.branches if own.calls[-1] is call.after), None)
        if branch is not None:
            branch.calls.append(call)
        else:
            cause = "" if not self.calls else "fork" if call.after else self._cause(call, said)
            self.branches.append(CallBranch(cause, [call]))
        self.calls.append(call)
        for reply in call.replies:
            self._ends[_digest(call.tools, (*call.keys, reply.key))] = call

    def segments(self, version: int, *, only_last: bool) -> tuple[tuple[Segment, ...], tuple[Action, ...]]:
        """Return the segments of delivered calls and their actions, in the order of the branches; `only_last` keeps the
        last call and those that it continues. `version` is the trajectory's."""
        kept = [CallBranch(own.cause, [call for call in own.calls if call.delivered]) for own in self.branches]
        if only_last and (delivered := [call for call in self.calls if call.delivered]):
            kept = [CallBranch("", [call for call in _path(delivered[-1]) if call.delivered])]
        kept = [own for own in kept if own.calls]
        segments: list[Segment] = []
        for number, branch in enumerate(kept):
            before: tuple[int, ...] = ()
            for call in branch.calls:
                kind = "observation" if before else "prompt"
                cause = "" if before or not number else branch.cause
                if new := call.context[len(before) :]:
                    segments.append(Segment(kind, new, cause=cause))
                segments.append(_action(call, version))
                before = call.token_ids
        return tuple(segments), tuple(call.action for branch in kept for call in branch.calls)

    def _cause(self, call: AgentCall, said: Sequence[Said]) -> str:
        common, other = max(
            ((_common(call.keys, one), one) for one in self.calls[-_COMPARED:]), key=lambda pair: pair[0]
        )
        if call.tools != other.tools and common:
            return "tools"
        if common == len(call.keys):
            return "again" if common == len(other.keys) else "shorter"
        if common < len(other.keys):
            systems = said[common].message.role == "system"
            return "system" if systems else "history" if common else "other"
        if common > len(other.keys):
            return "inserted"
        return _edit(other.replies[0], said[common])


def _path(call: AgentCall) -> list[AgentCall]:
    """Return the calls that a call continues, and the call itself."""
    path = [call]
    while (before := path[-1].after) is not None:
        path.append(before)
    return path[::-1]


def _edit(sent: Said, given: Said) -> str:
    if given.message.role != "assistant":
        return "left_out"
    before, after = sent.message, given.message
    if [(call.name, call.arguments) for call in before.tool_calls] != [
        (call.name, call.arguments) for call in after.tool_calls
    ]:
        return "arguments"
    if before.content.split() == after.content.split():
        return "white_space" if before.content != after.content else "thought"
    texts = [_THOUGHT.sub("", text).strip() for text in (before.content, after.content)]
    return "thought" if texts[0] == texts[1] else "reply"


def _common(keys: Sequence[bytes], call: AgentCall) -> int:
    """Return how many messages a conversation shares with a call's, its reply included."""
    pairs = zip(keys, call.keys, strict=False)
    common = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(keys), len(call.keys)))
    is_whole = common == len(call.keys) < len(keys)
    return common + (is_whole and keys[common] in {reply.key for reply in call.replies})


def _action(call: AgentCall, version: int) -> Segment:
    done = call.completion
    newer = None if done.policy_version == version else done.policy_version
    ended = None if call.ended_version == done.policy_version else call.ended_version
    return Segment("action", done.token_ids, done.logprobs, newer, ended)


def _digest(tools: str, keys: Sequence[bytes]) -> bytes:
    return hashlib.blake2b(tools.encode() + b"".join(keys), digest_size=16).digest()
