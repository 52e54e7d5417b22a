import torch

from evoseek.learner.row import Family, find_families, lay_out
from evoseek.types import TrainingSample

PROMPT = tuple(range(1, 21))


def sample(token_ids: tuple[int, ...], first_action: int) -> TrainingSample:
    mask = tuple(position >= first_action for position in range(len(token_ids)))
    zeros = (0.0,) * len(token_ids)
    return TrainingSample(token_ids, mask, zeros, zeros)


def test_a_row_by_hand() -> None:
    """The second and third sample share two tokens; the last is empty."""
    row = lay_out([[7, 8], [1, 2, 3, 4], [1, 2, 5], []], [Family((0,)), Family((1, 2), shared=2)], torch.device("cpu"))
    assert row.token_ids.tolist() == [7, 8, 1, 2, 3, 4, 5]
    assert row.positions.tolist() == [0, 1, 0, 1, 2, 3, 2]
    assert row.index.tolist() == [[0, 1, 0, 0], [2, 3, 4, 5], [2, 3, 6, 0], [0, 0, 0, 0]]
    assert (row.shared, row.added) == ((0, 2), ((2,), (2, 1)))
    assert row.sizes == [2, 2, 2, 1]
    assert row.longest == 4


def test_samples_with_the_same_prompt_are_a_family() -> None:
    samples = [sample((*PROMPT, 30), 20), sample((*PROMPT[:-1], 99, 30), 20), sample((*PROMPT, 40, 41), 20)]
    assert find_families(samples) == [Family((0, 2), shared=20), Family((1,))]


def test_a_prompt_is_what_stands_before_the_first_action() -> None:
    """The second sample's actions begin one token earlier: what it predicts there must not be shared."""
    assert find_families([sample((*PROMPT, 30), 20), sample((*PROMPT, 30), 19)]) == [Family((0,)), Family((1,))]


def test_short_prompts_are_not_shared_and_samples_without_actions_left_out() -> None:
    short, silent = sample((1, 2, 3), 2), sample((1, 2, 3), 3)
    assert find_families([short, silent, short]) == [Family((0,)), Family((2,))]
