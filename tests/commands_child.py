"""A fork server that runs commands, and kills them: `python commands_child.py [warm]`, a JSON order a line on stdin.

    {"words": ["train", ...], "folder": path, "out": path, "err": path, "end": path,
     "ranks": n, "watch": [...], "kill_at": n or null, "moment": "before"}
    {"pids": [...]}                                         the answer: they have begun
    {"wait": [...], "end": path}                            the next order
    {"statuses": [...], "events": ["row", ...], "torch": true}   the answer: all have ended (and had loaded torch)
    {"size": 2, "scenario": "save", "options": {}}          another order, to a warm server: see learner/ranks_child.py

For each order a child is forked for every rank (the settings are imported already, and all the rest in a warm server,
so this is cheap), with the variables that torchrun would set if there are several. It runs the command, and sends
itself SIGKILL at its n-th event. Events are calls of what is watched: all that matters to what is on disk and to the
order of things, which is every write of a log row, fsync, rename, unlink, learner update and round of the sampler. The
moment is "before" or "after" the call, or "torn", which writes half of what a write event would have written.
"""

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path

import typer.main

from evoseek.cli.main import app  # before torch: sets how its threads wait
from evoseek.cli.main import main as command_line


def torn_row(sink, *_):
    with sink.path.open("a") as file:
        file.write('{"step": 1, "rew')


def torn_rollout(writer, *_):
    with writer.path.open("a") as file:
        file.write('{"step": 0, "gro')


def torn_sample(folder, *_):
    with (folder.path / "samples.jsonl").open("a") as file:
        file.write('{"question": "q1", "numb')


EVENTS = {
    "replace": ("os", "replace"),
    "fsync": ("os", "fsync"),
    "unlink": ("os", "unlink"),
    "round": ("evoseek.samplers.torch.sampler:TorchSampler", "_step"),
    "update": ("evoseek.learner.learner:Learner", "update"),
    "row": ("evoseek.storage.metrics:JsonlMetrics", "write", torn_row),
    "sample": ("evoseek.eval.folder:EvaluationFolder", "append", torn_sample),
    "rollout": ("evoseek.rollout.record:TrajectoryWriter", "write", torn_rollout),
}


class Killer:
    def __init__(self, kill_at, moment):
        self.kill_at, self.moment, self.events = kill_at, moment, []

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, event, owner, name, torn=None):
        """Make calls of owner.name events. `torn(path)` writes a part of what the call would have written."""
        owner = pkgutil.resolve_name(owner)
        original = getattr(owner, name)

        def watched(*arguments, **options):
            self.events.append(event)
            if len(self.events) == self.kill_at:
                if self.moment == "torn" and torn is not None:
                    torn(*arguments)
                if self.moment != "after":
                    self.die()
                try:
                    original(*arguments, **options)
                finally:  # also after a call that fails, as that of unlink for a file that is not there
                    self.die()
            return original(*arguments, **options)

        setattr(owner, name, watched)


def run(order, environment):
    os.setpgrp()  # with what it starts, so that Ctrl-C reaches all of it, as from a terminal
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), descriptor)
    os.environ |= {"COLUMNS": "300", **environment}
    os.chdir(order["folder"])
    killer = Killer(order["kill_at"], order["moment"])
    for name in order["watch"]:
        killer.watch(name, *EVENTS[name])
    sys.argv = ["evoseek", *order["words"]]
    status = 1
    try:
        command_line()
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    Path(order["end"]).write_text(json.dumps({"events": killer.events, "torch": "torch" in sys.modules}))
    os._exit(status)


def environments(ranks):
    """What torchrun would set for each rank; nothing for a command alone."""
    if ranks == 1:
        return [{}]
    with socket.create_server(("127.0.0.1", 0)) as free:
        common = {"WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free.getsockname()[1]}
    alike = {name: str(value) for name, value in common.items()}
    return [{**alike, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def start(order):
    pids = []
    for environment in environments(order["ranks"]):
        pids.append(os.fork())
        if pids[-1] == 0:
            run(order, environment)
    return {"pids": pids}


def wait(order):
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in order["wait"]]
    end = Path(order["end"])
    return {"statuses": statuses, **(json.loads(end.read_text()) if end.exists() else {"events": None, "torch": None})}


def warm_up():
    """Import all, and fill what libraries keep after their first use, which each child would else do for itself."""
    for module in ("torch._dynamo", "evoseek.training.train", "evoseek.selfplay.proposing", "evoseek.run"):
        importlib.import_module(module)
    torch = sys.modules["torch"]
    torch.set_num_threads(1)
    model = pkgutil.resolve_name("evoseek.models.load:load_policy")("tiny").model
    model(input_ids=torch.zeros(1, 4, dtype=torch.long)).logits.sum().backward()
    torch.optim.AdamW(model.parameters()).step()
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
    importlib.import_module("learner.ranks_child").warm_up()


def answer(order):
    if "scenario" in order:
        return sys.modules["learner.ranks_child"].answer(order)
    return wait(order) if "wait" in order else start(order)


def serve(warm):
    typer.main.get_command = cache(typer.main.get_command)
    typer.main.get_command(app)  # for each child
    for module in ("search_r1", "zerosearch"):
        importlib.import_module(f"evoseek.systems.{module}")
    if warm:
        warm_up()
    gc.collect()
    gc.freeze()  # no child goes through all of it again, and copies it by that
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    serve(warm="warm" in sys.argv)
