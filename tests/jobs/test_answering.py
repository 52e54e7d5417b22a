"""Who is given the messages before a question."""

import json
import shutil

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from evoseek.jobs.answering import Answerer
from evoseek.learner.checkpoint import Checkpoint
from evoseek.search.lexical import LexicalIndex
from evoseek.training.context import Context
from evoseek.training.given import load_settings
from evoseek.types import Passage


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
