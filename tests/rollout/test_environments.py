import random
from functools import partial

import pytest
from tools.tiny.demonstrations import NOTHING, DemonstrationShares, Demonstrator
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.renderers.encoding import plain, split_trusted
from evoseek.renderers.tags import TagRenderer
from evoseek.rollout.environments import ReaderEnv, SearchFirstEnv, SolverEnv
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.tools import FunctionTool, SearchTool
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Message, Passage, Question
from evoseek.world.world import World


def test_asks_the_question_as_outside_text_in_the_renderers_format():
    tool = SearchTool(None, template=load_prompts("tiny")["observation"])
    env = SolverEnv([tool], load_prompts("default"), "tools")
    (message,) = env.messages(Question("q", "who <answer> ?", ("Meri",)))
    pieces = list(split_trusted(message.content))
    assert (env.role, dict(env.tools), message.role) == ("solver", {"search": tool}, "user")
    assert pieces[-1] == (False, "who <answer> ?")
    assert "<search>" not in pieces[0][1]


def test_another_prompt_of_the_set_may_be_chosen():
    env = SolverEnv([], load_prompts("default"), "tags", prompt="solver_web")
    text = plain(env.messages(Question("q", "who ?", ()))[0].content)
    assert all(tag in text for tag in ("<think>", "</search>", "</browse>", "<information>", "</answer>"))
    assert text.endswith("Question: who ?")
    tools = plain(
        SolverEnv([], load_prompts("default"), "tools", prompt="solver_web")
        .messages(Question("q", "who ?", ()))[0]
        .content
    )
    assert "<browse>" not in tools
    tiny = SolverEnv([], load_prompts("tiny"), prompt="solver_web").messages(Question("q", "who ?", ()))
    assert plain(tiny[0].content) == "solve : who ?"


KALO = Passage("a#0", "a", "Kalo", "Kalo's mayor is Meri.")
NIDA = Passage("b#0", "b", "Nida", "Nida's mayor is </answer>.")
ASKED = Question("q", "Who is Kalo's mayor?", ("Meri",))


def said(env) -> str:
    (message,) = env.messages(ASKED)
    return plain(message.content)


def weather(city: str, day: int) -> str:
    """Say the weather."""
    return f"{city} {day}"


@pytest.mark.parametrize("prompts", ["default", "short"])
def test_a_tool_of_ones_own_is_described_in_the_tag_format_alone(prompts):
    tools = [FunctionTool(weather), SearchTool(None, template=load_prompts("tiny")["observation"])]
    line = 'write a line "name: value" for each of city, day inside <weather> and </weather>'
    assert line in said(SolverEnv(tools, load_prompts(prompts)))
    assert "<search>" in said(SolverEnv(tools, load_prompts(prompts)))
    assert "weather" not in said(SolverEnv(tools, load_prompts(prompts), "tools"))
    assert line in said(SearchFirstEnv(tools, load_prompts(prompts)))


def test_without_a_search_the_prompt_offers_none():
    env = SolverEnv([FunctionTool(weather)], load_prompts("default"))
    assert "<search>" not in said(env)
    assert "documents" not in said(env)
    assert "<weather>" in said(env)
    told = plain(env.malformed("it is wrong"))
    assert "To call weather, write its arguments inside <weather> and </weather>." in told
    assert "<search>" not in told


def test_reads_without_tools():
    env = ReaderEnv([KALO], load_prompts("tiny"))
    assert (env.role, dict(env.tools)) == ("reader", {})
    assert env.messages(ASKED)[0].role == "user"


def test_the_tiny_prompt_is_token_for_token_that_which_the_tiny_policy_learnt(tmp_path):
    world, renderer = World.generate(11, 300, "pretrain"), TagRenderer(tiny_tokenizer())
    index = LexicalIndex.build(tmp_path / "index", world.passages())
    demonstrator = Demonstrator(world, partial(index.find, k=3), DemonstrationShares(), random.Random(0))
    for _ in range(10):
        shown = demonstrator.draw("read")[0].text
        passages = sorted((p for p in world.passages() if p.text in shown), key=lambda p: shown.index(p.text))
        question = shown[len("read : ") : shown.index(passages[0].text) if passages else None].strip()
        messages = ReaderEnv(passages, load_prompts("tiny")).messages(Question("q", question, ()))
        assert renderer.render_prompt(messages) == renderer.render_prompt([Message("user", shown)])


@pytest.mark.parametrize("format", ["tags", "tools"])
def test_the_default_prompt_shows_the_passages_and_has_a_word_for_not_knowing(format):
    text = said(ReaderEnv([KALO, NIDA], load_prompts("default"), format))
    assert "[1] Kalo\nKalo's mayor is Meri.\n[2] Nida\n" in text
    assert f"<answer> {NOTHING} </answer>" in text
    assert "You cannot search" in text
    assert ("<think>" in text) == (format == "tags")
    assert text.endswith("\nQuestion: Who is Kalo's mayor?")
    assert "\n\n\n" not in text


def test_without_passages_it_is_asked_what_it_knows():
    text = said(ReaderEnv([], load_prompts("default")))
    assert text.startswith("Answer the question from what you know.")
    assert text.endswith("\n\nQuestion: Who is Kalo's mayor?")
    assert "search" not in text
    assert "passages" not in text
    assert NOTHING not in text


@pytest.mark.parametrize("name", ["tiny", "default"])
def test_passages_and_question_are_outside_text(name):
    (message,) = ReaderEnv([KALO, NIDA], load_prompts(name)).messages(ASKED)
    template = "".join(piece for is_template, piece in split_trusted(message.content) if is_template)
    assert not {word for word in ("Kalo", "Meri", "Nida", ASKED.text) if word in template}
