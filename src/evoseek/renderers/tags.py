"""The tag format (Search-R1, arXiv 2503.09516): the model writes tags, and its turn continues after each observation.

    <think> reasoning </think> <search> query </search>
    <information> passages </information>
    <answer> answer </answer>

With the tools of the web, <search> holds queries and <browse> addresses, one in each line. The baseline RAgent opens
passages by their numbers in <open>. Any other tool has a tag of its own name. A proposer states its question in
<question> before the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from evoseek.errors import PolicyError
from evoseek.renderers.chat_template import Schema, check_template, encode_messages, encode_reply, end_ids, tool_name
from evoseek.renderers.encoding import TextEncoder, trusted
from evoseek.text.scripts import fold
from evoseek.types import Action, Message, StopConditions, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TAGS = ("search", "information", "think", "answer", "question")
OBSERVATION = ("\n\n<information>\n", "\n</information>\n\n")
_ANSWER = re.compile(r"<answer>(?:(?!<answer>).)*?</answer>", re.DOTALL)  # that `read_action` reads


class TagCall(NamedTuple):
    """The call that a tag makes: a tool, with the tag's content as one argument, as a whole or as a list of lines. If
    `argument` is empty, each line is an argument: `name: value`."""

    tool: str
    argument: str
    is_list: bool = False


SEARCH: Mapping[str, TagCall] = {"search": TagCall("search", "query")}
_TAGS_OF_TOOLS = {
    "search": ("search", SEARCH["search"]),
    "web_search": ("search", TagCall("web_search", "queries", True)),
    "browse": ("browse", TagCall("browse", "urls", True)),
    "open": ("open", TagCall("open", "numbers")),
}


_NAME = re.compile(r"(?!(?:information|think|answer|question)\b)[A-Za-z]\w*")


def tag_calls(tools: Sequence[Schema]) -> Mapping[str, TagCall]:
    """Return the tags for tools of these schemas; without tools, `SEARCH`. Raises PolicyError for a name that cannot be
    a tag, or two tools with one tag."""
    calls = [_tag_call(schema) for schema in tools]
    names, tags = list(map(tool_name, tools)), [tag for tag, _ in calls]
    if strange := [name for name in names if not _NAME.fullmatch(name)]:
        raise PolicyError(
            f"The tool {strange[0]!r} cannot be called in the tag format, where its name would be a tag. Expected a "
            "letter, then letters, digits or _, and none of information, think, answer and question. Rename the tool."
        )
    if twice := [name for name, tag in zip(names, tags, strict=True) if tags.count(tag) > 1]:
        raise PolicyError(f"The tools {' and '.join(twice)} have the same tag. Leave one out, or rename it.")
    return dict(calls) or SEARCH


def own_tools(tools: Sequence[Schema]) -> list[dict[str, object]]:
    """Return the tools that no prompt knows: `name`, `description` and `arguments` (their names) of each."""
    return [
        {"name": name, "description": _function(schema).get("description", ""), "arguments": [*_properties(schema)]}
        for schema in tools
        if (name := tool_name(schema)) not in _TAGS_OF_TOOLS
    ]


def _tag_call(schema: Schema) -> tuple[str, TagCall]:
    name, properties = tool_name(schema), _properties(schema)
    known = _TAGS_OF_TOOLS.get(name)
    if known is not None and (known[1].argument in properties or not properties):
        return known
    (argument,) = properties if len(properties) == 1 else ("",)
    return name, TagCall(name, argument, bool(argument) and properties[argument].get("type") == "array")


def _function(schema: Schema) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", schema.get("function", {}))


def _properties(schema: Schema) -> Mapping[str, Any]:
    return _function(schema).get("parameters", {}).get("properties", {})


def stop_strings(calls: Mapping[str, TagCall]) -> tuple[str, ...]:
    """Return the strings that end a completion: closing tags of calls and of an answer."""
    return (*(f"</{tag}>" for tag in calls), "</answer>")


# A reasoning model's block; if its template has opened it already, the text contains only the end. It ends before the
# next one opens: otherwise an unclosed block would extend into text that the model invents after its call.
_THOUGHT = re.compile(r"\A\s*+(?:<think>)?+(?:(?!<think>).)*?</think>", re.DOTALL)


_OPENED = ("search", "browse", "open", "tool_call")
_WHOLE = re.compile(  # sentences, lines and their citations
    r"(.*(?:(?<!\n\d)(?<!\n\d\d)[.!?][\"')]*(?: ?\[[\d, ]+\])*(?=\s)|[。！？]|\S(?=[^\S\n]*\n)))", re.DOTALL
)
_TAG = re.compile(r"</?(search|browse|open|information|think|answer|question)>")


def span_of_turn(text: str, calls: Mapping[str, TagCall]) -> tuple[int, int]:
    """Return where a turn begins and ends: after the thought, and with the first closing tag of a call or an answer.
    Tags within a thought have no effect. An unclosed thought does not count as one."""
    thought = _THOUGHT.match(text)
    start = thought.end() if thought else 0
    stop = re.compile("|".join(map(re.escape, stop_strings(calls)))).search(text, start)
    return start, stop.end() if stop else len(text)


def read_action(text: str, calls: Mapping[str, TagCall]) -> Action:
    """Read the action in a model's output: the call or the answer that ends its turn (`span_of_turn`)."""
    opened: dict[str, int] = {}
    question = None
    tags = re.compile(rf"<(/?)({'|'.join(map(re.escape, (*calls, 'answer', 'question')))})>")
    for tag in tags.finditer(text, *span_of_turn(text, calls)):
        closes, name = tag.groups()
        if not closes:
            opened[name] = tag.end()
        elif name in opened:
            content = text[opened.pop(name) : tag.start()].strip()
            if name in calls:
                return Action(text, (_call(calls[name], content),), question=question)
            if name == "answer":
                return Action(text, answer=content, question=question)
            question = content
    unclosed = " and ".join(f"<{name}>" for name in opened)
    problem = f"{unclosed} is not closed" if opened else f"there is neither a <{'>, a <'.join(calls)}> nor an <answer>"
    return Action(text, question=question, problem=problem)


def _without_thought(text: str) -> str:
    return _THOUGHT.sub("", text, count=1)


def answer_alone(action: Action, tools: Iterable[str]) -> Action:
    """Read a turn without a call or an answer in tags as an answer: its text after the thought, without tags. A turn
    that opens a call of these tools, or has no word, is not an answer."""
    text = _without_thought(action.text)
    answer = _TAG.sub(" ", text.rpartition("<answer>")[2]).strip()
    is_call = any(f"<{name}>" in text for name in (*_OPENED, *tools))
    if action.problem is None or is_call or not any(map(str.isalnum, answer)):
        return action
    return replace(action, answer=answer, problem=None)


def whole_sentences(action: Action, tools: Iterable[str]) -> Action:
    """Read the whole sentences of a turn that was cut at its limit of tokens as its answer. A turn that was cut within
    a thought is not an answer."""
    is_open = "<think>" in _without_thought(action.text)
    answer = answer_alone(action, tools).answer if action.problem and not is_open else None
    whole = _WHOLE.match(answer or "")
    return replace(action, answer=whole[1], problem=None) if whole else action


def with_closing_tag(text: str, strings: Sequence[str]) -> str:
    """Append the closing tag that ended a server's reply, which most servers leave out: the tag of the last one opened.
    A reply that contains a closing tag stays unchanged. Tags within a thought have no effect."""
    thought = _THOUGHT.match(text)
    turn = text[thought.end() :] if thought else text
    if any(string in turn for string in strings):
        return text
    place, string = max(((turn.rfind(string.replace("/", "", 1)), string) for string in strings), default=(-1, ""))
    return text + string if place >= 0 else text


class TagRenderer:
    """Renders and parses the tag format with any tokenizer; a chat template, if there is one, wraps the prompt only.

    `calls` maps each tag to its call; `eos_ids` are the model's own (`models.policy.eos_ids`).
    """

    format: Literal["tags"] = "tags"

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, calls: Mapping[str, TagCall] = SEARCH, eos_ids: Sequence[int] = ()
    ) -> None:
        self._tokenizer, self._calls = tokenizer, calls
        self._encoder = TextEncoder(tokenizer, tuple(dict.fromkeys((*TAGS, *calls))))
        self._end_of_turn = check_template(tokenizer).end_of_turn
        ends = end_ids(tokenizer, self._end_of_turn, eos_ids)
        self._stop = StopConditions(stop_strings(calls), ends)
        self._opening, self._closing = map(self._encoder.template, OBSERVATION)

    @property
    def stop(self) -> StopConditions:
        """Stop after a call or an answer, or where the model ends its turn."""
        return self._stop

    def render_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Encode the prompt: through the chat template, or else as one line for each message."""
        if self._tokenizer.chat_template:
            return encode_messages(self._tokenizer, self._encoder, messages)
        bos = self._tokenizer.bos_token_id
        ids = [bos] if bos is not None and bos in self._tokenizer.encode("") else []
        for index, message in enumerate(messages):
            ids += (self._encoder.template("\n") if index else ()) + self._encoder.marked(message.content)
        return tuple(ids)

    def parse(self, token_ids: Sequence[int]) -> Action:
        """Parse the action that ends the turn, after the thought; later text is ignored."""
        return read_action(self._encoder.decode(token_ids), self._calls)

    def put_off(self, token_ids: Sequence[int]) -> tuple[int, ...] | None:
        """Return the ids of the turn up to its answer (in tags or alone), then the tag that opens a search instead;
        None without a search."""
        if "search" not in self._calls:
            return None
        written = self._encoder.decode(token_ids)
        start = span_of_turn(written, self._calls)[0]
        answer = _ANSWER.search(written, start)
        before = written[: answer.start() if answer else start]
        texts = (self._encoder.decode(token_ids[:kept]) for kept in range(len(token_ids), -1, -1))
        kept, text = next((len(token_ids) - cut, text) for cut, text in enumerate(texts) if before.startswith(text))
        return (*token_ids[:kept], *self._encoder.template(f"{before[len(text) :]}<search>"))

    def render_text(self, text: str) -> tuple[int, ...]:
        return (*self._encoder.template(text), *self._stop.token_ids[:1])

    def render_turn(self, thought: str, ending: ToolCall | str, question: str = "") -> tuple[int, ...]:
        """Encode a turn as the model would write it: a thought, a question ("" for none), then a call or an answer.
        Raises PolicyError if `parse` would not read the same turn back."""
        tag, content = ("answer", ending) if isinstance(ending, str) else self._tagged(ending)
        before = [(name, text) for name, text in (("think", thought), ("question", question)) if text]
        written = " ".join(f"<{name}> {text} </{name}>" for name, text in (*before, (tag, content)))
        ids = self._encoder.template(written)
        check_read_back(written, ending, question, self.parse(ids))
        return ids

    def _tagged(self, call: ToolCall) -> tuple[str, str]:
        """Return the tag for a call, and its content. Raises PolicyError for a tool without a tag."""
        for tag, own in self._calls.items():
            if own.tool == call.name:
                if not own.argument:
                    return tag, "\n".join(f"{name}: {value}" for name, value in call.arguments.items())
                value = call.arguments.get(own.argument)
                return tag, "\n".join(map(str, value)) if isinstance(value, list) else str(value)
        raise PolicyError(f"The tag format has no tag for the tool {call.name}. Choose another format or another tool.")

    def render_observation(self, texts: Sequence[str], after: Sequence[int] = ()) -> tuple[int, ...]:
        """Encode <information> with the results' texts; the model continues in the same turn."""
        return (*self._opening, *self._encoder.outside("\n\n".join(texts)), *self._closing)

    def render_notice(self, text: str, after: Sequence[int]) -> tuple[int, ...]:
        """Encode the text as <information> if the model continues in the same turn; as a user message if it ended the
        turn."""
        if after and after[-1] in self._stop.token_ids and self._end_of_turn is not None:
            return encode_reply(self._tokenizer, self._encoder, [Message("user", text)], after, self._end_of_turn)
        return (*self._opening, *self._encoder.marked(text), *self._closing)


class TagMessages:
    """The counterpart of `TagRenderer` for messages, in which only the format's own tags are template text."""

    def __init__(self, calls: Mapping[str, TagCall] = SEARCH) -> None:
        self._calls = calls
        self._tag = re.compile(rf"(</?(?:{'|'.join(map(re.escape, ('think', *calls, 'answer')))})>)")

    @property
    def stop(self) -> tuple[str, ...]:
        return stop_strings(self._calls)

    def parse(self, reply: str) -> Action:
        """Parse a reply as a policy's action. Its text ends where a rollout's completion would end: anything after the
        first call or answer is dropped."""
        _, end = span_of_turn(reply, self._calls)
        return replace(read_action(reply, self._calls), text=reply[:end])

    def assistant_message(self, action: Action) -> Message:
        """Return the model's own turn. It may repeat a page's text, so no control string in it becomes a token."""
        pieces = self._tag.split(action.text)
        return Message("assistant", "".join(trusted(piece) if i % 2 else piece for i, piece in enumerate(pieces)))

    def observation(self, texts: Sequence[str]) -> Message:
        opening, closing = OBSERVATION
        return Message("user", trusted(opening.lstrip()) + "\n\n".join(texts) + trusted(closing.rstrip()))


def check_read_back(written: str, ending: ToolCall | str, question: str, action: Action) -> None:
    """Raise PolicyError unless the action read from a written turn has the same text, question, and call or answer.
    Letter case, accents and white space, which a tokenizer may change, do not count."""
    read = action.answer if isinstance(ending, str) else next(iter(action.tool_calls), None)
    is_same = type(read) is type(ending) and _folded(read) == _folded(ending)
    asks_the_same = _folded(action.question) == _folded(question)
    if is_same and asks_the_same and _folded(action.text) == _folded(written):
        return
    found = action.problem or (read if not is_same else action.text if asks_the_same else action.question)
    raise PolicyError(
        f"the turn {written!r} is read back from its tokens as {found!r}. Its text must not contain a tag or control "
        "string, and the tokenizer must know the tags and every word."
    )


def _folded(written: ToolCall | str | None) -> str:
    """Fold away everything that a tokenizer may change in a text."""
    is_call = isinstance(written, ToolCall)
    text = json.dumps([written.name, dict(written.arguments)], ensure_ascii=False) if is_call else written
    return fold(text or "").replace(" ", "")


def _call(call: TagCall, content: str) -> ToolCall:
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if not call.argument:
        named = (line.partition(":") for line in lines)
        return ToolCall(call.tool, {name.strip(): value.strip() for name, _, value in named})
    return ToolCall(call.tool, {call.argument: lines if call.is_list else content})
