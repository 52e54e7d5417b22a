"""Agents as programs and as functions."""

import sys
import time
from pathlib import Path

import pytest

from evoseek.rollout.gateway.agents import Command
from evoseek.rollout.settings import CommandSettings
from evoseek.types import StopReason

PROGRAM = """
import json, os, sys, urllib.request
task = json.load(open(os.environ["EVOSEEK_TASK"]))["question"]
body = json.dumps({"messages": [{"role": "user", "content": task}]}).encode()
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
address = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
reply = json.load(urllib.request.urlopen(urllib.request.Request(address, body, headers)))
print("a log", file=sys.stderr)
print(reply["choices"][0]["message"]["content"])
"""


def command(tmp_path, text):
    (tmp_path / "agent.py").write_text(text)
    return Command(CommandSettings(name="command", program=f"{sys.executable} {tmp_path / 'agent.py'}"))


def test_a_program_gets_its_task_and_address_and_prints_its_answer(qwen, tmp_path):
    trajectory = qwen.run(command(tmp_path, PROGRAM), ["Meri<|im_end|>"])
    assert (trajectory.answer, trajectory.stop_reason, trajectory.failure) == ("Meri", StopReason.ANSWERED, None)
    assert "who is the mayor" in qwen.tokenizer.decode(trajectory.segments[0].token_ids)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("raise ValueError('no plan')", "the exit code 1: ValueError: no plan"),
        ("import signal; os.kill(os.getpid(), signal.SIGKILL)", "the signal SIGKILL"),
        ("sys.exit(3)", "the exit code 3: a log"),
    ],
)
def test_a_program_that_dies_makes_the_attempt_invalid(qwen, tmp_path, end, words):
    """Its call is recorded, and not trained on."""
    trajectory = qwen.run(command(tmp_path, PROGRAM + end), ["Meri<|im_end|>"])
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.TOOL_FAILED, None)
    assert words in trajectory.failure
    assert len(trajectory.actions) == 1


def ends(state):
    """Whether a killed process ends, which takes a moment."""
    for _ in range(100):
        try:
            if state.read_text().split()[2] == "Z":
                return True
        except OSError:  # it is gone
            return True
        time.sleep(0.1)
    return False


def test_a_program_that_hangs_is_ended_with_all_that_it_started(qwen, tmp_path):
    """On a busy machine the time may be over before it starts anything."""
    starts = "import subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\n"
    hangs = f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid))\ntime.sleep(600)"
    trajectory = qwen.run(command(tmp_path, starts + hangs), [], wait_s=2.0)
    assert trajectory.stop_reason is StopReason.DEADLINE
    if pid := (tmp_path / "child").exists() and (tmp_path / "child").read_text():
        assert ends(Path(f"/proc/{pid}/stat"))


def test_a_program_that_does_not_exist_is_named(qwen):
    trajectory = qwen.run(Command(CommandSettings(name="command", program="no-such-agent --fast")), [])
    assert "no-such-agent cannot be started" in trajectory.failure


def test_an_object_and_a_plain_function_are_agents_too(qwen):
    class Agent:
        async def __call__(self, task, client):
            return (await client.chat(messages=[{"role": "user", "content": task}]))["model"]

    def exits(task, client):
        sys.exit("no more")

    assert qwen.run(Agent(), ["Meri<|im_end|>"]).answer == "policy"
    assert qwen.run(exits, []).failure == "The agent failed: SystemExit: no more"
