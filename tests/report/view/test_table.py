import base64
import gzip
import json

from hypothesis import given
from hypothesis import strategies as st
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.models.source import tiny_policy_dir
from evoseek.report.view.table import TokenTexts, packed, script_json, source_hash


def test_tokens_are_shown_as_they_stand_in_the_middle_of_a_text():
    tokenizer, notes = tiny_tokenizer(), []
    tokens = TokenTexts(tiny_policy_dir() / "tokenizer.json", notes)
    ids = tokenizer.encode("<search> kalo 's mayor </search>")
    tokens.add(ids)
    assert "".join(tokens.texts[id] for id in ids).split() == tokenizer.decode(ids).split()
    assert notes == []


def test_without_a_tokenizer_there_is_a_note(tmp_path):
    notes = []
    tokens = TokenTexts(None, notes)
    (tmp_path / "tokenizer.json").write_text("{")
    TokenTexts(tmp_path / "tokenizer.json", notes).add([1])
    tokens.add([1])
    assert tokens.texts == {}
    assert "holds no tokenizer" in notes[0]
    assert "cannot be read as a tokenizer" in notes[1]


HOSTILE = "</script><script>alert(1)</script><!-- ]]> &lt; \u2028 \u2029 \u202e \x00 \ud800 ${x} {{x}}"


@given(
    st.recursive(
        st.text() | st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_in_a_script_is_ascii_without_markup_and_reads_back(value):
    text = script_json(value)
    assert text.isascii()
    assert not set(text) & set("<>&\x00\r\n")
    assert json.loads(text) == value


def test_hostile_text_cannot_end_the_script():
    assert script_json(HOSTILE).startswith('"\\u003c/script\\u003e')
    assert json.loads(script_json(HOSTILE)) == HOSTILE


def test_numbers_that_are_not_finite_are_null():
    assert script_json({"a": [float("nan"), 1.5], "b": float("-inf")}) == '{"a":[null,1.5],"b":null}'


def test_a_packed_part_is_base64_of_compressed_json_and_the_same_every_time():
    text = packed([HOSTILE])
    assert text == packed([HOSTILE])
    assert text.rstrip("=").replace("+", "a").replace("/", "a").isalnum()
    assert json.loads(gzip.decompress(base64.b64decode(text))) == [HOSTILE]


def test_the_hash_of_a_script():
    # echo -n "alert(1)" | openssl dgst -sha256 -binary | base64
    assert source_hash("alert(1)") == "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"
