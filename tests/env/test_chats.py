"""From settings to a chat."""

import asyncio
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest

from evoseek.chat.settings import ChatSettings
from evoseek.env import chats
from evoseek.env.chats import make_chat
from evoseek.errors import ConfigError
from evoseek.types import Message

http = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "chat" / "chat_server.py")))


@pytest.mark.parametrize(
    ("settings", "loaded"),
    [
        ({}, ("tiny", "meta", "float32")),
        ({"device": "cpu", "dtype": "bfloat16"}, ("tiny", "cpu", "bfloat16")),
    ],
)
def test_a_model_in_here_has_its_own_device_and_numbers_or_the_policys_device(monkeypatch, settings, loaded):
    seen = []

    def load(name, *, device, dtype):
        seen.append((name, device, dtype))
        return load_policy(name, dtype=dtype)

    load_policy = chats.load_policy
    monkeypatch.setattr(chats, "load_policy", load)
    chat, prompts = make_chat(ChatSettings(model="tiny", **settings), section="judge", seed=0, device="meta")
    assert seen == [loaded]
    assert (chat.name, chat.is_local, prompts.directory.name) == ("tiny", True, "tiny")


def test_an_endpoint_is_sent_what_the_settings_say(monkeypatch):
    monkeypatch.setenv("A_KEY", "sk-1")
    with http.ChatServer(http.replies(http.choice())) as server:
        settings = {"model": "m", "base_url": server.url, "api_key_env": "A_KEY", "max_tokens": 7}
        given = {"structured": False, "omit": ("seed",), "max_tokens_name": "max_completion_tokens"}
        chat, prompts = make_chat(ChatSettings(**settings, **given), section="judge", seed=0)
        assert asyncio.run(chat.chat([Message("user", "who ?")], key="k", form={"type": "object"})) == "Meri"
    (received,) = server.received
    assert received.headers["authorization"] == "Bearer sk-1"
    assert received.body.keys() == {"model", "messages", "max_completion_tokens", "temperature"}
    assert received.body["max_completion_tokens"] == 7
    assert (chat.is_local, prompts.directory.name) == (False, "default")


def test_no_model_and_no_key_are_refused(monkeypatch):
    monkeypatch.delenv("A_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"set judge\.model"):
        make_chat(ChatSettings(), section="judge", seed=0)
    with pytest.raises(ConfigError, match=r"judge\.api_key_env is A_KEY, but"):
        make_chat(ChatSettings(model="m", base_url="http://x/v1", api_key_env="A_KEY"), section="judge", seed=0)
