"""From settings to a chat."""

import asyncio
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

from tests.raising import raises

from evoseek.chat import chats
from evoseek.chat.chats import make_chat
from evoseek.chat.settings import EndpointSettings
from evoseek.models.settings import PolicySettings
from evoseek.types import Message

http = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "chat" / "chat_server.py")))


def test_an_in_process_model_has_the_policys_device_data_type_and_prompts(monkeypatch):
    seen = []

    def load(name, *, device, dtype):
        seen.append((name, device, dtype))
        return load_policy(name, dtype=dtype)

    load_policy = chats.load_policy
    monkeypatch.setattr(chats, "load_policy", load)
    for given, expected in (("auto", "tiny"), ("short", "short")):
        policy = PolicySettings(device="meta", dtype="bfloat16", prompts=given)
        chat, prompts = make_chat(EndpointSettings(model="tiny"), section="judge", seed=0, policy=policy)
        assert (chat.name, chat.is_local, prompts.directory.name) == ("tiny", True, expected)
    assert seen == [("tiny", "meta", "bfloat16")] * 2


def test_an_endpoint_is_sent_what_the_settings_say(monkeypatch):
    monkeypatch.setenv("A_KEY", "sk-1")
    with http.ChatServer(http.replies(http.choice())) as server:
        settings = {"model": "m", "base_url": server.url, "api_key_env": "A_KEY", "max_tokens": 7}
        chat, prompts = make_chat(EndpointSettings(**settings), section="judge", seed=0, policy=PolicySettings())
        assert asyncio.run(chat.chat([Message("user", "who ?")], key="k", form={"type": "object"})) == "Meri"
    (received,) = server.received
    assert received.headers["authorization"] == "Bearer sk-1"
    assert received.body.keys() == {"model", "messages", "max_tokens", "temperature", "seed", "response_format"}
    assert received.body["max_tokens"] == 7
    assert (chat.is_local, prompts.directory.name) == (False, "default")


def test_no_model_and_no_key_are_refused(monkeypatch):
    monkeypatch.delenv("A_KEY", raising=False)
    with raises("model.not_given", match=r"set judge\.model"):
        make_chat(EndpointSettings(), section="judge", seed=0, policy=PolicySettings())
    settings = EndpointSettings(model="m", base_url="http://x/v1", api_key_env="A_KEY")
    with raises("server.no_variable", match=r"judge\.api_key_env is A_KEY, but"):
        make_chat(settings, section="judge", seed=0, policy=PolicySettings())
