"""Who may talk to a server: keys, the Host header and the Origin of a page."""

import httpx2
import openai
import pytest

from evoseek.serve.connection import Guard
from evoseek.serve.keys import Key

KEYS = ["first-key-0123456789", "second-key-0123456789"]


@pytest.fixture(scope="module")
def locked(serving):
    with serving(keys=KEYS, names=["docs.test"]) as served:
        yield served


@pytest.mark.parametrize("key", KEYS)
def test_any_of_the_keys_opens(locked, key):
    models = openai.OpenAI(base_url=f"{locked.url}/v1", api_key=key).models.list()
    assert [model.id for model in models] == ["a-policy"]


@pytest.mark.parametrize(
    "sent", [None, "Bearer", "Bearer wrong", f"Bearer {KEYS[0]}x", f"Basic {KEYS[0]}", KEYS[0], "Bearer schlüssel-ß"]
)
def test_without_one_everything_but_the_page_is_shut(locked, sent):
    headers = {} if sent is None else {"Authorization": sent.encode()}
    for method, path in (
        ("GET", "/v1/models"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/mcp"),
        ("GET", "/metrics"),
        ("GET", "/v1/log"),
        ("GET", "/nowhere"),
    ):
        reply = httpx2.request(method, f"{locked.url}{path}", headers=headers)
        assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert "A key is needed" in reply.json()["error"]["message"]
    for path in ("/", "/chat.css", "/chat.js", "/log", "/log.css", "/log.js", "/health", "/ready"):
        assert httpx2.get(f"{locked.url}{path}").status_code == 200


def test_the_official_client_understands_a_wrong_key(locked):
    with pytest.raises(openai.AuthenticationError, match="The key that was sent is not valid"):
        openai.OpenAI(base_url=f"{locked.url}/v1", api_key="wrong").models.list()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8000", 200),
        ("DOCS.test:80", 200),
        ("evil.example", 421),
        ("evil.example:8000", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("10.0.0.1", 421),
        ("[", 421),
        ("", 421),
    ],
)
def test_a_host_header_from_elsewhere_is_refused(locked, host, status):
    assert httpx2.get(f"{locked.url}/health", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"), [("self", 200), ("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:1", 403)]
)
def test_a_page_from_elsewhere_is_refused(locked, origin, status):
    headers = {"Origin": locked.url if origin == "self" else origin}
    assert httpx2.get(f"{locked.url}/health", headers=headers).status_code == status


def test_at_an_open_address_every_address_may_be_the_host_but_no_strange_name():
    guard = Guard(None, keys=list(map(Key.of, KEYS)), host="0.0.0.0")
    assert [guard._is_own(host) for host in ("10.0.0.1:80", "[fe80::1]", "localhost", "evil.example")] == [
        True,
        True,
        True,
        False,
    ]
    assert Guard(None, keys=list(map(Key.of, KEYS)), host="0.0.0.0", names=None)._is_own("evil.example")


def test_a_key_has_its_own_rate(serving):
    slow = Key(name="slow", sha256=Key.of(KEYS[1]).sha256, per_minute=2)
    with serving(keys=[KEYS[0], slow]) as served:
        sent = {key: [post(served, key) for _ in range(3)] for key in KEYS}
        assert [reply.status_code for reply in sent[KEYS[0]]] == [400, 400, 400]
        assert [reply.status_code for reply in sent[KEYS[1]]] == [400, 400, 429]
        assert sent[KEYS[1]][2].headers["retry-after"] == "30"
        assert "may send 2 requests a minute" in sent[KEYS[1]][2].json()["error"]["message"]
        headers = {"Authorization": f"Bearer {KEYS[1]}"}
        assert httpx2.get(f"{served.url}/v1/models", headers=headers).status_code == 200


def post(served, key):
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.post(f"{served.url}/v1/chat/completions", content=b"{", headers=headers)
