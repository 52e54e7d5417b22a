import asyncio
import json
import os
import struct
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evoseek.errors import DataError
from evoseek.rollout.record import TrajectoryRecord, TrajectoryWriter, read_trajectories, record_of, row_of
from evoseek.rollout.roller import Roller
from evoseek.types import (
    Action,
    Invalid,
    Passage,
    ProposerTask,
    Question,
    Scored,
    Segment,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
    TrajectoryGroup,
)

texts = st.text(max_size=6) | st.sampled_from(["\ud800", "</s>", "Zürich\n\u2028", '"'])
floats = st.floats(allow_nan=False)
single = st.floats(width=32, allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=3,
)
objects = st.dictionaries(texts, json_values, max_size=2)
maybe = st.none() | texts
ids = st.lists(st.integers(0, 200_000), max_size=4).map(tuple)
calls = st.builds(ToolCall, texts, objects)
CITED = (st.none() | texts, st.none() | st.integers(), st.none() | texts)  # file, page, heading
passages = st.builds(Passage, texts, texts, texts, texts, st.integers(), st.integers(), st.none() | floats, *CITED)
results = st.builds(ToolResult, calls, texts, st.lists(passages, max_size=2).map(tuple))
questions = st.builds(Question, texts, texts, st.lists(texts, max_size=2).map(tuple), objects)
actions = st.builds(Action, texts, st.lists(calls, max_size=2).map(tuple), maybe, maybe, maybe)
sources = st.builds(lambda id, title, text: Passage(id, id, title, text), texts, texts, texts)
tasks = st.builds(ProposerTask, st.integers(), sources, st.booleans(), texts) | st.builds(
    ProposerTask, st.integers(), id=texts
)
proposals = st.builds(Question, texts, texts, st.just(()), st.just({}), tasks)
outcomes = st.builds(Scored, floats, st.dictionaries(texts, floats, max_size=2)) | st.builds(
    Invalid, st.sampled_from(StopReason), texts
)


@st.composite
def trajectories(draw):
    turns = draw(st.lists(actions, max_size=3))
    segments = [Segment("prompt", draw(ids))]
    for _ in turns:
        written = draw(ids)
        values = st.lists(draw(st.sampled_from([floats, single])), min_size=len(written), max_size=len(written))
        segments += [Segment("action", written, tuple(draw(values))), Segment("observation", draw(ids))]
    role, question = draw(st.tuples(texts, questions) | st.tuples(st.just("proposer"), proposals))
    return Trajectory(
        draw(texts),
        question,
        role,
        tuple(segments),
        tuple(turns),
        tuple(draw(st.lists(results, max_size=2))),
        draw(st.sampled_from(StopReason)),
        draw(maybe),
        draw(maybe),
        draw(st.integers()),
    )


def decode(token_ids):
    return "".join(chr(65 + i % 26) for i in token_ids)


@given(st.lists(st.tuples(trajectories(), outcomes), max_size=2), st.integers(0, 9), texts)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_read_is_what_was_written(tmp_path, members, step, key):
    path = tmp_path / "trajectories.jsonl"
    path.unlink(missing_ok=True)
    group = TrajectoryGroup(key, tuple(t for t, _ in members), tuple(o for _, o in members))
    TrajectoryWriter(path, decode).write(step, [group])
    assert list(read_trajectories(path)) == [TrajectoryRecord(step, key, *member) for member in members]


@pytest.fixture
def group():
    action = Action("AB", (ToolCall("search", {"query": "mayor"}),))
    question = Question("q", "who ?", ("Meri",), {"hops": 2})
    segments = (Segment("prompt", (3,)), Segment("action", (0, 1), (-0.5, -0.125)), Segment("observation", (2,)))
    result = ToolResult(action.tool_calls[0], "Meri", (Passage("a#0", "a", "Kalo", "Meri"),), 0.25)
    trajectory = Trajectory("k/0", question, "solver", segments, (action,), (result,), StopReason.MAX_TURNS)
    return TrajectoryGroup("k", (trajectory,), (Scored(1.0, {"exact_match": 1.0}),))


def test_a_line_is_readable_and_says_nothing_twice(tmp_path, group):
    TrajectoryWriter(tmp_path / "t.jsonl", decode).write(4, [group])
    (line,) = (tmp_path / "t.jsonl").read_text().splitlines()
    data = json.loads(line)
    assert (data["step"], data["group"], data["outcome"]) == (4, "k", {"reward": 1.0, "parts": {"exact_match": 1.0}})
    assert [segment["text"] for segment in data["segments"]] == ["D", "AB", "C"]
    assert data["actions"] == [{"tool_calls": [{"name": "search", "arguments": {"query": "mayor"}}]}]
    assert "latency_s" not in line  # a time would differ between two runs of one seed
    assert "copies" not in line  # of passages that have none


def test_a_rollout_in_messages_which_has_no_segments_comes_back_from_its_object(group):
    said = (Action("", problem="it is empty"), Action("<answer> Meri </answer>", answer="Meri"))
    rollout = replace(group.trajectories[0], segments=(), actions=said, tool_results=(), answer="Meri")
    record = TrajectoryRecord(3, "k", rollout, Scored(0.5))
    made = json.loads(json.dumps(row_of(record, decode)))
    assert record_of(made) == record
    assert [action.get("text") for action in made["actions"]] == [None, "<answer> Meri </answer>"]


def test_single_precision_logprobs_take_half_the_space_and_come_back_exactly(tmp_path, group):
    values = tuple(struct.unpack("<f", struct.pack("<f", -1 / n))[0] for n in range(3, 103))
    long = replace(group.trajectories[0], segments=(Segment("action", tuple(range(100)), values),))
    TrajectoryWriter(tmp_path / "t.jsonl", decode).write(0, [replace(group, trajectories=(long,))])
    (record,) = read_trajectories(tmp_path / "t.jsonl")
    assert record.trajectory.segments == long.segments
    assert len(json.dumps(json.loads((tmp_path / "t.jsonl").read_text())["segments"][0]["logprobs"])) < 1500


def test_a_proposers_task_stands_in_its_question(group):
    task = ProposerTask(2, Passage("a#0", "a#0", "Kalo", "Meri"), False, "t")
    question = Question("t.1", "Kalo\nMeri", (), {}, task)
    proposal = replace(group.trajectories[0], question=question, role="proposer", tool_results=())
    record = TrajectoryRecord(1, "k", proposal, group.outcomes[0])
    row = row_of(record, decode)
    source = {"id": "a#0", "document_id": "a#0", "title": "Kalo", "text": "Meri"}
    assert row["question"]["task"] == {"requested": 2, "passage": source, "shown": False, "id": "t"}
    assert record_of(json.loads(json.dumps(row))) == record


def test_a_line_with_a_value_of_another_type_is_refused_with_its_place(group):
    row = {**row_of(TrajectoryRecord(1, "k", group.trajectories[0], group.outcomes[0]), decode), "answer": 7}
    with pytest.raises(ValueError, match=r"^trajectory\.answer: Input should be a valid string$"):
        record_of(row)


def test_replaced_rollouts_are_recorded_after_the_members(tmp_path, group):
    failed = replace(group.trajectories[0], id="k/0r0", stop_reason=StopReason.TOOL_FAILED)
    replaced = ((failed, Invalid(StopReason.TOOL_FAILED, "down")),)
    TrajectoryWriter(tmp_path / "t.jsonl", decode).write(3, [replace(group, replaced=replaced)])
    records = list(read_trajectories(tmp_path / "t.jsonl"))
    assert [(record.trajectory.id, record.outcome) for record in records] == [
        ("k/0", group.outcomes[0]),
        ("k/0r0", replaced[0][1]),
    ]
    assert {record.group for record in records} == {"k"}


def test_a_last_line_without_its_end_is_left_out_and_a_damaged_line_is_named(tmp_path, group):
    path = tmp_path / "t.jsonl"
    TrajectoryWriter(path, decode).write(0, [group, group])
    os.truncate(path, path.stat().st_size - 5)
    assert len(list(read_trajectories(path))) == 1
    path.write_text('{"step": 1}\n')
    with pytest.raises(DataError, match=r"t\.jsonl:1 is not a trajectory"):
        list(read_trajectories(path))


def test_a_rollout_comes_back_from_its_record(tmp_path, tools):
    call = '<tool_call>\n{"name": "search", "arguments": {"query": "mayor"}}\n</tool_call><|im_end|>'
    sampler = tools.sampler({"k/0": [call, "Meri<|im_end|>"]}, logprob=-0.1)

    async def reward(trajectory):
        return Scored(1.0)

    question = Question("q", "who ?", ("Meri",))
    group = asyncio.run(Roller(**tools.setting(sampler)).group(question, size=1, reward=reward, key="k"))
    TrajectoryWriter(tmp_path / "t.jsonl", tools.tokenizer.decode).write(0, [group])
    (record,) = read_trajectories(tmp_path / "t.jsonl")
    timeless = tuple(replace(result, latency_s=0.0) for result in group.trajectories[0].tool_results)
    assert record.trajectory == replace(group.trajectories[0], tool_results=timeless)
    assert '"text":' not in json.dumps(json.loads((tmp_path / "t.jsonl").read_text())["actions"])


def test_copies_of_a_passage_come_back(group, tmp_path):
    result = group.trajectories[0].tool_results[0]
    shown = replace(result.passages[0], copies=(Passage("copy#0", "copy", "Copy", "the same", file="b/copy.md"),))
    found = replace(result, passages=(shown, *result.passages[1:]), latency_s=0.0)
    rollout = replace(group.trajectories[0], tool_results=(found,))
    path = tmp_path / "copies.jsonl"
    TrajectoryWriter(path, str).write(1, [replace(group, trajectories=(rollout, *group.trajectories[1:]))])
    first = record_of(json.loads(path.read_text().splitlines()[0]))
    assert first.trajectory.tool_results[0].passages[0].copies == shown.copies
