"""A fork server that runs trainings and kills them: `python chaos_child.py`, a JSON order a line on stdin.

    {"config": ..., "run_dir": ..., "kill_at": n or null, "moment": "before" | "after" | "torn"}

For each order a child is forked (everything is imported already, so this is cheap), runs the training command, and
sends itself SIGKILL at its n-th event. Events are all that matters to what is on disk and to the order of things: every
write of a log row, fsync, rename, unlink, learner update and round of the sampler. "torn" writes half of what a write
event would have written. The answer is a line {"killed": bool, "status": ..., "events": n}.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch

import evoseek.jobs.train
from evoseek.cli.main import main as command_line  # before torch: sets how its threads wait
from evoseek.learner.learner import Learner
from evoseek.policy.sampler import TorchSampler
from evoseek.report.metrics import JsonlMetrics
from evoseek.rollout.record import TrajectoryWriter


class Killer:
    def __init__(self, kill_at, moment):
        self.kill_at, self.moment, self.events = kill_at, moment, 0

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, owner, name, torn=None):
        """Make calls of owner.name events. `torn(path)` writes a part of what the call would have written."""
        original = getattr(owner, name)

        def watched(*arguments, **options):
            self.events += 1
            if self.events == self.kill_at:
                if self.moment == "torn" and torn is not None:
                    torn(*arguments)
                if self.moment != "after":
                    self.die()
                original(*arguments, **options)
                self.die()
            return original(*arguments, **options)

        setattr(owner, name, watched)


def torn_row(sink, *_):
    with sink.path.open("a") as file:
        file.write('{"step": 1, "rew')


def run(order, answer):
    os.dup2(os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 1)
    os.dup2(1, 2)
    killer = Killer(order["kill_at"], order["moment"])
    for name in ("replace", "fsync", "unlink"):
        killer.watch(os, name)
    killer.watch(TorchSampler, "_step")
    killer.watch(Learner, "update")
    killer.watch(JsonlMetrics, "write", torn_row)
    killer.watch(TrajectoryWriter, "write", torn_row)
    evoseek.jobs.train.draw = lambda run, console: None  # slow, and no part of the state
    sys.argv = ["evoseek", "train", "search-r1", "--config", order["config"], "--run-dir", order["run_dir"]]
    try:
        command_line()
        status = 0
    except SystemExit as ended:
        status = ended.code or 0
    os.write(answer, json.dumps({"status": status, "events": killer.events}).encode())
    os._exit(0)


def serve():
    torch.set_num_threads(1)
    for line in sys.stdin:
        order = json.loads(line)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            run(order, writer)
        os.close(writer)
        _, status = os.waitpid(child, 0)
        with os.fdopen(reader) as file:
            text = file.read()
        result = {
            "killed": os.WIFSIGNALED(status),
            "output": Path(order["output"]).read_text(),
            **json.loads(text or "{}"),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    serve()
