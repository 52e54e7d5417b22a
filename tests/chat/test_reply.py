"""What an endpoint's bodies are read as. All of the shapes are in test_chat_endpoint.py, over HTTP."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoseek.chat.reply import text_of
from evoseek.errors import ReplyError, ToolError
from evoseek.http.retry import TransientError

JSON = st.recursive(
    st.none() | st.booleans() | st.text() | st.sampled_from(["stop", "length"]),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["choices", "message", "content", "finish_reason"]), inner)
    ),
)


@settings(max_examples=50)
@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_a_text_or_an_error_that_is_expected(body):
    with suppress(TransientError, ToolError):
        assert text_of(body, secret="").strip()


def test_a_cut_reply_is_one_that_may_be_asked_for_again():
    with pytest.raises(ReplyError, match="Raise max_tokens"):
        text_of(b'{"choices": [{"finish_reason": "length", "message": {"content": "Me"}}]}', secret="")
