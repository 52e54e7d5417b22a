"""The generated world: an encyclopaedia about people, cities, films, ... that nobody has read before.

A world is a seeded random graph. Every entity has a type and every type its relations, each with exactly one object.
It yields documents (one for each entity), questions of one to four hops with their gold chains, and an oracle that
judges any question text in the world's grammar (`evoseek.world.grammar`).

Names consist of words, words of syllables. The hash of a word assigns it to one of three splits, and a world uses only
words of its split: no name of an evaluation world can occur in a training world. As in real encyclopaedias, names are
shared on purpose: people share first and family names, and a book may have the name of a film.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from evoseek.errors import ConfigError, DataError, first_problem
from evoseek.questions.questions import save_questions
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.files import write_atomic
from evoseek.types import Document, Passage, Question
from evoseek.world.grammar import WORDS, chain_text, fact_text, parse

Split = Literal["pretrain", "train", "evaluation"]

SPLITS: tuple[Split, ...] = get_args(Split)
SYLLABLES = tuple(consonant + vowel for consonant, vowel in product("bdfghjklmnprstvz", "aeiou"))
MIN_ENTITIES, MAX_ENTITIES = 200, 1_000_000
MAX_MISSES = 3000  # consecutive draws without a new question before a world counts as used up

# Share of all entities, then relation -> type of the object. "number" objects are written out as digits.
TYPES: dict[str, tuple[float, dict[str, str]]] = {
    "person": (0.34, {"birthplace": "city", "spouse": "person", "employer": "company"}),
    "city": (0.16, {"mayor": "person", "country": "country"}),
    "country": (0.06, {"capital": "city", "president": "person"}),
    "film": (0.14, {"director": "person", "star": "person", "year": "number"}),
    "book": (0.12, {"author": "person", "publisher": "company", "year": "number"}),
    "company": (0.12, {"founder": "person", "headquarters": "city"}),
    "river": (0.06, {"mouth": "city", "source": "country"}),
}
RELATIONS = tuple(dict.fromkeys(relation for _, relations in TYPES.values() for relation in relations))
ENTITY_RELATIONS = tuple(relation for relation in RELATIONS if relation != "year")
SHARED_NAME_SHARE = 0.1  # of books: named like a film


@dataclass(frozen=True, slots=True)
class Fact:
    """`subject`'s `relation` is `object` (names)."""

    subject: str
    relation: str
    object: str


@dataclass(frozen=True, slots=True)
class Truth:
    """The truth about an answerable question: the right answer, the number of facts that it really depends on, and the
    chain of facts that the question names."""

    answer: str
    hops: int
    chain: tuple[Fact, ...] = ()


Oracle = Callable[[str], Truth | None]
"""Returns the truth about a question text; None if it has no answer, or more than one."""


def split_of(word: str) -> Split:
    """Return the split that a name's word belongs to, by its hash alone."""
    return SPLITS[blake2b(word.encode(), digest_size=4).digest()[0] % len(SPLITS)]


@dataclass(eq=False)
class World:
    """A generated world. Entities are numbered; `names`, `types` and `objects[relation]` are indexed by number."""

    seed: int
    split: Split
    names: list[str]
    types: list[str]
    objects: dict[str, dict[int, int]]
    by_type: dict[str, list[int]] = field(repr=False, default_factory=dict[str, list[int]])

    @classmethod
    def generate(cls, seed: int, entities: int, split: Split) -> World:
        """Make the world of this seed. Raises DataError for a size outside 200 to 1,000,000, or an unknown split."""
        if split not in get_args(Split):
            raise DataError(f"There is no split {split!r} of a world. Choose one of {', '.join(get_args(Split))}.")
        if not MIN_ENTITIES <= entities <= MAX_ENTITIES:
            raise DataError(
                f"A world of {entities} entities was asked for; sizes from {MIN_ENTITIES:,} to {MAX_ENTITIES:,} can be "
                "made. Choose a size in that range."
            )
        rng = random.Random(f"world/{seed}/{entities}/{split}")
        types = [kind for kind, (share, _) in TYPES.items() for _ in range(max(4, round(share * entities)))][:entities]
        types += ["person"] * (entities - len(types))
        by_type: dict[str, list[int]] = {kind: [] for kind in TYPES}
        for number, kind in enumerate(types):
            by_type[kind].append(number)
        names = _names(types, by_type, split, rng)
        return cls(seed, split, names, types, _link(by_type, rng), by_type)

    def __len__(self) -> int:
        return len(self.names)

    # -- texts ------------------------------------------------------------------------------------------------------

    def object_name(self, relation: str, subject: int) -> str | None:
        """Return the name of the object (digits for a number); None if this entity has no such relation."""
        found = self.objects[relation].get(subject)
        if found is None:
            return None
        return str(found) if relation == "year" else self.names[found]

    def facts(self, entity: int) -> list[Fact]:
        """Return all facts with this subject, in the order of its document."""
        relations = list(TYPES[self.types[entity]][1])
        random.Random(f"order/{self.seed}/{entity}").shuffle(relations)
        found = ((relation, self.object_name(relation, entity)) for relation in relations)
        return [Fact(self.names[entity], relation, name) for relation, name in found if name is not None]

    def document(self, entity: int) -> Document:
        sentences = (fact_text(fact.subject, fact.relation, fact.object) for fact in self.facts(entity))
        metadata = {"type": self.types[entity], "entity": entity}
        return Document(f"e{entity}", self.names[entity], " ".join(sentences), metadata)

    def documents(self) -> Iterator[Document]:
        return (self.document(entity) for entity in range(len(self)))

    def passages(self) -> Iterator[Passage]:
        """Yield all articles as passages, one each: they are short."""
        for document in self.documents():
            yield Passage(f"{document.id}#0", document.id, document.title, document.text, 0, len(document.text))

    # -- questions --------------------------------------------------------------------------------------------------

    def questions(
        self, count: int, *, seed: int, hops: Sequence[int] = (1, 2, 3, 4), phrasing: int = 0
    ) -> list[Question]:
        """Draw `count` different questions, with equal shares of the hop counts in `hops`.

        metadata: `hops`, `kind` (always "chain"), `chain` (list of [subject, relation, object]). Raises DataError if
        the world is too small.
        """
        rng = random.Random(f"questions/{self.seed}/{seed}/chain/{phrasing}")
        made: dict[str, Question] = {}
        misses = 0
        while len(made) < count:
            misses += 1
            if misses > MAX_MISSES:
                raise DataError(
                    f"Only {len(made)} different questions were found in a world of {len(self)} entities, but "
                    f"{count} were asked for. Ask for fewer or generate a larger world."
                )
            wanted = hops[len(made) % len(hops)]
            start, relations = self.draw_chain(rng, wanted)
            drawn = chain_text(self.names[start], relations, phrasing)
            truth = self.oracle(drawn)
            if drawn in made or truth is None or truth.hops != wanted:
                continue
            chain = [[fact.subject, fact.relation, fact.object] for fact in truth.chain]
            metadata = {"hops": truth.hops, "kind": "chain", "chain": chain}
            misses = 0
            made[drawn] = Question(f"{self.split}-{self.seed}-{len(made)}", drawn, (truth.answer,), metadata)
        return list(made.values())

    def draw_chain(self, rng: random.Random, hops: int) -> tuple[int, list[str]]:
        """Draw a random walk of `hops` relations that reaches a number only in its last step."""
        while True:
            start = entity = rng.randrange(len(self))
            relations: list[str] = []
            for step in range(hops):
                usable = [r for r in TYPES[self.types[entity]][1] if r != "year" or step == hops - 1]
                relation = rng.choice(usable)
                found = self.objects[relation].get(entity)
                if found is None:
                    break
                relations.append(relation)
                entity = found
            if len(relations) == hops:
                return start, relations

    # -- oracle -----------------------------------------------------------------------------------------------------

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, name in enumerate(self.names):
            found.setdefault(name.casefold(), []).append(number)
        return found

    def oracle(self, text: str) -> Truth | None:
        """Return the truth about a question text in this world's grammar; None if invalid, or without a single answer.

        Letter case and spaces around punctuation do not matter. Hops of a chain are counted after cutting loops (a
        person's spouse's spouse is that person). Ambiguous names make a question unanswerable.
        """
        parsed = parse(text)
        candidates = self._having(parsed.name, parsed.relations[0]) if parsed else []
        if parsed is None or len(candidates) != 1:
            return None
        entity, chain, visited = candidates[0], list[Fact](), [candidates[0]]
        for step, relation in enumerate(parsed.relations):
            name = self.object_name(relation, entity) if relation in self.objects else None
            if name is None:
                return None
            chain.append(Fact(self.names[entity], relation, name))
            if relation == "year":  # a number has no relations
                return Truth(name, len(visited), tuple(chain)) if step == len(parsed.relations) - 1 else None
            entity = self.objects[relation][entity]
            if entity in visited:
                del visited[visited.index(entity) + 1 :]
            else:
                visited.append(entity)
        return Truth(self.names[entity], len(visited) - 1, tuple(chain))

    def _having(self, name: str, relation: str) -> list[int]:
        holders = self.objects.get(relation, {})
        return [number for number in self._by_name.get(name, []) if number in holders]


def _words(split: Split, syllables: int, rng: random.Random) -> Iterator[str]:
    """Yield different words of a split in random order; longer ones when the shorter ones are used up."""
    while True:
        seen: set[str] = set()
        for _ in range(2 * len(SYLLABLES) ** syllables):
            word = "".join(rng.choice(SYLLABLES) for _ in range(syllables))
            if word not in seen and word not in WORDS and split_of(word) == split:
                seen.add(word)
                yield word.capitalize()
                if len(seen) > len(SYLLABLES) ** syllables // 5:  # most of this split's third: take longer words
                    break
        syllables += 1


def _names(types: Sequence[str], by_type: dict[str, list[int]], split: Split, rng: random.Random) -> list[str]:
    """Name entities: people by two words from small shared pools, all else by one own word; some books like films."""
    words = _words(split, 3, rng)
    pool_size = max(12, round((3 * len(by_type["person"])) ** 0.5))
    short = _words(split, 2, rng)
    first = [next(short) for _ in range(pool_size)]
    family = [next(short) for _ in range(pool_size)]
    taken: set[str] = set()
    names: list[str] = []
    for kind in types:
        if kind == "person":
            name = f"{rng.choice(first)} {rng.choice(family)}"
            while name in taken:
                name = f"{rng.choice(first)} {rng.choice(family)}"
            taken.add(name)
        else:
            name = next(words)
        names.append(name)
    for book in by_type["book"]:
        if rng.random() < SHARED_NAME_SHARE:
            names[book] = names[rng.choice(by_type["film"])]
    return names


def _link(by_type: dict[str, list[int]], rng: random.Random) -> dict[str, dict[int, int]]:
    """Draw the objects of every relation. Marriages are mutual; nobody is their own object."""
    objects: dict[str, dict[int, int]] = {relation: {} for relation in RELATIONS}
    for kind, (_, relations) in TYPES.items():
        for relation, target in relations.items():
            if relation == "spouse":
                people = by_type["person"].copy()
                rng.shuffle(people)
                for one, other in zip(people[::2], people[1::2], strict=False):
                    objects["spouse"][one], objects["spouse"][other] = other, one
            elif target == "number":
                for subject in by_type[kind]:
                    objects[relation][subject] = rng.randint(1900, 2020)
            else:
                pool = by_type[target]
                for subject in by_type[kind]:
                    objects[relation][subject] = rng.choice(pool)
    return objects


class _Card(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    seed: int
    entities: int
    split: Split
    style: Literal["plain"]


def save_world_card(path: Path, world: World) -> None:
    """Write the data with which `load_world` makes this world again. Raises RunError if writing fails."""
    card = _Card(seed=world.seed, entities=len(world), split=world.split, style="plain")
    write_atomic(path, card.model_dump_json(indent=1) + "\n")


def load_world(path: Path) -> World:
    """Generate the world of a card. Raises DataError if the file is not the card of a world."""
    try:
        card = _Card.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{path} is not the card of a generated world: {first_problem(error)}. Expected a world.json such as "
            '{"seed": 0, "entities": 1000, "split": "train", "style": "plain"}, as it lies beside the index of a '
            "generated world. Leave the world out if the corpus is a real one."
        ) from error
    return World.generate(card.seed, card.entities, card.split)


def make_world(
    directory: Path | str,
    split: Split = "train",
    seed: int = 0,
    questions: int = 40,
    hops: Sequence[int] = (1, 2),
    *,
    entities: int = 1000,
) -> None:
    """Generate a world's index, card and questions, unless they are there. The same seed gives the same files.
    `rephrased.jsonl` has as many questions in another phrasing, at most 500."""
    directory = Path(directory)
    if (directory / "questions.jsonl").exists():
        if (made := load_world(directory / "world.json").seed) != seed:
            raise ConfigError(
                f"{directory} holds the world of seed {made}, but the seed is {seed}. Give the same seed, or another "
                "--run-dir."
            )
        return
    world = World.generate(seed, entities, split)
    LexicalIndex.build(directory / "index", world.passages())
    save_world_card(directory / "world.json", world)
    save_questions(directory / "rephrased.jsonl", world.questions(min(questions, 500), seed=seed, phrasing=1))
    save_questions(directory / "questions.jsonl", world.questions(questions, seed=seed, hops=hops))
