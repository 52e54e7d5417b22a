"""What a server's bytes are read as."""

import html
import json
import ssl
from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoseek.http.limits import TransientError
from evoseek.http.server import certificates, error_message, json_of, redacted

JSON = st.recursive(
    st.none() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["error", "message", "else"]), inner),
)


@settings(max_examples=50)
@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_has_words_and_is_json_or_not(body):
    assert isinstance(error_message(body), str | bytes)
    with suppress(TransientError):
        json_of(body, secret="")


def test_the_words_of_an_error_are_found_in_the_usual_places():
    for body in (b'{"error": {"message": "no"}}', b'{"error": "no"}', b'{"message": "no"}'):
        assert error_message(body) == "no"
    assert error_message(b'{"detail": "no"}') == b'{"detail": "no"}'


def test_what_is_said_is_shown_in_quotation_marks_in_one_line_and_without_the_secret():
    assert redacted(b"no\n key  sk-1\xff", "sk-1") == "'no key ***\ufffd'"
    assert redacted("x" * 301, "") == f"'{'x' * 300}...'"


KEY = "sk-Ab/1+2=3&4\"5%6'7"


@pytest.mark.parametrize("spelt", [KEY, quote(KEY, safe=""), json.dumps(KEY)[1:-1], html.escape(KEY)])
def test_a_secret_is_not_shown_in_the_usual_encodings(spelt):
    said = redacted(f"GET /?api_key={spelt} HTTP", KEY)
    assert "***" in said
    for start in range(len(spelt) - 8):
        assert spelt[start : start + 8] not in said
    assert said.startswith("'GET /?api_key=")
    assert said.endswith(" HTTP'")


def test_a_secret_in_pieces_at_the_end_of_what_is_read_is_not_shown():
    for spaces in range(16 * 1024 - 20, 16 * 1024 + 2):
        assert "secret" not in redacted(" " * spaces + "my-secret-key and more", "my-secret-key").replace("***", "")


def test_the_certificates_of_servers_are_checked_against_what_is_read_once():
    trusted = certificates()
    assert trusted is certificates()
    assert (trusted.verify_mode, trusted.check_hostname) == (ssl.CERT_REQUIRED, True)
