"""Checks that the servers of the settings answer, know the key, and have the model. No key is shown or written.

Each server is called once, for its list of models or at its address, within a few seconds. Providers of web search are
not called, since a search costs money: only their key is looked for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from evoseek.chat.settings import EndpointSettings
from evoseek.cli.doctor.checks import Diagnosis, DoctorContext, fault, fine, tried, warning
from evoseek.config.sections import lookup, tables
from evoseek.errors import EvoseekError
from evoseek.http.limits import Retry
from evoseek.http.server import Reply, Server, check_url, key_of
from evoseek.models.shape import is_here
from evoseek.search.settings import SearchSettings
from evoseek.web.settings import WebSettings
from evoseek.web.web import make_web_engine

TIMEOUT_S = 5.0


def check_services(context: DoctorContext) -> Iterator[Diagnosis]:
    """Check every server that is named, the provider's key, and in-process chat models."""
    settings = context.settings
    web: WebSettings | None = lookup(settings, "web")
    if web is not None and web.provider not in ("", "replay"):
        yield tried("web.provider", partial(_provider, web, settings.search))
    if settings.answerer.model:
        words = "it writes calls as tags in its text, ended by stop strings; the tools of its API are not used"
        yield fine("answerer format", words)
    for table, chat in tables(settings):
        if not isinstance(chat, EndpointSettings):
            continue
        if chat.base_url:
            yield tried(table, partial(_called, table, table, chat.base_url, chat.api_key_env, chat.model))
        elif chat.model and not is_here(chat.model):
            words = f"{chat.model} is not on this machine."
            yield warning(f"{table}.model", words, f"Correct {table}.model, or download the model first.")
    urls = {"search.url": [lookup(settings, "search.url")], "sampler.urls": lookup(settings, "sampler.urls") or ()}
    for setting, url in ((setting, url) for setting, own in urls.items() for url in own if url):
        table = setting.partition(".")[0]
        yield tried(setting, partial(_called, setting, table, url, lookup(settings, f"{table}.api_key_env") or ""))


def _provider(web: WebSettings, search: SearchSettings) -> str:
    make_web_engine(web.model_copy(update={"cache": ""}), search, ExitStack())  # refuses one without its key
    return f"{web.provider}, with the key that it needs, if any"


def _called(setting: str, table: str, url: str, key_env: str, model: str = "") -> Diagnosis:
    """Check that a server answers and has the model ("": any). Raises ConfigError for a wrong address or key."""
    key = key_of(key_env, setting=f"{table}.api_key_env")
    check_url(url, setting=setting, example="http://localhost:8000/v1")
    retry, address = Retry(attempts=1, wait_s=0.0), url.rstrip("/") + ("/models" if model else "")
    server = Server(setting=setting, api_key=key, timeout_s=TIMEOUT_S, retry=retry, concurrency=1)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        reply = asyncio.run(server.call(lambda client: server.send(client, "GET", address, headers=headers)))
    except EvoseekError as error:
        return fault(setting, f"{url} does not answer: {error}", "Start the server, or correct its address.")
    if reply.status in (401, 403):
        how = f"the key in {key_env}" if key_env else "a request without a key"
        words = f"{url} refuses {how} (status {reply.status})."
        return fault(setting, words, f"Name the variable with a valid key as {table}.api_key_env.")
    names = _names(reply)
    if model and names and model not in names:
        words = f"{url} has no model {model}, but {', '.join(names[:5])}."
        return fault(setting, words, f"Set {table}.model to one of them.")
    return fine(setting, f"{url} answers" + (f" and has {model}" if names else ""))


def _names(reply: Reply) -> list[str]:
    try:
        listed: Any = json.loads(reply.body)
        return [str(one["id"]) for one in listed["data"]]
    except (ValueError, LookupError, TypeError):  # no OpenAI-compatible list of models
        return []
