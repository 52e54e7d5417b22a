"""A search task in a generated world, and a small policy that solves part of it through Qwen2.5's chat template.

The policy (d = 128, 4 layers, a byte-level tokenizer) is taught in a few minutes by demonstrations that search once a
hop. At temperature 1 it calls the tool in nearly every rollout and is right in about a quarter of them.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from evoseek.learner.learner import Learner, LearnerContext
from evoseek.learner.logprobs import LogprobModel
from evoseek.learner.settings import LearnerSettings
from evoseek.loss.likelihood import CrossEntropyLoss
from evoseek.models.load import Policy, save_policy
from evoseek.renderers.tool_calls import ToolCallRenderer
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.tools import SearchTool
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Question, TrainingSample
from evoseek.world.world import RELATIONS, World

sys.path.append(str(Path(__file__).parents[1]))  # for tools

from tools.tiny.model import tiny_config, tiny_model
from tools.tiny.muon import MuonAdamW

TOP_K, VOCABULARY, SEED = 3, 1024, 0
DEMONSTRATIONS, TEACHING_STEPS, DEMONSTRATIONS_PER_STEP = 800, 200, 12


class SearchTask:
    """Questions of 1 to 4 hops about a world of 1,000 entities, and its index in `folder`."""

    def __init__(self, folder: Path) -> None:
        world = World.generate(SEED, 1000, "train")
        self.passages = list(world.passages())
        self.index = LexicalIndex.build(folder / "index", self.passages)
        self.questions, self.taught = world.questions(400, seed=1), world.questions(DEMONSTRATIONS, seed=2)
        prompts = load_prompts("tiny")
        self.observation = prompts["observation"]
        self.tool = SearchTool(self.index, TOP_K, template=self.observation)
        self.env = SolverEnv([self.tool], prompts, "tools")

    def search(self, query: str):  # no return type: TRL would put it into the tool's schema
        """Search a collection of documents and read the best passages.

        Args:
            query: What to look for, in a few words.
        """
        return self.observation.text(passages=self.index.find(query, TOP_K))


def make_tokenizer(task: SearchTask, chat_template: str) -> PreTrainedTokenizerFast:
    """Byte-level BPE with Qwen's control tokens. A word takes the space after it, so names look the same everywhere."""
    engine = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(r"'s ?|\w+ ?|[^\w\s]+ ?|\s"), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.pre_tokenizer = pre_tokenizers.Sequence([words, to_bytes])
    engine.decoder = decoders.ByteLevel()
    texts = [passage.text for passage in task.passages] + [question.text for question in task.taught]
    texts += 300 * [chat_template, json.dumps(task.tool.schema), "solve : ", *RELATIONS]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    engine.train_from_iterator(texts, trainer)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    engine.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    tags = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
    engine.add_tokens([AddedToken(text, special=False, normalized=False) for text in tags])
    made = PreTrainedTokenizerFast(tokenizer_object=engine, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    made.chat_template = chat_template
    return made


def demonstration(question: Question, task: SearchTask, renderer: ToolCallRenderer, policy: Policy) -> TrainingSample:
    """One search a hop, what it told, and the answer, in the ids that the rollout loop would have."""
    ids = list(renderer.render_prompt(task.env.messages(question)))
    mask = [False] * len(ids)

    def write(text: str) -> None:
        new = policy.tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False)
        ids.extend(new)
        mask.extend([True] * len(new))

    found = ""
    for subject, relation, name in question.metadata["chain"]:
        query = f"{subject}'s {relation}"
        call = json.dumps({"name": "search", "arguments": {"query": query}})
        write(f"{found}<tool_call>\n{call}\n</tool_call>")
        ids += renderer.render_observation([task.search(query)])
        mask += [False] * (len(ids) - len(mask))
        found = f"{query} is {name}.\n"
    write(f"{found}<answer>{name}</answer>")
    zeros = (0.0,) * len(ids)
    return TrainingSample(tuple(ids), tuple(mask), zeros, zeros)


def teach(directory: Path, task: SearchTask, chat_template: str) -> None:
    """Make the policy and save it to `directory`."""
    tokenizer = make_tokenizer(task, chat_template)
    config = tiny_config(len(tokenizer), eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    policy = Policy(tiny_model(config, SEED), tokenizer, "bench")
    renderer = ToolCallRenderer(tokenizer, [task.tool.schema])
    samples = [demonstration(question, task, renderer, policy) for question in task.taught]
    settings = LearnerSettings(learning_rate=0.02, warmup_steps=10, token_budget=8192)
    context = LearnerContext(LogprobModel(policy.model), CrossEntropyLoss(), total_steps=TEACHING_STEPS)
    learner = Learner(settings, context, MuonAdamW)
    rng = random.Random(SEED)
    for step in range(1, TEACHING_STEPS + 1):
        loss = learner.update(rng.sample(samples, DEMONSTRATIONS_PER_STEP))["loss"]
        if step % 20 == 0:
            print(f"teaching {step}/{TEACHING_STEPS}  loss {loss:.3f}", flush=True)
    save_policy(policy, directory)
