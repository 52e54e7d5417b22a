import copy

import pytest
from tests.raising import raises

from evoseek.renderers.chat_template import check_template, parse_hermes, parse_json
from evoseek.renderers.tool_calls import make_renderer
from evoseek.types import ToolCall

SIMPLE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def with_template(made, template):
    tokenizer = copy.deepcopy(made("qwen"))
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize(
    ("name", "call_format", "end", "escapes"),
    [
        ("qwen", "hermes", "<|im_end|>", False),
        ("qwen_forgetful", "hermes", "<|im_end|>", False),
        ("llama", "json", "<|eot_id|>", True),
    ],
)
def test_says_what_a_template_can_do(made, name, call_format, end, escapes):
    report = check_template(made(name), "tools")
    assert (report.call_format, report.escapes_results) == (call_format, escapes)
    assert report.end_of_turn == made(name).convert_tokens_to_ids(end)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (None, "no chat template"),
        (SIMPLE, "does not show the tools"),
        (SIMPLE.replace("{{", "{{ tools | tojson if tools and loop.first else '' }}{{", 1), "leaves out the calls"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "closes the model's turn with no token"),
        (
            SIMPLE.replace("{{", "{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{{", 1),
            "no tools",
        ),
        (
            SIMPLE.replace(
                "{{", "{{ tools | string if tools and loop.first else '' }}{{ m.tool_calls | string }}{{", 1
            ),
            "unknown shape",
        ),
    ],
)
def test_a_model_without_tool_calls_is_refused_in_that_format_and_gets_tags_otherwise(made, template, reason):
    tokenizer = with_template(made, template)
    with raises("chat_template.no_tool_calls", match=reason):
        check_template(tokenizer, "tools")
    with raises("chat_template.no_tool_calls"):
        make_renderer(tokenizer, "tools", [])
    assert check_template(tokenizer).call_format is None
    assert make_renderer(tokenizer).format == "tags"


def test_the_longest_control_token_closes_the_turn(made):
    tokenizer = with_template(made, SIMPLE)
    tokenizer.add_tokens(["<|im_e"])
    assert check_template(tokenizer).end_of_turn == made("qwen").convert_tokens_to_ids("<|im_end|>")


def test_auto_takes_tool_calls_where_the_template_has_them(made):
    assert make_renderer(made("llama"), "auto", []).format == "tools"
    assert make_renderer(made("llama"), "tags").format == "tags"
    assert "no chat template" in str(check_template(made("base")))


def test_reasoning_that_only_the_prompt_opens_does_not_hide_the_shape_of_calls(made):
    turns, opening = made("qwen").chat_template.rsplit("<|im_start|>assistant\\n", 1)
    report = check_template(with_template(made, f"{turns}<|im_start|>assistant\\n<think>\\n{opening}"), "tools")
    assert report.call_format == "hermes"


CALL = ToolCall("search", {"query": "mayor"})


def test_hermes_calls_stand_between_tags_in_order():
    text = (
        'I look. <tool_call>\n{"name": "search", "arguments": {"query": "mayor"}}\n</tool_call>'
        '<tool_call>{"name": "browse"}</tool_call>'
    )
    assert parse_hermes(text) == (CALL, ToolCall("browse", {}))
    assert parse_hermes("no call") == ()


def test_a_json_call_is_the_whole_turn():
    assert parse_json(' {"name": "search", "parameters": {"query": "mayor"}} ') == (CALL,)
    assert parse_json('<|python_tag|>{"name": "search", "parameters": {"query": "mayor"}}') == (CALL,)
    assert parse_json('The call is {"name": "search"}') == ()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('{"name": "search", "arguments": {"query": ', "not valid JSON"),
        ('{"name": 3}', "name"),
        ('["search"]', '"name"'),
        ('{"name": "search", "arguments": "mayor"}', "not an object"),
        ("[" * 100_000, "not valid JSON"),
        ("{'name': 'search'}", "not valid JSON"),
        ('{"name": "search", "arguments": {"query": NaN}}', "NaN"),
        ('{"name": "search", "arguments": {"k": -Infinity}}', "Infinity"),
        ('{"name": "search", "arguments": {"k": 1e999}}', "1e999"),
    ],
)
def test_what_cannot_be_read_is_said_in_words(body, problem):
    with pytest.raises(ValueError, match=problem):
        parse_hermes(f"<tool_call>{body}</tool_call>")


def test_half_a_character_is_replaced_wherever_it_stands():
    body = r'{"name": "s\ud83d", "arguments": {"q\ud83d": ["a\udc00", {"b": "\ud83d\ude00"}], "k": 3}}'
    expected = ToolCall("s\ufffd", {"q\ufffd": ["a\ufffd", {"b": "\U0001f600"}], "k": 3})
    assert parse_hermes(f"<tool_call>{body}</tool_call>") == (expected,)


def test_an_open_call_and_trailing_text_are_problems():
    with pytest.raises(ValueError, match="not closed"):
        parse_hermes('<tool_call>{"name": "search"}')
    with pytest.raises(ValueError, match="not valid JSON"):
        parse_json('{"name": "search"} and more')
