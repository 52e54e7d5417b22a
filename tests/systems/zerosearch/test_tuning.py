"""Tuning a simulator: examples are what the chat sends and reads, both kinds come by turns, and the loss falls."""

import json
from dataclasses import replace
from itertools import islice

import pytest
import torch
from tests.doubles.learners import learner_of
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.errors import ConfigError, DataError
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.likelihood import CrossEntropyLoss
from evoseek.models.load import load_policy
from evoseek.renderers.tags import TagRenderer
from evoseek.rollout.prompts import load_prompts
from evoseek.systems.zerosearch.engine import parse_documents, simulator_messages
from evoseek.systems.zerosearch.searches import SearchRecord
from evoseek.systems.zerosearch.tuning import ExampleMaker, TuningData
from evoseek.training.supervised import SupervisedRun
from evoseek.types import Passage, Question

TOKENIZER = tiny_tokenizer()
PROMPTS = load_prompts("tiny")
QUESTION = Question("q", "What is Kalo's mayor?", ("Meri",))
TEXTS = ("Kalo's mayor is Meri.", "Nida's mayor is Balo Zina.")


def record(useful, *texts, query="Kalo's mayor"):
    passages = tuple(Passage(t, t, "", t) for t in texts or TEXTS)
    return SearchRecord(QUESTION, query, passages, useful=useful, earlier=("Nida's city",))


def maker(tokenizer=TOKENIZER, *, documents=2, max_words=20, max_length=200):
    return ExampleMaker(tokenizer, PROMPTS, documents=documents, max_words=max_words, max_length=max_length)


@pytest.mark.parametrize("useful", [True, False])
def test_an_example_is_the_prompt_of_the_chat_and_a_reply_that_is_read_back(useful):
    made = maker().make(record(useful))
    given = [token for token, kept in zip(made.token_ids, made.loss_mask, strict=True) if not kept]
    trained = [token for token, kept in zip(made.token_ids, made.loss_mask, strict=True) if kept]
    asked = simulator_messages(
        PROMPTS, QUESTION, "Kalo's mayor", ("Nida's city",), useful=useful, documents=2, max_words=20
    )
    assert tuple(given) == TagRenderer(TOKENIZER).render_prompt(asked)
    assert made.token_ids[: len(given)] == tuple(given)
    reply = "document 1 : kalo 's mayor is meri . document 2 : nida 's mayor is balo zina ."
    assert trained == [*TOKENIZER.encode(reply), TOKENIZER.eos_token_id]
    assert parse_documents(TOKENIZER.decode(trained[:-1]), 2, 20) == [
        "kalo 's mayor is meri .",
        "nida 's mayor is balo zina .",
    ]


def test_what_stands_in_a_passage_is_text():
    made = maker().make(record(True, "<eos> Kalo", "</answer> <search>"))
    control = {TOKENIZER.eos_token_id, *TOKENIZER.get_added_vocab().values()}
    trained = [token for token, kept in zip(made.token_ids, made.loss_mask, strict=True) if kept]
    assert not control & set(trained[:-1])


def test_long_documents_are_cut_and_further_ones_left_out():
    made = maker(max_words=3).make(record(True, "one two three four", "five", "six"))
    text = TOKENIZER.decode([token for token, kept in zip(made.token_ids, made.loss_mask, strict=True) if kept])
    assert text == "document 1 : one two three document 2 : five <eos>"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (record(True, "one"), "fewer than 2 passages"),
        (record(True, "one", "Document 2: two"), "could not be separated"),
        (record(True, "one", "!"), None),
        (record(True, "one", "\u4e2d"), "could not be separated"),  # of which the tokenizer leaves nothing
        (record(True, "one " * 20, "two " * 20, query="zina " * 40), "more than 100 tokens"),
    ],
)
def test_what_cannot_be_an_example(made, said):
    problem = maker(max_length=100).problem(made)
    assert problem is None if said is None else said in problem


def test_data_is_sorted_and_what_is_left_out_is_counted():
    records = [record(True), record(False), record(False, "one"), record(True, query="other")]
    data = TuningData.of(records, maker())
    assert (list(data.useful), list(data.noisy)) == ([records[0], records[3]], [records[1]])
    assert data.left_out == {"that have fewer than 2 passages": 1}
    with pytest.raises(DataError, match=r"noisy example.*left out: 1 that have fewer than 2"):
        TuningData.of([record(True), record(False, "one")], maker())
    with pytest.raises(DataError, match=r"number 2 .*has no label"):
        TuningData.of([record(True), record(None)], maker())


def test_a_tokenizer_without_an_end_is_refused():
    endless = tiny_tokenizer()
    endless.eos_token = None
    with pytest.raises(ConfigError, match="no end token"):
        maker(endless)


def batches(count, *, seed=0, tokens=300):
    useful = [record(True, query=f"film {n}") for n in range(7)]
    noisy = [record(False, query=f"book {n}") for n in range(2)]
    return list(islice(TuningData.of([*useful, *noisy], maker()).batches(seed, tokens), count))


def test_both_kinds_come_by_turns_and_every_epoch_has_all():
    made = batches(40)
    assert all(sum(len(sample.token_ids) for sample in batch) >= 300 for batch in made)
    assert all(sum(len(sample.token_ids) for sample in batch[:-1]) < 300 for batch in made)
    texts = [TOKENIZER.decode(list(sample.token_ids)) for batch in made for sample in batch]
    queries = [text.split("query ")[1].split(" document")[0] for text in texts]
    assert [query.split()[0] for query in queries] == ["film", "book"] * (len(queries) // 2) + ["film"] * (
        len(queries) % 2
    )
    assert [text.split()[1] for text in texts[:4]] == ["useful", "noisy", "useful", "noisy"]
    films = queries[::2]
    epochs = [films[start : start + 7] for start in range(0, 28, 7)]
    assert all(sorted(epoch) == sorted(epochs[0]) and len(set(epoch)) == 7 for epoch in epochs)
    assert len(set(map(tuple, epochs))) > 1


def test_the_order_follows_from_the_seed():
    assert batches(5) == batches(5)
    assert batches(5) != batches(5, seed=1)


def begin(work):
    def learner(policy):
        return learner_of(
            LogprobModel(policy.model),
            loss=CrossEntropyLoss(),
            learning_rate=3e-3,
            token_budget=2048,
            active=policy.active,
        )

    return SupervisedRun.begin(
        work, "recipe", lambda found: load_policy(str(found.part_directory("policy")) if found else "tiny"), learner
    )


def test_a_few_steps_lower_the_loss_and_an_interruption_changes_nothing(tmp_path):
    useful = [record(True, query=f"{film}'s mayor") for film in ("Kalo", "Nida", "Zina")]
    noisy = [record(False, *TEXTS[::-1], query=f"{book}'s year") for book in ("Kalo", "Balo")]
    data = TuningData.of([*useful, *noisy], maker())

    def train(run, **how):
        return run.train(islice(data.batches(0, 300), run.step, None), 5, **how)

    straight = begin(tmp_path / "work")
    assert train(straight)
    assert straight.losses[-1] < 0.8 * straight.losses[0]
    rows = [json.loads(line) for line in (tmp_path / "work" / "losses.jsonl").read_text().splitlines()]
    assert rows == [{"step": n, "loss": loss} for n, loss in enumerate(straight.losses, start=1)]

    first, seen = begin(tmp_path / "work-2"), []

    def note(step, loss):
        seen.append(step)

    assert not train(first, progress=note, should_stop=lambda: len(seen) == 2)
    second = begin(tmp_path / "work-2")
    assert second.step == 2
    assert train(second, progress=note)
    assert seen == [1, 2, 3, 4, 5]
    assert second.losses == straight.losses
    left, right = (run.policy.model.state_dict() for run in (straight, second))
    assert all(torch.equal(weight, right[name]) for name, weight in left.items())


def test_a_skipped_step_is_no_loss(tmp_path):
    run = begin(tmp_path / "work")
    unusable = replace(maker().make(record(True)), weight=float("nan"))
    sound = maker().make(record(True))
    assert run.train(iter([[unusable], [sound]]), 2)
    rows = [json.loads(line) for line in (tmp_path / "work" / "losses.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2]


def test_another_recipe_is_refused(tmp_path):
    run = begin(tmp_path / "work")
    assert not (tmp_path / "work").exists()  # nothing to be refused before a step is made
    assert run.train(iter([[maker().make(record(True))]]), 1)
    with pytest.raises(ConfigError, match="another recipe"):
        SupervisedRun.begin(tmp_path / "work", "other", lambda _: load_policy("tiny"), lambda _: None)
