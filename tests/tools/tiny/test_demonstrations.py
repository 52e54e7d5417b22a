"""Demonstrations: what they show is true, in the formats that the environments use, flawed only where asked."""

import random
import re

import pytest
from tools.tiny.demonstrations import (
    Demonstration,
    DemonstrationShares,
    Demonstrator,
    observation,
    propose_prompt,
    solve_prompt,
)

from evoseek.rollout.prompts import load_prompts
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage
from evoseek.world.world import World

FLAWLESS = DemonstrationShares(early_stop=0.0, wrong_relation=0.0)


@pytest.fixture(scope="module")
def world() -> World:
    return World.generate(11, 300, "pretrain")


@pytest.fixture(scope="module")
def index(world: World, tmp_path_factory: pytest.TempPathFactory) -> LexicalIndex:
    return LexicalIndex.build(tmp_path_factory.mktemp("index") / "index", world.passages())


def demonstrator(world: World, index: LexicalIndex, mixture: DemonstrationShares, seed: int = 0) -> Demonstrator:
    return Demonstrator(world, lambda query: index.find(query, 3), mixture, random.Random(seed))


def actions(demonstration: Demonstration) -> str:
    return " ".join(piece.text for piece in demonstration if piece.kind == "action")


def tagged(text: str, tag: str) -> list[str]:
    return re.findall(f"<{tag}> (.*?) </{tag}>", text)


def test_a_solver_without_flaws_gives_the_right_answer_by_one_search_a_hop(world: World, index: LexicalIndex) -> None:
    writer = demonstrator(world, index, FLAWLESS)
    for _ in range(40):
        shown = writer.draw("solve")
        verdict = world.oracle(shown[0].text.removeprefix("solve : "))
        assert tagged(actions(shown), "answer") == [verdict.answer]
        assert len(tagged(actions(shown), "search")) == verdict.hops


def test_early_stops_end_after_the_first_hop_with_its_object(world: World, index: LexicalIndex) -> None:
    writer = demonstrator(world, index, DemonstrationShares(early_stop=1.0, wrong_relation=0.0))
    for _ in range(20):
        shown = writer.draw("solve")
        verdict = world.oracle(shown[0].text.removeprefix("solve : "))
        assert tagged(actions(shown), "answer") == [verdict.chain[0].object]
        assert len(tagged(actions(shown), "search")) == 1


def test_proposals_are_valid_and_keep_to_the_hops_asked_for(world: World, index: LexicalIndex) -> None:
    writer = demonstrator(world, index, FLAWLESS)
    for _ in range(40):
        shown = writer.draw("propose")
        hops = int(shown[0].text.split()[1])
        verdict = world.oracle(tagged(actions(shown), "question")[0])
        assert verdict.hops == hops
        assert tagged(actions(shown), "answer") == [verdict.answer]
        assert len(tagged(actions(shown), "search")) == hops - 1


def test_free_proposals_are_valid_and_their_prompts_do_not_say_how_many_hops(world: World, index: LexicalIndex) -> None:
    """Most have one hop: 16 of 25, within four standard errors of 100 draws."""
    writer, hops = demonstrator(world, index, FLAWLESS), []
    sources = {passage.text for passage in world.passages()}
    for _ in range(100):
        shown = writer.draw("propose_freely")
        assert shown[0].text.removeprefix("propose hops : ") in sources
        verdict = world.oracle(tagged(actions(shown), "question")[0])
        assert tagged(actions(shown), "answer") == [verdict.answer]
        assert len(tagged(actions(shown), "search")) == verdict.hops - 1
        hops.append(verdict.hops)
    assert hops.count(1) / 100 == pytest.approx(16 / 25, abs=4 * (16 / 25 * 9 / 25 / 100) ** 0.5)
    assert set(hops) == {1, 2, 3, 4}


@pytest.mark.parametrize(("hops", "prompt"), [(0, "propose hops : One."), (2, "propose 2 hops : One.")])
def test_the_prompt_of_a_proposer_says_how_many_hops_unless_it_chooses(hops: int, prompt: str) -> None:
    assert propose_prompt(hops, "One.") == prompt


def test_only_a_mixture_with_a_share_of_free_proposals_has_them(world: World, index: LexicalIndex) -> None:
    shares = DemonstrationShares().shares
    assert shares == {"solve": 0.34, "propose": 0.2, "trace": 0.28, "read": 0.16, "copy": 0.02, "propose_freely": 0.0}
    alone = DemonstrationShares(solve=0, propose=0, trace=0, read=0, copy=0, propose_freely=0.5)
    for mixture, least, most in ((DemonstrationShares(), 0, 0), (alone, 20, 20)):
        writer = demonstrator(world, index, mixture)
        free = [writer.draw()[0].text.startswith("propose hops : ") for _ in range(20)]
        assert least <= sum(free) <= most


def test_traces_are_valid_and_keep_to_the_searches_asked_for(world: World, index: LexicalIndex) -> None:
    writer = demonstrator(world, index, FLAWLESS)
    for _ in range(40):
        shown = writer.draw("trace")
        found = re.fullmatch(r"propose (\d) searches : answer (.*)", shown[0].text)
        assert found is not None
        verdict = world.oracle(tagged(actions(shown), "question")[0])
        assert (verdict.hops, verdict.answer) == (int(found[1]), found[2])
        assert len(tagged(actions(shown), "search")) == int(found[1])


def test_flawed_proposals_are_often_invalid(world: World, index: LexicalIndex) -> None:
    writer = demonstrator(world, index, DemonstrationShares(flawed_proposal=1.0))
    verdicts = [world.oracle(tagged(actions(writer.draw("propose")), "question")[0]) for _ in range(40)]
    assert verdicts.count(None) > 20


def test_reading_gives_the_answer_if_the_passages_do(world: World, index: LexicalIndex) -> None:
    writer = demonstrator(world, index, FLAWLESS)
    answers = [tagged(actions(writer.draw("read")), "answer")[0] for _ in range(100)]
    assert 0 < answers.count("unknown") < 40


def test_every_token_of_an_observation_comes_from_the_index(world: World, index: LexicalIndex) -> None:
    known = {passage.text for passage in world.passages()}
    writer = demonstrator(world, index, DemonstrationShares())
    for _ in range(20):
        for piece in writer.draw("solve"):
            if piece.kind == "observation":
                assert set(piece.text.split("\n")) <= known


def test_prompts_and_observations_are_those_of_the_tiny_prompt_set() -> None:
    prompts = load_prompts("tiny")
    assert prompts["solver"].text(question="Who?", format="tags") == solve_prompt("Who?")
    passages = [Passage("a#0", "a", "A", "One."), Passage("b#0", "b", "B", "Two.")]
    assert prompts["observation"].text(passages=passages) == observation(passages).text


def test_the_same_seed_writes_the_same(world: World, index: LexicalIndex) -> None:
    first, again, other = (demonstrator(world, index, DemonstrationShares(), seed) for seed in (1, 1, 2))
    drawn = [[writer.draw() for _ in range(10)] for writer in (first, again, other)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
