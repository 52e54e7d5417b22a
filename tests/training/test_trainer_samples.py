import json

import pytest

from evoseek.storage.jsonl import ResumableJsonl
from evoseek.training.trainer import SampleRecord
from evoseek.types import TrainingSample

RECORD = (0.0, -0.5, -0.25)


def sample(id="t", *, advantages=(0.0, 0.5, 0.5), **given):
    return TrainingSample((1, 2, 3), (False, True, True), RECORD, advantages, id=id, **given)


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_advantage_where_all_tokens_have_the_same(tmp_path):
    path = tmp_path / "samples.jsonl"
    record = SampleRecord(ResumableJsonl(path), is_first=True)
    record([sample("a"), sample("b", advantages=(0.0, 1.0, -1.0)), sample("")])
    record([sample("c", old_logprobs=(0.0, -0.75, -0.25))])
    assert rows(path) == [
        {"id": "a", "advantages": 0.5},
        {"id": "b", "advantages": [1.0, -1.0]},
        {"id": "c", "advantages": 0.5, "old_logprobs": [-0.75, -0.25]},
    ]


def test_the_samplers_logprobs_are_not_recorded_as_the_learners(tmp_path):
    """The learner's are, even if they are equal."""
    path = tmp_path / "samples.jsonl"
    record = SampleRecord(ResumableJsonl(path), is_first=True)
    record([sample("a", old_logprobs=RECORD), sample("b", old_logprobs=(0.0, *RECORD[1:]))])
    assert rows(path) == [{"id": "a", "advantages": 0.5}, {"id": "b", "advantages": 0.5, "old_logprobs": [-0.5, -0.25]}]


@pytest.mark.parametrize("old", [None, RECORD])
def test_the_learners_logprobs_are_put_in_where_they_are_missing(tmp_path, old):
    path = tmp_path / "samples.jsonl"

    def complete(samples):
        return [sample(one.id, old_logprobs=(0.0, -1.0, -2.0)) for one in samples]

    SampleRecord(ResumableJsonl(path), True, complete)([sample("a", old_logprobs=old)])
    assert rows(path) == [{"id": "a", "advantages": 0.5, "old_logprobs": [-1.0, -2.0]}]


def test_other_ranks_help_but_do_not_write(tmp_path):
    asked = []

    def complete(samples):
        asked.extend(samples)
        return list(samples)

    SampleRecord(ResumableJsonl(tmp_path / "samples.jsonl"), False, complete)([sample("a")])
    assert len(asked) == 1
    assert not (tmp_path / "samples.jsonl").exists()


def test_the_learners_logprobs_that_are_there_stay(tmp_path):
    """They are those of the pass; scored with other samples they could be rounded otherwise."""
    path, asked = tmp_path / "samples.jsonl", []

    def complete(samples):
        asked.append([one.id for one in samples])
        return [sample(one.id, old_logprobs=(0.0, -1.0, -2.0)) for one in samples]

    given = [sample("a", old_logprobs=(0.0, -0.75, -0.25)), sample("b"), sample("c", old_logprobs=RECORD)]
    SampleRecord(ResumableJsonl(path), True, complete)(given)
    assert asked == [["b", "c"]]
    assert [row["old_logprobs"] for row in rows(path)] == [[-0.75, -0.25], [-1.0, -2.0], [-1.0, -2.0]]
