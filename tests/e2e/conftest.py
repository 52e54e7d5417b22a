"""A complete small setting on disk: a random model with its own tokenizer, an index, questions, a config."""

import contextlib
import io
import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from evoseek.cli.main import main
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage

WORDS = ("north", "south", "river", "stone", "gold", "seven")
TAGS = tuple(f"<{slash}{name}>" for name in ("search", "information", "answer") for slash in ("", "/"))

MAKERS = run_path(str(Path(__file__).parents[1] / "doubles" / "made_tokenizers.py"))["MAKERS"]
ARCHITECTURES = {
    "tools": (Qwen2ForCausalLM, Qwen2Config, "qwen"),  # a chat template with tool calls
    "tags": (LlamaForCausalLM, LlamaConfig, "base"),  # no chat template
}


@pytest.fixture(scope="session")
def processes(fork_server):
    """`processes.start("train", ...)` begins a command in a process of its own."""
    return fork_server("warm")


@dataclass(frozen=True)
class Setting:
    """Where everything lies."""

    root: Path

    @property
    def model(self) -> Path:
        return self.root / "model"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def questions(self) -> Path:
        return self.root / "questions.jsonl"

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    def train(self, run_dir: Path, *more: str) -> list[str]:
        """The words of a training command."""
        return ["train", "search-r1", "--run-dir", str(run_dir), "--config", str(self.config), *more]


@dataclass(frozen=True)
class Trained:
    """A run that nothing interrupted, and what its command said. It is shared: copy it to change it."""

    path: Path
    said: str

    def copy(self, place: Path) -> Path:
        return shutil.copytree(self.path, place)


def make_tokenizer() -> PreTrainedTokenizerFast:
    pieces = {piece: number for number, piece in enumerate(("<unk>", "<eos>", *WORDS, *TAGS))}
    tokenizer = Tokenizer(models.WordLevel(pieces, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_tokens(list(TAGS))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>", pad_token="<eos>")


def make_model(directory: Path) -> None:
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=256,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    teach_the_format(model, tokenizer)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def teach_the_format(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """A second of training, so that rollouts search and answer, with words at random."""
    rng = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(120):
        texts = []
        for _ in range(16):
            a, b, c, d = (rng.choice(WORDS) for _ in range(4))
            search = f" <search> {b} </search> <information> {b} is {c} </information>" * rng.randrange(2)
            texts.append(f"? ? {a} is{search} <answer> {d} </answer>")
        batch = tokenizer(texts, return_tensors="pt", padding=True)
        labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
        optimizer.zero_grad()
        model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=labels).loss.backward()
        optimizer.step()


@pytest.fixture(scope="session")
def setting(tmp_path_factory) -> Setting:
    setting = Setting(tmp_path_factory.mktemp("setting"))
    make_model(setting.model)
    passages = [Passage(f"{word}#0", word, word, f"{word} is {WORDS[n - 1]}") for n, word in enumerate(WORDS)]
    LexicalIndex.build(setting.index, passages)
    rows = [
        {"id": f"q{n}", "question": f"{word} is", "golden_answers": list(WORDS[:3])} for n, word in enumerate(WORDS)
    ]
    setting.questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    setting.config.write_text(f"""
[policy]
model = "{setting.model}"
prompts = "tiny"
[search]
index = "{setting.index}"
[questions]
path = "{setting.questions}"
per_step = 3
[reward]
name = "f1"
[sampler]
slots = 8
[rollout]
group_size = 4
max_turns = 3
max_tokens_per_turn = 12
max_total_tokens = 160
[evaluation]
path = "{setting.questions}"
every = 2
[learner]
learning_rate = 1e-2
[run]
steps = 4
checkpoint_every = 1
""")
    return setting


@pytest.fixture(scope="session")
def trained(setting, tmp_path_factory) -> Trained:
    """The setting's run, whole."""
    path, said = tmp_path_factory.mktemp("trained") / "run", io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setattr("sys.argv", ["evoseek", *setting.train(path)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code, said.getvalue()
    return Trained(path, said.getvalue())


@pytest.fixture(scope="session")
def random_model():
    """`random_model(format, directory)` writes a small model with random weights, as models of that format are built:
    "tools" or "tags"."""

    def make(form: str, directory: Path) -> Path:
        model_class, config_class, tokenizer_name = ARCHITECTURES[form]
        tokenizer = MAKERS[tokenizer_name]()
        torch.manual_seed(0)
        config = config_class(
            vocab_size=len(tokenizer) + 8,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=8192,
            eos_token_id=tokenizer.eos_token_id,
        )
        model_class(config).save_pretrained(directory)
        tokenizer.save_pretrained(directory)
        return directory

    return make


@pytest.fixture
def cli(capsys, monkeypatch):
    """Run the command line in this process: (exit status, stdout, stderr)."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["evoseek", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run
