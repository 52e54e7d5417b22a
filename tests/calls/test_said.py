"""What a server's bytes are read as."""

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from evoseek.calls.said import error_message, json_of, quoted
from evoseek.calls.waits import PassingError

JSON = st.recursive(
    st.none() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["error", "message", "else"]), inner),
)


@settings(max_examples=50)
@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_has_words_and_is_json_or_not(body):
    assert isinstance(error_message(body), str | bytes)
    with suppress(PassingError):
        json_of(body, secret="")


def test_the_words_of_an_error_are_found_in_the_usual_places():
    for body in (b'{"error": {"message": "no"}}', b'{"error": "no"}', b'{"message": "no"}'):
        assert error_message(body) == "no"
    assert error_message(b'{"detail": "no"}') == b'{"detail": "no"}'


def test_what_is_said_is_shown_in_quotation_marks_in_one_line_and_without_the_secret():
    assert quoted(b"no\n key  sk-1\xff", "sk-1") == "'no key ***\ufffd'"
    assert quoted("x" * 301, "") == f"'{'x' * 300}...'"
