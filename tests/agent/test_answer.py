"""What answers: the policy or another model, its environment, and the messages that it is given before a question."""

import asyncio
import json
import math
import shutil

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from evoseek.agent.answer import Answerer, chat_environment
from evoseek.assembly.context import Context
from evoseek.assembly.sources import load_settings
from evoseek.renderers.encoding import split_trusted
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.checkpoints import Checkpoint
from evoseek.types import Message, Passage, Question


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
