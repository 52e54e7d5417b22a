"""`evoseek doctor --probe`: rollouts of a scripted policy, with an engine that works and with one that fails."""

from typing import ClassVar

import pytest
from tests.doubles.scripted import ScriptedSampler
from tests.search.failing import FailingEngine

from evoseek.assembly.sources import load_settings
from evoseek.cli.doctor.checks import DoctorContext
from evoseek.cli.doctor.probe import probe
from evoseek.errors import SamplerError
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage


class Scripted:
    """The sampler: searches once, then answers."""

    asked: ClassVar[list[str]] = []

    @classmethod
    def build(cls, settings, context):
        def turn(request):
            cls.asked.append(request.trajectory_id)
            return "<answer> meri </answer>" if request.turn else "<search> mayor of kalo </search>"

        return ScriptedSampler(turn, context.policy.tokenizer)


class Idle:
    """A sampler that neither searches nor answers."""

    @classmethod
    def build(cls, settings, context):
        return ScriptedSampler(lambda request: "hm", context.policy.tokenizer)


class Broken:
    """A sampler that cannot be used."""

    @classmethod
    def build(cls, settings, context):
        raise SamplerError("The server is not there. Start it.")


class Engine:
    """Finds the same passage always."""

    is_local = True

    @classmethod
    def build(cls, settings, context):
        return cls()

    async def search(self, queries, k):
        return [[Passage("a#0", "a", "kalo", "the mayor of kalo is meri .")] for _ in queries]


class Down:
    """An engine of which every call fails."""

    @classmethod
    def build(cls, settings, context):
        return FailingEngine(Engine(), 1.0)


@pytest.fixture
def probed(tmp_path, monkeypatch):
    """`probed(sampler, engine, {settings})`: the diagnosis."""
    monkeypatch.chdir(tmp_path)
    Scripted.asked.clear()

    def examined(sampler=Scripted, engine=Engine, **options):
        parts = {"sampler.name": f"{__name__}:{sampler.__name__}", "search.name": f"{__name__}:{engine.__name__}"}
        settings = load_settings(options={**parts, "policy.model": "tiny", **options})
        (diagnosis,) = probe(DoctorContext(settings))
        assert list(tmp_path.iterdir()) == []  # nothing is written
        return diagnosis

    return examined


def test_four_rollouts_are_scaled_to_a_step_and_to_the_run(probed):
    diagnosis = probed(**{"questions.per_step": 5, "rollout.group_size": 2, "run.steps": 60})
    assert diagnosis.state == "ok"
    assert sorted(Scripted.asked) == sorted([f"probe-{number}" for number in range(4)] * 2)  # two turns each
    assert diagnosis.words.startswith("4 of 4 rollouts used the tool, 4 gave an answer, in ")
    assert "10 in a step and 40% more to train" in diagnosis.words


def test_an_engine_that_fails_is_a_fault_and_not_a_fast_rollout(probed):
    diagnosis = probed(engine=Down, **{"search.attempts": 1})
    assert diagnosis.state == "fault"
    assert diagnosis.words.startswith("4 of 4 rollouts failed: ")
    assert "the search engine is down" in diagnosis.words
    assert "in training such a rollout is Invalid" in diagnosis.remedy


def test_a_sampler_that_cannot_be_built_is_a_fault_with_its_remedy(probed):
    diagnosis = probed(Broken)
    assert (diagnosis.state, diagnosis.words, diagnosis.remedy) == ("fault", "The server is not there.", "Start it.")


def test_a_model_that_never_uses_the_tool_is_not_fine(probed):
    diagnosis = probed(Idle)
    assert diagnosis.state == "warning"
    assert diagnosis.words.startswith("0 of 4 rollouts used the tool, 0 gave an answer")
    assert "evoseek sft" in diagnosis.remedy


def test_a_model_whose_questions_are_searched_first_needs_no_search_of_its_own(probed):
    diagnosis = probed(Idle, **{"environment.name": "search_first", "rollout.max_tool_calls": 0})
    assert diagnosis.state == "ok"
    assert diagnosis.words.startswith("4 of 4 rollouts used the tool, 4 gave an answer")


def test_a_model_that_writes_no_valid_proposal_is_not_fine(tmp_path):
    index = LexicalIndex.build(tmp_path / "index", [Passage("a#0", "a", "kalo", "the mayor of kalo is meri .")])
    options = {"sampler.name": f"{__name__}:Idle", "search.index": str(index.directory), "policy.model": "tiny"}
    _, diagnosis = probe(DoctorContext(load_settings(system="dr-zero", options=options)))
    assert (diagnosis.about, diagnosis.state) == ("proposals", "warning")
    assert diagnosis.words == "0 of 4 proposals became a question; rejected: unfinished (4)."
