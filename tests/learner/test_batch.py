from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import TrainingError
from evoseek.learner.batch import loss_inputs, make_batch, split_by_tokens, trained_length
from evoseek.types import TrainingSample

CPU = torch.device("cpu")


def sample(mask: str, first_id: int = 1, **options: object) -> TrainingSample:
    """A sample from a mask such as `..aa.a`: ids count up from `first_id`, logprobs and advantages differ by token."""
    on = [letter == "a" for letter in mask]
    return TrainingSample(
        token_ids=tuple(range(first_id, first_id + len(mask))),
        loss_mask=tuple(on),
        rollout_logprobs=tuple(-0.5 * t if action else 0.0 for t, action in enumerate(on)),
        advantages=tuple(float(t) if action else 0.0 for t, action in enumerate(on)),
        **options,
    )


def test_what_follows_the_last_action_is_cut() -> None:
    assert [trained_length(sample(mask)) for mask in ("..aa.a", "..aa...", "....", ".a")] == [6, 4, 0, 2]


def test_a_micro_batch_by_hand() -> None:
    batch = make_batch([sample(".aa", 1), sample(".a..", 10, weight=0.5)], CPU)
    assert batch.token_ids.tolist() == [[1, 2, 3], [10, 11, 0]]
    assert batch.loss_mask.tolist() == [[False, True, True], [False, True, False]]
    assert batch.rollout_logprobs.tolist() == [[0.0, -0.5, -1.0], [0.0, -0.5, 0.0]]
    assert batch.advantages.tolist() == [[0.0, 1.0, 2.0], [0.0, 1.0, 0.0]]
    assert batch.weights.tolist() == [1.0, 0.5]
    assert batch.row.token_ids.tolist() == [1, 2, 3, 10, 11]


def test_what_a_sample_lacks_falls_back() -> None:
    """Values and returns to 0; reference logprobs are there for all or for none."""
    bare = sample(".aa")
    full = sample(".a", values=(0.0, 0.25), returns=(0.0, 0.75), ref_logprobs=(0.0, -8.0))
    batch = make_batch([bare, full], CPU)
    assert batch.values.tolist() == [[0.0, 0.0, 0.0], [0.0, 0.25, 0.0]]
    assert batch.returns.tolist() == [[0.0, 0.0, 0.0], [0.0, 0.75, 0.0]]
    assert batch.ref_logprobs is None
    assert make_batch([full, full], CPU).ref_logprobs.tolist() == [[0.0, -8.0]] * 2


@pytest.mark.parametrize(("old", "expected"), [((0.0, -6.0, -7.0), [0.0, -6.0, -7.0]), (None, [0.0, -3.0, -4.0])])
def test_what_a_loss_is_given_of_a_batch(old: tuple[float, ...] | None, expected: list[float]) -> None:
    """The ratio of samples without old logprobs is taken to those that are computed now."""
    batch = make_batch([sample(".aa", old_logprobs=old, ref_logprobs=(0.0, -8.0, -9.0))] * 2, CPU)
    now, entropies = torch.tensor([[0.0, -3.0, -4.0]] * 2, requires_grad=True), torch.ones(2, 3)
    inputs = loss_inputs(batch, now, entropies)
    assert inputs.old_logprobs.tolist() == [expected] * 2
    assert not inputs.old_logprobs.requires_grad
    assert inputs.logprobs is now
    assert inputs.entropies is entropies
    for name in ("rollout_logprobs", "advantages", "loss_mask", "weights", "ref_logprobs"):
        assert getattr(inputs, name) is getattr(batch, name)


def test_a_batch_of_samples_with_and_without_old_logprobs_is_refused() -> None:
    with pytest.raises(ValueError, match="argument"):
        make_batch([sample(".aa"), sample(".aa", old_logprobs=(0.0, -6.0, -7.0))], CPU)


def test_a_first_token_that_is_an_action_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"is an action, but.*Put a prompt"):
        trained_length(sample("aa"))


def in_a_tree(triples: list[tuple[int, int, bool]]) -> list[TrainingSample]:
    """Prompt and completion of these lengths: with ids that count up from 1, or from a number of the sample's own."""
    return [
        sample("." * prompt + "a" * completion, first_id=1 if shared else 100 * i)
        for i, (prompt, completion, shared) in enumerate(triples, start=1)
    ]


lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40), st.booleans()), max_size=30)
words = st.lists(st.lists(st.integers(1, 2), min_size=2, max_size=60), max_size=20)


def row_tokens(samples: list[TrainingSample]) -> int:
    return len(make_batch(samples, CPU).row.token_ids)


def of_words(words: list[list[int]]) -> list[TrainingSample]:
    return [replace(sample("." + "a" * (len(ids) - 1)), token_ids=tuple(ids)) for ids in words]


@given(lengths.map(in_a_tree) | words.map(of_words), st.integers(1, 200))
def test_micro_batches_hold_each_sample_once_within_the_budget_of_true_tokens(
    samples: list[TrainingSample], budget: int
) -> None:
    batches = split_by_tokens(samples, budget)
    assert sorted(map(id, samples)) == sorted(id(s) for batch in batches for s in batch)
    for batch in batches:
        assert row_tokens(batch) <= budget or len(batch) == 1
    assert batches == split_by_tokens(list(samples), budget)


def test_samples_of_like_length_come_together() -> None:
    samples = [sample(mask, 10 * n) for n, mask in enumerate((".aaaa", ".a", ".aaaaa", ".aa"))]
    batches = split_by_tokens(samples, token_budget=11)
    assert [[len(s.token_ids) for s in batch] for batch in batches] == [[6, 5], [3, 2]]


def branch(mask: str, *starts: tuple[int, int]) -> TrainingSample:
    """A sample whose ids count up from `first` from each position on."""
    ids = list(range(len(mask)))
    for position, first in starts:
        ids[position:] = range(first, first + len(mask) - position)
    return replace(sample(mask), token_ids=tuple(ids))


def test_samples_of_one_prompt_are_not_divided_where_a_list_of_their_own_holds_them() -> None:
    """35 tokens, then 20 that two share with 10 more each: of 66 tokens the first would leave room for one of them."""
    alone, first = sample("." * 30 + "a" * 5), sample("." * 20 + "a" * 10, 100)
    second = replace(first, token_ids=first.token_ids[:20] + tuple(range(500, 510)))
    assert split_by_tokens([alone, first, second], 66) == [[alone], [first, second]]


def test_samples_that_share_a_prompt_stay_together_and_pay_for_it_once() -> None:
    prompt = "." * 20
    family = [branch(prompt + "a" * size, (20, 100 * size)) for size in (3, 2, 1)]  # 20 + 6 tokens together
    other = sample("." * 21 + "a", first_id=1000)  # 22 tokens, longer than two of the family
    assert split_by_tokens([other, *family], token_budget=26) == [family, [other]]
    assert split_by_tokens([other, *family], token_budget=48) == [[*family, other]]
    assert split_by_tokens(family, token_budget=25) == [family[:2], family[2:]]  # 20 + 5, 20 + 1


def test_a_common_action_and_what_follows_it_count_once_and_the_sample_keeps_its_numbers() -> None:
    """Two of three rollouts of a prompt of 20 agree on the 16 tokens of action and observation after it: 20 + 16 + 2
    + 2 tokens, and 18 for the third, which by its place in the tree comes last."""
    mask = "." * 20 + "a" * 10 + "." * 6 + "aa"
    one, apart, two = branch(mask), branch(mask, (20, 500)), branch(mask, (36, 600))
    two = replace(two, advantages=tuple(-a for a in two.advantages))
    assert split_by_tokens([one, apart, two], token_budget=58) == [[one, two, apart]]
    assert split_by_tokens([one, apart, two], token_budget=57) == [[one, two], [apart]]
    batch = make_batch([one, two, apart], CPU)
    assert (batch.row.spans, batch.row.pieces) == ((38, 2, 18), (20, 16, 2, 2, 18))
    assert batch.advantages[0, 20:].tolist() == (-batch.advantages[1, 20:]).tolist()


def test_equal_samples_cost_the_tokens_of_one() -> None:
    equal = [sample("." * 20 + "aa") for _ in range(8)]
    assert split_by_tokens(equal, token_budget=22) == [equal]
    assert row_tokens(equal) == 22


def test_samples_that_cannot_be_packed_come_first_and_count_in_full() -> None:
    """Longer than 22 tokens: two, of 23 and 24 tokens, although they share 22."""
    samples = [sample("." * 20 + "a" * size) for size in (2, 3, 1, 4)]
    assert split_by_tokens(samples, 47, limit=22) == [[samples[3], samples[1]], [samples[0], samples[2]]]
    assert split_by_tokens(samples, 46, limit=22) == [[samples[3]], [samples[1]], [samples[0], samples[2]]]
    assert split_by_tokens(samples, 47, limit=0) == [[samples[3], samples[1]], [samples[0], samples[2]]]
