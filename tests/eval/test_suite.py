"""Suites: the catalogue, shapes of rows, and what is refused."""

import json
from dataclasses import replace

import pytest

from evoseek.errors import ConfigError, DataError
from evoseek.eval.suite import load_suite, questions_digest
from evoseek.types import Question

ROWS = [
    {"id": "test_0", "question": "who?", "golden_answers": ["Meri", "The"], "metadata": {"type": "x"}},
    {"id": "test_1", "question": "where?", "golden_answers": ["Kalo"]},
]
SEARCH_R1 = [
    {
        "id": "test_0",
        "data_source": "nq",
        "question": "who?",
        "golden_answers": ["Meri"],
        "prompt": [{"role": "user", "content": "Answer. Question: who?\n"}],
        "reward_model": {"style": "rule", "ground_truth": {"target": ["Meri"]}},
        "extra_info": {"index": 0, "split": "test"},
    },
    {
        "data_source": "popqa",
        "prompt": [{"role": "user", "content": "Answer. Question: where?\n"}],
        "reward_model": {"style": "rule", "ground_truth": {"target": ["Kalo", "Kalo City"]}},
        "extra_info": {"index": 0, "split": "test"},
    },
]


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def bamboogle(folder, n=125):
    rows = [{"id": f"test_{n}", "question": f"who is {n}?", "golden_answers": [f"m{n}"]} for n in range(n)]
    return lines(folder / "bamboogle" / "test.jsonl", rows)


def test_a_suite_of_the_catalogue_from_a_copy(tmp_path):
    bamboogle(tmp_path)
    suite = load_suite("bamboogle", tmp_path)
    assert (len(suite.questions), suite.declared.metric, suite.questions[3].id) == (125, "exact_match", "test_3")
    about = suite.about()
    assert {key: about[key] for key in ("name", "metric", "split", "n", "licence")} == {
        "name": "bamboogle",
        "metric": "exact_match",
        "split": "test",
        "n": 125,
        "licence": "MIT",
    }
    assert about["sha256"] == questions_digest(suite.questions)


def test_questions_of_other_ids_texts_or_golden_answers_or_in_another_order_have_another_digest():
    one, other = Question("a", "who?", ("Meri",)), Question("b", "where?", ("Kalo",))
    digest = questions_digest([one, other])
    assert digest == questions_digest([replace(one, metadata={"hops": 1}), other])
    changes = ({"id": "c"}, {"text": "whom?"}, {"golden_answers": ("Tolu",)})
    changed = [[replace(one, **change), other] for change in changes]
    assert len({digest, *map(questions_digest, [*changed, [other, one], [one]])}) == 6


def test_trap_another_number_of_questions_is_not_the_suite(tmp_path):
    bamboogle(tmp_path, 124)
    with pytest.raises(DataError, match="declares 125 questions, but 124 were read"):
        load_suite("bamboogle", tmp_path)


def test_a_file_and_a_folder_of_a_users_own(tmp_path):
    path = lines(tmp_path / "world" / "questions.jsonl", ROWS)
    for name in (path, path.parent):
        suite = load_suite(str(name))
        assert ([question.id for question in suite.questions], suite.folder) == (["test_0", "test_1"], path.parent)


def test_search_r1s_rows_are_told_apart_by_their_source(tmp_path):
    """As JSON lines and as Parquet; the prompt and the reward model stand in for missing keys."""
    datasets = pytest.importorskip("datasets")
    path = lines(tmp_path / "rows.jsonl", SEARCH_R1)
    datasets.Dataset.from_list(SEARCH_R1).to_parquet(str(tmp_path / "dir" / "test.parquet"))
    for name in (path, tmp_path / "dir"):
        first, second = load_suite(str(name)).questions
        assert (first.id, first.text, first.golden_answers, first.metadata["source"]) == (
            "nq/test_0", "who?", ("Meri",), "nq",
        )  # fmt: skip
        assert (second.id, second.text, second.golden_answers) == ("popqa/0", "where?", ("Kalo", "Kalo City"))


def test_a_data_set_of_the_hub_by_its_loading_script_or_folder(tmp_path, monkeypatch):
    """A folder stands in for the hub: `load_dataset` takes both, with a configuration and a split."""
    pytest.importorskip("datasets")
    from evoseek.eval.suite import questions_of, rows_of_hub

    lines(tmp_path / "set" / "nq" / "test.jsonl", ROWS)
    (tmp_path / "set" / "README.md").write_text(
        "---\nconfigs:\n- config_name: nq\n  data_files:\n  - split: test\n    path: nq/test.jsonl\n---\n"
    )
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    questions = questions_of(rows_of_hub(str(tmp_path / "set"), "nq", "test"))
    assert [question.text for question in questions] == ["who?", "where?"]
    with pytest.raises(DataError, match="cannot be loaded from the Hugging Face hub"):
        rows_of_hub(str(tmp_path / "none"), "nq", "test")


def test_refusals(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean hotpotqa"):
        load_suite("hotpotq")
    with pytest.raises(DataError, match="holds no questions of nq"):
        load_suite("nq", tmp_path)
    with pytest.raises(ConfigError, match="with --data"):
        load_suite("browsecomp-plus")
    twice = lines(tmp_path / "twice.jsonl", [ROWS[0], ROWS[0]])
    with pytest.raises(DataError, match=r"share an id \('test_0'\)"):
        load_suite(str(twice))
    bad = lines(tmp_path / "bad.jsonl", [ROWS[0], {"id": "x", "question": "who?"}])
    row = {"data_source": "nq", "question": "who?", "golden_answers": ["I"], "extra_info": [1]}
    with pytest.raises(DataError, match="Row 1 is not a question"):
        load_suite(str(lines(tmp_path / "list.jsonl", [row])))
    with pytest.raises(DataError, match="Row 2 is not a question: The question has no golden answer"):
        load_suite(str(bad))
