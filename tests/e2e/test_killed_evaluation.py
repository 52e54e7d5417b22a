"""An evaluation killed with SIGKILL at any moment and resumed ends with the very same results.

It is killed 3 times in all in `make check`, 6 times in `make test`, 100 times in `make night`.
"""

import json
import random
import signal

import pytest
from tests.rings import sized

KILLS = sized(check=3, test=6, night=100)
WATCHED = ("sample", "rollout", "replace", "fsync", "unlink")
MOMENTS = ("before", "after", "torn")
QUESTIONS, SAMPLES = 12, 2
RESULTS = ("results.json", "results.md")

pytestmark = pytest.mark.slow

POLICY = '''
"""Writes one of four turns, drawn by the trajectory's id, and takes more or less long for it."""
import asyncio

from evoseek.samplers.torch.draw import turn_uniforms
from tests.doubles.scripted import ScriptedSampler

TURNS = "<search> north </search>", "<answer> north </answer>", "<answer> gold river </answer>", "gold"


class Quick(ScriptedSampler):
    @classmethod
    def build(cls, settings, context):
        return cls(cls.write, context.policy.tokenizer)

    @staticmethod
    def write(request):
        turn, _ = turn_uniforms(request.seed, request.trajectory_id, request.turn, 2)
        return TURNS[int(4 * turn)]

    async def sample(self, request):
        for _ in range(int(20 * turn_uniforms(request.seed, request.trajectory_id, request.turn, 2)[1])):
            await asyncio.sleep(0)
        return await super().sample(request)
'''


@pytest.fixture(scope="module")
def evaluate(setting, processes, tmp_path_factory):
    """`evaluate(out, kill_at=n, moment="torn")`: the command, when it has ended, and its status."""
    folder = tmp_path_factory.mktemp("policy")
    (folder / "quick.py").write_text(POLICY)
    rows = [{"id": f"q{n}", "question": "north is", "answer": "north", "hops": 1 + n % 2} for n in range(QUESTIONS)]
    questions = folder / "questions.jsonl"
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("eval", "--model", setting.model, "--index", setting.index, "--questions", questions, "--samples", SAMPLES)

    def run(out, **kill):
        more = ("--set", "sampler.name=quick:Quick", "--set", "policy.prompts=tiny", "--seed", 3)
        command = processes.start(*words, *more, "--out", out, folder=folder, watch=WATCHED, **kill)
        (status,) = command.wait()
        return command, status

    return run


def test_killed_again_and_again_it_ends_with_the_same_results(evaluate, tmp_path):
    command, status = evaluate(tmp_path / "whole")
    assert status == 0, command.said()
    assert command.events.count("sample") == QUESTIONS * SAMPLES
    expected = [(tmp_path / "whole" / name).read_bytes() for name in RESULTS]
    found = json.loads(expected[0])
    assert (found["final"], found["n"], found["samples"], found["by"]["hops"]["exact_match"]["2"]["n"]) == (
        True,
        QUESTIONS,
        SAMPLES,
        QUESTIONS // 2,
    )
    rng, kills, rounds = random.Random(0), 0, 0
    while kills < KILLS:
        rounds += 1
        out, status = tmp_path / f"killed-{rounds}", None
        while status != 0:
            kill_at = rng.randint(1, 2 * QUESTIONS) if kills < KILLS else None
            command, status = evaluate(out, kill_at=kill_at, moment=rng.choice(MOMENTS))
            assert status in (0, -signal.SIGKILL), command.said()
            kills += status != 0
        assert [(out / name).read_bytes() for name in RESULTS] == expected
        rows = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
        assert len(rows) == len({(row["question"], row["number"]) for row in rows}) == QUESTIONS * SAMPLES
        recorded = [json.loads(line)["id"] for line in (out / "trajectories.jsonl").read_text().splitlines()]
        assert sorted(recorded) == sorted(f"evaluation/{row['question']}/{row['number']}" for row in rows)
