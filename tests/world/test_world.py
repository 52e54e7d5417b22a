"""The generated world: splits, facts, questions and the oracle, against brute force where that is possible."""

import re

import pytest

from evoseek.errors import DataError
from evoseek.world.grammar import chain_text
from evoseek.world.world import RELATIONS, SPLITS, TYPES, World, split_of


@pytest.fixture(scope="module")
def world() -> World:
    return World.generate(7, 400, "train")


def facts_in_text(world: World) -> set[tuple[str, str, str]]:
    """All facts read from the documents' text alone (plain style)."""
    found: set[tuple[str, str, str]] = set()
    for document in world.documents():
        for subject, relation, name in re.findall(r"([^.]+?)'s (\w+) is ([^.]+)\.", document.text):
            found.add((subject.strip(), relation, name))
    return found


def test_the_same_seed_gives_the_same_world_and_another_seed_another() -> None:
    first, again, other = (World.generate(seed, 200, "train") for seed in (1, 1, 2))
    assert list(first.documents()) == list(again.documents())
    assert list(first.documents()) != list(other.documents())
    assert first.questions(40, seed=3) == again.questions(40, seed=3)


def test_it_has_at_least_six_types_and_twelve_relations() -> None:
    assert len(TYPES) >= 6
    assert len(RELATIONS) >= 12


def test_no_word_of_a_name_occurs_in_another_split() -> None:
    words = {
        split: {word.casefold() for name in World.generate(3, 2000, split).names for word in name.split()}
        for split in SPLITS
    }
    for split in SPLITS:
        assert {split_of(word) for word in words[split]} == {split}
    assert not words["train"] & words["evaluation"]
    assert not words["pretrain"] & words["evaluation"]


def test_names_are_shared_between_people_and_between_films_and_books(world: World) -> None:
    people = [world.names[number].split() for number in world.by_type["person"]]
    assert len({first for first, _ in people}) < len(people) / 2
    assert {world.names[b] for b in world.by_type["book"]} & {world.names[f] for f in world.by_type["film"]}


def test_every_chain_question_can_be_answered_by_following_the_documents(world: World) -> None:
    told = {(subject, relation): name for subject, relation, name in facts_in_text(world)}
    for question in world.questions(200, seed=1):
        chain = question.metadata["chain"]
        assert isinstance(chain, list)
        for subject, relation, name in chain:
            assert told[subject, relation] == name or relation == "year"
        assert chain[-1][2] == question.golden_answers[0]
        assert len(chain) == question.metadata["hops"]


def test_hops_come_in_equal_shares(world: World) -> None:
    hops = [question.metadata["hops"] for question in world.questions(80, seed=1)]
    assert {n: hops.count(n) for n in (1, 2, 3, 4)} == {1: 20, 2: 20, 3: 20, 4: 20}


def test_the_oracle_agrees_with_brute_force_over_the_documents(world: World) -> None:
    told = facts_in_text(world)
    for entity in range(0, len(world), 7):
        name = world.names[entity]
        for relation in RELATIONS:
            objects = {o for s, r, o in told if s == name and r == relation}
            verdict = world.oracle(chain_text(name, [relation]))
            holders = [n for n in range(len(world)) if world.names[n] == name and relation in TYPES[world.types[n]][1]]
            assert (verdict is not None) == (len(objects) >= 1 and len(holders) == 1), verdict
            if verdict is not None:
                assert {verdict.answer} == objects


def test_the_oracle_judges_every_phrasing_alike(world: World) -> None:
    for question in world.questions(40, seed=2):
        chain = question.metadata["chain"]
        assert isinstance(chain, list)
        relations = [relation for _, relation, _ in chain]
        answers = {world.oracle(chain_text(chain[0][0], relations, phrasing)).answer for phrasing in range(3)}
        assert answers == set(question.golden_answers)


def test_a_chain_that_returns_has_fewer_true_hops(world: World) -> None:
    person = next(iter(world.objects["spouse"]))
    name = world.names[person]
    assert world.oracle(chain_text(name, ["spouse", "spouse"])).hops == 0
    assert world.oracle(chain_text(name, ["spouse", "spouse", "birthplace"])).hops == 1
    assert world.oracle(chain_text(name, ["birthplace", "mayor"])).hops == 2


def test_a_number_counts_as_a_hop_after_a_loop_is_cut() -> None:
    world = World.generate(5, 200, "train")
    film = world.by_type["film"][0]
    world.names[film] = "Only"
    assert world.oracle("What is Only's year?").hops == 1


@pytest.mark.parametrize(
    "text",
    [
        "Who wrote it?",
        "What is Nobodyatall's spouse?",
        "What is {film}'s year's mayor?",
        "What is {person}'s capital?",
        "What is {person}'s birthplace's spouse?",
    ],
)
def test_questions_without_an_answer(world: World, text: str) -> None:
    books = {world.names[book] for book in world.by_type["book"]}
    film = next(world.names[f] for f in world.by_type["film"] if world.names[f] not in books)
    assert world.oracle(text.format(film=film, person=world.names[world.by_type["person"][0]])) is None


def test_a_shared_name_is_ambiguous_only_for_a_relation_that_both_have(world: World) -> None:
    films = {world.names[film]: film for film in world.by_type["film"]}
    name = next(world.names[book] for book in world.by_type["book"] if world.names[book] in films)
    assert world.oracle(f"What is {name}'s year?") is None
    assert world.oracle(f"What is {name}'s director?") is not None


@pytest.mark.parametrize("size", [0, 199, 1_000_001])
def test_sizes_out_of_range_are_refused(size: int) -> None:
    with pytest.raises(DataError, match="200 to 1,000,000"):
        World.generate(1, size, "train")


def test_too_many_questions_are_refused(world: World) -> None:
    with pytest.raises(DataError, match="Ask for fewer"):
        world.questions(100_000, seed=1, hops=(1,))


def test_a_split_that_is_not_there_is_refused():
    with pytest.raises(DataError, match=r"no split 'dev'.* pretrain, train, evaluation"):
        World.generate(0, 200, "dev")  # pyright: ignore[reportArgumentType]
