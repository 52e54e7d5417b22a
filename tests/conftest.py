"""Scripted rollouts and episodes, and a learner that records what it is given."""

import asyncio
import gc
import itertools
import json
import os
import random
import selectors
import shutil
import subprocess
import sys
import time
from functools import cache, partial
from pathlib import Path
from runpy import run_path

import pytest
import torch
import typer.main
import typer.testing
from hypothesis import settings
from tests.doubles.scripted import ScriptedSampler
from tests.rings import RING, runs, sized
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.renderers.tags import TagRenderer
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.record import TrajectoryWriter, read_trajectories
from evoseek.rollout.roller import Roller
from evoseek.training.rollouts import QuestionRollouts
from evoseek.types import (
    Action,
    Episode,
    Invalid,
    Question,
    Scored,
    Segment,
    StopReason,
    Trajectory,
    TrajectoryGroup,
)

TOKENIZER = tiny_tokenizer()

# A process runs one command; here one runs hundreds, and making the command line takes a twentieth of a second.
typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)

# Until all tests are collected, what is made stays: see pytest_collection.
gc.disable()

# The same examples in every run of a ring but at night, however long one takes on a busy machine.
settings.register_profile(
    "evoseek",
    derandomize=RING != "night",
    print_blob=True,
    deadline=None,
    max_examples=sized(check=15, test=50, night=200),
)
settings.load_profile("evoseek")


def make_rollouts(path, texts, *, number=1, group_size=2):
    script = {f"step-{number:06d}/{key}": [f"<answer> {text} </answer>"] for key, text in texts.items()}
    sampler = ScriptedSampler(script, TOKENIZER, logprob=-0.5)
    return QuestionRollouts(
        roller=Roller(SolverEnv([], load_prompts("tiny")), TagRenderer(TOKENIZER), sampler, Limits()),
        reward=AnswerReward(),
        trajectories=TrajectoryWriter(path / "trajectories.jsonl", TOKENIZER.decode),
        group_size=group_size,
    )


class Skipping(selectors.DefaultSelector):
    """Skips time in which nothing happens, so that computing takes none."""

    now = 0.0

    def select(self, timeout=None):
        ready = super().select(timeout if timeout is None else min(timeout, 0.005))
        self.now += 0.0 if ready else timeout or 0.0
        return ready


def run_skipping(main):
    selector = Skipping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """What is converted is not kept in this user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["EVOSEEK_CACHE"] = str(folder)
    yield
    shutil.rmtree(folder)


@pytest.fixture
def in_no_time():
    """`in_no_time(coroutine)`: as asyncio.run, in a loop that does not wait for its clock. Servers on the loopback may
    run in it too."""
    return run_skipping


class Recorder:
    """A learner that keeps the batches and losses it is given; it reports the loss 0.25 in the first update, 0.5 in the
    second, ..."""

    def __init__(self):
        self.batches, self.losses = [], []

    @property
    def step(self):
        return len(self.batches)

    def update(self, samples, loss=None):
        self.batches.append(list(samples))
        self.losses.append(loss)
        return {"loss": len(self.batches) / 4, "learner/skipped_no_signal": float(len(self.batches))}


class ScriptedPlay:
    """Episodes whose proposals come to what `says` gives for the task: the text of a question and its reward, the name
    of a rejection, or Invalid. Of two attempts at each question one is right. When `checked`, a reader read each."""

    metric, right_from, near_duplicates = "exact_match", 0.7, 1.0

    def __init__(self, says):
        self.says, self.calls, self.solved, self.checked = says, [], [], False
        self.earlier = []

    async def __call__(self, tasks, key, *, solve=True, stages=None, earlier=()):
        self.calls.append((key, list(tasks), solve))
        self.earlier.append(len(earlier))
        return [await self._episode(task, key, solve) for task in tasks]

    async def solve(self, question, key):
        self.solved.append((key, question))
        group = f"{key}/{question.id}"
        attempts = tuple(rollout(f"{group}/{index}", question, "solver") for index in range(2))
        return TrajectoryGroup(group, attempts, tuple(Scored(r, {"exact_match": r}) for r in (1.0, 0.0)))

    async def solve_all(self, questions, keys):
        return [await self.solve(*pair) for pair in zip(questions, keys, strict=True)]

    async def _episode(self, task, key, solve):
        proposal, said = rollout(f"{key}/proposals/{task.id}", task, "proposer"), self.says(task)
        if isinstance(said, Invalid):
            return Episode(proposal, said)
        if isinstance(said, str):
            return Episode(proposal, Scored(0.0, {f"rejected/{said}": 1.0}), rejected=said)
        text, reward = said
        question = Question(task.id, text, ("meri",), {"requested": task.task.requested, "evidence": []})
        solvers = await self.solve(question, key) if solve else None
        checks = ((rollout(f"{key}/{question.id}/reading-0", question, "reader"), Scored(1.0)),) if self.checked else ()
        return Episode(proposal, Scored(reward), question, checks=checks, solvers=solvers)


def rollout(identifier, question, role):
    segments = (Segment("prompt", (5, 9)), Segment("action", (11, 12), (-0.5, -0.5)))
    actions = (Action("11 12", answer="meri"),)
    return Trajectory(identifier, question, role, segments, actions, (), StopReason.ANSWERED, "meri")


@pytest.fixture
def played():
    """`played(says)`: scripted episodes."""
    return ScriptedPlay


@pytest.fixture
def questions():
    return [Question(f"q{n}", f"what is {name}?", ("meri",)) for n, name in enumerate(("kalo", "vesu", "tora", "lina"))]


@pytest.fixture
def scripted(tmp_path):
    """`scripted({"q0/0": "meri", ...}, number=1, group_size=2)`: rollouts that give one answer each, by question and
    index, all with logprob -0.5; one that is not scripted fails. "meri" is right."""
    return partial(make_rollouts, tmp_path)


@pytest.fixture
def groups_of(scripted, questions):
    """The scored groups of such rollouts, of the first `n` questions."""

    def groups(texts, *, n=2, **options):
        return asyncio.run(scripted(texts, **options)(questions[:n], 1))

    return groups


@pytest.fixture
def records(tmp_path):
    """What was written of them."""
    return lambda: list(read_trajectories(tmp_path / "trajectories.jsonl"))


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture(scope="session")
def made():
    """Makes a tokenizer by its name, once."""
    makers = run_path(str(Path(__file__).parent / "doubles" / "made_tokenizers.py"))["MAKERS"]
    return cache(lambda name: makers[name]())


class Command:
    """A command of the command line in a process of its own, or in several."""

    def __init__(self, ask, order):
        self._ask, self._order, self.pids = ask, order, ask(order)["pids"]

    def said(self, where: str = "out") -> str:
        """What it has written so far to stdout ("out") or stderr ("err")."""
        path = Path(self._order[where])
        return path.read_text() if path.exists() else ""

    def wait(self) -> list[int]:
        """The exit statuses; minus its number for a signal. If it was not killed, `events` then has what
        happened, by its kind, and `torch` whether it was loaded."""
        answer = self._ask({"wait": self.pids, "end": self._order["end"]})
        self.events, self.torch = answer["events"], answer["torch"]
        return answer["statuses"]

    def interrupt_after(self, text: str, number: int) -> list[int]:
        """Send a signal once it has said something, to it and to what it has started, and wait for its end."""
        deadline = time.monotonic() + 240
        while text not in self.said():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.01)
        for pid in self.pids:
            os.killpg(pid, number)
        return self.wait()


class ForkServer:
    """Runs commands in processes that are forked from one that has imported what takes long: see commands_child.py."""

    def __init__(self, outputs: Path, *words: str):
        self._outputs = (str(outputs / str(number)) for number in itertools.count())
        paths = filter(None, (os.environ.get("PYTHONPATH"), str(Path(__file__).parents[1])))  # where doubles are found
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("commands_child.py")), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)},
        )

    def start(
        self, *words: object, folder=None, ranks=1, watch=(), kill_at: int | None = None, moment="before", apart=False
    ) -> Command:
        """Begin a command in a folder, by default this one; `apart` keeps stderr apart from stdout."""
        path = next(self._outputs)
        order = {"words": [str(word) for word in words], "folder": str(folder or os.getcwd()), "ranks": ranks}
        files = {"out": path, "err": f"{path}.err" if apart else path, "end": f"{path}.end"}
        return Command(self.ask, {**order, **files, "watch": watch, "kill_at": kill_at, "moment": moment})

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=30)

    def ask(self, order) -> dict:
        """The answer to an order."""
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory):
    """`fork_server("warm")` is a fork server with everything imported, `fork_server()` one without torch; each begins
    when it is first asked for."""
    servers = {}

    def shared(*words):
        if words not in servers:
            servers[words] = ForkServer(tmp_path_factory.mktemp("outputs"), *words)
        return servers[words]

    yield shared
    for server in servers.values():
        server.end()


@pytest.fixture(scope="session")
def run_ranks(fork_server):
    """`run_ranks(size, scenario, **options)` runs a function of learner/ranks_child.py in so many processes.

    Gives {"statuses", "results", "output"}; expects every process to end well unless `fails` is given.
    """

    def run(size, scenario, *, fails=False, **options):
        answer = fork_server("warm").ask({"size": size, "scenario": scenario, "options": options})
        assert fails or answer["statuses"] == [0] * size, answer
        return answer

    return run


def pytest_make_parametrize_id(val):
    """Bytes by their number: packed ones hold the time, and every process of a test run has to name tests alike."""
    return f"{len(val)}-bytes" if isinstance(val, bytes) else None


def pytest_collection_modifyitems(config, items):
    """The tests of the ring that runs, the longest first: whichever process is done early takes short ones from the end
    of the other's list."""
    left_out = [item for item in items if not runs(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if runs(item)]
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, "e2e" not in item.path.parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is loaded by its end stays: the collector need not go through it again and again."""
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """No test has the luck of another's draws, nor of its own."""
    random.seed(0)
    torch.manual_seed(0)
