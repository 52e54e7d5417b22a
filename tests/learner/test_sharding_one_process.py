"""Shards of one process; those of several are tested in test_checkpoint.py."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from evoseek.errors import CheckpointError
from evoseek.learner.distributed import ALONE
from evoseek.learner.sharding import read_shards, write_shards


def write(directory: Path, pieces: list[tuple[int, list[list[float]]]], shape: list[int]) -> None:
    """Files that so many ranks would have written of the tensor `w/m`: (first row, rows)."""
    directory.mkdir(exist_ok=True)
    for number, (first, rows) in enumerate(pieces):
        metadata = {"shards": json.dumps({"w/m": {"shape": shape, "first": first}})}
        save_file({"w/m": torch.tensor(rows)}, directory / f"rank-{number}.safetensors", metadata=metadata)


def test_what_one_process_writes_it_reads(tmp_path: Path) -> None:
    tensors = {
        "w/exp_avg": torch.randn(5, 3),
        "w/step": torch.tensor(3.0),
        "b/exp_avg": torch.randn(4).bfloat16(),
        "t/exp_avg": torch.arange(6.0).view(2, 3).t(),
    }
    write_shards(tensors, tmp_path / "optimizer", ALONE)
    read = read_shards(tmp_path / "optimizer", {})
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype for name, tensor in tensors.items())


def test_the_layout(tmp_path: Path) -> None:
    write_shards({"w/m": torch.ones(2, 3)}, tmp_path / "optimizer", ALONE)
    (path,) = (tmp_path / "optimizer").iterdir()
    assert path.name == "rank-00000-of-00001.safetensors"
    assert load_file(path)["w/m"].tolist() == [[1.0] * 3] * 2


def test_nothing_to_keep_is_a_file_too(tmp_path: Path) -> None:
    write_shards({}, tmp_path / "optimizer", ALONE)
    assert read_shards(tmp_path / "optimizer", {}) == {}


def test_rows_of_several_files_come_together_in_order(tmp_path: Path) -> None:
    write(tmp_path, [(2, [[2.0], [3.0]]), (0, [[0.0], [1.0]]), (4, [[4.0]])], [5, 1])
    assert read_shards(tmp_path, {})["w/m"].flatten().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("pieces", [[(0, [[0.0]])], [(1, [[1.0], [2.0]])]])
def test_missing_rows_are_an_error(tmp_path: Path, pieces: list[tuple[int, list[list[float]]]]) -> None:
    write(tmp_path, pieces, [3, 1])
    with pytest.raises(CheckpointError, match=r"w/m should have rows 0 to 3, but the files hold \d of them"):
        read_shards(tmp_path, {})
