"""The directory of an evaluation: what is refused, what is kept, and what a damaged line says."""

import json
from dataclasses import asdict

import pytest

from evoseek.errors import ConfigError, DataError, RunError, RunLockedError
from evoseek.eval.draw import Sample
from evoseek.eval.folder import EvaluationFolder

SETTINGS = {"policy": {"model": "tiny"}, "samples": 1, "checkpoint": {}}


def sample(question, **more):
    return Sample(question, 0, "", {"f1": 1.0}, "answered", **more)


def test_what_is_appended_is_there_for_the_next_process(tmp_path):
    folder = EvaluationFolder(tmp_path / "out")
    with folder.held(SETTINGS):
        folder.append(sample("b", queries=("kalo",)))
        folder.append(sample("a", seconds=1.5))
        folder.flush()
    again = EvaluationFolder(tmp_path / "out")
    with again.held(SETTINGS):
        assert list(again.samples().values()) == [sample("a", seconds=1.5), sample("b", queries=("kalo",))]
    with pytest.raises(RunError, match=r"has no results\.json"):
        again.read_results()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"samples": 2}, "samples was 1, now 2"),
        ({"policy": {"model": "tiny-weak"}}, "policy.model was 'tiny', now 'tiny-weak'"),
        ({"checkpoint": {"sha256": "ab"}}, "checkpoint.sha256 was None, now 'ab'"),
    ],
)
def test_another_evaluation_is_refused(tmp_path, changed, words):
    with EvaluationFolder(tmp_path).held(SETTINGS):
        pass
    with pytest.raises(ConfigError, match=words), EvaluationFolder(tmp_path).held(SETTINGS | changed):
        pass


def test_a_folder_of_something_else_and_one_in_use_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds notes\.txt and no evaluation"), EvaluationFolder(tmp_path).held({}):
        pass
    with (
        EvaluationFolder(tmp_path / "out").held(SETTINGS),
        pytest.raises(RunLockedError, match="Another process is writing"),
        EvaluationFolder(tmp_path / "out").held(SETTINGS),
    ):
        pass


def test_a_torn_last_line_is_drawn_again_and_a_damaged_one_is_named(tmp_path):
    folder = EvaluationFolder(tmp_path / "out")
    with folder.held(SETTINGS):
        folder.append(sample("a"))
        path = tmp_path / "out" / "samples.jsonl"
        path.write_text(path.read_text() + json.dumps(asdict(sample("b")))[:40])
        assert list(folder.samples()) == [("a", 0)]
        folder.append(sample("c"))
        assert list(folder.samples()) == [("a", 0), ("c", 0)]
        path.write_text("{}\n" + path.read_text())
        with pytest.raises(DataError, match=r"samples\.jsonl:1 is not a sample of an evaluation"):
            folder.samples()


def rollout(question, **outcome):
    row = {"id": f"evaluation/{question}/0", "outcome": outcome or {"reward": 1.0, "parts": {}}}
    return json.dumps(row, separators=(",", ":")) + "\n"


def ids(path):
    return sorted(json.loads(line)["id"] for line in path.read_text().splitlines())


@pytest.mark.parametrize("lost", [None, "a", "b", "c"])
@pytest.mark.parametrize("of", ["samples", "rollouts"])
def test_samples_and_rollouts_are_of_the_same_keys_after_any_end_between_them(tmp_path, lost, of):
    folder, samples = EvaluationFolder(tmp_path), [name for name in "abc" if of == "rollouts" or name != lost]
    with folder.held(SETTINGS):
        for name in samples:
            folder.append(sample(name))
        folder.append(sample("failed", invalid="sampler"))
        rows = [rollout(name) for name in "abc" if of == "samples" or name != lost]
        folder.trajectories.write_text("".join(rows) + rollout("failed", invalid="sampler") + rollout("d")[:20])
        found = folder.resumed()
    expected = [name for name in "abc" if name != lost]
    assert [key[0] for key, one in found.items() if one.invalid is None] == expected
    assert ids(folder.trajectories) == [f"evaluation/{name}/0" for name in expected]
    before = folder.trajectories.stat().st_ino
    assert folder.resumed() == found
    assert folder.trajectories.stat().st_ino == before  # nothing is written where nothing is to be repaired


def test_the_samples_stay_where_no_rollouts_were_recorded(tmp_path):
    folder = EvaluationFolder(tmp_path)
    with folder.held(SETTINGS):
        folder.append(sample("a"))
        assert list(folder.resumed()) == [("a", 0)]
