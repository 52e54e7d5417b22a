"""The card of an exported policy says where it comes from, and what it scores with which interval."""

import json
from pathlib import Path

from evoseek.report.model_card import ExamplePrompt, model_card
from evoseek.storage.files import json_digest
from evoseek.storage.metrics import TOO_MANY_INVALID

INPUTS = {"search.index": {"path": "index", "sha256": "ab12"}}


def run(folder: Path, **config: object) -> Path:
    tables = {"run": {"system": "dr-zero", "seed": 3}, "policy": {"model": "Qwen/Qwen2.5-3B"}, "lora": {"rank": 8}}
    (folder / "config.json").write_text(json.dumps({**tables, "reward": {"name": "exact_match"}, **config}))
    (folder / "inputs.json").write_text(json.dumps({"inputs": INPUTS, "sha256": json_digest(INPUTS)}))
    rows = [
        {"step": 0, "eval/reward": 0.25, "eval/n": 40.0},
        {"step": 5, "eval/reward": 0.5, "eval/n": 40.0, TOO_MANY_INVALID: 1.0},
        {"step": 10, "eval/reward": 0.5, "eval/n": 40.0},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_the_card_of_a_run(tmp_path: Path) -> None:
    """10 of 40 right: Wilson's interval is [0.142, 0.402]. What was measured after the checkpoint, or where a
    step failed, is not its score."""
    card = model_card(str(run(tmp_path)), step=9)
    for line in (
        "base_model: Qwen/Qwen2.5-3B",
        "library_name: transformers",
        "| base model | Qwen/Qwen2.5-3B |",
        "| system | dr-zero |",
        "| step | 9 |",
        "| search.index (SHA-256) | ab12 |",
        "| `lora.rank` | 8 |",
        "| exact_match | 0.250 [0.142, 0.402] | 40 |",
        "the licence of that model applies",
    ):
        assert line in card
    assert "0.500" not in card


def test_the_card_says_how_the_policy_is_used(tmp_path: Path) -> None:
    text = "<|im_start|>user\n```\n| a | <search>\n\nwho ?<|im_end|>\n"
    tags = ExamplePrompt("who ?", text, "tags", ("</search>", "</answer>"), 512)
    card = model_card(str(run(tmp_path)), step=9, prompt=tags)
    assert "    <|im_start|>user\n    ```\n    | a | <search>\n    \n    who ?<|im_end|>\n" in card  # as it is
    assert 'the question "who ?", with its control tokens, in the tag format' in card
    assert '"stop": ["</search>", "</answer>"], "include_stop_str_in_output": true' in card
    assert "max_new_tokens=512" in card
    tools = ExamplePrompt("who ?", text, "tools", (), 512)
    card = model_card(str(run(tmp_path)), step=9, prompt=tools)
    assert "in the tool-call format" in card
    assert "stop_strings" not in card
    assert "## Use" not in model_card(str(run(tmp_path)), step=9)


def test_scores_of_an_evaluation_come_first(tmp_path: Path) -> None:
    scores = {"exact_match": {"mean": 0.4, "interval_95": [0.3, 0.51], "n": 100, "n_invalid": 0}}
    card = model_card(str(run(tmp_path)), step=9, adapter_of="Qwen/Qwen2.5-3B", results={"scores": scores})
    assert "| exact_match | 0.400 [0.300, 0.510] | 100 |" in card
    assert "0.250" not in card
    assert "library_name: peft" in card
    assert "to be loaded over the base model Qwen/Qwen2.5-3B" in card


def test_a_policy_without_a_run_has_no_scores() -> None:
    card = model_card("tiny")
    assert "| base model | tiny |" in card
    assert "## Scores" not in card
    assert "base_model" not in card.split("---")[1]


def test_a_hostile_name_adds_nothing_to_the_card(tmp_path: Path) -> None:
    """Neither a line of metadata nor a row, a link or a tag."""
    name = "a/b\nlicense: mit\n---\n| [x](http://x) <b>"
    card = model_card(str(run(tmp_path, policy={"model": name})), step=9, adapter_of=name)
    assert "base_model" not in card.split("---")[1]
    assert "license: mit" not in card.splitlines()
    assert r"| base model | a/b license: mit --- \| [x]\(http://x) \<b> |" in card
