"""Whether the servers that the settings name answer, know the key, and have the model. No key is shown or written.

Each is called once, for its list of models or at its address, within a few seconds. Providers of web search are not
called, since a search costs money: only their key is looked for.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from evoseek.chat.settings import EndpointSettings
from evoseek.cli.doctor.context import Diagnosis, DoctorContext, fault, fine, is_here, warning
from evoseek.config.sections import lookup, tables
from evoseek.errors import EvoseekError
from evoseek.http.limits import Retry
from evoseek.http.server import Reply, Server, check_url
from evoseek.web.providers import PROVIDERS

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Service:
    """A server, the variable with its key, and the model that it should have ("": any)."""

    setting: str
    url: str
    key_env: str
    model: str = ""

    @property
    def key(self) -> str:
        return os.environ.get(self.key_env, "") if self.key_env else ""


def check_services(context: DoctorContext) -> Iterator[Diagnosis]:
    """Every server that is named, the provider's key, and in-process chat models."""
    yield from _provider(context)
    for setting, chat in tables(context.settings):
        if isinstance(chat, EndpointSettings) and chat.model and not chat.base_url and not is_here(chat.model):
            words = f"{chat.model} is not on this machine."
            yield warning(f"{setting}.model", words, f"Correct {setting}.model, or download the model first.")
    if context.settings.answerer.model:
        words = "it writes its calls as tags in its text, which stop strings end; tools of an API are not used"
        yield fine("answerer format", words)
    if context.settings.reward.name == "judge" and not context.settings.judge.model:
        yield fault("judge", "The reward is a judge's, but judge.model is empty.", "Set judge.model.")
    for service in _services(context):
        yield _called(service)


def _services(context: DoctorContext) -> Iterator[_Service]:
    settings = context.settings
    for setting, chat in tables(settings):
        if isinstance(chat, EndpointSettings) and chat.base_url:
            yield _Service(setting, chat.base_url, chat.api_key_env, chat.model)
    if settings.search.name == "remote" and (url := lookup(settings, "search.url")):
        yield _Service("search.url", url, lookup(settings, "search.api_key_env") or "")
    for url in lookup(settings, "sampler.urls") or ():
        yield _Service("sampler.urls", url, lookup(settings, "sampler.api_key_env") or "")


def _provider(context: DoctorContext) -> Iterator[Diagnosis]:
    name = lookup(context.settings, "web.provider")
    if not name or name == "replay":
        return
    usual = PROVIDERS[name].key_env if name in PROVIDERS else ""
    described: dict[str, str] = lookup(context.settings, "web.api") or {}
    variable = described.get("key_env", usual)
    if variable and not os.environ.get(variable):
        words = f"{name} needs a key, but the environment variable {variable} is not set."
        yield fault("web.provider", words, f"export {variable}=... (the key of your account at {name}).")
    else:
        yield fine("web.provider", f"{name}" + (f", with the key in {variable}" if variable else ", without a key"))


def _called(service: _Service) -> Diagnosis:
    if service.key_env and not service.key:
        words = f"The environment variable {service.key_env}, which is to hold the key, is not set."
        return fault(service.setting, words, f"export {service.key_env}=...")
    try:
        check_url(service.url, setting=service.setting, example="http://localhost:8000/v1")
        reply = asyncio.run(_models(service))
    except EvoseekError as error:
        words = f"{service.url} does not answer: {error}"
        return fault(service.setting, words, "Start the server, or correct its address.")
    if reply.status in (401, 403):
        how = f"the key in {service.key_env}" if service.key_env else "a request without a key"
        words = f"{service.url} refuses {how} (status {reply.status})."
        table = service.setting.partition(".")[0]
        return fault(service.setting, words, f"Name the variable with a valid key as {table}.api_key_env.")
    names = _names(reply)
    if service.model and names and service.model not in names:
        words = f"{service.url} has no model {service.model}, but {', '.join(names[:5])}."
        return fault(service.setting, words, f"Set {service.setting}.model to one of them.")
    return fine(service.setting, f"{service.url} answers" + (f" and has {service.model}" if names else ""))


async def _models(service: _Service) -> Reply:
    """The reply to a request for the list of models. Raises ToolError."""
    server = Server(
        setting=service.setting,
        api_key=service.key,
        timeout_s=TIMEOUT_S,
        retry=Retry(attempts=1, wait_s=0.0),
        concurrency=1,
    )
    headers = {"Authorization": f"Bearer {service.key}"} if service.key else {}
    url = service.url.rstrip("/") + ("/models" if service.model else "")
    return await server.call(lambda client: server.send(client, "GET", url, headers=headers))


def _names(reply: Reply) -> list[str]:
    try:
        listed: Any = json.loads(reply.body)
        return [str(cast("dict[str, Any]", one)["id"]) for one in listed["data"]]
    except (ValueError, LookupError, TypeError):
        return []
