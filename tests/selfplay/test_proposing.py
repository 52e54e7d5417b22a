"""Writing questions from a corpus, with players that follow a script: what is written, and that nothing comes twice."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tests.doubles.learners import learner_of
from tests.doubles.scripted import ScriptedSampler

from evoseek.assembly.agent import Agent
from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import load_settings
from evoseek.errors import ConfigError, EvoseekError, SamplerError
from evoseek.learner.checkpoint import CheckpointPart, save_checkpoint
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.likelihood import CrossEntropyLoss
from evoseek.models.load import Policy, load_policy, save_policy
from evoseek.questions.questions import load_questions
from evoseek.search.lexical import LexicalIndex
from evoseek.selfplay.proposing import Writing, propose
from evoseek.storage.checkpoints import Checkpoint, latest_checkpoint
from evoseek.storage.jsonl import ResumableJsonl, open_growing_file
from evoseek.text.normalization import usable_question
from evoseek.training.plan import TrainingContext
from evoseek.types import Passage, SampleRequest
from evoseek.world.world import World

ENDINGS = [f"{a}{b}" for a in "lmnrst" for b in "aeio"]  # the capital of Du... is Ka...
PASSAGES = [Passage(f"{end}#0", end, f"Du{end}", f"Du{end}'s capital is Ka{end}.") for end in ENDINGS]
Script = Callable[[SampleRequest, str], str]


@pytest.fixture(scope="module")
def agent() -> Agent:
    return Agent.of(load_settings(), load_policy("tiny"))


@pytest.fixture
def config(tmp_path: Path) -> TrainingSettings:
    LexicalIndex.build(tmp_path / "index", PASSAGES)
    return load_settings(system="ssp", options={"search.index": str(tmp_path / "index"), **SMALL})


SMALL = {
    "selfplay.proposals_per_step": 4,
    "proposer.ratio": [1],
    "proposer.attempts": 4,
    "verification.noise_passages": 2,
}


def asked(text: str) -> str:
    """The ending of the first name in a text."""
    found = re.search(r"(?:ka|du)([lmnrst][aeio])", text)
    assert found is not None, text
    return found[1]


def good(request: SampleRequest, context: str) -> str:
    """A backward proposal as it should be; a reader who can read; a solver who is right three times in four."""
    end = asked(context)  # of the answer that was given, or of the land that is asked about
    if "/proposals/" in request.trajectory_id:
        question = f"<question> what is du{end} 's capital ? </question> <answer> ka{end} </answer>"
        return question if request.turn else f"<search> ka{end} </search>"
    return "<answer> nowhere </answer>" if request.trajectory_id.endswith("/3") else f"<answer> ka{end} </answer>"


def scripted(agent: Agent, script: Script) -> Agent:
    tokenizer = agent.policy.tokenizer
    sampler = ScriptedSampler(lambda request: script(request, agent.decode(request.token_ids)), tokenizer)
    return replace(agent, sampler=sampler)  # pyright: ignore[reportArgumentType]


@contextmanager
def opened(
    config: TrainingSettings, agent: Agent, script: Script, out: Path
) -> Iterator[tuple[Writing, ResumableJsonl]]:
    with TrainingContext(config) as context, open_growing_file(out, config.resolved()) as file:
        context.agent = scripted(replace(agent, settings=config), script)
        yield Writing.of(context), file


def write(
    config: TrainingSettings,
    agent: Agent,
    out: Path,
    count: int,
    *,
    most: int = 1000,
    script: Script = good,
    batches: int = 99,
) -> int:
    """Write questions; after so many batches Ctrl-C."""
    left = iter(range(batches))
    with opened(config, agent, script, out) as (writing, file):
        return asyncio.run(
            writing.fill(file, count, most, should_stop=lambda: next(left, None) is None, progress=lambda *_: None)
        )


def test_a_line_says_all_there_is_to_know_about_a_question(config, agent, tmp_path) -> None:
    assert write(config, agent, tmp_path / "q.jsonl", 3) == 3
    for line in (tmp_path / "q.jsonl").read_text().splitlines():
        row = json.loads(line)
        end = row["golden_answers"][0].removeprefix("Ka")
        assert row["golden_answers"] == [f"Ka{end}"]
        assert row["question"] == f"what is du{end} 's capital ?"
        assert row["metadata"] == {
            "requested": 1,
            "searches": 1,
            "pass_rate": 0.75,
            "attempts": 4,
            "evidence": [{"id": f"{end}#0", "title": f"Du{end}", "text": f"Du{end}'s capital is Ka{end}."}],
        }
    assert len(load_questions(tmp_path / "q.jsonl", check=usable_question)) == 3


def test_stopped_and_gone_on_with_it_is_the_same_file_and_so_is_one_of_which_more_was_asked_later(
    config, agent, tmp_path
) -> None:
    assert write(config, agent, tmp_path / "whole.jsonl", 14) == 14
    for batches in (0, 1, 1, 99):
        write(config, agent, tmp_path / "stopped.jsonl", 14, batches=batches)
    for count in (1, 2, 7, 14):
        assert write(config, agent, tmp_path / "more.jsonl", count) == count
    assert write(config, agent, tmp_path / "more.jsonl", 5) == 14
    whole = (tmp_path / "whole.jsonl").read_bytes()
    assert whole == (tmp_path / "stopped.jsonl").read_bytes() == (tmp_path / "more.jsonl").read_bytes()


def test_no_question_comes_twice_though_every_answer_does(config, agent, tmp_path) -> None:
    """There are 24 answers, so no more than 24 questions, however long one goes on and whoever does."""
    out = tmp_path / "q.jsonl"
    assert write(config, agent, out, 100, most=32) == 24
    assert write(config, agent, out, 100, most=64) == 24
    texts = [question.text for question in load_questions(out)]
    assert len(set(texts)) == len(texts) == 24
    with open_growing_file(out, config.resolved()) as file:
        assert file.reached["counts"] == {"valid": 24, "duplicate": 40}


def test_near_duplicates_are_told_across_the_whole_file(config, agent, tmp_path) -> None:
    """Of words in the same order but for one, the likeness is above a half."""

    def chatty(request: SampleRequest, context: str) -> str:
        return good(request, context).replace("<question>", "<question> tell me please , if you happen to know it ,")

    near = load_settings(
        system="ssp", options={"search.index": config.search.index, **SMALL, "filters.near_duplicates": 0.5}
    )
    assert write(near, agent, tmp_path / "q.jsonl", 9, most=20, script=chatty) == 1


def test_what_a_reader_does_not_confirm_is_not_written(config, agent, tmp_path) -> None:
    def contradicted(request: SampleRequest, context: str) -> str:
        return "<answer> elsewhere </answer>" if "/reading-" in request.trajectory_id else good(request, context)

    assert write(config, agent, tmp_path / "a.jsonl", 4, most=8, script=contradicted) == 0
    with open_growing_file(tmp_path / "a.jsonl", config.resolved()) as file:
        assert file.reached["counts"] == {"unverified": 8}
    unchecked = load_settings(
        system="ssp", options={"search.index": config.search.index, **SMALL, "verification.readings": 0}
    )
    assert write(unchecked, agent, tmp_path / "b.jsonl", 4, script=contradicted) == 4


def test_a_solver_that_fails_is_no_attempt_and_a_proposal_that_fails_no_question(config, agent, tmp_path) -> None:
    def failing(request: SampleRequest, context: str) -> str:
        last = request.trajectory_id.rsplit("/", 1)[-1]
        if last.startswith(("3", "000001-0001")):
            raise SamplerError("no memory left")
        return good(request, context)

    options = {"search.index": config.search.index, **SMALL, "proposer.attempts": 14}  # one fails three times, of 16
    config = load_settings(system="ssp", options=options)
    assert write(config, agent, tmp_path / "q.jsonl", 3, most=4, script=failing) == 3
    questions = load_questions(tmp_path / "q.jsonl")
    assert {(q.metadata["pass_rate"], q.metadata["attempts"]) for q in questions} == {(1.0, 13)}
    with open_growing_file(tmp_path / "q.jsonl", config.resolved()) as file:
        assert file.reached["counts"] == {"valid": 3, "failed/sampler_failed": 1}


def test_when_most_proposals_fail_it_ends_with_the_cause_and_the_batch_is_made_again(config, agent, tmp_path) -> None:
    def down(request: SampleRequest, context: str) -> str:
        if "/proposals/000002-" in request.trajectory_id:
            raise SamplerError("the card fell off the bus")
        return good(request, context)

    out = tmp_path / "q.jsonl"
    with pytest.raises(EvoseekError, match=r"4 of 4 proposals were invalid.* the card fell off the bus"):
        write(config, agent, out, 8, script=down)
    assert len(load_questions(out)) == 4
    assert write(config, agent, out, 8) == 8
    write(config, agent, tmp_path / "whole.jsonl", 8)
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_from_passages_forwards_the_source_is_evidence_and_whole(config, agent, tmp_path, monkeypatch) -> None:
    def forwards(request: SampleRequest, context: str) -> str:
        return good(replace(request, turn=request.turn + 1), context)

    monkeypatch.setattr("evoseek.selfplay.game.SOURCE_TOKENS", 3)
    passages = load_settings(system="dr-zero", options={"search.index": config.search.index, **SMALL})
    assert write(passages, agent, tmp_path / "q.jsonl", 24, script=forwards) == 24
    found = [passage for q in load_questions(tmp_path / "q.jsonl") for passage in q.metadata["evidence"]]
    assert {(p["id"], p["title"], p["text"]) for p in found} == {(p.id, p.title, p.text) for p in PASSAGES}


def test_a_system_without_a_proposer_is_refused(config, tmp_path) -> None:
    other = load_settings(system="dspo", options={"search.index": config.search.index})
    with pytest.raises(ConfigError, match="dspo has no proposer"):
        propose(other, None, tmp_path / "q.jsonl", count=1, max_proposals=None, console=Console(quiet=True))
    assert not (tmp_path / "q.jsonl").exists()


def checkpoint_of(directory: Path, **parts: Policy) -> Checkpoint:
    def part(policy: Policy) -> CheckpointPart:
        learner = learner_of(LogprobModel(policy.model), loss=CrossEntropyLoss(), learning_rate=0.0)
        return CheckpointPart(partial(save_policy, policy), learner)

    save_checkpoint(directory, step=3, parts={name: part(policy) for name, policy in parts.items()}, position={})
    found = latest_checkpoint(directory)
    assert found is not None
    return found


@pytest.mark.parametrize("silent", ["proposer", "policy"])
def test_of_a_run_of_dr_zero_its_proposer_proposes_and_its_solver_solves(config, tmp_path, silent) -> None:
    """One of them writes nothing but padding: a proposer then comes to no question, a solver to no answer."""
    players = {"proposer": load_policy("tiny"), "policy": load_policy("tiny")}
    for parameter in players[silent].model.parameters():
        parameter.data.zero_()
    checkpoint = checkpoint_of(tmp_path / "run", **players)
    world = World.generate(3, 200, "train")
    LexicalIndex.build(tmp_path / "world", world.passages())
    settings = load_settings(system="dr-zero", options={"search.index": str(tmp_path / "world"), **SMALL})
    console, out = Console(record=True, quiet=False, file=StringIO()), tmp_path / "q.jsonl"
    if silent == "proposer":
        with pytest.raises(EvoseekError, match="No question"):
            propose(settings, checkpoint, out, count=2, max_proposals=4, console=console)
    else:
        assert propose(settings, checkpoint, out, count=2, max_proposals=8, console=console)
        assert {question.metadata["pass_rate"] for question in load_questions(out)} == {0.0}
        moved = replace(checkpoint, step=4)
        with pytest.raises(ConfigError, match=r"checkpoint\.step was 3, now 4"):
            propose(settings, moved, out, count=4, max_proposals=8, console=console)


def test_too_few_questions_are_said_with_what_became_of_the_proposals(config, agent, tmp_path, monkeypatch) -> None:
    player = scripted(replace(agent, settings=config), good)
    monkeypatch.setattr(Agent, "of", lambda *_, **__: player)
    console, out = Console(record=True, file=StringIO(), width=150), tmp_path / "q.jsonl"
    assert propose(config, None, out, count=30, max_proposals=48, console=console)
    text = console.export_text()
    assert f"Only 24 of 30 questions are in {out}" in text
    assert "(48 were made)" in text
    assert "another question, or one of the test set, is the same" in text
