import copy
import errno
import json
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.doubles.learners import learner_of
from tests.raising import raises
from transformers import AutoModelForCausalLM, PreTrainedModel

from evoseek.errors import CheckpointError, TrainingError
from evoseek.learner.checkpoint import CheckpointPart, restore, save_checkpoint
from evoseek.learner.learner import Learner
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.clipped import ClippedLoss
from evoseek.storage.checkpoints import latest_checkpoint, load_checkpoint
from evoseek.types import TrainingSample

Make = Callable[..., list[TrainingSample]]
RunRanks = Callable[..., dict]
Saved = Callable[[int, int, Path], None]
OPTIMIZER = "policy.optimizer/rank-00000-of-00001.safetensors"


def make_learner(model: PreTrainedModel) -> Learner:
    return learner_of(LogprobModel(model), loss=ClippedLoss(), learning_rate=0.01, warmup_steps=4, token_budget=40)


def save(run: Path, learner: Learner, step: int, **options: object) -> Path:
    position = {"step": step, "questions_seen": 8 * step}
    parts = {"policy": CheckpointPart(learner.model.save_pretrained, learner)}
    return save_checkpoint(run, step=step, parts=parts, position=position, **options)


@contextmanager
def disk_with_room_for(size: int) -> Iterator[None]:
    """Writing a file beyond `size` bytes fails in the operating system, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_a_file_that_was_added_is_refused_and_nothing_is_passed_over(
    model: PreTrainedModel, make_samples: Make, tmp_path: Path
) -> None:
    """To go back to an earlier checkpoint would overwrite this one, which is whole."""
    learner = make_learner(model)
    for step in (1, 2):
        directory = save(tmp_path, learner, step)
    (directory / ".DS_Store").touch()
    assert latest_checkpoint(tmp_path).step == 2
    (directory / "policy" / "adapter_config.json").write_text("{}")
    with raises("checkpoint.added_file", match=r"policy/adapter_config\.json"):
        latest_checkpoint(tmp_path)
    (directory / "policy" / "adapter_config.json").unlink()
    assert latest_checkpoint(tmp_path).step == 2


def checked_files(directory: Path) -> set[str]:
    """The files that state.json has a checksum of."""
    return set(json.loads((directory / "state.json").read_text())["body"]["files"])


def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(
    model: PreTrainedModel, make_samples: Make, tmp_path: Path
) -> None:
    learner = make_learner(model)
    for step in range(3):
        learner.update(make_samples(6, seed=step))
    learner.update([])  # counters go along too
    save(tmp_path, learner, 3)
    uninterrupted = [learner.update(make_samples(6, seed=step)) for step in range(3, 6)]

    checkpoint = latest_checkpoint(tmp_path)
    assert checkpoint is not None
    resumed = make_learner(AutoModelForCausalLM.from_pretrained(checkpoint.part_directory("policy")))
    restore(checkpoint, "policy", resumed)
    assert [resumed.update(make_samples(6, seed=step)) for step in range(3, 6)] == uninterrupted
    pairs = zip(model.named_parameters(), resumed.model.named_parameters(), strict=True)
    assert all(name == other and torch.equal(a, b) for (name, a), (other, b) in pairs)
    (tensors, values), (other_tensors, other_values) = learner.state_dict(), resumed.state_dict()
    assert (
        values == other_values == {"step": 6, "skipped_no_signal": 1, "skipped_non_finite": 0, "non_finite_in_a_row": 0}
    )
    assert tensors.keys() == other_tensors.keys()
    assert all(torch.equal(tensor, other_tensors[name]) for name, tensor in tensors.items())


def test_layout_and_position(model: PreTrainedModel, make_samples: Make, tmp_path: Path) -> None:
    learner = make_learner(model)
    learner.update(make_samples(2))
    directory = save(tmp_path, learner, 10)
    assert directory == tmp_path / "checkpoints" / "step-000010"
    assert {path.name for path in directory.iterdir()} == {"policy", "policy.optimizer", "state.json"}
    checkpoint = load_checkpoint(directory)
    assert (checkpoint.step, checkpoint.position) == (10, {"step": 10, "questions_seen": 80})


def test_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) is None


def test_only_the_last_ones_are_kept(model: PreTrainedModel, tmp_path: Path) -> None:
    learner = make_learner(model)
    for step in (8, 9, 10, 11):
        save(tmp_path, learner, step, keep_last=2)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-000010", "step-000011"]


@pytest.mark.parametrize("name", [OPTIMIZER, "policy/model.safetensors", "state.json", "policy/config.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_latest_falls_back_to_the_one_before_with_a_warning(
    model: PreTrainedModel, make_samples: Make, tmp_path: Path, name: str, damage: str
) -> None:
    learner = make_learner(model)
    learner.update(make_samples(2))
    save(tmp_path, learner, 1)
    path = save(tmp_path, learner, 2) / name
    content = path.read_bytes()
    middle = len(content) // 2
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:middle])
    else:
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    with pytest.warns(UserWarning, match=r"step-000002 is damaged.*Going back"):
        checkpoint = latest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 1
    save(tmp_path, learner, 2, keep_last=1)  # the run comes by again: the damaged one is replaced
    assert load_checkpoint(tmp_path / "checkpoints" / "step-000002").step == 2


def test_a_damaged_later_checkpoint_never_pushes_out_the_good_one(model: PreTrainedModel, tmp_path: Path) -> None:
    learner = make_learner(model)
    (save(tmp_path, learner, 20) / "state.json").write_text("{")
    save(tmp_path, learner, 11, keep_last=1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000011"]


def test_an_altered_position_is_damage_too(model: PreTrainedModel, tmp_path: Path) -> None:
    path = save(tmp_path, make_learner(model), 1) / "state.json"
    path.write_text(path.read_text().replace('"questions_seen": 8', '"questions_seen": 9'))
    with raises("checkpoint.damaged", match="does not match its own checksum"):
        load_checkpoint(path.parent)


def test_all_damaged_is_an_error_and_not_a_fresh_start(model: PreTrainedModel, tmp_path: Path) -> None:
    (save(tmp_path, make_learner(model), 1) / "state.json").write_text("{}")
    with pytest.warns(UserWarning, match="damaged"), raises("checkpoint.none_whole"):
        latest_checkpoint(tmp_path)


@pytest.mark.parametrize("room", [100, 2000, 30000])  # fails in the config, in the weights, in the optimizer
def test_disk_full_while_saving_keeps_the_previous_checkpoint_and_shows_nothing_half_written(
    model: PreTrainedModel, make_samples: Make, tmp_path: Path, room: int
) -> None:
    learner = make_learner(model)
    learner.update(make_samples(2))
    first = save(tmp_path, learner, 1)
    assert (first / OPTIMIZER).stat().st_size > room
    before = contents(tmp_path)
    with (
        disk_with_room_for(room),
        pytest.raises(CheckpointError, match=r"step-000002 could not be written.*Free space"),
    ):
        save(tmp_path, learner, 2, keep_last=1)
    assert contents(tmp_path) == before
    checkpoint = latest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 1


def test_no_space_left_on_device_in_the_policy_saver(model: PreTrainedModel, tmp_path: Path) -> None:
    def full(directory: Path) -> None:
        directory.mkdir()
        (directory / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CheckpointError, match=r"No space left on device.*Free space"):
        save_checkpoint(tmp_path, step=1, parts={"policy": CheckpointPart(full, make_learner(model))}, position={})
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_what_a_killed_save_left_is_cleared_by_the_next(model: PreTrainedModel, tmp_path: Path) -> None:
    leftover = tmp_path / "checkpoints" / ".step-000001.0123456789ab.tmp"
    leftover.mkdir(parents=True)
    (leftover / "optimizer.safetensors").write_bytes(b"half")
    assert latest_checkpoint(tmp_path) is None
    save(tmp_path, make_learner(model), 1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES, errno.EMFILE])
def test_a_checkpoint_that_cannot_be_read_now_is_neither_called_damaged_nor_passed_over(
    model: PreTrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Otherwise the run would be resumed from the one before, and this one would be removed later."""
    save(tmp_path, make_learner(model), 1)
    save(tmp_path, make_learner(model), 2)

    def refuse(path: Path) -> str:
        raise OSError(error, os.strerror(error), str(path))

    monkeypatch.setattr("evoseek.storage.checkpoints.file_digest", refuse)
    with raises("checkpoint.unreadable", match="step-000002"):
        latest_checkpoint(tmp_path)


@pytest.mark.filterwarnings("error")
def test_a_checkpoint_of_another_version_is_neither_called_damaged_nor_passed_over(
    model: PreTrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, make_learner(model), 1)
    monkeypatch.setattr("evoseek.learner.checkpoint.FORMAT", 3)
    save(tmp_path, make_learner(model), 2)
    monkeypatch.undo()
    before = contents(tmp_path)
    with raises("checkpoint.other_version", match=r"\(format 3, .* reads 2\)"):
        latest_checkpoint(tmp_path)
    assert contents(tmp_path) == before


def test_the_optimizer_of_another_model_is_refused(model: PreTrainedModel, make_samples: Make) -> None:
    learner = make_learner(model)
    learner.update(make_samples(2))
    tensors, values = learner.state_dict()
    with pytest.raises(TrainingError, match="which the model does not have"):
        make_learner(model).load_state_dict({f"other.{name}": tensor for name, tensor in tensors.items()}, values)


def test_nothing_is_pickled(model: PreTrainedModel, make_samples: Make, tmp_path: Path) -> None:
    learner = make_learner(model)
    learner.update(make_samples(2))
    directory = save(tmp_path, learner, 1)
    for path in directory.rglob("*"):
        if path.is_file():
            assert path.suffix in {".json", ".safetensors"}, path
            if path.suffix == ".json":
                json.loads(path.read_text())


def test_several_parts_are_kept_side_by_side(model: PreTrainedModel, make_samples: Make, tmp_path: Path) -> None:
    policy, critic = make_learner(model), make_learner(copy.deepcopy(model))
    policy.update(make_samples(4, seed=0))
    for seed in (1, 2):
        critic.update(make_samples(4, seed=seed))
    parts = {
        "policy": CheckpointPart(model.save_pretrained, policy),
        "critic": CheckpointPart(critic.model.save_pretrained, critic),
    }
    directory = save_checkpoint(tmp_path, step=1, parts=parts, position={})
    checkpoint = load_checkpoint(directory)
    for name, learner in (("policy", policy), ("critic", critic)):
        resumed = make_learner(AutoModelForCausalLM.from_pretrained(checkpoint.part_directory(name)))
        restore(checkpoint, name, resumed)
        assert resumed.step == learner.step
        expected = learner.state_dict()[0]
        assert all(torch.equal(tensor, expected[key]) for key, tensor in resumed.state_dict()[0].items())
        assert all(
            torch.equal(a, b) for a, b in zip(learner.model.parameters(), resumed.model.parameters(), strict=True)
        )


def test_a_part_that_was_not_trained_is_asked_for_in_vain(model: PreTrainedModel, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(save(tmp_path, make_learner(model), 1))
    with pytest.raises(CheckpointError, match="holds policy, but no critic"):
        restore(checkpoint, "critic", make_learner(model))


@pytest.fixture(scope="module")
def saved(run_ranks: RunRanks, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """`saved(size, step, run)`: adds to a run the checkpoint of so many ranks at that step, which they write once."""

    @cache
    def written(size: int, step: int) -> Path:
        run = tmp_path_factory.mktemp("saved")
        run_ranks(size, "save", run=str(run), step=step)
        return run

    def add(size: int, step: int, run: Path) -> None:
        shutil.copytree(written(size, step), run, dirs_exist_ok=True)

    return add


@pytest.mark.parametrize(("written_by", "readers"), [(1, (1, 2)), (2, (1, 3)), (3, (1, 2))])
def test_any_number_of_ranks_resumes_what_any_number_has_written(
    run_ranks: RunRanks, saved: Saved, tmp_path: Path, written_by: int, readers: tuple[int, ...]
) -> None:
    saved(written_by, 2, tmp_path)
    (directory,) = (tmp_path / "checkpoints").iterdir()
    files = [f"rank-{rank:05d}-of-{written_by:05d}.safetensors" for rank in range(written_by)]
    assert sorted(path.name for path in (directory / "policy.optimizer").iterdir()) == files
    assert checked_files(directory) == contents(directory).keys() - {"state.json"}
    expected = load_file(tmp_path / "state-2.safetensors")
    weights = []
    for read_by in readers:
        output = str(tmp_path / str(read_by))
        for result in run_ranks(read_by, "resume", run=str(tmp_path), output=output)["results"]:
            assert result == {"step": 2, "position": {"rank": 0}, "begun": 2}
        state = load_file(f"{output}.state")
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())
        weights.append(load_file(f"{output}.weights"))
    for other in weights[1:]:
        for name, tensor in weights[0].items():
            torch.testing.assert_close(other[name], tensor, atol=1e-5, rtol=0, msg=name)


def test_two_ranks_go_on_bit_for_bit(run_ranks: RunRanks, saved: Saved, tmp_path: Path) -> None:
    run_ranks(2, "train", output=str(tmp_path / "straight"), tiny=False, count=3)
    saved(2, 2, tmp_path)
    run_ranks(2, "resume", run=str(tmp_path), output=str(tmp_path / "resumed"), steps=2, part="critic")
    straight, resumed = load_file(tmp_path / "straight"), load_file(tmp_path / "resumed.weights")
    assert all(torch.equal(resumed[name], tensor) for name, tensor in straight.items())


@pytest.mark.parametrize(("rank", "moment"), [(0, "_finish"), (1, "write_shards")])
def test_killed_on_two_ranks_while_saving_the_run_goes_on_from_the_checkpoint_before(
    run_ranks: RunRanks, saved: Saved, tmp_path: Path, rank: int, moment: str
) -> None:
    saved(2, 1, tmp_path)
    killed = run_ranks(2, "save", run=str(tmp_path), step=2, kill=rank, moment=moment, fails=True)
    assert killed["statuses"][rank] == -signal.SIGKILL
    assert killed["statuses"][1 - rank] in (1, 2)  # it notices that the other has gone
    resumed = run_ranks(2, "resume", run=str(tmp_path), output=str(tmp_path / "resumed"))
    assert resumed["results"][0]["step"] == 1
    run_ranks(2, "save", run=str(tmp_path), step=2)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-000001", "step-000002"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_disk_that_is_full_for_one_rank_is_an_error_on_both_and_nothing_is_kept(
    run_ranks: RunRanks, tmp_path: Path, rank: int
) -> None:
    answer = run_ranks(2, "save", run=str(tmp_path), step=1, full=rank, fails=True)
    assert answer["statuses"] == [2, 2], answer
    for result in answer["results"]:
        assert "step-000001 could not be written (" in result
        assert "File too large" in result
        assert "share its file system" in result
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_the_first_rank_chooses_the_checkpoint_for_all(run_ranks: RunRanks, saved: Saved, tmp_path: Path) -> None:
    for step in (1, 2):
        saved(2, step, tmp_path)
    weights = tmp_path / "checkpoints/step-000002/policy/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    results = run_ranks(2, "resume", run=str(tmp_path), output=str(tmp_path / "resumed"))["results"]
    assert [result["step"] for result in results] == [1, 1]
    shutil.rmtree(tmp_path / "checkpoints/step-000001/policy")
    answer = run_ranks(2, "resume", run=str(tmp_path), output=str(tmp_path / "resumed"), fails=True)
    assert answer["statuses"] == [2, 2]
    assert all("None of the 2 checkpoints" in result for result in answer["results"])
