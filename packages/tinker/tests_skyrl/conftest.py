"""SkyRL's server with the tiny policy, on this machine's CPU, and a world of its questions.

`make test-tinker` sets the environment up. TINKER_CACHE is where the server keeps what it has compiled.
"""

import json
import os
import sys
import tarfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load as load_tensors

from evoseek.models.source import tiny_policy_dir
from evoseek.questions.questions import save_questions
from evoseek.samplers.vllm.process import HOST, ServerCommand, free_ports, launch
from evoseek.search.lexical import LexicalIndex
from evoseek.world.world import World

# One thread, and few shapes to compile for: batches are filled up to these numbers of sequences.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_COMPILATION_CACHE_DIR": os.environ.get("TINKER_CACHE", ""),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "HF_HUB_OFFLINE": "1",
}
BACKEND = {
    "max_lora_adapters": 32,  # every run keeps its roles' until it ends
    "max_lora_rank": 8,
    "train_micro_batch_size": 8,
    "sample_max_num_sequences": 16,
    "loss_chunk_size": 0,
}


@dataclass(frozen=True)
class Server:
    """A running server, and the directory in which it saves weights."""

    url: str
    checkpoints: Path

    def weights(self, saved):
        """The tensors of an adapter that was saved for sampling, by peft's names."""
        model, name = saved.removeprefix("tinker://").split("/")
        with tarfile.open(self.checkpoints / model / "sampler_weights" / f"{name}.tar.gz") as archive:
            (member,) = [one for one in archive.getmembers() if one.name.endswith("adapter_model.safetensors")]
            return load_tensors(archive.extractfile(member).read())


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("server")
    (port,) = free_ports(1)
    words = [sys.executable, str(Path(__file__).parent / "serve.py"), "api", "--port", str(port)]
    words += ["--base-model", str(tiny_policy_dir()), "--backend-config", json.dumps(BACKEND)]
    words += ["--checkpoints-base", str(root / "checkpoints"), "--database-url", f"sqlite:///{root / 'server.db'}"]
    url = f"http://{HOST}:{port}"
    with ExitStack() as closing:
        launch({url: ServerCommand(words, ENVIRONMENT)}, root, closing)
        yield Server(url, root / "checkpoints")


@pytest.fixture(scope="session")
def common(server, tmp_path_factory):
    """Settings of every run: few questions, and adapters of rank 4."""
    root = tmp_path_factory.mktemp("world")
    world = World.generate(5, 200, "train")
    LexicalIndex.build(root / "index", world.passages())
    save_questions(root / "questions.jsonl", world.questions(60, seed=5, hops=(1, 2)))
    return {
        "search.index": str(root / "index"),
        "questions.path": str(root / "questions.jsonl"),
        "questions.per_step": 4,
        "search.top_k": 1,
        "rollout.group_size": 4,
        "lora.rank": 4,
        "learner.name": "tinker",
        "learner.base_url": server.url,
        "learner.base_model": str(tiny_policy_dir()),
        "learner.gradient": "mean",
        "learner.learning_rate": 3e-3,
        "sampler.name": "tinker",
        "sampler.probe_every": 1,
        "run.checkpoint_every": 1,
        "run.pause_s": 0,
    }
