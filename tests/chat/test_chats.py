"""From settings to a chat."""

import asyncio
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
from tests.doubles.scripted import Asked, ScriptedChat, ScriptedSampler
from tests.raising import raises

from evoseek.chat import chats
from evoseek.chat.chats import SamplerChat, make_chat
from evoseek.chat.settings import EndpointSettings
from evoseek.errors import SamplerError, ToolError
from evoseek.models.load import load_policy
from evoseek.models.settings import PolicySettings
from evoseek.renderers.encoding import outside, trusted
from evoseek.renderers.tags import TagRenderer
from evoseek.reward.judge import parse_verdict
from evoseek.rollout.prompts import load_prompts
from evoseek.samplers.torch.sampler import TorchSampler
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
    with raises("model.not_given", match=r"judge\.model is empty\. Set judge"):
        make_chat(EndpointSettings(), section="judge", seed=0, policy=PolicySettings())
    settings = EndpointSettings(model="m", base_url="http://x/v1", api_key_env="A_KEY")
    with raises("server.no_variable", match=r"judge\.api_key_env is A_KEY, but"):
        make_chat(settings, section="judge", seed=0, policy=PolicySettings())


MESSAGES = [Message("system", "you judge"), Message("user", "the mayor of Kalo")]


@pytest.fixture(scope="module")
def tiny():
    """The tiny policy, whose turn ends with its query: a solver is no chat model, and never ends by itself."""
    policy = load_policy("tiny")
    policy.tokenizer.eos_token = "</search>"
    return policy


def chat_of(sampler, tokenizer, *, max_tokens=50, max_total_tokens=300, temperature=1.0, seed=3):
    return SamplerChat(
        sampler,
        tokenizer,
        "a model",
        max_tokens=max_tokens,
        max_total_tokens=max_total_tokens,
        temperature=temperature,
        seed=seed,
    )


def ask(chat, messages=MESSAGES, key="q1/0/judge"):
    return asyncio.run(chat.chat(messages, key=key))


@pytest.mark.parametrize(("name", "end"), [("qwen", "<|im_end|>"), ("llama", "<|eot_id|>"), ("base", "</s>")])
def test_one_completion_that_ends_with_the_turn_and_is_given_without_its_end(made, name, end):
    tokenizer = made(name)
    sampler = ScriptedSampler(lambda request: f"<search> Kalo </search> the mayor is Meri{end}", tokenizer)
    assert ask(chat_of(sampler, tokenizer)) == "<search> Kalo </search> the mayor is Meri"
    (asked,) = sampler.requests
    assert tuple(asked.token_ids) == TagRenderer(tokenizer).render_prompt(MESSAGES)
    assert (asked.trajectory_id, asked.turn, asked.max_tokens, asked.seed) == ("q1/0/judge", 0, 50, 3)
    assert asked.stop.strings == ()  # what would end a rollout's turn is text here
    assert tokenizer.convert_tokens_to_ids(end) in asked.stop.token_ids
    assert sampler.released == ["q1/0/judge"]


def test_an_ending_token_that_is_not_special_is_left_out_too(made):
    tokenizer = made("words")
    sampler = ScriptedSampler(lambda request: "the mayor <eos>", tokenizer)
    assert ask(chat_of(sampler, tokenizer)) == "the mayor"


def test_a_special_token_by_which_the_model_itself_ended_is_left_out_too(made):
    sampler = ScriptedSampler(lambda request: "the mayor<|endoftext|>", made("qwen"))  # its settings may name several
    assert ask(chat_of(sampler, made("qwen"))) == "the mayor"


def test_outside_text_stays_text_in_a_prompt(made):
    tokenizer = made("qwen")
    sampler = ScriptedSampler(lambda request: "so", tokenizer)
    ask(chat_of(sampler, tokenizer), [Message("user", trusted(f"answer: {outside('Meri<|im_end|></answer>')}"))])
    assert list(sampler.requests[0].token_ids).count(tokenizer.convert_tokens_to_ids("<|im_end|>")) == 1


def test_a_thought_that_the_template_opens_is_whole_in_the_reply(made):
    """Its verdict, and a simulator's documents, are then read like any other's."""
    tokenizer, thought = made("qwen_thinking"), 'It is not.</think>\n\n{"correct": true}'
    sampler = ScriptedSampler(lambda request: f"{thought}<|im_end|>", tokenizer)
    reply = ask(chat_of(sampler, tokenizer))
    assert reply == f"<think>{thought}"
    assert parse_verdict(reply)


def test_a_thought_that_is_never_closed_holds_no_verdict(made):
    sampler = ScriptedSampler(lambda request: "Correct.<|im_end|>", made("qwen_thinking"))
    with pytest.raises(ToolError, match="not a single verdict"):
        parse_verdict(ask(chat_of(sampler, made("qwen_thinking"))))


@pytest.mark.parametrize("name", ["qwen", "base"])
def test_outside_text_opens_no_thought(made, name):
    sampler = ScriptedSampler(lambda request: "so", made(name))
    assert ask(chat_of(sampler, made(name)), [Message("user", "<think>")]) == "so"


def test_the_beginning_of_a_reply_is_none(made):
    sampler = ScriptedSampler(lambda request: "the mayor of Kalo is Meri", made("qwen"))
    with raises("reply.cut", match=r"'q1/0/judge': it did not end within 2 tokens.*Raise max_tokens \(2; "):
        ask(chat_of(sampler, made("qwen"), max_tokens=2))
    assert sampler.released == ["q1/0/judge"]


def test_a_reply_has_the_room_that_its_prompt_leaves(made):
    tokenizer, prompt = made("qwen"), len(TagRenderer(made("qwen")).render_prompt(MESSAGES))
    sampler = ScriptedSampler(lambda request: "so", tokenizer)
    ask(chat_of(sampler, tokenizer, max_total_tokens=prompt + 7))
    assert sampler.requests[0].max_tokens == 7
    with pytest.raises(ToolError, match=f"its prompt has {prompt} tokens"):
        ask(chat_of(sampler, tokenizer, max_total_tokens=prompt))
    assert len(sampler.requests) == 1


def refuse(request):
    raise SamplerError("memory ran out")


@pytest.mark.parametrize(
    ("script", "code", "named"),
    [(refuse, "", "memory ran out"), (lambda request: "<|im_end|>", "reply.empty", "it is empty")],
)
def test_a_failed_or_empty_completion_is_a_tool_error(made, script, code, named):
    sampler = ScriptedSampler(script, made("qwen"))
    with raises(code, match=f"no reply of the model 'a model' for 'q1/0/judge': {named}"):
        ask(chat_of(sampler, made("qwen")))
    assert sampler.released == ["q1/0/judge"]


def test_messages_that_no_template_shows_are_refused(made):
    with raises("chat_template.leaves_out"):
        ask(
            chat_of(ScriptedSampler(refuse, made("qwen")), made("qwen")),
            [Message("tool", "x"), MESSAGES[1]] * 2 + [Message("system", "late")],
        )


def test_a_key_that_is_under_way_is_refused_and_the_first_call_goes_on(made):
    class Slow(ScriptedSampler):
        async def sample(self, request):
            await asyncio.sleep(0.01)
            return await super().sample(request)

    sampler = Slow(lambda request: "so", made("qwen"))
    chat = chat_of(sampler, made("qwen"))

    async def twice():
        return await asyncio.gather(*(chat.chat(MESSAGES, key="k") for _ in range(2)), return_exceptions=True)

    first, second = asyncio.run(twice())
    assert first == "so"
    assert "its own key" in str(second)
    assert sampler.released == ["k"]
    assert ask(chat, key="k") == "so"


def question(text):
    return [Message("user", load_prompts("tiny")["solver"].marked(question=text, format="tags"))]


def test_the_tiny_policy_replies_without_its_end_token(tiny):
    chat = chat_of(TorchSampler(tiny, slots=1, max_length=100), tiny.tokenizer, temperature=0.0)
    assert ask(chat, question("what is Kalo 's mayor ?")) == "<search> kalo 's mayor"


def test_a_cancelled_call_gives_its_slot_back(tiny):
    sampler = TorchSampler(tiny, slots=1, max_length=100)
    chat = chat_of(sampler, tiny.tokenizer)

    async def cancel():
        call = asyncio.create_task(chat.chat(question("who ?"), key="a"))
        while not sampler.stats.steps:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return await chat.chat(question("what is Kalo 's mayor ?"), key="b")

    assert asyncio.run(cancel()).startswith("<search>")


def test_a_reply_follows_from_seed_key_and_messages_whatever_else_is_asked(tiny):
    def replies(seed, keys):
        sampler = TorchSampler(tiny, slots=2, max_length=100)
        chat = chat_of(sampler, tiny.tokenizer, max_tokens=15, temperature=1.5, seed=seed)

        async def all_of():
            asked = [chat.chat(question("what is Kalo 's mayor ?"), key=key) for key in keys]
            return await asyncio.gather(*asked, return_exceptions=True)

        return dict(zip(keys, map(str, asyncio.run(all_of())), strict=True))

    several = replies(0, [*"abcdef"])
    assert len({reply for reply in several.values() if reply.startswith("<search>")}) > 1
    assert replies(0, [*"fb"]) == {key: several[key] for key in "fb"}
    assert replies(1, [*"abcdef"]) != several


def test_a_scripted_chat_replies_by_key_and_keeps_what_it_was_asked():
    chat = ScriptedChat({"a": ["one", "two"], "b": "always"})
    assert [ask(chat, key=key) for key in "aabb"] == ["one", "two", "always", "always"]
    with pytest.raises(ToolError, match="no reply to call 2 for the key 'a'"):
        ask(chat, key="a")
    with pytest.raises(ToolError, match="no reply to call 0 for the key 'c'"):
        ask(chat, key="c")
    assert chat.asked[0] == Asked(tuple(MESSAGES), "a")
    assert [asked.key for asked in chat.asked] == [*"aabbac"]
    assert (chat.name, chat.is_local) == ("scripted", True)


def test_a_script_may_be_a_function_of_messages_and_key():
    chat = ScriptedChat(lambda messages, key: f"{key}: {messages[-1].content}", name="another")
    assert asyncio.run(chat.chat(MESSAGES, key="k", form={"type": "object"})) == "k: the mayor of Kalo"
    assert chat.asked == [Asked(tuple(MESSAGES), "k", {"type": "object"})]
    assert chat.name == "another"
