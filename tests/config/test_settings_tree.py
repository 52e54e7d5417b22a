"""Settings as nested mappings."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.config.settings_tree import merge, read_tree, tree_of, words_of
from evoseek.errors import ConfigError


@pytest.mark.parametrize(("name", "text"), [("a.toml", "[run]\nsteps = 1\n"), ("a.json", '{"run": {"steps": 1}}')])
def test_a_file_may_begin_with_a_byte_order_mark(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert read_tree(tmp_path / name) == {"run": {"steps": 1}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=1e-4", 1e-4),
        ("a.b=/some/path", "/some/path"),
        ('a.b="quoted=text"', "quoted=text"),
        ("a.b = [0.9, 0.95]", [0.9, 0.95]),
        ("a.b=true", True),
        ("a.b=", ""),
    ],
)
def test_set_takes_toml_values_and_bare_texts(text, value):
    assert tree_of({}, [text]) == {"a": {"b": value}}


def test_options_that_were_not_given_are_not_there_and_set_goes_over_the_others():
    assert tree_of({"a.b": 1, "a.c": None, "d": 2}, ["a.b=3"]) == {"a": {"b": 3}, "d": 2}


def test_set_needs_a_key_and_a_value():
    with pytest.raises(ConfigError, match=r"--set got 'a\.b', expected key=value"):
        tree_of({}, ["a.b"])


@pytest.mark.parametrize("sets", [["loss=x", "loss.clip=3"], ["loss.clip=3", "loss=x"], ["loss.name=x", "loss.clip=3"]])
def test_a_text_in_the_place_of_a_table_is_a_parts_name(sets):
    assert tree_of({}, sets) == {"loss": {"name": "x", "clip": 3}}


def test_one_tree_goes_over_another_table_by_table():
    below = {"run": {"steps": 3, "seed": 1}, "x": 1, "list": [1, 2]}
    over = {"run": {"steps": 4}, "y": 2, "list": [3]}
    assert merge(below, over) == {"run": {"steps": 4, "seed": 1}, "x": 1, "y": 2, "list": [3]}
    assert below == {"run": {"steps": 3, "seed": 1}, "x": 1, "list": [1, 2]}


@pytest.mark.parametrize(
    ("below", "over", "merged"),
    [
        ({"name": "a", "n": 1}, {"m": 2}, {"name": "a", "n": 1, "m": 2}),
        ({"name": "a", "n": 1}, {"name": "a", "m": 2}, {"name": "a", "n": 1, "m": 2}),
        ({"n": 1}, {"name": "b"}, {"n": 1, "name": "b"}),  # who is meant by the first is not said
        ({"name": "a", "n": 1}, {"name": "b", "m": 2}, {"name": "b", "m": 2}),
        ({"name": "a", "n": 1}, "b", {"name": "b"}),
        ({"name": "a", "n": 1}, "a", {"name": "a", "n": 1}),
        ("a", {"m": 2}, {"name": "a", "m": 2}),
        ("a", {"name": "b"}, {"name": "b"}),
        ("a", "b", "b"),
    ],
)
def test_the_settings_of_one_part_do_not_go_over_those_of_another(below, over, merged):
    assert merge({"loss": below}, {"loss": over}) == {"loss": merged}


@pytest.mark.parametrize(
    ("name", "text", "phrase"),
    [
        ("c.json", "[1]", "it holds list"),
        ("c.json", "[" * 100_000, "recursion"),
        ("c.toml", "a = " + "[" * 100_000, "recursion"),
        ("c.toml", "[run", "Expected"),
    ],
)
def test_a_file_that_holds_no_settings(tmp_path, name, text, phrase):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=phrase):
        read_tree(tmp_path / name)


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e6, 1e6) | st.text("abc:/ '\"\\[]{}=.,#é\n", min_size=1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "words"]), inner, max_size=2),
    max_leaves=5,
)


@given(VALUES.filter(lambda value: not isinstance(value, str)) | st.sampled_from(["mine:Part", "http://a:1/v1", "a b"]))
def test_settings_are_the_same_after_they_were_printed_for_a_shell(value):
    option, text = shlex.split(words_of({"table.key": value}))
    assert (option, tree_of({}, [text])) == ("--set", {"table": {"key": value}})
