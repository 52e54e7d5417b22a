"""A chat with a model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

import httpx2

from evoseek.errors import CutReplyError, EmptyReplyError, PolicyError, ToolError
from evoseek.http.pool import CallPool
from evoseek.http.retry import Retry
from evoseek.http.said import json_of, quoted
from evoseek.http.server import Server, check_url
from evoseek.http.spending import Prices, spend
from evoseek.policy.encoding import harmless, split_trusted, well_formed
from evoseek.types import Message

_BAD_REQUEST = frozenset({400, 422})


class EndpointChat:
    """Implements `Chat` by POST {base_url}/chat/completions. `name` is the endpoint's name of the model.

    Calls are made and retried as `Server` says; a reply that is not JSON counts as transient. Every other failure is
    final: another status, a refusal, a filtered, cut or empty reply.

    What is sent: the messages, `max_tokens` (by the name `max_tokens_name`), `temperature`, a seed that follows from
    `seed` and the key, and, if `structured`, a call's form; without those of temperature and seed that `omit` names.
    With `prices`, every reply is counted as money of `part` (`spending`), also one that is then refused here.
    The server may read control strings in a message's text, so in outside text they are broken (`encoding.harmless`).

    Raises ConfigError for a base_url that is no URL or holds a query or a password, for an api_key that no header can
    hold, and for limits that allow no call. The api_key is in no error's text, even if the server repeats it.
    """

    is_local = False

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str,
        max_tokens: int,
        temperature: float,
        timeout_s: float,
        attempts: int,
        concurrency: int,
        seed: int,
        structured: bool = True,
        max_tokens_name: str = "max_tokens",
        omit: Collection[str] = (),
        prices: Prices | None = None,
        part: str = "",
        wait_s: float = 1.0,
        max_wait_s: float = 60.0,
    ) -> None:
        check_url(base_url, setting="base_url", example="http://localhost:8000/v1")
        self.name = model
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._api_key = api_key
        self._limit, self._temperature, self._seed = {max_tokens_name: max_tokens}, temperature, seed
        self._structured, self._omit = structured, frozenset(omit)
        self._prices, self._part = prices, part
        self._server = Server(
            setting="base_url",
            api_key=api_key,
            timeout_s=timeout_s,
            retry=Retry(attempts, wait_s, max_wait_s),
            pool=CallPool(concurrency=concurrency),
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
        )

    async def chat(self, messages: Sequence[Message], *, key: str, form: Mapping[str, object] | None = None) -> str:
        """The reply's text. Raises ToolError: CutReplyError for a reply that was cut, EmptyReplyError for an empty
        one."""
        payload = self._payload(messages, key, form)
        try:
            return await self._server.call(lambda client: self._attempt(client, payload))
        except ToolError as error:
            what = f"There is no reply of the model {self.name!r} at {self._url}: {error}"
            raise type(error)(what) from error

    def _payload(self, messages: Sequence[Message], key: str, form: Mapping[str, object] | None) -> dict[str, object]:
        if any(message.tool_calls for message in messages):
            raise PolicyError("A prompt for an endpoint holds a message with tool calls, which are not sent. Use text.")
        payload: dict[str, object] = {
            "model": self.name,
            "messages": [{"role": message.role, "content": _sent(message.content)} for message in messages],
            **self._limit,
            "temperature": self._temperature,
            "seed": random.Random(f"{self._seed}/chat/{key}").getrandbits(31),
        }
        if form is not None and self._structured:
            schema = {"name": "reply", "schema": dict(form), "strict": True}
            payload["response_format"] = {"type": "json_schema", "json_schema": schema}
        return {name: value for name, value in payload.items() if name not in self._omit}

    async def _attempt(self, client: httpx2.AsyncClient, payload: Mapping[str, object]) -> str:
        reply = await self._server.send(client, "POST", self._url, json=payload)
        if reply.is_success:
            if self._prices is not None:
                spend(self._part, self._prices.of(json_of(reply.body, secret=self._api_key)))
            return text_of(reply.body, secret=self._api_key)
        what = f"{self._server.refusal(reply)}. It is not asked again: correct base_url, the model's name, the key or "
        what += "the prompt."
        if reply.status in _BAD_REQUEST:
            what += (
                " If it names a parameter that it does not take: structured=false sends no response_format, "
                'omit=["temperature", "seed"] neither of the two, and max_tokens_name=max_completion_tokens the limit '
                "by that name."
            )
        raise ToolError(what)


def _sent(content: str) -> str:
    """A message's text without the marks of template text."""
    pieces = (piece if is_template else harmless(piece) for is_template, piece in split_trusted(content))
    return well_formed("".join(pieces))


# What a server writes apart from content, also where its model did not mean to: such a reply is not empty.
_OTHER_TEXT = ("tool_calls", "reasoning_content", "reasoning")


def text_of(body: bytes, *, secret: str) -> str:
    """The text in the body of a success: of the first choice, if the model came to its end.

    Raises TransientError for a body that is not JSON, CutReplyError for a reply that was cut, EmptyReplyError for one
    without text, ToolError for any other that is none. They say what is wrong, not whose reply it is.
    """
    match json_of(body, secret=secret):
        case {"choices": [{"message": {"refusal": str(refusal)}}, *_]} if refusal:
            raise ToolError(f"the model refused: {quoted(refusal, secret)}. Change the prompt, or the model.")
        case {"choices": [{"finish_reason": "length"}, *_]}:
            raise CutReplyError("it was cut at its limit of tokens. Raise max_tokens, or ask for less in the prompt.")
        case {"choices": [{"finish_reason": "content_filter"}, *_]}:
            raise ToolError("the server's content filter held it back. Change the prompt, or the endpoint.")
        case {"choices": [{"finish_reason": "stop", "message": {"content": str(content)}}, *_]} if content.strip():
            return well_formed(content)
        case {"choices": [{"finish_reason": "stop", "message": {"content": None | str()} as message}, *_]} if not any(
            message.get(name) for name in _OTHER_TEXT
        ):
            raise EmptyReplyError(
                f"it is empty: {quoted(body, secret)}. Ask for a reply in the prompt, or take another model."
            )
        case _:
            raise ToolError(
                "expected a first choice with the finish_reason 'stop' and a message with text as content, but got "
                f"{quoted(body, secret)}. Check that base_url is that of a chat endpoint, and model the name of a "
                "model that replies with text."
            )
