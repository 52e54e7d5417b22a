"""The trackers that come with evoseek, with their real programs where these are installed; all on this machine."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from evoseek.config.registry import KINDS, find
from evoseek.errors import ConfigError
from evoseek.training.trackers import TensorBoard, Trackio, Wandb


def test_tensorboard_shows_a_resumed_run_as_one_record(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps in ((0, 1), (2,)):
        tracker = TensorBoard(tmp_path)
        for step in steps:
            tracker.write(step, {"solver/reward": step / 2, "kl": float("nan")})
        tracker.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    found = [(event.step, event.tensor_proto.float_val[0]) for event in read.Tensors("solver/reward")]
    assert found == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert "kl" in read.Tags()["tensors"]


def test_trackio_continues_the_record_of_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "trackio" in sys.modules:
        pytest.skip("trackio was imported with another directory")
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "database"))
    pytest.importorskip("trackio")
    for steps in ((0, 1), (2,)):
        tracker = Trackio(Trackio.Settings(), tmp_path / "mine", {"run": {"seed": 1}})
        for step in steps:
            tracker.write(step, {"solver/reward": step / 2})
        tracker.close()
    from trackio.sqlite_storage import SQLiteStorage

    rows = SQLiteStorage.get_logs("evoseek", "mine")
    assert [(row["step"], row["solver/reward"]) for row in rows] == [(0, 0.0), (1, 0.5), (2, 1.0)]


class ScriptedRun:
    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.is_finished = False

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.rows.append((step, dict(metrics)))

    def finish(self) -> None:
        self.is_finished = True


def test_wandb_is_given_the_same_id_by_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted module stands in for wandb, which is not needed here."""
    begun: list[dict[str, Any]] = []
    runs: list[ScriptedRun] = []
    module = ModuleType("wandb")
    module.init = lambda **given: begun.append(given) or runs.append(ScriptedRun()) or runs[-1]
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    for step in (1, 2):
        tracker = Wandb(Wandb.Settings(project="mine"), tmp_path / "run", {"run": {"seed": 1}})
        tracker.write(step, {"reward": 0.5})
        tracker.close()
    assert [run.rows for run in runs] == [[(1, {"reward": 0.5})], [(2, {"reward": 0.5})]]
    assert all(run.is_finished for run in runs)
    first, second = begun
    assert first == second
    assert (first["project"], first["name"], first["mode"], first["resume"]) == ("mine", "run", "offline", "allow")
    assert (first["dir"], first["config"]) == (str(tmp_path / "run"), {"run": {"seed": 1}})


@pytest.mark.parametrize("name", KINDS["tracker"].parts)
def test_without_its_package_the_extra_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (name, "tensorboard.summary"):
        monkeypatch.setitem(sys.modules, module, None)
    part = find("tracker", name)
    arguments = (tmp_path,) if name == "tensorboard" else (part.Settings(), tmp_path, {})
    with pytest.raises(ConfigError, match=r"needs a package that is not installed .* pip install 'evoseek\[track\]'"):
        part(*arguments)
