"""Run directories with the rollouts that a test gives."""

import json

import pytest


def row(number=0, *, step=1, role="solver", group="step-000001/q", question="Who?", **given):
    """A line of trajectories.jsonl: one search and an answer, of six action tokens."""
    return {
        "step": step,
        "group": group,
        "outcome": given.get("outcome", {"reward": 1.0, "parts": {"exact_match": 1.0}}),
        "id": given.get("id", f"{group}/{number}"),
        "role": role,
        "question": {
            "id": given.get("question_id", "q"),
            "text": question,
            "golden_answers": given.get("golden", ["Meri"]),
            "metadata": given.get("metadata", {"hops": 2}),
        },
        "stop_reason": given.get("stop", "answered"),
        "answer": given.get("answer", "Meri"),
        "failure": None,
        "policy_version": 0,
        "segments": [
            {"kind": "prompt", "text": given.get("prompt", "solve"), "ids": [1, 2]},
            {"kind": "action", "text": given.get("text", "search"), "ids": [3, 4, 5], "logprobs": [-0.5, -0.25, 0.0]},
            {"kind": "observation", "text": "Kalo 's mayor is Meri .", "ids": [6]},
            {"kind": "action", "text": "answer", "ids": [7, 8, 9], "logprobs": [-1.0, -2.0, -3.0]},
        ],
        "actions": [
            {"tool_calls": [{"name": "search", "arguments": {"query": "Kalo"}}]},
            {"answer": "Meri", **given.get("action", {})},
        ],
        "tool_results": [
            {
                "call": {"name": "search", "arguments": {"query": "Kalo"}},
                "text": "Kalo's mayor is Meri.",
                "passages": [{"id": "p", "document_id": "d", "title": "Kalo", "text": "Kalo's mayor is Meri."}],
            }
        ],
    }


@pytest.fixture
def make_run(tmp_path):
    """A function that writes a run directory with these rollouts and metrics."""

    def make(rows=(), *, metrics=(), config=None, name="run", samples=()):
        run = tmp_path / name
        run.mkdir()
        for file, lines in (("trajectories", rows), ("metrics", metrics), ("samples", samples)):
            (run / f"{file}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (run / "config.json").write_text(json.dumps(config or {"run": {"system": "search-r1"}}))
        return run

    return make


@pytest.fixture
def make_row():
    return row
