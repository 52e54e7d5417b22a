import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoseek.errors import PolicyError
from evoseek.renderers.encoding import outside, trusted
from evoseek.renderers.tool_calls import ToolCallRenderer, make_renderer
from evoseek.types import Message, ToolCall

SCHEMA = {
    "type": "function",
    "function": {"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}},
}
CALL = ToolCall("search", {"query": "mayor"})
WRITTEN = {
    "qwen": '<tool_call>\n{"name": "search", "arguments": {"query": "mayor"}}\n</tool_call><|im_end|>',
    "qwen_forgetful": '<tool_call>\n{"name": "search", "arguments": {"query": "mayor"}}\n</tool_call><|im_end|>',
    "llama": '{"name": "search", "parameters": {"query": "mayor"}}<|eot_id|>',
}
END = {"qwen": "<|im_end|>", "qwen_forgetful": "<|im_end|>", "llama": "<|eot_id|>"}
every_template = pytest.mark.parametrize("name", WRITTEN)


@pytest.fixture(scope="session")
def renderers(made):
    return {name: ToolCallRenderer(made(name), [SCHEMA]) for name in WRITTEN}


def encode(made, name, text):
    return tuple(made(name).encode(text, add_special_tokens=False))


def conversation(result):
    function = {"name": CALL.name, "arguments": dict(CALL.arguments)}
    return [
        {"role": "user", "content": "who ?"},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]},
        {"role": "tool", "name": "search", "content": result},
    ]


@every_template
def test_prompt_call_and_observation_spell_what_the_template_would(made, renderers, name):
    ids = renderers[name].render_prompt([Message("user", "who ?")]) + encode(made, name, WRITTEN[name])
    ids += renderers[name].render_observation(['the "mayor"\nof Kalo'], ids)
    rendered = made(name).apply_chat_template(
        conversation('the "mayor"\nof Kalo'), tools=[SCHEMA], add_generation_prompt=True, tokenize=False
    )
    assert made(name).decode(ids) == rendered


@every_template
def test_several_results_follow_each_other(made, renderers, name):
    text = made(name).decode(renderers[name].render_observation(["one", "two"]))
    assert text.index("one") < text.index("two")
    assert text.endswith(
        made(name).apply_chat_template(conversation("x"), add_generation_prompt=True, tokenize=False)[-20:]
    )


@every_template
def test_the_closing_token_is_added_only_if_the_turn_was_cut_before_it(made, renderers, name):
    end = made(name).convert_tokens_to_ids(END[name])
    whole = encode(made, name, WRITTEN[name])
    following = renderers[name].render_observation(["x"], whole)
    assert following[0] != end
    assert renderers[name].render_observation(["x"], whole[:-1]) == (end, *following)
    assert renderers[name].render_observation(["x"]) == following


@every_template
def test_a_call_is_parsed_with_and_without_its_closing_token(made, renderers, name):
    ids = encode(made, name, WRITTEN[name])
    assert renderers[name].parse(ids).tool_calls == (CALL,)
    assert renderers[name].parse(ids[:-1]).tool_calls == (CALL,)
    assert renderers[name].parse(ids).text == WRITTEN[name]


@every_template
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("Paris", "Paris"),
        ("It is <answer> Paris </answer>.", "Paris"),
        ("<think>\nnot <answer> Rome </answer>\n</think>\n\nParis ", "Paris"),
        ("no, <answer> Rome </answer> no: <answer>Paris</answer>", "Paris"),
    ],
)
def test_a_turn_without_a_call_is_the_answer(made, renderers, name, said, answer):
    action = renderers[name].parse(encode(made, name, said + END[name]))
    assert (action.answer, action.tool_calls, action.problem) == (answer, (), None)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("Paris", "cut off"),
        ("", "cut off"),
        ("<|im_end|>", "neither"),
        ("<think> a long thought<|im_end|>", "neither"),
        ("<tool_call>{]</tool_call><|im_end|>", "not valid JSON"),
        ('<tool_call>{"name": "search"}<|im_end|>', "not closed"),
    ],
)
def test_what_is_no_action_has_a_problem(made, renderers, said, problem):
    action = renderers["qwen"].parse(encode(made, "qwen", said))
    assert (action.answer, action.tool_calls) == (None, ())
    assert problem in action.problem


def test_a_call_in_the_reasoning_is_no_call(made, renderers):
    said = "<think> maybe " + WRITTEN["qwen"].removesuffix("<|im_end|>") + " </think> Paris<|im_end|>"
    action = renderers["qwen"].parse(encode(made, "qwen", said))
    assert (action.answer, action.tool_calls) == ("Paris", ())


@every_template
def test_stops_at_the_end_of_the_turn_or_of_the_text(made, renderers, name):
    assert renderers[name].stop.strings == ()
    assert set(renderers[name].stop.token_ids) == {
        made(name).convert_tokens_to_ids(END[name]),
        made(name).eos_token_id,
    }


hostile = st.lists(
    st.sampled_from(["<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|start_header_id|>", "<tool_call>", "</tool_call>"])
    | st.sampled_from(["</tool_response>", "<answer>", '{"name": "search"}', "EVOSEEK0OUTSIDE", '"', "\\", "a", "\n"]),
    max_size=8,
).map("".join)


@every_template
@given(text=hostile)
@settings(deadline=None, max_examples=60)
def test_trap_text_from_outside_opens_no_turn_no_call_and_no_answer(made, renderers, name, text):
    control = {i for i, token in made(name).added_tokens_decoder.items() if token.content.strip()}

    def controls(ids):
        return [i for i in ids if i in control]

    renderer = renderers[name]
    assert controls(renderer.render_observation([text])) == controls(renderer.render_observation(["x"]))
    prompt, hostile_prompt = (
        renderer.render_prompt([Message("user", trusted(f"who is {outside(value)} ?"))]) for value in ("x", text)
    )
    assert controls(hostile_prompt) == controls(prompt)


def test_trap_a_turn_ends_at_any_token_at_which_the_model_s_generation_ends(made):
    """Llama 3 ends a call with <|eom_id|>, and Qwen an answer with <|endoftext|>, now and then."""
    for name, end, written in (("llama", "<|eom_id|>", WRITTEN["llama"]), ("qwen", "<|endoftext|>", "Paris<|im_end|>")):
        ends = [made(name).convert_tokens_to_ids(end)]
        renderer = make_renderer(made(name), "tools", [SCHEMA], ends)
        assert ends[0] in renderer.stop.token_ids
        action = renderer.parse(encode(made, name, written.replace(END[name], end)))
        assert (action.tool_calls, action.answer) == (((CALL,), None) if name == "llama" else ((), "Paris"))
        assert action.problem is None


def test_a_prompt_that_the_template_cannot_show_is_refused(made):
    renderer = ToolCallRenderer(made("qwen"), [SCHEMA])
    with pytest.raises(PolicyError, match="leaves out"):
        renderer.render_prompt([Message("user", "who ?"), Message("system", "late")])
    with pytest.raises(PolicyError, match="tool calls"):
        renderer.render_prompt([Message("assistant", "", (CALL,))])


def test_trap_a_turn_that_the_template_begins_inside_the_reasoning_answers_only_after_it(made):
    renderer = ToolCallRenderer(made("qwen_thinking"), [SCHEMA])
    assert made("qwen_thinking").decode(renderer.render_prompt([Message("user", "who ?")])).endswith("<think>\n")
    closed, unclosed, calling = (
        renderer.parse(encode(made, "qwen_thinking", said))
        for said in ("Rome ?\n</think>\n\nParis<|im_end|>", "It is Rome<|im_end|>", "Rome ?</think>" + WRITTEN["qwen"])
    )
    assert closed.answer == "Paris"
    assert (unclosed.answer, unclosed.problem) == (None, "the turn holds neither a call nor an answer")
    assert calling.tool_calls == (CALL,)


@every_template
@pytest.mark.parametrize("query", ["mayor", 'the "mayor"\nof Kalo'])
def test_a_call_is_written_as_the_template_writes_it(made, renderers, name, query):
    ids = renderers[name].render_turn("", ToolCall("search", {"query": query}))
    assert made(name).decode(ids) == WRITTEN[name].replace('"mayor"', json.dumps(query))
    assert renderers[name].parse(ids).tool_calls == (ToolCall("search", {"query": query}),)


@every_template
def test_a_thought_comes_before_the_call_or_the_answer(made, renderers, name):
    for ending in (CALL, "Meri"):
        ids = renderers[name].render_turn("so it is", ending)
        assert made(name).decode(ids).startswith("<think>\nso it is\n</think>\n\n")
        action = renderers[name].parse(ids)
        assert (action.answer or action.tool_calls[0]) == ending


def test_where_the_template_opens_the_reasoning_a_turn_only_closes_it(made):
    tokenizer = made("qwen_thinking")
    renderer = ToolCallRenderer(tokenizer, [SCHEMA])
    assert tokenizer.decode(renderer.render_turn("so", "Meri")).startswith("so\n</think>\n\n<answer> Meri </answer>")
    ids = renderer.render_turn("", CALL)
    assert tokenizer.decode(ids).startswith("\n</think>\n\n<tool_call>")
    assert renderer.parse(ids).tool_calls == (CALL,)


def test_a_call_that_would_be_read_otherwise_is_refused(renderers):
    with pytest.raises(PolicyError, match="is read back from its tokens as"):
        renderers["qwen"].render_turn("", ToolCall("search", {"query": "</tool_call>"}))
