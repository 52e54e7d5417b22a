import random
import time
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import ConfigError
from evoseek.text import duplicates
from evoseek.text.duplicates import NearDuplicates, TextSet, shingles, signature, similarity
from evoseek.text.normalization import normalise

names = ["who", "is", "mayor", "of", "kalo", "meri", "tolu", "city", "lake", "bank"]
words = st.lists(st.sampled_from(names), min_size=1, max_size=40)
sentences = words.map(" ".join)


def jaccard(one: str, other: str) -> float:
    a, b = shingles(one), shingles(other)
    return len(a & b) / len(a | b)


def test_shingles_are_three_words_in_a_row_or_all_of_a_shorter_text() -> None:
    assert shingles("Who is the mayor of Kalo?") == {"who is mayor", "is mayor of", "mayor of kalo"}
    assert shingles("Kalo city") == {"kalo city"}
    assert shingles("?!") == {""}


def test_a_signature_is_the_least_hash_of_the_shingles_at_every_place_whatever_the_process() -> None:
    """Python's own hash() of a text differs from process to process."""

    def hashes(shingle: bytes, salt: int) -> list[int]:
        digest = blake2b(shingle, salt=salt.to_bytes(16, "little")).digest()
        return [int.from_bytes(digest[start : start + 4], "little") for start in range(0, 64, 4)]

    assert list(signature("Kalo")) == [value for salt in range(8) for value in hashes(b"kalo", salt)]
    both = zip(signature("who is mayor"), signature("is mayor of"), strict=True)
    assert list(signature("Who is the mayor of?")) == [min(pair) for pair in both]


@given(sentences, sentences)
def test_the_estimate_is_near_the_exact_similarity(one: str, other: str) -> None:
    """The standard error is at most 0.044; five of them are exceeded less than once in a million."""
    assert similarity(signature(one), signature(other)) == pytest.approx(jaccard(one, other), abs=0.22)


def test_over_many_pairs_the_estimate_is_unbiased_with_the_error_of_128_draws() -> None:
    rng = random.Random("pairs")
    errors = []
    for _ in range(300):
        text = [f"w{rng.randrange(1000)}" for _ in range(20)]
        other = [word if rng.random() < 0.95 else f"w{rng.randrange(1000)}" for word in text]
        exact = jaccard(" ".join(text), " ".join(other))
        errors.append(similarity(signature(" ".join(text)), signature(" ".join(other))) - exact)
    assert sum(errors) / len(errors) == pytest.approx(0.0, abs=0.01)
    assert 0.02 < (sum(error**2 for error in errors) / len(errors)) ** 0.5 < 0.05


LONG = "what is the employer of the mayor of the city that lies by the long blue lake of Kalo ?"


def test_threshold_1_means_the_same_words_in_the_same_order_and_nothing_else() -> None:
    seen = NearDuplicates(1.0)
    assert seen.is_new("who is the mayor of Kalo ?")
    assert not seen.is_new("Who is mayor of KALO")
    assert seen.is_new("who is the mayor of Kalo now ?")
    assert seen.is_new("Kalo of mayor the is who ?")
    assert (
        seen.is_new("a b c d b c d e") is seen.is_new("b c d b c d e b") is True
    )  # other words, nearly equal shingles


@given(st.lists(sentences, max_size=20))
def test_with_threshold_1_what_is_new_is_what_is_not_equal(texts: list[str]) -> None:
    seen = NearDuplicates(1.0)
    expected = [normalise(text) not in map(normalise, texts[:index]) for index, text in enumerate(texts)]
    assert [seen.is_new(text) for text in texts] == expected


def test_below_1_what_is_like_an_earlier_text_is_a_duplicate() -> None:
    close, far = LONG.replace("Kalo", "Tolu"), LONG.replace("city", "town").replace("lake", "river")
    assert jaccard(LONG, close) == pytest.approx(12 / 14)
    assert jaccard(LONG, far) < 0.4
    seen = NearDuplicates(0.7)
    assert [seen.is_new(text) for text in (LONG, close, far, "who is it ?")] == [True, False, True, True]


def test_a_duplicate_is_not_remembered() -> None:
    """Else a chain of small changes would forbid what is far from everything accepted."""
    words = LONG.split()
    chain = [" ".join(words[: len(words) - cut]) for cut in range(len(words) - 3)]
    seen = NearDuplicates(0.6)
    accepted = [text for text in chain if seen.is_new(text)]
    assert 2 < len(accepted) < len(chain) / 2


def test_equal_texts_are_duplicates_at_every_threshold() -> None:
    for threshold in (0.01, 0.3, 0.5, 0.8, 0.99, 1.0):
        seen = NearDuplicates(threshold)
        assert [seen.is_new(text) for text in ("Kalo", "kalo!", "", "?")] == [True, False, True, False]


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 0.9])
def test_banding_misses_almost_none_of_those_that_comparing_all_pairs_finds(threshold: float) -> None:
    rng = random.Random(f"bands/{threshold}")
    vocabulary = [f"w{number}" for number in range(5000)]
    base = [rng.choices(vocabulary, k=15) for _ in range(60)]
    copies = [[word if rng.random() < 0.97 else "x" for word in rng.choice(base)] for _ in range(240)]
    seen, kept, expected, found = NearDuplicates(threshold), [], 0, 0
    for text in (" ".join(words) for words in [*base, *copies]):
        own = signature(text)
        is_like = any(similarity(own, other) >= threshold for other in kept)
        is_new = seen.is_new(text)
        assert is_like or is_new  # nothing is rejected that no comparison would reject
        expected, found = expected + is_like, found + (not is_new)
        if is_new:
            kept.append(own)
    assert expected > 50
    assert found >= 0.97 * expected


def test_many_questions_are_compared_with_few() -> None:
    """Five thousand in half a second; all pairs would be twelve million comparisons, which take minutes."""
    rng = random.Random("many")
    seen = NearDuplicates(0.8)
    started = time.process_time()
    for _ in range(5_000):
        relations = " ".join(rng.choices(["mayor", "spouse", "employer", "founder", "mother"], k=rng.randrange(1, 5)))
        seen.is_new(f"what is k{rng.randrange(1000)} 's {relations} ?")
    assert time.process_time() - started < 10.0


@pytest.mark.parametrize("threshold", [0.0, -0.5, 1.01, float("nan")])
def test_other_thresholds_are_refused(threshold: float) -> None:
    with pytest.raises(ConfigError, match=r"above 0 and at most 1"):
        NearDuplicates(threshold)


@pytest.mark.parametrize("threshold", [1.0, 0.5])
def test_a_text_that_is_not_to_be_remembered_is_only_asked_about(threshold: float) -> None:
    seen = NearDuplicates(threshold)
    text = "who is the mayor of the city of Kalo ?"
    assert [seen.is_new(text, remember=False) for _ in range(2)] == [True, True]
    assert [seen.is_new(text) for _ in range(2)] == [True, False]
    assert not seen.is_new(text, remember=False)


def test_what_is_remembered_is_found_also_where_it_is_like_an_earlier_text() -> None:
    """The last text is like the middle one (0.62), which is like the first, which the last is not like (0.36)."""
    first, middle, last = (" ".join(f"w{n}" for n in range(start, start + 40)) for start in (0, 9, 18))
    seen = NearDuplicates(0.5)
    assert [seen.is_new(text) for text in (first, middle)] == [True, False]
    assert seen.is_new(last, remember=False)
    seen.remember(middle)
    assert not seen.is_new(last)


@given(st.lists(st.text(st.characters(), max_size=3)))
def test_it_is_a_set(texts: list[str]) -> None:
    """Lone surrogates are texts, too."""
    ours, theirs = TextSet(), set[str]()
    for text in texts:
        assert ours.add(text) == (text not in theirs)
        theirs.add(text)
    assert len(ours) == len(theirs)


def test_digests_are_compared_at_their_own_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 0000 0101 and 0101 0000 the digest 0101 0101 of eight bytes is found between them, and is still new."""
    half, other = b"\0" * 4, b"\1" * 4
    digests = {"a": half + other, "b": other + half, "c": other + other, "d": half + half}

    def digest(text: bytes, digest_size: int):
        found = blake2b(text, digest_size=digest_size)
        return type("Known", (), {"digest": lambda self: b"xx" + digests[text.decode()], "of": found})()

    monkeypatch.setattr(duplicates, "blake2b", digest)
    texts = TextSet()
    assert [texts.add(text) for text in "abcdabcd"] == [True] * 4 + [False] * 4
