"""What answers: the policy or another model, its environment, the messages before a question, and the certainty of an
answer from the logprobs of its own tokens."""

import asyncio
import json
import math
import shutil
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tools.tiny.tokenizer import tiny_tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

from evoseek.agent.answer import Answerer, CitedF1, certainty_of, chat_environment
from evoseek.agent.support import by_words
from evoseek.assembly.context import Context
from evoseek.assembly.sources import load_settings
from evoseek.errors import ToolError
from evoseek.renderers.encoding import split_trusted
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller, score
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.checkpoints import Checkpoint
from evoseek.types import (
    Action,
    Invalid,
    Message,
    Passage,
    Question,
    Scored,
    Segment,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
)


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    """A model with a chat template, a run with a checkpoint of it, and an index."""
    folder, tokenizer = tmp_path_factory.mktemp("answering"), made("qwen")
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = Qwen2Config(vocab_size=len(tokenizer), num_attention_heads=1, num_key_value_heads=1, **sizes)
    Qwen2ForCausalLM(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    shutil.copytree(folder / "model", folder / "run" / "checkpoints" / "step-000001" / "policy")
    (folder / "run" / "config.json").write_text(json.dumps({"policy": {"model": str(folder / "model")}}))
    LexicalIndex.build(folder / "index", [Passage("a#0", "a", "Kalo", "Kalo lies by the sea.")])
    return folder


def reads_history(folder, model, checkpoint=None):
    settings = load_settings(sets=[f"policy.model={folder / model}", f"search.index={folder / 'index'}"])
    with Context(settings, checkpoint=checkpoint) as context:
        return Answerer.of(context).reads_history


def test_a_policy_that_a_run_trained_gets_the_last_question_alone_and_any_other_model_the_conversation(folder):
    assert reads_history(folder, "model")
    checkpoint = Checkpoint(folder / "run" / "checkpoints" / "step-000001", 1, {}, {"policy": {}}, "")
    assert not reads_history(folder, "model", checkpoint)
    assert not reads_history(folder, "run")


@pytest.mark.parametrize(("length", "most"), [(40, 9), (2, 1)])
def test_of_a_long_conversation_the_last_messages_that_have_room_are_kept(folder, monkeypatch, length, most):
    """Few lengths are tried, since each time all of it is rendered."""
    sets = [f"policy.model={folder / 'model'}", f"search.index={folder / 'index'}", "rollout.max_turns=1"]
    limits = ["rollout.max_total_tokens=1600", "rollout.max_tokens_per_turn=4"]
    tried, has_room = [], Roller.has_room
    monkeypatch.setattr(Roller, "has_room", lambda self, asked: tried.append(asked) or has_room(self, asked))
    history = [Message(("user", "assistant")[n % 2], f"{n} " + "so it goes " * 6) for n in range(length)]
    with Context(load_settings(sets=[*sets, *limits])) as context:
        answerer = Answerer.of(context)
        answered = asyncio.run(answerer.answer("Who?", "t", history=history))
        question = Question("t", "Who?", ())
        fits = [n for n in range(0, length, 2) if has_room(answerer.solver.after(history[n:]), question)]
    assert answered.dropped == min(fits)
    assert (answered.dropped > 0) == (length == 40)
    assert len(tried) <= most


@pytest.fixture
def context(tmp_path):
    LexicalIndex.build(tmp_path / "index", [Passage("kalo#0", "kalo", "Kalo", "Meri is the mayor of Kalo.")])
    sets = [f"search.index={tmp_path / 'index'}", "rollout.max_tool_calls=4", "rollout.max_turns=3"]
    with Context(load_settings(sets=sets)) as context:
        yield context


def prompt(env):
    (message,) = env.messages(Question("q", "Who?", ("Meri",)))
    return "".join(piece for _, piece in split_trusted(message.content))


def test_it_searches_by_tags_and_is_told_how_often_it_can(context):
    env, limits = chat_environment(context, load_prompts("default"), context.held_out_engine)
    assert (set(env.tools), limits.max_tool_calls, limits.max_turns) == ({"search"}, 4, 3)
    assert "at most 2 times" in prompt(env)  # the third turn can only answer
    assert "inside <search> and </search>" in prompt(env)


def test_without_searching_it_has_no_tools_and_is_not_told_of_any(context):
    env, _ = chat_environment(context, load_prompts("default"), context.held_out_engine, search=False)
    assert env.tools == {}
    assert "search" not in prompt(env)


def test_the_certainty_of_a_greedy_answer_is_that_of_the_model_at_temperature_1(context):
    """Computed again, by a forward pass over the whole rollout."""
    answered = asyncio.run(Answerer.of(context).answer_alone("who is the mayor of Kalo ?"))
    rolled, agent = answered.trajectory, context.agent
    assert rolled.answer
    with torch.no_grad():
        logits = agent.policy.model(torch.tensor([rolled.token_ids])).logits[0].float()
    logprobs = torch.log_softmax(logits, dim=-1)
    turn = rolled.segments[-1].token_ids
    first = len(rolled.token_ids) - len(turn)
    own = [n for n, id in enumerate(turn) if agent.decode([id]).strip() in rolled.answer.split()]
    chosen = [logprobs[first + n - 1, turn[n]].item() for n in own]
    assert answered.certainty == pytest.approx(math.exp(sum(chosen) / len(chosen)), rel=1e-4)
    assert answered.json["certainty"] in (answered.certainty, None)


QUESTION = Question("q", "who?", ("meri",))


def certainty(answer, *turns, temperature=0.0, actions=None):
    """Of turns of pieces with their logprobs: a token is a place in the list of all pieces."""
    pieces = [piece for turn in turns for piece, _ in turn]
    segments, first = [Segment("prompt", (0,))], 0
    for turn in turns:
        ids = tuple(range(first, first + len(turn)))
        segments += [Segment("action", ids, tuple(logprob for _, logprob in turn)), Segment("observation", (0,))]
        first += len(turn)
    made = actions or [*[Action("")] * (len(turns) - 1), Action("", answer=answer)]
    reason = StopReason.MAX_TURNS if answer is None else StopReason.ANSWERED
    rolled = Trajectory("t", QUESTION, "solver", tuple(segments), tuple(made), (), reason, answer)
    return certainty_of(rolled, lambda ids: "".join(pieces[id] for id in ids), temperature=temperature)


@pytest.mark.parametrize(
    ("answer", "turn", "places"),
    [
        ("Meri Tolu", [("<answer>", -9), (" Meri", -1), (" Tolu", -2), (" </answer>", -9)], (1, 2)),
        # a token that holds a part of the answer and a part of a tag counts
        ("Meri Tolu", [("<answer> M", -1), ("eri Tolu", -2), ("</answer>", -9)], (0, 1)),
        # neither what was thought nor the letters of a tag are the answer
        (
            "we",
            [("<think> we", -9), (" do </think>", -9), ("<answer> ", -9), ("we", -3), ("</ans", -9), ("wer>", -9)],
            (3,),
        ),
        # what follows a closed answer is ignored
        ("a b", [("<answer>a", -1), (" b</answer>", -2), (" a b", -9)], (0, 1)),
        # the last message is the answer
        (
            "Meri",
            [("<think>", -9), ("Meri?</think>", -9), ("\n\n", -9), ("Me", -1), ("ri", -4), ("<|im_end|>", -9)],
            (3, 4),
        ),
        ("1 < 2", [("1 <", -1), (" 2", -2), ("<eos>", -9)], (0, 1)),
        ("Meri (b. 1950)", [("<answer> Meri (b.", -1), (" 1950) ", -1.5), ("</answer>", -9)], (0, 1)),
        # a token without text of its own, such as a part of a character
        ("\u6771\u4eac", [("<answer>", -9), ("\u6771", -1), ("", -2), ("\u4eac", -3), ("</answer>", -9)], (1, 2, 3)),
    ],
)
def test_the_tokens_of_the_answer_count_and_no_others(answer, turn, places):
    expected = math.exp(sum(turn[place][1] for place in places) / len(places))
    assert certainty(answer, turn) == pytest.approx(expected)


def test_of_several_turns_the_one_that_answers_counts():
    search = [("<search> Meri </search>", -9)]
    answer = [("<answer>", -9), ("Meri", -0.5), ("</answer>", -9)]
    assert certainty("Meri", search, answer) == pytest.approx(math.exp(-0.5))
    first = [Action("", answer="Meri"), Action("", answer="Tor")]  # of a baseline, whose first part may answer
    assert certainty("Meri", answer, search, actions=first) == pytest.approx(math.exp(-0.5))
    again = [("<answer> ", -9), ("Meri", -0.25), (" </answer>", -9)]  # the first one was put off
    twice = [Action("", answer="Meri")] * 2
    assert certainty("Meri", answer, again, actions=twice) == pytest.approx(math.exp(-0.25))


TURN = [("<answer>", -9), ("Meri", -0.5), ("</answer>", -9)]


@pytest.mark.parametrize(
    ("answer", "turns", "temperature", "expected"),
    [
        ("Meri", [TURN], 1.0, math.exp(-0.5)),
        ("Meri", [TURN], 0.7, None),  # whose logprobs are those of temperature 0.7
        (None, [TURN], 0.0, None),
        ("", [[("<answer></answer>", -9)]], 0.0, None),
        ("Meri", [], 0.0, None),  # a model that was called with messages
        ("Tor", [TURN], 0.0, None),
    ],
)
def test_without_an_answer_or_its_logprobs_at_temperature_1_there_is_no_certainty(answer, turns, temperature, expected):
    found = certainty(answer, *turns, temperature=temperature)
    assert found == (expected if expected is None else pytest.approx(expected))


@given(st.lists(st.sampled_from(["meri", "kalo", "answer", "."]), min_size=1, max_size=4), st.floats(-5, 0))
def test_the_mean_is_over_as_many_tokens_as_the_answer_has(words, logprob):
    tokenizer, answer = tiny_tokenizer(), " ".join(words)
    ids = tuple(tokenizer.encode(f"<think> {answer} </think> <answer> {answer} </answer>", add_special_tokens=False))
    own = tuple(tokenizer.encode(answer, add_special_tokens=False))
    place = max(n for n in range(len(ids)) if ids[n : n + len(own)] == own and n + len(own) < len(ids))
    logprobs = tuple(logprob if place <= n < place + len(own) else -7.0 for n in range(len(ids)))
    rolled = Trajectory(
        "t", QUESTION, "solver", (Segment("action", ids, logprobs),), (Action("", answer=answer),), (),
        StopReason.ANSWERED, answer,
    )  # fmt: skip
    assert certainty_of(rolled, tokenizer.decode, temperature=1.0) == pytest.approx(math.exp(logprob))


FOUND = Passage("a#0", "a", "Pump", "To stop the pump, press the red key for three seconds. It is loud.")
LONG = Question("q", "how do I stop the pump?", ("Press the red key.",), {"support": ["It is loud."]})


def earned(question, answer, check=by_words):
    found = (ToolResult(ToolCall("search", {}), "", (FOUND,)),)
    rolled = Trajectory("t", question, "solver", (), (), (), StopReason.ANSWERED, answer, opening=found)
    return asyncio.run(score(rolled, CitedF1(check)))


def test_the_reward_of_sentences_is_of_what_the_check_leaves_of_them():
    """Three words of three; of a second sentence the four words count as written."""
    answer = "Press the red key [1]."
    assert earned(LONG, answer) == Scored(1.0, {"cited_f1": 1.0})
    assert earned(LONG, f"{answer} Ada Birk likes it.").reward == pytest.approx(2 * 3 / (7 + 3) - 0.1 * 4 / 3)
    assert earned(LONG, "Press the blue key.").reward == 0.0
    assert earned(LONG, None).reward == 0.0


def test_short_answers_earn_f1_and_refusals_where_there_is_no_answer():
    short, none = Question("q", "which key?", ("red key",)), Question("q", "?", (), {"answerable": False})
    assert earned(short, "key [1]").reward == pytest.approx(2 / 3)
    assert [earned(none, answer).reward for answer in ("Not found in the documents.", "Red.")] == [1.0, 0.0]
    marked = replace(LONG, golden_answers=(), metadata={**LONG.metadata, "answerable": False})
    assert earned(marked, "Press the red key.").reward == 0.0


def test_a_check_that_fails_makes_the_rollout_invalid():
    async def fails(trajectory):
        raise ToolError("the judge is down")

    assert earned(LONG, "Press it.", fails) == Invalid(StopReason.REWARD_FAILED, "the judge is down")


def test_the_reward_is_a_part(folder):
    sets = [f"policy.model={folder / 'model'}", f"search.index={folder / 'index'}", "reward.name=cited_f1"]
    with Context(load_settings(sets=sets)) as context:
        assert isinstance(context.reward, CitedF1)
