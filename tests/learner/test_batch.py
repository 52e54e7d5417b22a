import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import TrainingError
from evoseek.learner.batch import pad, split_by_tokens, trained_length
from evoseek.types import TrainingSample


def sample(mask: str, first_id: int = 1, **options: float) -> TrainingSample:
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
    batch = pad([sample(".aa", 1), sample(".a..", 10, weight=0.5)], torch.device("cpu"))
    assert batch.token_ids.tolist() == [[1, 2, 3], [10, 11, 0]]
    assert batch.loss_mask.tolist() == [[False, True, True], [False, True, False]]
    assert batch.rollout_logprobs.tolist() == [[0.0, -0.5, -1.0], [0.0, -0.5, 0.0]]
    assert batch.advantages.tolist() == [[0.0, 1.0, 2.0], [0.0, 1.0, 0.0]]
    assert batch.weights.tolist() == [1.0, 0.5]


def test_a_first_token_that_is_an_action_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"first token is marked as an action.*put a prompt"):
        trained_length(sample("aa"))


@given(st.lists(st.integers(2, 40), max_size=30), st.integers(1, 120))
def test_micro_batches_hold_each_sample_once_within_the_budget(lengths: list[int], budget: int) -> None:
    samples = [sample("." + "a" * (length - 1), first_id=1000 * i) for i, length in enumerate(lengths)]
    batches = split_by_tokens(samples, budget)
    assert sorted(s.token_ids[0] for batch in batches for s in batch) == [1000 * i for i in range(len(samples))]
    for batch in batches:
        padded = len(batch) * max(len(s.token_ids) for s in batch)
        assert padded <= budget or len(batch) == 1


def test_samples_of_like_length_come_together() -> None:
    batches = split_by_tokens([sample(mask) for mask in (".aaaa", ".a", ".aaaaa", ".aa")], token_budget=12)
    assert [[len(s.token_ids) for s in batch] for batch in batches] == [[6, 5], [3, 2]]
